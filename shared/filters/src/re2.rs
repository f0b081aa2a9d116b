//! Regular expressions of analytics filters: translates RE2 syntax to the syntax of the `regex` crate.
//!
//! Must stay true: a pattern has the meaning that it has in RE2, and a pattern that RE2 rejects is invalid; compiling and
//! searching take bounded memory and linear time. So `\d`, `\w`, `\s` and `\b` are ASCII-only, a `{` that starts no
//! repetition is a literal, and brackets only support ranges, classes and negation. Feature flags use another dialect.

use std::fmt::Write;

use crate::compile_budget::CompileBudget;
use crate::error::CalcResult;
use crate::limits;
use crate::regex_bounds::{BoundedRegex, RegexFailure};

/// Compiles a pattern; none if it is invalid. An error, for field `attr`, if a limit is exceeded.
pub fn compile(text: &str, budget: &mut CompileBudget, attr: &str) -> CalcResult<Option<BoundedRegex>> {
    if text.len() > limits::REGEX_BYTES {
        return Err(limits::too_long(attr, "regular expression", limits::REGEX_BYTES));
    }
    budget.regexes = budget
        .regexes
        .checked_sub(1)
        .ok_or_else(|| limits::too_many(attr, "regular expressions", limits::REGEXES))?;
    let Some(translated) = translate(text) else { return Ok(None) };
    match BoundedRegex::compile(&translated, limits::REGEX_COMPILED_BYTES) {
        Ok(regex) => Ok(Some(regex)),
        Err(RegexFailure::Invalid) => Ok(None),
        Err(RegexFailure::TooLarge) => {
            Err(limits::too_long(attr, "compiled regular expression", limits::REGEX_COMPILED_BYTES))
        }
    }
}

/// RE2's limit of a counted repetition.
const MAX_REPETITIONS: u32 = 1_000;

/// Perl classes as bracket members.
const DIGITS: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t\n\x0C\r ";

/// POSIX classes that brackets support.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Translates an RE2 pattern to the syntax of the `regex` crate; none if RE2 rejects it.
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
            // RE2 rejects a repetition of a repetition.
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

/// Translates a pattern from left to right.
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

    /// Translates a repetition such as `{2,5}` (true) or a literal brace (false).
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

    /// Translates an item outside of brackets that is not a repetition.
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

    /// Translates the start of a group with a name or flags.
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
            // With the flag `i`, the class would also match non-ASCII letters.
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

    /// Parses one character, plain or escaped.
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

    /// Parses up to three octal digits. A single non-zero digit would be a backreference, which RE2 lacks.
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

    /// Translates a bracket member: a class, a character or a range.
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

/// The Perl class of an escape letter, and whether it is negated.
fn perl_class(letter: char) -> Option<(bool, &'static str)> {
    let class = match letter.to_ascii_lowercase() {
        'd' => DIGITS,
        'w' => WORD,
        's' => SPACE,
        _ => return None,
    };
    Some((letter.is_ascii_uppercase(), class))
}

/// Parses `{n}`, `{n,}` or `{n,m}` at the start of a text: its bounds and its length.
fn parse_repetition(text: &str) -> Option<(u32, Option<u32>, usize)> {
    let end = text.find('}')?;
    // Digits that overflow are over the limit anyway.
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

    /// None if the pattern is invalid.
    fn matches(pattern: &str, text: &str) -> Option<bool> {
        let regex = compile(pattern, &mut CompileBudget::default(), "p").unwrap()?;
        Some(regex.is_match(text))
    }

    #[test]
    fn classes_and_word_boundaries_are_ascii_only() {
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
    fn braces_and_quotes_can_be_literals() {
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
    fn unsupported_syntax_is_invalid() {
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
    fn a_too_large_pattern_is_an_error_and_not_invalid() {
        let mail = r"^[\w.+-]{1,64}@[\w-]{1,255}\.\w{2,}$";
        assert_eq!(matches(mail, "jane.doe@example.com"), Some(true));
        let error = compile("((a{100}){100}){100}", &mut CompileBudget::default(), "p").unwrap_err();
        assert!(error.detail.contains("at most 1048576 bytes"), "{error}");
        let long = "a".repeat(limits::REGEX_BYTES + 1);
        assert!(compile(&long, &mut CompileBudget::default(), "p").is_err());
        assert!(compile(&long[1..], &mut CompileBudget::default(), "p").is_ok());
    }
}
