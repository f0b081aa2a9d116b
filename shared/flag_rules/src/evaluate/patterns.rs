//! The regular expressions of a project's flags and cohorts, each compiled once, on first use.
//!
//! Must stay true: all patterns together take bounded memory; a pattern beyond the budget counts as invalid. Failed
//! compilations take bounded time and no memory, and the failures of one flag or cohort do not reduce the budget of
//! others.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use pennon_filters::regex_bounds::{BoundedRegex, RegexFailure};

use super::slow_searches::SlowSearches;
use crate::limits;

/// A lazily compiled regular expression.
#[derive(Debug)]
pub struct Pattern {
    text: String,
    compiled: OnceLock<Option<BoundedRegex>>,
    budget: Arc<PatternBudget>,
    /// The failure budgets of the flags and cohorts that use it.
    owners: Mutex<Vec<Arc<FailureBudget>>>,
}

impl Pattern {
    /// Whether it matches anywhere in the text. `None`: it does not compile, is too large to search a text of this
    /// length, or would be slow where that is not allowed.
    pub fn is_found_in(&self, text: &str, slow: SlowSearches<'_>) -> Option<bool> {
        let regex = self.compiled(slow)?;
        if regex.is_slow(text.len()) && !slow.may_begin() {
            return None;
        }
        regex.can_search(text.len()).then(|| regex.is_match(text))
    }

    /// Whether it compiles.
    pub fn compiles(&self, slow: SlowSearches<'_>) -> bool {
        self.compiled(slow).is_some()
    }

    /// Compiling takes up to 20 ms.
    fn compiled(&self, slow: SlowSearches<'_>) -> Option<&BoundedRegex> {
        if self.compiled.get().is_none() && !slow.may_begin() {
            return None;
        }
        let compile = || {
            let owner = self.owner()?;
            compile(&self.text, &self.budget, &owner)
        };
        self.compiled.get_or_init(compile).as_ref()
    }

    /// The owner with the largest remaining budget: a shared pattern does not fail because of one of its owners.
    fn owner(&self) -> Option<Arc<FailureBudget>> {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.iter().max_by_key(|owner| owner.larger.load(Ordering::Relaxed)).cloned()
    }

    fn add_owner(&self, owner: &Arc<FailureBudget>) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.last().is_none_or(|last| !Arc::ptr_eq(last, owner)) {
            owners.push(Arc::clone(owner));
        }
    }
}

/// Patterns by their text, with the remaining compile budget.
#[derive(Debug)]
pub struct Patterns {
    by_text: RefCell<HashMap<String, Arc<Pattern>>>,
    budget: Arc<PatternBudget>,
    owner: RefCell<Arc<FailureBudget>>,
}

impl Default for Patterns {
    fn default() -> Self {
        let all = FailureBudget::new(limits::ALL_FAILED_PATTERNS_BYTES, limits::ALL_FAILED_PATTERNS_BYTES);
        Self::new(PatternBudget {
            compiled_bytes: AtomicUsize::new(limits::ALL_PATTERNS_BYTES),
            failures: all,
        })
    }
}

impl Patterns {
    fn new(budget: PatternBudget) -> Self {
        let owner = RefCell::new(Arc::new(FailureBudget::for_owner()));
        Self { by_text: RefCell::default(), budget: Arc::new(budget), owner }
    }

    /// Starts the next flag or cohort, which owns the patterns requested from here on.
    pub fn start_owner(&self) {
        *self.owner.borrow_mut() = Arc::new(FailureBudget::for_owner());
    }

    /// The pattern of a text; the same instance for the same text.
    pub fn get(&self, text: &str) -> Arc<Pattern> {
        let owner = self.owner.borrow();
        if let Some(pattern) = self.by_text.borrow().get(text) {
            pattern.add_owner(&owner);
            return Arc::clone(pattern);
        }
        let pattern = Arc::new(Pattern {
            text: text.to_owned(),
            compiled: OnceLock::new(),
            budget: Arc::clone(&self.budget),
            owners: Mutex::new(vec![Arc::clone(&owner)]),
        });
        self.by_text.borrow_mut().insert(text.to_owned(), Arc::clone(&pattern));
        pattern
    }
}

/// The remaining budget of all patterns of an evaluator.
#[derive(Debug)]
struct PatternBudget {
    /// Bytes for patterns that compile.
    compiled_bytes: AtomicUsize,
    /// The budget for failed compilations.
    failures: FailureBudget,
}

/// The remaining budget for failed compilations, in bytes tried. Attempts at the smallest size, which most patterns
/// fit, have a separate budget that large failures never use up.
#[derive(Debug)]
struct FailureBudget {
    smallest: AtomicUsize,
    larger: AtomicUsize,
}

impl FailureBudget {
    fn new(smallest: usize, larger: usize) -> Self {
        Self { smallest: AtomicUsize::new(smallest), larger: AtomicUsize::new(larger) }
    }

