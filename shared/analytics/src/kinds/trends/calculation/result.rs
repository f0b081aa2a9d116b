//! Builds the series objects of a trend's result.

use pennon_filters::dates::Interval;
use pennon_filters::dates::zone::{from_micros, utc_text, zoned_text};
use serde_json::{Map, Value, json};

use super::CompiledTrend;
use super::bucket_mapping::Period;
use super::compose::ResultRow;
use super::rows::RowValue;
use crate::kinds::insight::InsightQuery;
use crate::kinds::trends::Display;
use crate::kinds::trends::limits;
use crate::numbers::{finite, number_json};
use crate::query::insight_filters::serialize::with_dates;
use crate::query::{CohortChoice, Math, Series};
use crate::url::{push_pair, push_value};

/// Data that all series objects of a period share.
struct PeriodContext<'a> {
    trend: &'a CompiledTrend,
    period: &'a Period,
    /// Whether this is the comparison period.
    previous: bool,
    labels: Vec<String>,
    days: Vec<String>,
    instants: Vec<String>,
    filter: Map<String, Value>,
    /// Number of rows in the result, to bound the total size of links.
    rows: usize,
}

/// Builds the array of series objects.
pub(super) fn build_series(trend: &CompiledTrend, result_rows: &[ResultRow]) -> Value {
    let filter = trend
        .periods
        .first()
        .map(|period| with_dates(trend.query.to_insight_filters(), &period.range))
        .unwrap_or_default();
    let contexts: Vec<PeriodContext<'_>> = trend
        .periods
        .iter()
        .enumerate()
        .map(|(index, period)| PeriodContext {
            trend,
            period,
            previous: index > 0,
            labels: period.buckets.labels(),
            days: period.buckets.days(),
            instants: period.buckets.starts().iter().map(zoned_text).collect(),
            filter: filter.clone(),
            rows: result_rows.len(),
        })
        .collect();
    let object = |output: &ResultRow| {
        let (context, series) = (contexts.get(output.period)?, trend.query.series.get(output.series)?);
        Some(context.series(output, series))
    };
    result_rows.iter().filter_map(object).collect()
}

