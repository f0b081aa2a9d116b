//! The regular expressions of analytics: RE2's dialect, made by the regex crate.
//!
//! Must stay true: a pattern means what RE2 reads in it, and one that RE2 refuses is none here; building and searching
//! take bounded memory and linear time. So `\d`, `\w`, `\s` and `\b` know ASCII only, a `{` that begins no repetition
//! is itself, and in brackets only ranges, classes and negation have a meaning. Flags have another dialect of their own.

use std::fmt::Write;

use regex::RegexBuilder;

use crate::error::CalcResult;
use crate::filter::CompileBudget;
use crate::limits;
use crate::regex_bounds::BoundedRegex;

/// Makes a pattern ready; none when it is not one. `attr` is the field to blame for one that is too much.
pub(crate) fn compile(
    text: &str,
    budget: &mut CompileBudget,
    attr: &str,
) -> CalcResult<Option<BoundedRegex>> {
    if text.len() > limits::REGEX_BYTES {
        return Err(limits::too_long(attr, "regular expression", limits::REGEX_BYTES));
    }
    budget.regexes = budget
        .regexes
        .checked_sub(1)
        .ok_or_else(|| limits::too_many(attr, "regular expressions", limits::REGEXES))?;
    let Some(translated) = translate(text) else { return Ok(None) };
    match RegexBuilder::new(&translated).size_limit(limits::REGEX_COMPILED_BYTES).build() {
        Ok(regex) => Ok(Some(BoundedRegex::new(regex, limits::REGEX_COMPILED_BYTES))),
        Err(regex::Error::CompiledTooBig(_)) => {
            Err(limits::too_long(attr, "compiled regular expression", limits::REGEX_COMPILED_BYTES))
        }
        Err(_) => Ok(None),
    }
}

/// Repetitions that RE2 counts up to.
const MAX_REPETITIONS: u32 = 1_000;

/// The classes of Perl, as they are written inside brackets.
const DIGITS: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t\n\x0C\r ";

/// The named classes of brackets.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// A pattern of RE2 in the words of the regex crate; none for what RE2 does not take.
fn translate(text: &str) -> Option<String> {
    let mut translator = Translator { rest: text, out: String::with_capacity(text.len() * 2) };
    let mut repeated = false;
    while let Some(next) = translator.rest.chars().next() {
        let repeats = match next {
            '*' | '+' | '?' => {
                translator.copy(1);
                true
            }
            '{' => translator.braces()?,
            _ => {
                translator.translate_item(next)?;
                false
            }
        };
        if repeats {
            // What is repeated already cannot be repeated again.
            if repeated {
                return None;
            }
            if translator.rest.starts_with('?') {
                translator.copy(1);
            }
        }
        repeated = repeats;
    }
    Some(translator.out)
}

/// Reads a pattern from left to right and writes it anew.
struct Translator<'a> {
    rest: &'a str,
    out: String,
}