    /// The budget of one flag or cohort.
    fn for_owner() -> Self {
        Self::new(limits::FAILED_PATTERNS_BYTES, limits::FAILED_PATTERNS_BYTES)
    }

    fn remaining_for(&self, size: usize) -> &AtomicUsize {
        if size == SIZES[0].0 { &self.smallest } else { &self.larger }
    }

    fn allows(&self, size: usize) -> bool {
        self.remaining_for(size).load(Ordering::Relaxed) > 0
    }

    fn spend(&self, size: usize, cost: usize) {
        let reduce = |budget: usize| Some(budget.saturating_sub(cost));
        // It never fails: the closure always returns a number.
        _ = self.remaining_for(size).fetch_update(Ordering::Relaxed, Ordering::Relaxed, reduce);
    }
}

/// Size limits of a compiled pattern and of its matching cache; most patterns fit the first.
const SIZES: [(usize, usize); 4] = [
    (16 * KIB, 32 * KIB),
    (64 * KIB, 128 * KIB),
    (512 * KIB, 256 * KIB),
    (limits::COMPILED_PATTERN_BYTES, 512 * KIB),
];
const KIB: usize = 1024;
/// Estimated cost per byte of a pattern: `\w` expands to some 700 ranges of letters.
const BYTES_PER_PATTERN_BYTE: usize = KIB;

