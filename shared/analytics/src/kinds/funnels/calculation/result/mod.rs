//! Builds the results of funnels in the API's format.

pub(super) mod bins;
pub(super) mod periods;
pub(super) mod steps;
mod unbox;

use serde_json::{Value, json};

use super::CompiledFunnel;
use crate::query::BreakdownBy;
use crate::scan::Micros;
pub use unbox::unwrap_single_breakdown_values;

const MICROS: f64 = 1_000_000.0;

/// Mean in seconds; `None` without durations.
#[expect(clippy::cast_precision_loss, reason = "an average is a float, its error far below a microsecond")]
fn average(durations: &[Micros]) -> Option<f64> {
    let sum: i128 = durations.iter().map(|hop| i128::from(*hop)).sum();
    (!durations.is_empty()).then(|| sum as f64 / durations.len() as f64 / MICROS)
}

/// The breakdown value of a row for display and for links. They differ for cohorts, which have a name and an id.
fn breakdown_json(funnel: &CompiledFunnel, key: &[String]) -> (Value, Value) {
    let by = funnel.query.common.breakdown.as_ref().map(|breakdown| &breakdown.by);
    if let Some(BreakdownBy::Cohorts { .. }) = by
        && let [id] = key
        && let Ok(id) = id.parse::<u64>()
    {
        let name = funnel.definitions.cohorts.get(&id).map(|cohort| cohort.name.as_str());
        return (json!(if id == 0 { Some("all users") } else { name }), json!(id));
    }
    let value = match key {
        [only] if super::breakdown::is_single_text(&funnel.query) => json!(only),
        texts => json!(texts),
    };
    (value.clone(), value)
}