impl Translator<'_> {
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn copy(&mut self, bytes: usize) {
        self.out.push_str(self.rest.get(..bytes).unwrap_or_default());
        self.skip(bytes);
    }

    fn push_literal(&mut self, letter: char) {
        self.out.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
    }

    /// A repetition such as `{2,5}`, or a brace that is itself: whether it is the first.
    fn braces(&mut self) -> Option<bool> {
        let Some((least, most, length)) = parse_repetition(self.rest) else {
            self.skip(1);
            self.push_literal('{');
            return Some(false);
        };
        if least > MAX_REPETITIONS || most.is_some_and(|most| most > MAX_REPETITIONS) {
            return None;
        }
        self.copy(length);
        Some(true)
    }

    /// Anything outside of brackets that is no repetition.
    fn translate_item(&mut self, next: char) -> Option<()> {
        match next {
            '\\' => self.escape()?,
            '[' => self.brackets()?,
            '(' if self.rest.starts_with("(?") => self.group()?,
            '}' | ']' => {
                self.skip(1);
                self.push_literal(next);
            }
            _ => self.copy(next.len_utf8()),
        }
        Some(())
    }

    /// The start of a group that says something about itself: a name, or flags that RE2 has.
    fn group(&mut self) -> Option<()> {
        let inner = &self.rest[2..];
        let named = inner.starts_with("P<")
            || inner.starts_with('<') && !inner.starts_with("<=") && !inner.starts_with("<!");
        let length = if named {
            inner.find('>')? + 1
        } else {
            let flags = inner.find([':', ')'])?;
            if !inner[..flags].bytes().all(|flag| b"imsU-".contains(&flag)) {
                return None;
            }
            flags + 1
        };
        self.copy(2 + length);
        Some(())
    }

    fn escape(&mut self) -> Option<()> {
        let letter = self.rest[1..].chars().next()?;
        if let Some((negated, class)) = perl_class(letter) {
            self.skip(2);
            let caret = if negated { "^" } else { "" };
            // Without regard to case, letters beyond ASCII would belong to the class.
            _ = write!(self.out, "(?-i:[{caret}{class}])");
            return Some(());
        }
        match letter {
            'b' | 'B' => {
                self.skip(2);
                _ = write!(self.out, r"(?-u:\{letter})");
            }
            'A' | 'z' => self.copy(2),
            'p' | 'P' => self.property()?,
            'Q' => {
                self.skip(2);
                let (quoted, length) = match self.rest.find(r"\E") {
                    Some(end) => (&self.rest[..end], end + 2),
                    None => (self.rest, self.rest.len()),
                };
                self.out.push_str(&regex::escape(quoted));
                self.skip(length);
            }
            _ => {
                let letter = self.parse_char()?;
                self.push_literal(letter);
            }
        }
        Some(())
    }

    /// `\pL`, `\p{Greek}`, `\p{^Greek}` and their negations.
    fn property(&mut self) -> Option<()> {
        let mut negated = self.rest.starts_with(r"\P");
        self.skip(2);
        let first = self.rest.chars().next()?;
        let (name, length) = match first {
            '{' => {
                let end = self.rest.find('}')?;
                (&self.rest[1..end], end + 1)
            }
            _ => (&self.rest[..first.len_utf8()], first.len_utf8()),
        };
        let plain = name.strip_prefix('^');
        negated ^= plain.is_some();
        _ = write!(self.out, r"\{}{{{}}}", if negated { 'P' } else { 'p' }, plain.unwrap_or(name));
        self.skip(length);
        Some(())
    }

    /// One letter, written as such or escaped.
    fn parse_char(&mut self) -> Option<char> {
        let first = self.rest.chars().next()?;
        self.skip(first.len_utf8());
        if first != '\\' {
            return Some(first);
        }
        let letter = self.rest.chars().next()?;
        if letter.is_digit(8) {
            return self.octal(letter);
        }
        self.skip(letter.len_utf8());
        match letter {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'f' => Some('\x0C'),
            'v' => Some('\x0B'),
            'a' => Some('\x07'),
            'x' => self.hexadecimal(),
            other => (other.is_ascii() && !other.is_ascii_alphanumeric()).then_some(other),
        }
    }

    /// Up to three digits; one alone that is not 0 would refer back, which RE2 does not do.
    fn octal(&mut self, first: char) -> Option<char> {
        let count = self.rest.chars().take(3).take_while(|digit| digit.is_digit(8)).count();
        if first != '0' && count == 1 {
            return None;
        }
        let code = u32::from_str_radix(&self.rest[..count], 8).ok()?;
        self.skip(count);
        char::from_u32(code)
    }

    fn hexadecimal(&mut self) -> Option<char> {
        let (digits, length) = match self.rest.strip_prefix('{') {
            Some(inner) => {
                let end = inner.find('}')?;
                (&inner[..end], end + 2)
            }
            None => (self.rest.get(..2)?, 2),
        };
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok().filter(|_| is_number)?;
        self.skip(length);
        char::from_u32(code)
    }

    fn brackets(&mut self) -> Option<()> {
        self.copy(1);
        if self.rest.starts_with('^') {
            self.copy(1);
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            self.bracket_member()?;
            first = false;
        }
        self.copy(1);
        Some(())
    }

    /// What stands in brackets: a class, a letter or a range of letters.
    fn bracket_member(&mut self) -> Option<()> {
        if let Some(inner) = self.rest.strip_prefix("[:")
            && let Some(end) = inner.find(":]")
        {
            let name = &inner[..end];
            if !NAMED_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                return None;
            }
            self.copy(end + 4);
            return Some(());
        }
        if let Some(escaped) = self.rest.strip_prefix('\\').and_then(|rest| rest.chars().next()) {
            if let Some((negated, class)) = perl_class(escaped) {
                self.skip(2);
                self.out.push_str(&if negated { format!("[^{class}]") } else { class.to_owned() });
                return Some(());
            }
            if matches!(escaped, 'p' | 'P') {
                return self.property();
            }
        }
        let low = self.parse_char()?;
        let is_range = self.rest.len() > 1 && self.rest.starts_with('-') && !self.rest.starts_with("-]");
        let high = if is_range {
            self.skip(1);
            self.parse_char()?
        } else {
            low
        };
        if high < low {
            return None;
        }
        _ = write!(self.out, r"\x{{{:X}}}-\x{{{:X}}}", u32::from(low), u32::from(high));
        Some(())
    }
}

/// A class of Perl by its letter, and whether it is the negated one.
fn perl_class(letter: char) -> Option<(bool, &'static str)> {
    let class = match letter.to_ascii_lowercase() {
        'd' => DIGITS,
        'w' => WORD,
        's' => SPACE,
        _ => return None,
    };
    Some((letter.is_ascii_uppercase(), class))
}

