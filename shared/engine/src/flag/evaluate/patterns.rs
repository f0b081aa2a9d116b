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
        let compiled = self.compiled.get_or_init(|| compile(&self.text, &self.left));
        Some(compiled.as_ref()?.is_match(text))
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

/// Compiles a pattern with as small a limit as it fits into, and pays for that limit and for what matching takes.
fn compile(text: &str, left: &AtomicUsize) -> Option<Regex> {
    const SIZES: [usize; 3] = [64 * 1024, 512 * 1024, limits::COMPILED_PATTERN_BYTES];
    const MATCHING: usize = 64 * 1024;
    if text.len() > limits::PATTERN_BYTES {
        return None;
    }
    for size in SIZES {
        let cost = size + MATCHING;
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(cost)).ok()?;
        match RegexBuilder::new(text).size_limit(size).dfa_size_limit(MATCHING).build() {
            Ok(compiled) => return Some(compiled),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => return None,
        }
    }
    None
}
