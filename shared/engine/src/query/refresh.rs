//! Decides between returning a cached result and calculating, as one pure function.
//!
//! Must stay true: the decision depends only on the requested refresh mode and the freshness of the cached result.

use super::Freshness;

/// The `refresh` modes of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// Never calculate.
    ForceCache,
    /// Return the cached result if fresh, else calculate.
    Blocking,
    /// Return the cached result; if it is missing or not fresh, calculate in the background.
    Async,
    /// As `Async`, but calculate only if the cached result is missing or very stale.
    LazyAsync,
    /// Always calculate.
    ForceBlocking,
    /// Always calculate in the background; return no cached result.
    ForceAsync,
    /// Calculate if the cached result is missing; calculate in the background if it is not fresh.
    AsyncExceptOnCacheMiss,
}

impl Refresh {
    /// All modes.
    pub const ALL: [Refresh; 7] = [
        Refresh::ForceCache,
        Refresh::Blocking,
        Refresh::Async,
        Refresh::LazyAsync,
        Refresh::ForceBlocking,
        Refresh::ForceAsync,
        Refresh::AsyncExceptOnCacheMiss,
    ];

    /// Whether the cached result is ignored.
    pub fn is_forced(self) -> bool {
        matches!(self, Refresh::ForceBlocking | Refresh::ForceAsync)
    }

    /// Whether the mode may start a calculation.
    pub fn calculates(self) -> bool {
        self != Refresh::ForceCache
    }

    /// Whether the request waits for the calculation.
    pub fn waits(self) -> bool {
        matches!(self, Refresh::Blocking | Refresh::ForceBlocking | Refresh::AsyncExceptOnCacheMiss)
    }

    /// The mode to fall back to when the calculation takes too long to wait for.
    pub fn in_background(self) -> Refresh {
        match self {
            Refresh::ForceBlocking => Refresh::ForceAsync,
            Refresh::Blocking | Refresh::AsyncExceptOnCacheMiss => Refresh::Async,
            other => other,
        }
    }
}

/// What to return and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether the cached result is returned, if there is one.
    pub shows_stored: bool,
    /// The action to take.
    pub then: Then,
}

/// The action to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Start nothing. If a background calculation of the query is running, the response reports its status.
    Nothing,
    /// Calculate now and return the result.
    Calculate,
    /// Calculate in the background; the response reports its status.
    Background(Start),
}

/// How a background calculation is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Replace a running calculation; else its status is reported instead of starting another one.
    pub anew: bool,
    /// Calculate even if a fresh result is cached by the time the job runs.
    pub forced: bool,
}

/// Decides what to do for a mode. `stored` is the freshness of the cached result; `None` if there is none.
pub fn decide(mode: Refresh, stored: Option<Freshness>) -> Decision {
    use Freshness::{Fresh, SomewhatStale, Stale};
    let show = Decision { shows_stored: true, then: Then::Nothing };
    let calculate = Decision { shows_stored: false, then: Then::Calculate };
    let background = |anew, forced| Then::Background(Start { anew, forced });
    match (mode, stored) {
        (Refresh::ForceBlocking, _) => calculate,
        (Refresh::ForceAsync, _) => Decision { shows_stored: false, then: background(true, true) },
        (Refresh::ForceCache, _) | (_, Some(Fresh)) | (Refresh::LazyAsync, Some(SomewhatStale)) => show,
        (Refresh::Blocking, _) | (Refresh::AsyncExceptOnCacheMiss, None) => calculate,
        (Refresh::Async | Refresh::LazyAsync, None) => Decision { then: background(false, false), ..show },
        (Refresh::LazyAsync, Some(Stale)) => Decision { then: background(false, true), ..show },
        (Refresh::Async | Refresh::AsyncExceptOnCacheMiss, Some(SomewhatStale | Stale)) => {
            Decision { then: background(true, true), ..show }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the API contract. Rows are modes; columns are: nothing cached, fresh, somewhat stale, very stale.
    /// `R` is the cached result, `-` none, `calc` a calculation now. After the comma is the reported status: `run?` of a
    /// running calculation, `new` of the one that is started.
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
        [None, Some(Freshness::Fresh), Some(Freshness::SomewhatStale), Some(Freshness::Stale)];

    fn cell(decision: Decision, stored: Option<Freshness>) -> String {
        let shown = if decision.shows_stored && stored.is_some() { "R" } else { "-" };
        match decision.then {
            Then::Calculate => "calc".to_owned(),
            Then::Nothing => format!("{shown},run?"),
            Then::Background(_) => format!("{shown},new"),
        }
    }

    #[test]
    fn decisions_match_the_table_of_the_contract() {
        for (mode, row) in TABLE {
            for (stored, wanted) in CLASSES.into_iter().zip(row) {
                assert_eq!(cell(decide(mode, stored), stored), wanted, "{mode:?} {stored:?}");
            }
        }
    }

    /// "In lazy_async, and in async with nothing cached, an existing status record of the same id is returned instead of
    /// starting again; async on stale data and force_async always start anew."
    #[test]
    fn a_running_calculation_is_reported_or_replaced() {
        let anew = |mode, stored| match decide(mode, stored).then {
            Then::Background(start) => Some(start.anew),
            _ => None,
        };
        assert_eq!(anew(Refresh::Async, None), Some(false));
        assert_eq!(anew(Refresh::LazyAsync, None), Some(false));
        assert_eq!(anew(Refresh::LazyAsync, Some(Freshness::Stale)), Some(false));
        for class in [Freshness::SomewhatStale, Freshness::Stale] {
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
    fn a_job_recalculates_unconditionally_for_stale_data_or_force_async() {
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
    fn modes_that_cannot_wait_fall_back_to_the_background() {
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