/// `{n}`, `{n,}` or `{n,m}` at the start of a text: its numbers and its length.
fn parse_repetition(text: &str) -> Option<(u32, Option<u32>, usize)> {
    let end = text.find('}')?;
    // Digits too many for a number are more than enough.
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (least, most) = match text[1..end].split_once(',') {
        None => (number(&text[1..end])?, None),
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((least, most, end + 1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// None: it is no pattern.
    fn matches(pattern: &str, text: &str) -> Option<bool> {
        let regex = compile(pattern, &mut CompileBudget::default(), "p").unwrap()?;
        Some(regex.is_match(text))
    }

    #[test]
    fn classes_and_word_boundaries_know_ascii_only() {
        for (pattern, text, want) in [
            (r"^\w+$", "José", false),
            (r"^\w+$", "Jose_1", true),
            (r"[^\w]", "é", true),
            (r"\W", "é", true),
            (r"[\W]", "a", false),
            (r"^\d+$", "٣", false),
            (r"\D", "٣", true),
            (r"^\s$", "\u{a0}", false),
            (r"^\s$", "\u{b}", false),
            (r"^[\s]$", "\u{c}", true),
            (r"\S", "\u{a0}", true),
            (r"\bé", "é", false),
            (r"a\b", "aé", true),
            (r"\Bé", "é", true),
            (r"(?i)^\w$", "\u{212a}", false),
            (r"(?i)^k$", "\u{212a}", true),
            (r"^\pL+$", "José", true),
            (r"^\p{^Greek}$", "a", true),
            (r"^[\P{Greek}]$", "α", false),
            ("^.$", "é", true),
        ] {
            assert_eq!(matches(pattern, text), Some(want), "{pattern} on {text}");
        }
    }

    #[test]
    fn braces_and_quotes_are_themselves_where_they_mean_nothing() {
        for (pattern, text, want) in [
            ("/users/{id}", "/users/{id}/edit", true),
            ("^{", "{a", true),
            ("^{", "a", false),
            ("a{,2}", "a{,2}", true),
            ("a{,2}", "aa", false),
            ("^a{2,3}$", "aa", true),
            ("^a{2,3}$", "aaaa", false),
            ("^a{2}?$", "aa", true),
            ("^a{2,}b}$", "aaab}", true),
            (r"^\Qa.(b\E+$", "a.(bb", true),
            (r"\Qa.", "ab", false),
            (r"^\x41\x{42}\103$", "ABC", true),
            (r"^\<a\>\-\_$", "<a>-_", true),
        ] {
            assert_eq!(matches(pattern, text), Some(want), "{pattern} on {text}");
        }
    }

    #[test]
    fn brackets_know_ranges_and_classes_and_nothing_else() {
        for (pattern, text, want) in [
            ("^[a&&b]+$", "a&b", true),
            ("^[a~~b]+$", "~", true),
            ("^[+--]+$", "+,-", true),
            ("^[[a]+$", "[a", true),
            ("^[]a]+$", "]a", true),
            ("^[^]a]+$", "]", false),
            (r"^[\w.+-]+$", "a.b+c-d", true),
            (r"^[\w-z]+$", "-", true),
            ("^[[:alpha:]_]+$", "ab_", true),
            ("^[[:^alpha:]]+$", "a", false),
            (r"^[\]\\]+$", r"]\", true),
            ("^[a-c#]+$", "b#", true),
        ] {
            assert_eq!(matches(pattern, text), Some(want), "{pattern} on {text}");
        }
    }

    #[test]
    fn what_the_dialect_lacks_is_no_pattern() {
        for pattern in [
            "(",
            ")",
            "[a",
            "[]",
            "[b-a]",
            "[[:letter:]]",
            "a**",
            "a{2}{3}",
            "*a",
            "a{1001}",
            "a{3,2}",
            r"(a)\1",
            "(?=a)",
            "(?<=a)",
            "(?x)a b",
            "(?u)a",
            r"\q",
            r"\u0041",
            r"\",
            r"\8",
            r"\x4",
            "(?",
            r"\p{",
        ] {
            assert_eq!(matches(pattern, "a"), None, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_is_too_large_is_refused_and_not_taken_for_none() {
        let mail = r"^[\w.+-]{1,64}@[\w-]{1,255}\.\w{2,}$";
        assert_eq!(matches(mail, "jane.doe@example.com"), Some(true));
        let error = compile("((a{100}){100}){100}", &mut CompileBudget::default(), "p").unwrap_err();
        assert!(error.detail.contains("at most 1048576 bytes"), "{error}");
        let long = "a".repeat(limits::REGEX_BYTES + 1);
        assert!(compile(&long, &mut CompileBudget::default(), "p").is_err());
        assert!(compile(&long[1..], &mut CompileBudget::default(), "p").is_ok());
    }
}
