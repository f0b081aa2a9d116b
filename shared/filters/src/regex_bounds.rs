//! Regular expressions with a bounded search time.
//!
//! A search is linear in the text, but the cost per byte grows with the size of the pattern: `a{99999}` takes half a minute
//! on a megabyte of `a`, and a search cannot be interrupted. So the size of the compiled pattern times the length of the
//! text has a limit, [`limits::REGEX_SEARCH_WORK`]. The worst case at the limit (a thousand overlapping repetitions) was
//! measured at half a second. A pattern without counted repetitions compiles to a few KiB and can search texts of hundreds
//! of KiB; a pattern of 1 MiB only texts of 1 KiB.
//!
//! Must stay true: whether a search is allowed depends on pattern and text alone.

use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};

use crate::error::{CalcError, CalcResult};
use crate::limits;
use crate::work_budget::{WORK_PER_CHECK, WorkBudget};

/// Compiled sizes are measured in powers of two from this size on.
const MIN_COMPILED_BYTES: usize = 1 << 10;

/// Why a pattern did not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegexFailure {
    /// The syntax is not supported.
    Invalid,
    /// The compiled pattern exceeds the size limit.
    TooLarge,
}

/// A regular expression that knows its compiled size.
#[derive(Debug, Clone)]
pub struct BoundedRegex {
    regex: Regex,
    /// The size limit that it was compiled with.
    most_bytes: usize,
    /// The smallest power of two that it compiles within. Computed lazily, for long texts only.
    compiled_bytes: Arc<OnceLock<usize>>,
}

impl BoundedRegex {
    /// Compiles a pattern in the syntax of the `regex` crate, to at most `most_bytes`.
    pub fn compile(pattern: &str, most_bytes: usize) -> Result<Self, RegexFailure> {
        Self::build(RegexBuilder::new(pattern).size_limit(most_bytes), most_bytes)
    }

    /// The same, with a limit on the cache of a search.
    pub fn compile_with_cache(
        pattern: &str,
        most_bytes: usize,
        cache_bytes: usize,
    ) -> Result<Self, RegexFailure> {
        let mut builder = RegexBuilder::new(pattern);
        Self::build(builder.size_limit(most_bytes).dfa_size_limit(cache_bytes), most_bytes)
    }

    fn build(builder: &RegexBuilder, most_bytes: usize) -> Result<Self, RegexFailure> {
        match builder.build() {
            Ok(regex) => Ok(Self { regex, most_bytes, compiled_bytes: Arc::default() }),
            Err(regex::Error::CompiledTooBig(_)) => Err(RegexFailure::TooLarge),
            Err(_) => Err(RegexFailure::Invalid),
        }
    }

    /// Whether a search of a text of `text_bytes` is within the limit.
    pub fn can_search(&self, text_bytes: usize) -> bool {
        let fits = |compiled: usize| compiled.saturating_mul(text_bytes) <= limits::REGEX_SEARCH_WORK;
        fits(self.most_bytes) || fits(self.compiled_bytes())
    }

    /// Whether a search of a text of `text_bytes` may take milliseconds.
    pub fn is_slow(&self, text_bytes: usize) -> bool {
        self.most_bytes.saturating_mul(text_bytes) > limits::REGEX_SEARCH_WORK / 256
    }

    /// Whether the text matches.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The regex itself. Call [`BoundedRegex::consume_budget`] before a search.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }

    /// Consumes the work of searching a text of `text_bytes`. An error if it is too long for the pattern.
    pub fn consume_budget(&self, text_bytes: usize, work: &WorkBudget<'_>) -> CalcResult<()> {
        if !self.can_search(text_bytes) {
            return work.fail(search_too_large(self.regex.as_str(), self.compiled_bytes(), text_bytes));
        }
        // Forces a cancellation check after a slow search.
        work.consume(if self.is_slow(text_bytes) { WORK_PER_CHECK + 1 } else { text_bytes })
    }

    fn compiled_bytes(&self) -> usize {
        let compiles = |bytes: &usize| Self::compile(self.regex.as_str(), *bytes).is_ok();
        let sizes = std::iter::successors(Some(MIN_COMPILED_BYTES), |bytes| bytes.checked_mul(2));
        *self.compiled_bytes.get_or_init(|| {
            let mut smaller = sizes.take_while(|bytes| *bytes < self.most_bytes);
            smaller.find(compiles).unwrap_or(self.most_bytes)
        })
    }
}

fn search_too_large(pattern: &str, compiled_bytes: usize, text_bytes: usize) -> CalcError {
    let start: String = pattern.chars().take(100).collect();
    let most = limits::REGEX_SEARCH_WORK / compiled_bytes;
    let detail = format!(
        "The regular expression \"{start}\" takes {compiled_bytes} bytes compiled, too many to search a value of \
         {text_bytes} bytes: at most {most} are searched with it. Use smaller repetitions such as {{1,50}}, or filter out \
         long values."
    );
    CalcError::coded("invalid_input", None, detail)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn bounded(pattern: &str) -> BoundedRegex {
        BoundedRegex::compile(pattern, 4 << 20).unwrap()
    }

    #[test]
    fn ordinary_patterns_search_long_texts_and_large_ones_short_texts() {
        for (pattern, text_bytes) in [
            ("^https://example", 256 << 10),
            (r"^1\.[0-9]+$", 256 << 10),
            ("@(posthog|example)[.]com$", 128 << 10),
            ("^(free|pro|team)$", 256 << 10),
            (r"(?i)checkout", 128 << 10),
            (r"^\pL{60}$", 256),
        ] {
            assert!(bounded(pattern).can_search(text_bytes), "{pattern}");
        }
        for (pattern, text_bytes) in [("a{99999}", 1 << 20), ("[ab]*a[ab]{1000}c", 16 << 10)] {
            assert!(!bounded(pattern).can_search(text_bytes), "{pattern}");
        }
    }

    #[test]
    fn the_limit_is_exact() {
        let regex = bounded("a{99999}");
        let most = limits::REGEX_SEARCH_WORK / regex.compiled_bytes();
        assert!(regex.can_search(most) && !regex.can_search(most + 1));
        let never = || false;
        let work = WorkBudget::new(&never);
        regex.consume_budget(most, &work).unwrap();
        let refusal = regex.consume_budget(most + 1, &work).unwrap_err();
        assert!(refusal.detail.contains(&format!("at most {most} ")), "{refusal}");
        assert!(work.consume(1).is_err(), "the pass ends");
    }
}
