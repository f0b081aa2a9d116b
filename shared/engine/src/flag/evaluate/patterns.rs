//! The regular expressions of a project's flags and cohorts, each compiled once, when it is first asked for.
//!
//! Must stay true: all of them together take bounded memory; a pattern that does not fit any more counts as one that
//! does not compile. Compiling in vain takes bounded time and no memory, and what one flag or cohort spends on it leaves
//! the patterns of others alone.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use regex::RegexBuilder;

use super::slow_searches::SlowSearches;
use crate::flag::limits;
use crate::regex_bounds::BoundedRegex;

/// A regular expression that is compiled when it is needed.
#[derive(Debug)]
pub struct Pattern {
    text: String,
    compiled: OnceLock<Option<BoundedRegex>>,
    left: Arc<Left>,
    /// What is left to each of the flags and cohorts that name it.
    askers: Mutex<Vec<Arc<Effort>>>,
}

impl Pattern {
    /// Whether it is found anywhere in the text. None: it does not compile, is too large to search so long a text, or
    /// would take long where that is not allowed.
    pub fn is_found_in(&self, text: &str, slow: SlowSearches<'_>) -> Option<bool> {
        let regex = self.compiled(slow)?;
        if regex.is_slow(text.len()) && !slow.may_begin() {
            return None;
        }
        regex.can_search(text.len()).then(|| regex.is_match(text))
    }

    /// Whether it is a pattern at all.
    pub fn compiles(&self, slow: SlowSearches<'_>) -> bool {
        self.compiled(slow).is_some()
    }

    /// Compiling takes up to 20 milliseconds.
    fn compiled(&self, slow: SlowSearches<'_>) -> Option<&BoundedRegex> {
        if self.compiled.get().is_none() && !slow.may_begin() {
            return None;
        }
        let compile = || {
            let asker = self.asker()?;
            compile(&self.text, &self.left, &asker)
        };
        self.compiled.get_or_init(compile).as_ref()
    }

    /// The asker with the most left: a pattern that several name is not given up because of one of them.
    fn asker(&self) -> Option<Arc<Effort>> {
        let askers = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        askers.iter().max_by_key(|asker| asker.larger.load(Ordering::Relaxed)).cloned()
    }

    fn is_asked_by(&self, asker: &Arc<Effort>) {
        let mut askers = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if askers.last().is_none_or(|last| !Arc::ptr_eq(last, asker)) {
            askers.push(Arc::clone(asker));
        }
    }
}

/// Patterns by their texts, with what compiling them may still take.
#[derive(Debug)]
pub struct Patterns {
    by_text: RefCell<HashMap<String, Arc<Pattern>>>,
    left: Arc<Left>,
    asker: RefCell<Arc<Effort>>,
}

impl Default for Patterns {
    fn default() -> Self {
        let all = Effort::new(limits::ALL_FAILED_PATTERNS_BYTES, limits::ALL_FAILED_PATTERNS_BYTES);
        Self::new(Left { kept: AtomicUsize::new(limits::ALL_PATTERNS_BYTES), failed: all })
    }
}

impl Patterns {
    fn new(left: Left) -> Self {
        let asker = RefCell::new(Arc::new(Effort::of_one()));
        Self { by_text: RefCell::default(), left: Arc::new(left), asker }
    }

    /// The patterns asked for from here on are those of the next flag or cohort.
    pub fn next_asker(&self) {
        *self.asker.borrow_mut() = Arc::new(Effort::of_one());
    }

    /// The pattern of a text; the same one for the same text.
    pub fn get(&self, text: &str) -> Arc<Pattern> {
        let asker = self.asker.borrow();
        if let Some(pattern) = self.by_text.borrow().get(text) {
            pattern.is_asked_by(&asker);
            return Arc::clone(pattern);
        }
        let pattern = Arc::new(Pattern {
            text: text.to_owned(),
            compiled: OnceLock::new(),
            left: Arc::clone(&self.left),
            askers: Mutex::new(vec![Arc::clone(&asker)]),
        });
        self.by_text.borrow_mut().insert(text.to_owned(), Arc::clone(&pattern));
        pattern
    }
}

