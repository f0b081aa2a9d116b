//! The limits of funnels, with their error texts, beside those of all queries.

use pennon_filters::error::CalcError;

pub(crate) use crate::limits::*;

/// Steps of one funnel.
pub const STEPS: usize = 32;
/// Exclusions of one funnel.
pub const EXCLUSIONS: usize = 32;
/// Keys in the `breakdown` of a funnel.
pub const BREAKDOWN_KEYS: usize = 10;
/// Events of one person times its breakdown values of a step, if each value takes a separate pass: 10,000 values times
/// 10,000 events.
pub const STEP_VALUE_EVENTS: usize = 100_000_000;
/// Numbers of all rows of a funnel with a breakdown, in one partition.
pub const FUNNEL_NUMBERS: usize = 1 << 22;
/// Periods of all series of a funnel over time with a breakdown; further series are left out.
pub const FUNNEL_POINTS: usize = 1_000;
/// Steps of all rows of a funnel that has a row for each breakdown value: 1,000 rows of 32 steps.
pub const FUNNEL_OBJECTS: usize = 32_000;
/// Length of a conversion window, in seconds: a hundred years of 366 days.
pub const WINDOW_SECONDS: i64 = 100 * 366 * 86_400;

/// The error for a funnel with too many steps; its text and code are part of the contract.
pub fn too_many_steps() -> CalcError {
    CalcError::coded("funnel_max_steps_exceeded", None, format!("Funnels support up to {STEPS} steps."))
}

/// The error for a funnel that takes too many passes over the events of one person, one per breakdown value of a step.
pub fn too_many_step_values() -> CalcError {
    let detail = format!(
        "One person has too many values of the breakdown for breakdown_attribution_type \"step\" in a funnel that is \
         unordered, over time, with optional steps, or strict with exclusions: its events times its values may be at \
         most {STEP_VALUE_EVENTS}. Narrow the dates or the events, or use first_touch, last_touch or all_events."
    );
    CalcError::invalid("breakdown_attribution_type", detail)
}

/// Whether one pass per value over so many events of one person is within the limit.
pub fn step_values_fit(events: usize, values: usize) -> bool {
    values <= 1 || events.saturating_mul(values) <= STEP_VALUE_EVENTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_values_fit_up_to_the_limit() {
        assert!(step_values_fit(STEP_VALUE_EVENTS / 10_000, 10_000));
        assert!(!step_values_fit(STEP_VALUE_EVENTS / 10_000 + 1, 10_000));
        assert!(step_values_fit(usize::MAX, 1), "one scan is always made");
        assert!(!step_values_fit(usize::MAX, 2));
        assert!(too_many_step_values().detail.contains(&STEP_VALUE_EVENTS.to_string()));
    }
}
