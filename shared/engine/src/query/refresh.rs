//! When a question is calculated and when a stored result is shown, as one pure function.
//!
//! Must stay true: what is done follows from the mode that was asked for and from how fresh the stored result is, and
//! from nothing else.

use super::Freshness;

/// When to calculate and when to show what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// Never calculate.
    ForceCache,
    /// Calculate what is missing or no longer fresh.
    Blocking,
    /// Show what is stored; calculate in the background what is missing or no longer fresh.
    Async,
    /// As `Async`, but only what is missing or very old.
    LazyAsync,
    /// Always calculate.
    ForceBlocking,
    /// Always calculate, in the background, and show nothing.
    ForceAsync,
    /// Calculate what is missing, and in the background what is no longer fresh.
    AsyncExceptOnCacheMiss,
}

impl Refresh {
    /// All of them.
    pub const ALL: [Refresh; 7] = [
        Refresh::ForceCache,
        Refresh::Blocking,
        Refresh::Async,
        Refresh::LazyAsync,
        Refresh::ForceBlocking,
        Refresh::ForceAsync,
        Refresh::AsyncExceptOnCacheMiss,
    ];

    /// Whether what is stored is passed over.
    pub fn is_forced(self) -> bool {
        matches!(self, Refresh::ForceBlocking | Refresh::ForceAsync)
    }

    /// Whether it may come to a calculation.
    pub fn calculates(self) -> bool {
        self != Refresh::ForceCache
    }

    /// Whether what it calculates is waited for.
    pub fn waits(self) -> bool {
        matches!(self, Refresh::Blocking | Refresh::ForceBlocking | Refresh::AsyncExceptOnCacheMiss)
    }

    /// The mode that answers in place of one whose calculation takes too long to wait for.
    pub fn in_background(self) -> Refresh {
        match self {
            Refresh::ForceBlocking => Refresh::ForceAsync,
            Refresh::Blocking | Refresh::AsyncExceptOnCacheMiss => Refresh::Async,
            other => other,
        }
    }
}

/// What is shown and what is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The stored result is shown, where there is one.
    pub shows_stored: bool,
    /// What is done.
    pub then: Then,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nothing; where a calculation of the question is under way in the background, that is told.
    Nothing,
    /// The question is calculated, and its result is shown.
    Calculate,
    /// It is calculated in the background, and that is told.
    Background(Start),
}

/// How a calculation in the background is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// In the place of one that is under way; else that one is told of.
    pub anew: bool,
    /// Even if a fresh result is stored when its turn comes.
    pub forced: bool,
}

/// What a mode means for a question whose stored result, if there is one, is so fresh.
pub fn decide(mode: Refresh, stored: Option<Freshness>) -> Decision {
    use Freshness::{Fresh, Somewhat, Stale};
    let show = Decision { shows_stored: true, then: Then::Nothing };
    let calculate = Decision { shows_stored: false, then: Then::Calculate };
    let background = |anew, forced| Then::Background(Start { anew, forced });
    match (mode, stored) {
        (Refresh::ForceBlocking, _) => calculate,
        (Refresh::ForceAsync, _) => Decision { shows_stored: false, then: background(true, true) },
        (Refresh::ForceCache, _) | (_, Some(Fresh)) | (Refresh::LazyAsync, Some(Somewhat)) => show,
        (Refresh::Blocking, _) | (Refresh::AsyncExceptOnCacheMiss, None) => calculate,
        (Refresh::Async | Refresh::LazyAsync, None) => Decision { then: background(false, false), ..show },
        (Refresh::LazyAsync, Some(Stale)) => Decision { then: background(false, true), ..show },
        (Refresh::Async | Refresh::AsyncExceptOnCacheMiss, Some(Somewhat | Stale)) => {
            Decision { then: background(true, true), ..show }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the contract, cell by cell: modes down; nothing stored, fresh, somewhat stale, very stale across.
    /// `R` is the stored result, `-` none, `calc` a calculation now; behind the comma what is told: `run?` of a
    /// calculation under way, `new` of the one that is started.
    const TABLE: [(Refresh, [&str; 4]); 7] = [
        (Refresh::ForceCache, ["-,run?", "R,run?", "R,run?", "R,run?"]),
        (Refresh::Blocking, ["calc", "R,run?", "calc", "calc"]),
        (Refresh::Async, ["-,new", "R,run?", "R,new", "R,new"]),
        (Refresh::LazyAsync, ["-,new", "R,run?", "R,run?", "R,new"]),
        (Refresh::ForceBlocking, ["calc", "calc", "calc", "calc"]),
        (Refresh::ForceAsync, ["-,new", "-,new", "-,new", "-,new"]),
        (Refresh::AsyncExceptOnCacheMiss, ["calc", "R,run?", "R,new", "R,new"]),
    ];

    const CLASSES: [Option<Freshness>; 4] =
        [None, Some(Freshness::Fresh), Some(Freshness::Somewhat), Some(Freshness::Stale)];

    fn cell(decision: Decision, stored: Option<Freshness>) -> String {
        let shown = if decision.shows_stored && stored.is_some() { "R" } else { "-" };
        match decision.then {
            Then::Calculate => "calc".to_owned(),
            Then::Nothing => format!("{shown},run?"),
            Then::Background(_) => format!("{shown},new"),
        }
    }

    #[test]
    fn each_cell_of_the_table_is_what_the_contract_says() {
        for (mode, row) in TABLE {
            for (stored, wanted) in CLASSES.into_iter().zip(row) {
                assert_eq!(cell(decide(mode, stored), stored), wanted, "{mode:?} {stored:?}");
            }
        }
    }

    /// "In lazy_async, and in async with nothing cached, an existing status record of the same id is returned instead of
    /// starting again; async on stale data and force_async always start anew."
    #[test]
    fn what_is_under_way_is_told_of_or_replaced() {
        let anew = |mode, stored| match decide(mode, stored).then {
            Then::Background(start) => Some(start.anew),
            _ => None,
        };
        assert_eq!(anew(Refresh::Async, None), Some(false));
        assert_eq!(anew(Refresh::LazyAsync, None), Some(false));
        assert_eq!(anew(Refresh::LazyAsync, Some(Freshness::Stale)), Some(false));
        for class in [Freshness::Somewhat, Freshness::Stale] {
            assert_eq!(anew(Refresh::Async, Some(class)), Some(true));
            assert_eq!(anew(Refresh::AsyncExceptOnCacheMiss, Some(class)), Some(true));
        }
        for stored in CLASSES {
            assert_eq!(anew(Refresh::ForceAsync, stored), Some(true));
        }
    }

    /// "The background job recalculates unconditionally when it was asked for with stale data or force_async, else
    /// behaves as blocking."
    #[test]
    fn a_job_recalculates_unconditionally_where_stale_data_was_seen_or_it_is_forced() {
        for mode in Refresh::ALL {
            for stored in CLASSES {
                if let Then::Background(start) = decide(mode, stored).then {
                    let wanted = mode == Refresh::ForceAsync || stored.is_some();
                    assert_eq!(start.forced, wanted, "{mode:?} {stored:?}");
                }
            }
        }
    }

    #[test]
    fn who_cannot_wait_is_answered_from_the_background() {
        for mode in Refresh::ALL {
            for stored in CLASSES {
                if decide(mode, stored).then == Then::Calculate {
                    let instead = decide(mode.in_background(), stored);
                    assert!(matches!(instead.then, Then::Background(_)), "{mode:?} {stored:?}");
                    assert_eq!(mode.is_forced(), mode.in_background().is_forced());
                }
            }
        }
    }
}