/// What the patterns of an evaluation may still take together.
#[derive(Debug)]
struct Left {
    /// Bytes of patterns that compile.
    kept: AtomicUsize,
    /// Effort for those that do not.
    failed: Effort,
}

/// What compiling in vain may still cost, measured in the bytes that were tried. A try at the smallest size, which most
/// patterns fit, has a purse of its own: large failures never spend it.
#[derive(Debug)]
struct Effort {
    smallest: AtomicUsize,
    larger: AtomicUsize,
}

impl Effort {
    fn new(smallest: usize, larger: usize) -> Self {
        Self { smallest: AtomicUsize::new(smallest), larger: AtomicUsize::new(larger) }
    }

    /// What one flag or cohort may spend.
    fn of_one() -> Self {
        Self::new(limits::FAILED_PATTERNS_BYTES, limits::FAILED_PATTERNS_BYTES)
    }

    fn purse(&self, size: usize) -> &AtomicUsize {
        if size == SIZES[0].0 { &self.smallest } else { &self.larger }
    }

    fn allows(&self, size: usize) -> bool {
        self.purse(size).load(Ordering::Relaxed) > 0
    }

    fn spend(&self, size: usize, cost: usize) {
        let less = |left: usize| Some(left.saturating_sub(cost));
        // It never fails: there is always a number to write.
        _ = self.purse(size).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
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
/// What reading one byte of a pattern may cost: `\w` stands for some seven hundred ranges of letters.
const READING: usize = KIB;

/// Compiles a pattern with the smallest limits that it fits into. One that compiles pays what it keeps, any other one
/// the effort.
fn compile(text: &str, left: &Left, asker: &Effort) -> Option<BoundedRegex> {
    if text.len() > limits::PATTERN_BYTES {
        return None;
    }
    let mut tried = Vec::with_capacity(SIZES.len());
    for (size, matching) in SIZES {
        let keeps = size + matching;
        let fits = left.kept.load(Ordering::Relaxed) >= keeps;
        if !fits || ![&left.failed, asker].iter().all(|effort| effort.allows(size)) {
            break;
        }
        match RegexBuilder::new(text).size_limit(size).dfa_size_limit(matching).build() {
            Ok(compiled) => {
                let pay = |left: usize| left.checked_sub(keeps);
                left.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).ok()?;
                return Some(BoundedRegex::new(compiled, size));
            }
            Err(regex::Error::CompiledTooBig(_)) => tried.push(size),
            // Found while reading, which takes no longer than reading the filters.
            Err(_) => break,
        }
    }
    for size in tried {
        let cost = size + text.len() * READING;
        [&left.failed, asker].iter().for_each(|effort| effort.spend(size, cost));
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::work::CancellationToken;

    const ALL: SlowSearches<'static> = SlowSearches::Allowed;

    #[test]
    fn a_text_is_one_pattern() {
        let patterns = Patterns::default();
        let (first, second) = (patterns.get("^a"), patterns.get("^a"));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!((first.is_found_in("ab", ALL), first.is_found_in("ba", ALL)), (Some(true), Some(false)));
    }

    #[test]
    fn what_does_not_compile_is_no_pattern() {
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
    fn a_search_that_would_be_slow_is_noted() {
        let patterns = Patterns::default();
        let (pattern, long) = (patterns.get("[ab]*a[ab]{100}c"), "ab".repeat(30 * KIB));
        let is_met = std::cell::Cell::new(false);
        let noted = SlowSearches::Noted(&is_met);
        assert_eq!(
            (pattern.is_found_in("abc", noted), is_met.take()),
            (None, true),
            "it is not compiled yet"
        );
        assert!(pattern.compiles(ALL));
        assert_eq!((pattern.is_found_in("abc", noted), is_met.take()), (Some(false), false));
        assert_eq!((pattern.is_found_in(&long, noted), is_met.take()), (None, true));
    }

    #[test]
    fn an_ordinary_pattern_takes_little() {
        for text in
            [r"^user1@example\.com$", r"@(posthog|example)\.com$", r"^1\.[0-9]+$", "^(free|pro|team)$"]
        {
            let patterns = Patterns::default();
            assert!(patterns.get(text).compiles(ALL));
            let paid = limits::ALL_PATTERNS_BYTES - patterns.left.kept.load(Ordering::Relaxed);
            assert_eq!(paid, 48 * KIB, "{text}");
        }
    }

    #[test]
    fn all_together_have_a_limit() {
        let patterns = Patterns::default();
        let fits = |number: usize| patterns.get(&format!("^{number}$")).compiles(ALL);
        let count = (0..10_000).take_while(|number| fits(*number)).count();
        assert_eq!(count, limits::ALL_PATTERNS_BYTES / (48 * KIB));
        assert!(patterns.get("^0$").compiles(ALL), "what was compiled stays");
    }

    const LARGE: &str = r"^\pL{60}$";

    /// Patterns that fit no size, each another text.
    fn oversize(count: usize) -> impl Iterator<Item = String> {
        (0..count).map(|number| format!("((a{{100}}){{100}}){{100}}{number}"))
    }

    #[test]
    fn patterns_that_do_not_compile_keep_nothing_and_leave_those_of_others_alone() {
        let patterns = Patterns::default();
        let failing: Vec<_> = oversize(50).map(|text| patterns.get(&text)).collect();
        let beside = patterns.get("^own$");
        let shared = patterns.get(r"^\pL{61}$");
        patterns.next_asker();
        let (ordinary, large) = (patterns.get("^pro$"), patterns.get(LARGE));
        assert!(Arc::ptr_eq(&shared, &patterns.get(r"^\pL{61}$")));
        assert!(failing.iter().all(|pattern| !pattern.compiles(ALL)));
        assert_eq!(patterns.left.kept.load(Ordering::Relaxed), limits::ALL_PATTERNS_BYTES);
        assert_eq!(ordinary.is_found_in("pro", ALL), Some(true));
        assert_eq!(large.is_found_in(&"é".repeat(60), ALL), Some(true));
        assert_eq!(beside.is_found_in("own", ALL), Some(true), "ordinary ones of the same flag too");
        assert!(shared.compiles(ALL), "one that another flag names too");
    }

    #[test]
    fn compiling_in_vain_has_a_limit_for_each_flag_and_for_all_together() {
        let patterns = Patterns::new(Left {
            kept: AtomicUsize::new(limits::ALL_PATTERNS_BYTES),
            failed: Effort::new(limits::ALL_FAILED_PATTERNS_BYTES, 3 * limits::FAILED_PATTERNS_BYTES / 2),
        });
        let spent =
            || 3 * limits::FAILED_PATTERNS_BYTES / 2 - patterns.left.failed.larger.load(Ordering::Relaxed);
        // One try may go past the limit.
        let most = limits::FAILED_PATTERNS_BYTES + limits::COMPILED_PATTERN_BYTES + 600 * KIB;
        assert!(oversize(50).all(|text| !patterns.get(&text).compiles(ALL)));
        assert!((limits::FAILED_PATTERNS_BYTES..most).contains(&spent()), "{}", spent());
        patterns.next_asker();
        assert!(!patterns.get("((a{100}){100}){100}b").compiles(ALL));
        patterns.next_asker();
        assert!(!patterns.get("((a{100}){100}){100}c").compiles(ALL));
        patterns.next_asker();
        assert!(!patterns.get(LARGE).compiles(ALL), "nothing is left for any");
        assert!(patterns.get("^pro$").compiles(ALL), "but for ordinary ones");
    }
}
