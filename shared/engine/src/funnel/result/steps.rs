//! The step objects of a funnel's answer.

use serde_json::{Value, json};

use super::super::Funnel;
use super::super::rank::is_other;
use super::super::rows::{Row, Rows};
use super::{MICROS, average, breakdown_of};
use crate::dates::zone::utc_text;
use crate::error::CalcResult;
use crate::limits;
use crate::query::{Query, Series, StepOrder};
use crate::scan::Micros;
use crate::url::{push_pair, push_value};
use crate::work::WorkBudget;

/// Work that the object of one step is, with its links.
const PER_STEP: usize = 256;

/// One object a step, also when nobody counted; with a breakdown a list of these for each value, none for nobody.
pub(in super::super) fn steps(funnel: &Funnel, sum: Rows, work: &WorkBudget<'_>) -> CalcResult<Value> {
    let link = people_link(funnel);
    if funnel.query.common.breakdown.is_none() {
        let row = sum.0.into_values().next().unwrap_or_default();
        return Ok(funnel_of(funnel, row, link.as_deref(), 1));
    }
    let (rows, kept) = funnel.top(sum);
    let kept = kept.map(|kept| kept.iter().map(|key| breakdown_of(funnel, key).1).collect::<Value>());
    let count = rows.len();
    let rows = rows.into_iter().map(|(key, row)| {
        work.consume(PER_STEP * funnel.query.series.len())?;
        let (shown, value) = breakdown_of(funnel, &key);
        let link = link.as_ref().map(|link| {
            let mut link = link.clone();
            push_value(&mut link, "funnel_step_breakdown", &value);
            if let Some(kept) = kept.as_ref().filter(|_| is_other(&key)) {
                push_value(&mut link, "funnel_breakdown_kept", kept);
            }
            link
        });
        let mut steps = funnel_of(funnel, row, link.as_deref(), count);
        for step in steps.as_array_mut().into_iter().flatten() {
            step["breakdown"] = shown.clone();
            step["breakdown_value"] = value.clone();
        }
        Ok(steps)
    });
    rows.collect()
}

/// The step objects of one row of so many.
fn funnel_of(funnel: &Funnel, mut row: Row, link: Option<&str>, rows: usize) -> Value {
    let steps = funnel.query.series.len();
    row.widen(steps, steps);
    let link = link.filter(|link| limits::links_fit(link.len(), 2 * steps * rows));
    let steps = funnel.query.series.iter().zip(row.counts).zip(&mut row.hops).enumerate();
    let objects =
        steps.map(|(order, ((series, count), hops))| step(funnel, order, series, count, hops, link));
    objects.collect()
}

fn step(
    funnel: &Funnel,
    order: usize,
    series: &Series,
    count: u64,
    hops: &mut [Micros],
    link: Option<&str>,
) -> Value {
    let people = |step: String| {
        let mut url = link?.to_owned();
        push_pair(&mut url, "funnel_step", &step);
        Some(url)
    };
    let (id, name, custom_name) = match funnel.query.order {
        StepOrder::Unordered => {
            let plural = if order == 0 { "" } else { "s" };
            (Value::Null, format!("Completed {} step{plural}", order + 1), None)
        }
        StepOrder::Ordered | StepOrder::Strict => {
            let name = series.event_or_action.name(&funnel.definitions).or(series.name.as_deref());
            let custom_name = series.custom_name.as_deref();
            (series.event_or_action.id(), name.unwrap_or("All events").to_owned(), custom_name)
        }
    };
    json!({
        "action_id": id,
        "name": name,
        "custom_name": custom_name,
        "order": order,
        "people": [],
        "count": count,
        "type": series.event_or_action.list_name(),
        "average_conversion_time": average(hops),
        "median_conversion_time": median(hops),
        "converted_people_url": people((order + 1).to_string()),
        "dropped_people_url": (order > 0).then(|| people(format!("-{}", order + 1))).flatten(),
    })
}

/// Everything of a link but the step: the request's own parameters, dates made absolute. None when it is too long.
fn people_link(funnel: &Funnel) -> Option<String> {
    let mut url = format!("/api/projects/{}/persons/funnel/?", funnel.project_id);
    for (key, value) in Query::Funnels(funnel.query.clone()).to_insight_filters() {
        if !matches!(key.as_str(), "date_from" | "date_to" | "explicit_date") {
            push_value(&mut url, &key, &value);
        }
    }
    push_pair(&mut url, "date_from", &utc_text(&funnel.range.from));
    push_pair(&mut url, "date_to", &utc_text(&funnel.range.to));
    push_pair(&mut url, "explicit_date", "true");
    limits::links_fit(url.len(), 2 * funnel.query.series.len()).then_some(url)
}

/// Middle in seconds, of an even number the mean of the two middle ones; none without hops.
#[expect(
    clippy::cast_precision_loss,
    reason = "hops are shorter than 2^52 microseconds, a hundred and forty years"
)]
fn median(hops: &mut [Micros]) -> Option<f64> {
    if hops.is_empty() {
        return None;
    }
    let middle = hops.len() / 2;
    let even = hops.len().is_multiple_of(2);
    let (below, upper, _) = hops.select_nth_unstable(middle);
    let upper = *upper;
    let lower = if even { below.iter().max().copied().unwrap_or(upper) } else { upper };
    Some((lower + upper) as f64 / 2.0 / MICROS)
}
