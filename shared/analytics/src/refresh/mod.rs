//! Decides between returning a cached result and calculating, as one pure function.
//!
//! Must stay true: the decision depends only on the requested refresh mode and the freshness of the cached result.

mod freshness;

pub use freshness::{Freshness, cache_target_age, freshness, next_allowed_client_refresh};

/// The `refresh` modes of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshMode {
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

impl RefreshMode {
    /// All modes.
    pub const ALL: [RefreshMode; 7] = [
        RefreshMode::ForceCache,
        RefreshMode::Blocking,
        RefreshMode::Async,
        RefreshMode::LazyAsync,
        RefreshMode::ForceBlocking,
        RefreshMode::ForceAsync,
        RefreshMode::AsyncExceptOnCacheMiss,
    ];

    /// Whether the cached result is ignored.
    pub fn is_forced(self) -> bool {
        matches!(self, RefreshMode::ForceBlocking | RefreshMode::ForceAsync)
    }

    /// Whether the mode may start a calculation.
    pub fn calculates(self) -> bool {
        self != RefreshMode::ForceCache
    }

    /// Whether the request waits for the calculation.
    pub fn waits(self) -> bool {
        matches!(
            self,
            RefreshMode::Blocking | RefreshMode::ForceBlocking | RefreshMode::AsyncExceptOnCacheMiss
        )
    }

    /// The mode to fall back to when the calculation takes too long to wait for.
    pub fn in_background(self) -> RefreshMode {
        match self {
            RefreshMode::ForceBlocking => RefreshMode::ForceAsync,
            RefreshMode::Blocking | RefreshMode::AsyncExceptOnCacheMiss => RefreshMode::Async,
            other => other,
        }
    }
}

/// What to return and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefreshDecision {
    /// Whether the cached result is returned, if there is one.
    pub shows_stored: bool,
    /// The action to take.
    pub then: RefreshAction,
}

/// The action to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshAction {
    /// Start nothing. If a background calculation of the query is running, the response reports its status.
    Nothing,
    /// Calculate now and return the result.
    Calculate,
    /// Calculate in the background; the response reports its status.
    Background(BackgroundStart),
}

/// How a background calculation is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackgroundStart {
    /// Replace a running calculation; else its status is reported instead of starting another one.
    pub anew: bool,
    /// Calculate even if a fresh result is cached by the time the job runs.
    pub forced: bool,
}