/// Compiles a pattern with the smallest size limits that it fits. Success is charged with its size, failure with the
/// bytes tried.
fn compile(text: &str, budget: &PatternBudget, owner: &FailureBudget) -> Option<BoundedRegex> {
    if text.len() > limits::PATTERN_BYTES {
        return None;
    }
    let mut tried = Vec::with_capacity(SIZES.len());
    for (size, matching) in SIZES {
        let compiled_bytes = size + matching;
        let fits = budget.compiled_bytes.load(Ordering::Relaxed) >= compiled_bytes;
        if !fits || ![&budget.failures, owner].iter().all(|failure_budget| failure_budget.allows(size)) {
            break;
        }
        match BoundedRegex::compile_with_cache(text, size, matching) {
            Ok(compiled) => {
                let pay = |budget: usize| budget.checked_sub(compiled_bytes);
                budget.compiled_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).ok()?;
                return Some(compiled);
            }
            Err(RegexFailure::TooLarge) => tried.push(size),
            // Found while parsing, which takes no longer than parsing the filters.
            Err(RegexFailure::Invalid) => break,
        }
    }
    for size in tried {
        let cost = size + text.len() * BYTES_PER_PATTERN_BYTE;
        [&budget.failures, owner].iter().for_each(|failure_budget| failure_budget.spend(size, cost));
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pennon_filters::work_budget::CancellationToken;

    use super::*;

    const ALL: SlowSearches<'static> = SlowSearches::Allowed;

    #[test]
    fn a_text_is_one_pattern() {
        let patterns = Patterns::default();
        let (first, second) = (patterns.get("^a"), patterns.get("^a"));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!((first.is_found_in("ab", ALL), first.is_found_in("ba", ALL)), (Some(true), Some(false)));
    }

    #[test]
    fn invalid_patterns_do_not_compile() {
        let patterns = Patterns::default();
        for text in ["(", "2.3.9{0-9}{1}", r"(a)\1", "(?=a)", "((a{100}){100}){100}"] {
            let pattern = patterns.get(text);
            assert!(!pattern.compiles(ALL) && pattern.is_found_in("a", ALL).is_none(), "{text}");
        }
        let longest = "a".repeat(limits::PATTERN_BYTES);
        assert!(patterns.get(&longest).compiles(ALL));
        assert!(!patterns.get(&format!("{longest}a")).compiles(ALL));
    }

    #[test]
    fn matching_takes_linear_time() {
        let pattern = Patterns::default().get("^(a+)+$");
        assert_eq!(pattern.is_found_in(&format!("{}b", "a".repeat(200_000)), ALL), Some(false));
    }

    #[test]
    fn a_large_pattern_searches_no_long_text() {
        let patterns = Patterns::default();
        let large = patterns.get("a{20000}");
        assert_eq!(large.is_found_in(&"b".repeat(500), ALL), Some(false));
        assert_eq!(large.is_found_in(&"a".repeat(900 * KIB), ALL), None, "thirty seconds");
        assert_eq!(patterns.get("aab").is_found_in(&"a".repeat(256 * KIB), ALL), Some(false));
    }

    #[test]
    fn a_cancelled_evaluation_makes_no_slow_search() {
        let patterns = Patterns::default();
        let (slow, long) = (patterns.get("[ab]*a[ab]{100}c"), "ab".repeat(30 * KIB));
        let cancellation = CancellationToken::default();
        let until = SlowSearches::UntilCancelled(&cancellation);
        assert_eq!(slow.is_found_in(&long, until), Some(false));
        cancellation.cancel();
        assert_eq!((slow.is_found_in(&long, until), slow.is_found_in("abc", until)), (None, Some(false)));
        let new = patterns.get("^a");
        assert!(!new.compiles(until), "nor does it compile a pattern");
        assert_eq!((slow.is_found_in(&long, ALL), new.compiles(ALL)), (Some(false), true), "others do");
    }

    #[test]
    fn a_search_that_would_be_slow_is_detected() {
        let patterns = Patterns::default();
        let (pattern, long) = (patterns.get("[ab]*a[ab]{100}c"), "ab".repeat(30 * KIB));
        let is_detected = std::cell::Cell::new(false);
        let detect = SlowSearches::Detect(&is_detected);
        assert_eq!(
            (pattern.is_found_in("abc", detect), is_detected.take()),
            (None, true),
            "it is not compiled yet"
        );
        assert!(pattern.compiles(ALL));
        assert_eq!((pattern.is_found_in("abc", detect), is_detected.take()), (Some(false), false));
        assert_eq!((pattern.is_found_in(&long, detect), is_detected.take()), (None, true));
    }

    #[test]
    fn an_ordinary_pattern_takes_little() {
        for text in
            [r"^user1@example\.com$", r"@(posthog|example)\.com$", r"^1\.[0-9]+$", "^(free|pro|team)$"]
        {
            let patterns = Patterns::default();
            assert!(patterns.get(text).compiles(ALL));
            let paid = limits::ALL_PATTERNS_BYTES - patterns.budget.compiled_bytes.load(Ordering::Relaxed);
            assert_eq!(paid, 48 * KIB, "{text}");
        }
    }

    #[test]
    fn all_patterns_together_have_a_limit() {
        let patterns = Patterns::default();
        let fits = |number: usize| patterns.get(&format!("^{number}$")).compiles(ALL);
        let count = (0..10_000).take_while(|number| fits(*number)).count();
        assert_eq!(count, limits::ALL_PATTERNS_BYTES / (48 * KIB));
        assert!(patterns.get("^0$").compiles(ALL), "compiled patterns stay");
    }

    const LARGE: &str = r"^\pL{60}$";

    /// Patterns that fit no size, each another text.
    fn oversize(count: usize) -> impl Iterator<Item = String> {
        (0..count).map(|number| format!("((a{{100}}){{100}}){{100}}{number}"))
    }

    #[test]
    fn failed_patterns_keep_no_memory_and_do_not_affect_other_owners() {
        let patterns = Patterns::default();
        let failing: Vec<_> = oversize(50).map(|text| patterns.get(&text)).collect();
        let beside = patterns.get("^own$");
        let shared = patterns.get(r"^\pL{61}$");
        patterns.start_owner();
        let (ordinary, large) = (patterns.get("^pro$"), patterns.get(LARGE));
        assert!(Arc::ptr_eq(&shared, &patterns.get(r"^\pL{61}$")));
        assert!(failing.iter().all(|pattern| !pattern.compiles(ALL)));
        assert_eq!(patterns.budget.compiled_bytes.load(Ordering::Relaxed), limits::ALL_PATTERNS_BYTES);
        assert_eq!(ordinary.is_found_in("pro", ALL), Some(true));
        assert_eq!(large.is_found_in(&"é".repeat(60), ALL), Some(true));
        assert_eq!(beside.is_found_in("own", ALL), Some(true), "ordinary ones of the same flag too");
        assert!(shared.compiles(ALL), "one that another flag names too");
    }

    #[test]
    fn failed_compilations_are_limited_per_flag_and_in_total() {
        let patterns = Patterns::new(PatternBudget {
            compiled_bytes: AtomicUsize::new(limits::ALL_PATTERNS_BYTES),
            failures: FailureBudget::new(
                limits::ALL_FAILED_PATTERNS_BYTES,
                3 * limits::FAILED_PATTERNS_BYTES / 2,
            ),
        });
        let spent = || {
            3 * limits::FAILED_PATTERNS_BYTES / 2 - patterns.budget.failures.larger.load(Ordering::Relaxed)
        };
        // One try may go past the limit.
        let most = limits::FAILED_PATTERNS_BYTES + limits::COMPILED_PATTERN_BYTES + 600 * KIB;
        assert!(oversize(50).all(|text| !patterns.get(&text).compiles(ALL)));
        assert!((limits::FAILED_PATTERNS_BYTES..most).contains(&spent()), "{}", spent());
        patterns.start_owner();
        assert!(!patterns.get("((a{100}){100}){100}b").compiles(ALL));
        patterns.start_owner();
        assert!(!patterns.get("((a{100}){100}){100}c").compiles(ALL));
        patterns.start_owner();
        assert!(!patterns.get(LARGE).compiles(ALL), "nothing is left for any");
        assert!(patterns.get("^pro$").compiles(ALL), "but for ordinary ones");
    }
}
