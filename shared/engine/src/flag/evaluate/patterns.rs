//! The regular expressions of a project's flags and cohorts, each compiled once, when it is first asked for.
//!
//! Must stay true: all of them together take bounded memory; a pattern that does not fit any more counts as one that
//! does not compile.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use regex::{Regex, RegexBuilder};

use crate::flag::limits;

/// A regular expression that is compiled when it is needed.
#[derive(Debug)]
pub struct Pattern {
    text: String,
    compiled: OnceLock<Option<Regex>>,
    left: Arc<AtomicUsize>,
}

impl Pattern {
    /// Whether it is found anywhere in the text. None: it does not compile.
    pub fn is_found_in(&self, text: &str) -> Option<bool> {
        Some(self.compiled()?.is_match(text))
    }

    /// Whether it is a pattern at all.
    pub fn compiles(&self) -> bool {
        self.compiled().is_some()
    }

    fn compiled(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| compile(&self.text, &self.left)).as_ref()
    }
}

/// Patterns by their texts, with what compiling them may still take.
#[derive(Debug)]
pub struct Patterns {
    by_text: RefCell<HashMap<String, Arc<Pattern>>>,
    left: Arc<AtomicUsize>,
}

impl Default for Patterns {
    fn default() -> Self {
        let left = Arc::new(AtomicUsize::new(limits::ALL_PATTERNS_BYTES));
        Self { by_text: RefCell::default(), left }
    }
}

impl Patterns {
    /// The pattern of a text; the same one for the same text.
    pub fn get(&self, text: &str) -> Arc<Pattern> {
        if let Some(pattern) = self.by_text.borrow().get(text) {
            return Arc::clone(pattern);
        }
        let pattern = Arc::new(Pattern {
            text: text.to_owned(),
            compiled: OnceLock::new(),
            left: Arc::clone(&self.left),
        });
        self.by_text.borrow_mut().insert(text.to_owned(), Arc::clone(&pattern));
        pattern
    }
}

/// What a compiled pattern may take, and what matching may take besides; most patterns fit the first.
const SIZES: [(usize, usize); 4] = [
    (16 * KIB, 32 * KIB),
    (64 * KIB, 128 * KIB),
    (512 * KIB, 256 * KIB),
    (limits::COMPILED_PATTERN_BYTES, 512 * KIB),
];
const KIB: usize = 1024;

/// Compiles a pattern with the smallest limits that it fits into, and pays for them.
fn compile(text: &str, left: &AtomicUsize) -> Option<Regex> {
    if text.len() > limits::PATTERN_BYTES {
        return None;
    }
    for (size, matching) in SIZES {
        let pay = |left: usize| left.checked_sub(size + matching);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).ok()?;
        match RegexBuilder::new(text).size_limit(size).dfa_size_limit(matching).build() {
            Ok(compiled) => return Some(compiled),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_text_is_one_pattern() {
        let patterns = Patterns::default();
        let (first, second) = (patterns.get("^a"), patterns.get("^a"));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!((first.is_found_in("ab"), first.is_found_in("ba")), (Some(true), Some(false)));
    }

    #[test]
    fn what_does_not_compile_is_no_pattern() {
        let patterns = Patterns::default();
        for text in ["(", "2.3.9{0-9}{1}", r"(a)\1", "(?=a)", "((a{100}){100}){100}"] {
            let pattern = patterns.get(text);
            assert!(!pattern.compiles() && pattern.is_found_in("a").is_none(), "{text}");
        }
        let longest = "a".repeat(limits::PATTERN_BYTES);
        assert!(patterns.get(&longest).compiles());
        assert!(!patterns.get(&format!("{longest}a")).compiles());
    }

    #[test]
    fn matching_takes_linear_time() {
        let pattern = Patterns::default().get("^(a+)+$");
        assert_eq!(pattern.is_found_in(&format!("{}b", "a".repeat(200_000))), Some(false));
    }

    #[test]
    fn an_ordinary_pattern_takes_little() {
        for text in
            [r"^user1@example\.com$", r"@(posthog|example)\.com$", r"^1\.[0-9]+$", "^(free|pro|team)$"]
        {
            let patterns = Patterns::default();
            assert!(patterns.get(text).compiles());
            let paid = limits::ALL_PATTERNS_BYTES - patterns.left.load(Ordering::Relaxed);
            assert_eq!(paid, 48 * KIB, "{text}");
        }
    }

    #[test]
    fn all_together_have_a_limit() {
        let patterns = Patterns::default();
        let fits = |number: usize| patterns.get(&format!("^{number}$")).compiles();
        let count = (0..10_000).take_while(|number| fits(*number)).count();
        assert_eq!(count, limits::ALL_PATTERNS_BYTES / (48 * KIB));
        assert!(patterns.get("^0$").compiles(), "what was compiled stays");
    }
}