/// Decides what to do for a mode. `stored` is the freshness of the cached result; `None` if there is none.
pub fn decide(mode: RefreshMode, stored: Option<Freshness>) -> RefreshDecision {
    use Freshness::{Fresh, SomewhatStale, Stale};
    let show = RefreshDecision { shows_stored: true, then: RefreshAction::Nothing };
    let calculate = RefreshDecision { shows_stored: false, then: RefreshAction::Calculate };
    let background = |anew, forced| RefreshAction::Background(BackgroundStart { anew, forced });
    match (mode, stored) {
        (RefreshMode::ForceBlocking, _) => calculate,
        (RefreshMode::ForceAsync, _) => RefreshDecision { shows_stored: false, then: background(true, true) },
        (RefreshMode::ForceCache, _) | (_, Some(Fresh)) | (RefreshMode::LazyAsync, Some(SomewhatStale)) => {
            show
        }
        (RefreshMode::Blocking, _) | (RefreshMode::AsyncExceptOnCacheMiss, None) => calculate,
        (RefreshMode::Async | RefreshMode::LazyAsync, None) => {
            RefreshDecision { then: background(false, false), ..show }
        }
        (RefreshMode::LazyAsync, Some(Stale)) => RefreshDecision { then: background(false, true), ..show },
        (RefreshMode::Async | RefreshMode::AsyncExceptOnCacheMiss, Some(SomewhatStale | Stale)) => {
            RefreshDecision { then: background(true, true), ..show }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the API contract. Rows are modes; columns are: nothing cached, fresh, somewhat stale, very stale.
    /// `R` is the cached result, `-` none, `calc` a calculation now. After the comma is the reported status: `run?` of a
    /// running calculation, `new` of the one that is started.
    const TABLE: [(RefreshMode, [&str; 4]); 7] = [
        (RefreshMode::ForceCache, ["-,run?", "R,run?", "R,run?", "R,run?"]),
        (RefreshMode::Blocking, ["calc", "R,run?", "calc", "calc"]),
        (RefreshMode::Async, ["-,new", "R,run?", "R,new", "R,new"]),
        (RefreshMode::LazyAsync, ["-,new", "R,run?", "R,run?", "R,new"]),
        (RefreshMode::ForceBlocking, ["calc", "calc", "calc", "calc"]),
        (RefreshMode::ForceAsync, ["-,new", "-,new", "-,new", "-,new"]),
        (RefreshMode::AsyncExceptOnCacheMiss, ["calc", "R,run?", "R,new", "R,new"]),
    ];

    const CLASSES: [Option<Freshness>; 4] =
        [None, Some(Freshness::Fresh), Some(Freshness::SomewhatStale), Some(Freshness::Stale)];

    fn cell(decision: RefreshDecision, stored: Option<Freshness>) -> String {
        let shown = if decision.shows_stored && stored.is_some() { "R" } else { "-" };
        match decision.then {
            RefreshAction::Calculate => "calc".to_owned(),
            RefreshAction::Nothing => format!("{shown},run?"),
            RefreshAction::Background(_) => format!("{shown},new"),
        }
    }

    #[test]
    fn decisions_match_the_table_of_the_contract() {
        for (mode, row) in TABLE {
            for (stored, requested) in CLASSES.into_iter().zip(row) {
                assert_eq!(cell(decide(mode, stored), stored), requested, "{mode:?} {stored:?}");
            }
        }
    }

    /// "In lazy_async, and in async with nothing cached, an existing status record of the same id is returned instead of
    /// starting again; async on stale data and force_async always start anew."
    #[test]
    fn a_running_calculation_is_reported_or_replaced() {
        let anew = |mode, stored| match decide(mode, stored).then {
            RefreshAction::Background(start) => Some(start.anew),
            _ => None,
        };
        assert_eq!(anew(RefreshMode::Async, None), Some(false));
        assert_eq!(anew(RefreshMode::LazyAsync, None), Some(false));
        assert_eq!(anew(RefreshMode::LazyAsync, Some(Freshness::Stale)), Some(false));
        for class in [Freshness::SomewhatStale, Freshness::Stale] {
            assert_eq!(anew(RefreshMode::Async, Some(class)), Some(true));
            assert_eq!(anew(RefreshMode::AsyncExceptOnCacheMiss, Some(class)), Some(true));
        }
        for stored in CLASSES {
            assert_eq!(anew(RefreshMode::ForceAsync, stored), Some(true));
        }
    }

    /// "The background job recalculates unconditionally when it was asked for with stale data or force_async, else
    /// behaves as blocking."
    #[test]
    fn a_job_recalculates_unconditionally_for_stale_data_or_force_async() {
        for mode in RefreshMode::ALL {
            for stored in CLASSES {
                if let RefreshAction::Background(start) = decide(mode, stored).then {
                    let requested = mode == RefreshMode::ForceAsync || stored.is_some();
                    assert_eq!(start.forced, requested, "{mode:?} {stored:?}");
                }
            }
        }
    }

    #[test]
    fn modes_that_cannot_wait_fall_back_to_the_background() {
        for mode in RefreshMode::ALL {
            for stored in CLASSES {
                if decide(mode, stored).then == RefreshAction::Calculate {
                    let instead = decide(mode.in_background(), stored);
                    assert!(matches!(instead.then, RefreshAction::Background(_)), "{mode:?} {stored:?}");
                    assert_eq!(mode.is_forced(), mode.in_background().is_forced());
                }
            }
        }
    }
}