impl PeriodContext<'_> {
    fn series(&self, output: &ResultRow, series: &Series) -> Value {
        let query = &self.trend.query;
        let total = query.display.is_total();
        let mut object = json!({
            "action": null,
            "label": self.label(output, series),
            "order": 0,
            "filter": self.filter,
        });
        match output.formula {
            Some(formula) => object["order"] = json!(formula),
            None => {
                object["action"] =
                    self.action(output.series, series, if total { &[] } else { &self.instants });
                object["order"] = json!(output.series);
            }
        }
        if let Some(breakdown) = &query.common.breakdown {
            object["breakdown_value"] = output.row.value.json(breakdown);
        }
        if query.comparison.is_some() {
            object["compare"] = json!(true);
            object["compare_label"] = json!(if self.previous { "previous" } else { "current" });
        }
        let data = &output.row.data;
        if total {
            object["aggregated_value"] = number_json(data.first().copied().unwrap_or(0.0));
            object["data"] = if output.formula.is_some() { Value::Null } else { json!([]) };
            object["days"] = json!([]);
            object["count"] = json!(0);
            return object;
        }
        let running = query.display == Display::ActionsLineGraphCumulative && output.formula.is_none();
        let count = if running { data.last().copied().unwrap_or(0.0) } else { data.iter().sum() };
        object["count"] = json!(finite(count));
        object["data"] = data.iter().copied().map(number_json).collect();
        object["labels"] = json!(self.labels);
        object["days"] = json!(self.days);
        if output.formula.is_none() {
            let (links, omitted) = self.persons_urls(output, series);
            object["persons_urls"] = links;
            if let Some(why) = omitted {
                object["persons_urls_omitted"] = json!(why);
            }
        }
        object
    }

    /// The label: the series' name, the breakdown value, or both if the result has several series.
    fn label(&self, output: &ResultRow, series: &Series) -> String {
        if let Some(formula) = output.formula.and_then(|index| self.trend.formulas.get(index)) {
            let unnamed = || format!("Formula ({})", formula.formula.text());
            return formula.custom_name.clone().unwrap_or_else(unnamed);
        }
        let name = series.event_or_action.name(&self.trend.definitions).unwrap_or("All events");
        let series_count =
            self.trend.query.series.len() * self.trend.separate_cohorts().map_or(1, <[CohortChoice]>::len);
        let value = match &output.row.value {
            RowValue::NoBreakdown => return name.to_owned(),
            RowValue::Texts(texts) => texts.join("::"),
            RowValue::Cohort(CohortChoice::All) => "all users".to_owned(),
            RowValue::Cohort(CohortChoice::Cohort(id)) => {
                let cohort = self.trend.definitions.cohorts.get(id);
                cohort.map_or_else(|| id.to_string(), |cohort| cohort.name.clone())
            }
        };
        if series_count == 1 { value } else { format!("{name} - {value}") }
    }

    fn action(&self, order: usize, series: &Series, days: &[String]) -> Value {
        let name = series.event_or_action.name(&self.trend.definitions);
        let arguments = &series.math_arguments;
        json!({
            "days": days,
            "id": name,
            "type": series.event_or_action.list_name(),
            "order": order,
            "name": name.unwrap_or("All events"),
            "custom_name": series.custom_name,
            "math": series.requested_math,
            "math_property": arguments.property,
            "math_hogql": arguments.expression,
            "math_group_type_index": arguments.group_index,
            "properties": {},
        })
    }

    /// One people link per bucket, with the bucket's absolute dates, and why links are missing. `url` is null if links would
    /// be too long; the whole field is null if even the links' filters would be. A series of an action that does not exist has
    /// no row, hence no links.
    fn persons_urls(&self, output: &ResultRow, series: &Series) -> (Value, Option<String>) {
        let trend = self.trend;
        let Some(counter) = trend.counters.get(output.series).and_then(Option::as_ref) else {
            return (Value::Null, None);
        };
        let mut own_filter = Map::new();
        own_filter.insert("entity_id".to_owned(), series.event_or_action.id());
        own_filter.insert("entity_type".to_owned(), json!(series.event_or_action.list_name()));
        own_filter.insert("entity_order".to_owned(), json!(output.series));
        own_filter
            .insert("entity_math".to_owned(), json!(series.requested_math.as_deref().unwrap_or("total")));
        if let Some(breakdown) = &trend.query.common.breakdown {
            own_filter.insert("breakdown_value".to_owned(), output.row.value.json(breakdown));
            if output.row.value.is_other() {
                let kept_values = output.row.kept_values.iter().map(|value| value.json(breakdown)).collect();
                own_filter.insert("breakdown_kept".to_owned(), kept_values);
            }
        }
        own_filter.insert("explicit_date".to_owned(), json!(true));
        // A link covers the whole rolling window, which has too many buckets at short intervals.
        let common = &trend.query.common;
        if matches!(counter.math, Math::Rolling(..)) && common.interval.is_clock() {
            own_filter.insert("interval".to_owned(), json!(Interval::Day.name()));
        }
        let mut base = format!("/api/projects/{}/persons/trends/?", trend.project_id);
        // These fields do not affect the people of a single bucket.
        let ignored_fields =
            ["date_from", "date_to", "explicit_date", "compare", "compare_to", "smoothing_intervals"];
        for (key, value) in self
            .filter
            .iter()
            .filter(|(key, _)| {
                !ignored_fields.contains(&key.as_str()) && !own_filter.contains_key(key.as_str())
            })
            .chain(&own_filter)
        {
            if !value.is_null() {
                push_value(&mut base, key, value);
            }
        }
        let running = trend.query.display == Display::ActionsLineGraphCumulative;
        let spans = self.period.time_ranges(&counter.math, running);
        let links_fit = limits::links_fit(base.len(), spans.len() * self.rows);
        let filter_bytes = serde_json::to_vec(&own_filter).map_or(usize::MAX, |json| json.len());
        if filter_bytes.saturating_mul(spans.len() * self.rows) > limits::LINKS_BYTES {
            return (Value::Null, Some(links_omitted(spans.len() * self.rows)));
        }
        let text = |at| utc_text(&from_micros(at, chrono_tz::UTC));
        let link = |(from, to): (i64, i64)| {
            let (from, to) = (text(from), text(to));
            let url = links_fit.then(|| {
                let mut url = base.clone();
                push_pair(&mut url, "date_from", &from);
                push_pair(&mut url, "date_to", &to);
                url
            });
            let mut filter = own_filter.clone();
            filter.insert("date_from".to_owned(), json!(from));
            filter.insert("date_to".to_owned(), json!(to));
            json!({"filter": filter, "url": url})
        };
        let omitted_reason = (!links_fit).then(|| links_omitted(spans.len() * self.rows));
        (spans.into_iter().map(link).collect(), omitted_reason)
    }
}

/// Explains why a result has no people links.
fn links_omitted(links: usize) -> String {
    format!(
        "{links} links to people would take more than {} bytes together, or one of them more than {}. For links, use a \
         longer interval, a shorter range or fewer values of the breakdown.",
        limits::LINKS_BYTES,
        limits::LINK_BYTES
    )
}
