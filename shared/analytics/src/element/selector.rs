//! CSS selectors over the elements of an event: tags, `.class`, `#id`, attributes, `:nth-child(n)`, `:nth-of-type(n)`,
//! descendants, children with `>`, alternatives with commas.
//!
//! Must stay true: a selector matches an element anywhere in the chain, not only the innermost one; unsupported
//! syntax is an error.

use super::Element;

/// Maximum compounds in one selector; each is tested on every element.
const MAX_COMPOUNDS: usize = 64;

/// A selector: alternatives, each a path of compounds from the outermost to the innermost element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Vec<Compound>>);

/// The conditions on one element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Compound {
    /// None for any.
    tag: Option<String>,
    classes: Vec<String>,
    attributes: Vec<(String, AttributeCondition)>,
    /// The element has to be a child of the previous one, not only a descendant.
    is_child: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AttributeCondition {
    Present,
    Equals(String),
    Contains(String),
    StartsWith(String),
    EndsWith(String),
    HasWord(String),
}

impl Selector {
    /// Parses a selector; none if its syntax is invalid or unsupported.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parser = SelectorParser(text.trim());
        let (mut paths, mut path) = (Vec::new(), Vec::new());
        let mut is_child = false;
        loop {
            let compound = Compound { is_child, ..parser.compound()? };
            path.push(compound);
            if path.len() + paths.len() > MAX_COMPOUNDS {
                return None;
            }
            let spaced = parser.skip_spaces();
            is_child = false;
            match parser.peek() {
                None => {
                    paths.push(path);
                    return Some(Self(paths));
                }
                Some(',') => {
                    parser.next();
                    parser.skip_spaces();
                    paths.push(std::mem::take(&mut path));
                }
                Some('>') => {
                    parser.next();
                    parser.skip_spaces();
                    is_child = true;
                }
                Some(_) if spaced => {}
                Some(_) => return None,
            }
        }
    }

    /// Whether an element of the chain matches. The chain is ordered from the innermost element outwards.
    pub(super) fn matches(&self, elements: &[Element]) -> bool {
        self.0.iter().any(|path| {
            // The elements that the path so far matches; none before the first compound, which may match any.
            let mut reached: Option<Vec<bool>> = None;
            for compound in path {
                let mut outside = false;
                let mut next = vec![false; elements.len()];
                for at in (0..elements.len()).rev() {
                    let from = match &reached {
                        None => true,
                        Some(reached) if compound.is_child => reached.get(at + 1) == Some(&true),
                        Some(_) => outside,
                    };
                    next[at] = from && compound.matches(&elements[at]);
                    outside |= reached.as_ref().is_some_and(|reached| reached[at]);
                }
                reached = Some(next);
            }
            reached.is_some_and(|reached| reached.contains(&true))
        })
    }
}

impl Compound {
    fn matches(&self, element: &Element) -> bool {
        self.tag.as_ref().is_none_or(|tag| *tag == element.tag)
            && self.classes.iter().all(|class| element.classes.contains(class))
            && self.attributes.iter().all(|(name, condition)| match name.as_str() {
                "class" => condition.holds(Some(&element.classes.join(" "))),
                name => condition.holds(element.attribute(name)),
            })
    }
}

impl AttributeCondition {
    fn holds(&self, value: Option<&str>) -> bool {
        value.is_some_and(|value| match self {
            Self::Present => true,
            Self::Equals(other) => value == other,
            Self::Contains(part) => value.contains(part.as_str()),
            Self::StartsWith(part) => value.starts_with(part.as_str()),
            Self::EndsWith(part) => value.ends_with(part.as_str()),
            Self::HasWord(word) => value.split_whitespace().any(|other| other == word),
        })
    }
}

/// Parses a selector from left to right.
struct SelectorParser<'a>(&'a str);

impl<'a> SelectorParser<'a> {
    fn peek(&self) -> Option<char> {
        self.0.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.0 = &self.0[letter.len_utf8()..];
        Some(letter)
    }

    fn skip_spaces(&mut self) -> bool {
        let rest = self.0.trim_start();
        let skipped = rest.len() < self.0.len();
        self.0 = rest;
        skipped
    }

    fn compound(&mut self) -> Option<Compound> {
        let mut compound = Compound::default();
        let start = self.0.len();
        if self.peek() == Some('*') {
            self.next();
        } else if self.peek().is_some_and(is_name_char) {
            compound.tag = Some(self.name()?);
        }
        loop {
            match self.peek() {
                Some('.') => {
                    self.next();
                    compound.classes.push(self.name()?);
                }
                Some('#') => {
                    self.next();
                    compound.attributes.push(("id".to_owned(), AttributeCondition::Equals(self.name()?)));
                }
                Some('[') => {
                    self.next();
                    compound.attributes.push(self.attribute()?);
                }
                Some(':') => {
                    self.next();
                    compound.attributes.push(self.position()?);
                }
                _ => return (self.0.len() < start).then_some(compound),
            }
        }
    }

    /// Parses a name; a backslash escapes the next character.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        while let Some(letter) = self.peek() {
            match letter {
                '\\' => {
                    self.next();
                    name.push(self.next()?);
                }
                letter if is_name_char(letter) => name.extend(self.next()),
                _ => break,
            }
        }
        (!name.is_empty()).then_some(name)
    }

    /// Parses `name]` or `name=value]`, with an optional operator sign before the equals sign.
    fn attribute(&mut self) -> Option<(String, AttributeCondition)> {
        self.skip_spaces();
        let name = self.name()?;
        self.skip_spaces();
        let condition: fn(String) -> AttributeCondition = match self.next()? {
            ']' => return Some((name, AttributeCondition::Present)),
            '=' => AttributeCondition::Equals,
            sign => {
                let condition = match sign {
                    '*' => AttributeCondition::Contains,
                    '^' => AttributeCondition::StartsWith,
                    '$' => AttributeCondition::EndsWith,
                    '~' => AttributeCondition::HasWord,
                    _ => return None,
                };
                (self.next()? == '=').then_some(condition)?
            }
        };
        self.skip_spaces();
        let value = match self.peek()? {
            quote @ ('"' | '\'') => {
                self.next();
                self.until(quote)?
            }
            _ => {
                let (value, rest) = self.0.split_once(']')?;
                self.0 = rest;
                return Some((name, condition(value.trim().to_owned())));
            }
        };
        self.skip_spaces();
        (self.next()? == ']').then(|| (name, condition(value)))
    }

    fn until(&mut self, end: char) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.next()? {
                '\\' => text.push(self.next()?),
                letter if letter == end => return Some(text),
                letter => text.push(letter),
            }
        }
    }

    /// Parses `nth-child(3)` or `nth-of-type(3)`, after the colon.
    fn position(&mut self) -> Option<(String, AttributeCondition)> {
        let name = self.name()?;
        if !matches!(name.as_str(), "nth-child" | "nth-of-type") {
            return None;
        }
        let (number, rest) = self.0.strip_prefix('(')?.split_once(')')?;
        self.0 = rest;
        let number: u32 = number.trim().parse().ok()?;
        Some((name, AttributeCondition::Equals(number.to_string())))
    }
}

fn is_name_char(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '-' | '_')
}
