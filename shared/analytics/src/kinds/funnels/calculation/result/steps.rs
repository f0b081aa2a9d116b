//! Builds the step objects of a funnel's result.

use pennon_filters::dates::zone::utc_text;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Value, json};

use super::super::CompiledFunnel;
use super::super::row_limit::is_other;
use super::super::rows::{FunnelRow, FunnelRows};
use super::{MICROS, average, breakdown_json};
use crate::kinds::funnels::StepOrder;
use crate::kinds::funnels::limits;
use crate::kinds::funnels::step_numbers::{StepNumbers, ValueTexts};
use crate::kinds::insight::InsightQuery;
use crate::query::Series;
use crate::scan::Micros;
use crate::url::{push_pair, push_value};

/// Work units of building the object of one step with its links.
const WORK_PER_STEP: usize = 256;

/// Builds one object per step, even if no actor counts. With a breakdown, one list of these per value, or none at all.
pub(in super::super) fn build_steps(
    funnel: &CompiledFunnel,
    rows: FunnelRows,
    work: &WorkBudget<'_>,
) -> CalcResult<Value> {
    if funnel.query.common.breakdown.is_none() {
        let row = rows.0.into_values().next().unwrap_or_default();
        return Ok(build_only_row(funnel, step_numbers(funnel, row)));
    }
    let (rows, kept_values) = funnel.limit_rows(rows);
    let rows = rows.into_iter().map(|(key, row)| (key, step_numbers(funnel, row)));
    build_rows(funnel, rows, kept_values.as_deref(), work)
}

/// Builds the objects of a funnel without a breakdown.
pub(in super::super) fn build_only_row(funnel: &CompiledFunnel, numbers: Vec<StepNumbers>) -> Value {
    steps_json(funnel, numbers, people_link(funnel).as_deref(), 1)
}

/// Builds a list of objects for each breakdown value. `kept_values` are the values that are not in "Other", if there is such
/// a row.
pub(in super::super) fn build_rows(
    funnel: &CompiledFunnel,
    rows: impl ExactSizeIterator<Item = (ValueTexts, Vec<StepNumbers>)>,
    kept_values: Option<&[ValueTexts]>,
    work: &WorkBudget<'_>,
) -> CalcResult<Value> {
    let link = people_link(funnel);
    let kept_values = kept_values
        .map(|kept_values| kept_values.iter().map(|key| breakdown_json(funnel, key).1).collect::<Value>());
    let count = rows.len();
    let rows = rows.map(|(key, numbers)| {
        work.consume(WORK_PER_STEP * funnel.query.series.len())?;
        let (displayed, value) = breakdown_json(funnel, &key);
        let link = link.as_ref().map(|link| {
            let mut link = link.clone();
            push_value(&mut link, "funnel_step_breakdown", &value);
            if let Some(kept_values) = kept_values.as_ref().filter(|_| is_other(&key)) {
                push_value(&mut link, "funnel_breakdown_kept", kept_values);
            }
            link
        });
        let mut steps = steps_json(funnel, numbers, link.as_deref(), count);
        for step in steps.as_array_mut().into_iter().flatten() {
            step["breakdown"] = displayed.clone();
            step["breakdown_value"] = value.clone();
        }
        Ok(steps)
    });
    rows.collect()
}

/// The numbers of the steps of a row.
fn step_numbers(funnel: &CompiledFunnel, mut row: FunnelRow) -> Vec<StepNumbers> {
    let steps = funnel.query.series.len();
    row.resize_to(steps, steps);
    let steps = row.counts.into_iter().zip(&mut row.durations);
    let numbers = steps.map(|(count, durations)| StepNumbers {
        count,
        average: average(durations),
        median: median(durations),
    });
    numbers.collect()
}

/// The step objects of one row; `rows` is the number of rows in the result.
fn steps_json(funnel: &CompiledFunnel, numbers: Vec<StepNumbers>, link: Option<&str>, rows: usize) -> Value {
    let steps = funnel.query.series.len();
    let link = link.filter(|link| limits::links_fit(link.len(), 2 * steps * rows));
    let steps = funnel.query.series.iter().zip(numbers).enumerate();
    let objects = steps.map(|(order, (series, numbers))| step_json(funnel, order, series, numbers, link));
    objects.collect()
}

fn step_json(
    funnel: &CompiledFunnel,
    order: usize,
    series: &Series,
    numbers: StepNumbers,
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
        "count": numbers.count,
        "type": series.event_or_action.list_name(),
        "average_conversion_time": numbers.average,
        "median_conversion_time": numbers.median,
        "converted_people_url": people((order + 1).to_string()),
        "dropped_people_url": (order > 0).then(|| people(format!("-{}", order + 1))).flatten(),
    })
}

/// A people link without the step: the query's parameters with absolute dates. `None` if it would be too long.
fn people_link(funnel: &CompiledFunnel) -> Option<String> {
    let mut url = format!("/api/projects/{}/persons/funnel/?", funnel.project_id);
    for (key, value) in funnel.query.to_insight_filters() {
        if !matches!(key.as_str(), "date_from" | "date_to" | "explicit_date") {
            push_value(&mut url, &key, &value);
        }
    }
    push_pair(&mut url, "date_from", &utc_text(&funnel.range.from));
    push_pair(&mut url, "date_to", &utc_text(&funnel.range.to));
    push_pair(&mut url, "explicit_date", "true");
    limits::links_fit(url.len(), 2 * funnel.query.series.len()).then_some(url)
}

/// Median in seconds; `None` without durations.
#[expect(
    clippy::cast_precision_loss,
    reason = "durations are shorter than 2^52 microseconds, a hundred and forty years"
)]
fn median(durations: &mut [Micros]) -> Option<f64> {
    if durations.is_empty() {
        return None;
    }
    let middle = durations.len() / 2;
    let even = durations.len().is_multiple_of(2);
    let (below, upper, _) = durations.select_nth_unstable(middle);
    let upper = *upper;
    let lower = if even { below.iter().max().copied().unwrap_or(upper) } else { upper };
    Some((lower + upper) as f64 / 2.0 / MICROS)
}
