//! The step objects of a funnel's answer.

use serde_json::{Value, json};

use super::Funnel;
use crate::dates::zone::utc_text;
use crate::limits;
use crate::plan::Partial;
use crate::query::{Query, Series};
use crate::scan::Micros;
use crate::url::{push_pair, push_value};

/// One object a step, also when nobody counted.
pub(super) fn steps(funnel: &Funnel, mut sum: Partial) -> Value {
    let steps = funnel.query.series.len();
    sum.counts.resize(steps, 0);
    sum.hops.resize_with(steps, Vec::new);
    let link = people_link(funnel);
    let rows = funnel.query.series.iter().zip(sum.counts).zip(&mut sum.hops).enumerate();
    let name = |series: &Series| {
        let name = series.source.name(&funnel.definitions).or(series.name.as_deref());
        name.unwrap_or("All events").to_owned()
    };
    rows.map(|(order, ((series, count), hops))| {
        let mut step = step(order, series, count, hops, link.as_deref());
        step["name"] = json!(name(series));
        step
    })
    .collect()
}

fn step(order: usize, series: &Series, count: u64, hops: &mut [Micros], link: Option<&str>) -> Value {
    let people = |step: String| {
        let mut url = link?.to_owned();
        push_pair(&mut url, "funnel_step", &step);
        Some(url)
    };
    json!({
        "action_id": series.source.id(),
        "name": null,
        "custom_name": series.custom_name,
        "order": order,
        "people": [],
        "count": count,
        "type": series.source.list(),
        "average_conversion_time": average(hops),
        "median_conversion_time": median(hops),
        "converted_people_url": people((order + 1).to_string()),
        "dropped_people_url": (order > 0).then(|| people(format!("-{}", order + 1))).flatten(),
    })
}

/// Everything of a link but the step: the request's own parameters, dates made absolute. None when it is too long.
fn people_link(funnel: &Funnel) -> Option<String> {
    let mut url = format!("/api/projects/{}/persons/funnel/?", funnel.project_id);
    for (key, value) in Query::Funnels(funnel.query.clone()).to_legacy() {
        if !matches!(key.as_str(), "date_from" | "date_to" | "explicit_date") {
            push_value(&mut url, &key, &value);
        }
    }
    push_pair(&mut url, "date_from", &utc_text(&funnel.range.from));
    push_pair(&mut url, "date_to", &utc_text(&funnel.range.to));
    push_pair(&mut url, "explicit_date", "true");
    limits::links_fit(url.len(), 2 * funnel.query.series.len()).then_some(url)
}

const MICROS: f64 = 1_000_000.0;

/// Mean in seconds; none without hops.
#[expect(clippy::cast_precision_loss, reason = "an average is a float, its error far below a microsecond")]
fn average(hops: &[Micros]) -> Option<f64> {
    let sum: i128 = hops.iter().map(|hop| i128::from(*hop)).sum();
    (!hops.is_empty()).then(|| sum as f64 / hops.len() as f64 / MICROS)
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
