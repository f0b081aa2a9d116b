//! The series objects of a trend's answer.

use serde_json::{Map, Value, json};

use super::Trend;
use crate::dates::zone::{from_micros, utc_text, zoned_text};
use crate::limits;
use crate::query::{Display, Query, Series, with_dates};
use crate::url::{push_pair, push_value};

/// What all series of an answer share.
pub(super) struct Context<'a> {
    trend: &'a Trend,
    labels: Vec<String>,
    days: Vec<String>,
    /// First and last instant of each bucket.
    spans: Vec<(String, String)>,
    instants: Vec<String>,
    filter: Map<String, Value>,
}

impl<'a> Context<'a> {
    pub(super) fn new(trend: &'a Trend) -> Self {
        let filter = with_dates(&Query::Trends(trend.query.clone()), &trend.range);
        let (first, last) = (trend.bounds.0, trend.range.to.timestamp_micros());
        let text = |at| utc_text(&from_micros(at, chrono_tz::UTC));
        let spans =
            trend.buckets.spans(first, last).into_iter().map(|(from, to)| (text(from), text(to))).collect();
        let instants = trend.buckets.starts().iter().map(zoned_text).collect();
        let (labels, days) = (trend.buckets.labels(), trend.buckets.days());
        Self { trend, labels, days, spans, instants, filter }
    }

    /// One series object; `counts` are its numbers by bucket, or the one number of a total.
    pub(super) fn series(&self, order: usize, series: &Series, counts: &[u64]) -> Value {
        let total = self.trend.query.display.is_total();
        let label = series.source.name(&self.trend.definitions).unwrap_or("All events");
        let mut object = json!({
            "action": self.action(order, series, label, if total { &[] } else { &self.instants }),
            "label": label,
            "order": order,
            "filter": self.filter,
        });
        if total {
            object["aggregated_value"] = json!(counts.first().copied().unwrap_or(0));
            object["data"] = json!([]);
            object["days"] = json!([]);
            object["count"] = json!(0);
            return object;
        }
        let running = self.trend.query.display == Display::ActionsLineGraphCumulative;
        let data = if running { running_sum(counts) } else { smoothed(counts, self.trend.query.smoothing) };
        let count = if running { data.last().copied().unwrap_or(0) } else { data.iter().sum() };
        #[expect(clippy::cast_precision_loss, reason = "the contract has this number as a float")]
        let count = count as f64;
        object["count"] = json!(count);
        object["data"] = json!(data);
        object["labels"] = json!(self.labels);
        object["days"] = json!(self.days);
        object["persons_urls"] = self.persons_urls(order, series);
        object
    }

    fn action(&self, order: usize, series: &Series, label: &str, days: &[String]) -> Value {
        json!({
            "days": days,
            "id": series.source.name(&self.trend.definitions),
            "type": series.source.list(),
            "order": order,
            "name": label,
            "custom_name": series.custom_name,
            "math": series.math_given,
            "math_property": null,
            "math_hogql": null,
            "math_group_type_index": null,
            "properties": {},
        })
    }

    /// A link to the people of each bucket, with the bucket's own absolute dates; null where links would be too long.
    fn persons_urls(&self, order: usize, series: &Series) -> Value {
        let mut filter = self.filter.clone();
        filter.insert("entity_id".to_owned(), series.source.id());
        filter.insert("entity_type".to_owned(), json!(series.source.list()));
        filter.insert("entity_order".to_owned(), json!(order));
        filter.insert("entity_math".to_owned(), json!(series.math_given.as_deref().unwrap_or("total")));
        filter.insert("explicit_date".to_owned(), json!(true));
        let mut base = format!("/api/projects/{}/persons/trends/?", self.trend.project_id);
        for (key, value) in &filter {
            if !matches!(key.as_str(), "date_from" | "date_to") && !value.is_null() {
                push_value(&mut base, key, value);
            }
        }
        let short = limits::links_fit(base.len(), self.spans.len() * self.trend.series.len());
        let link = |(from, to): &(String, String)| {
            let url = short.then(|| {
                let mut url = base.clone();
                push_pair(&mut url, "date_from", from);
                push_pair(&mut url, "date_to", to);
                url
            });
            json!({
                "filter": {
                    "entity_id": series.source.id(), "entity_type": series.source.list(), "entity_order": order,
                    "entity_math": filter["entity_math"], "date_from": from, "date_to": to, "explicit_date": true,
                },
                "url": url,
            })
        };
        self.spans.iter().map(link).collect()
    }
}

fn running_sum(counts: &[u64]) -> Vec<u64> {
    let mut sum = 0;
    counts
        .iter()
        .map(|count| {
            sum += count;
            sum
        })
        .collect()
}

/// Each number becomes the whole part of the average of itself and its predecessors, `width` numbers at most.
fn smoothed(counts: &[u64], width: u32) -> Vec<u64> {
    let width = usize::try_from(width).unwrap_or(usize::MAX).max(1);
    (0..counts.len())
        .map(|index| {
            let slice = &counts[(index + 1).saturating_sub(width)..=index];
            slice.iter().sum::<u64>() / u64::try_from(slice.len()).unwrap_or(1)
        })
        .collect()
}
