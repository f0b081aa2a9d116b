//! Builds the rows of a retention result.
//!
//! Must stay true: every row has every column; breakdown values are ordered by the actors that started, then by their bytes.

use std::cmp::Reverse;

use pennon_filters::dates::zone::{utc_text, zoned_text};
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Value, json};

use super::{CompiledRetention, RetentionCounts};
use crate::kinds::QueryOutput;
use crate::kinds::insight::InsightQuery;
use crate::kinds::retention::limits;
use crate::kinds::retention::options::AggregationType;
use crate::numbers::{ExactSum, number_json};
use crate::url::{push_pair, push_value};

/// Work of a cell of the result, which becomes a JSON object.
const WORK_PER_CELL: usize = 16;
/// The breakdown value of the combined other values.
pub(super) const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// The cells of one breakdown value: rows times columns.
struct ValueCells<'t> {
    /// `None` without a breakdown.
    value: Option<&'t str>,
    counts: Vec<u64>,
    /// As many as `counts`, or none if nothing is added up.
    sums: Vec<ExactSum>,
}

impl CompiledRetention {
    /// Builds the rows of the merged results.
    pub(super) fn build_result(
        &self,
        merged: &RetentionCounts,
        work: &WorkBudget<'_>,
    ) -> CalcResult<QueryOutput> {
        if merged.over_budget {
            return Err(limits::too_much_memory());
        }
        let values = self.value_cells(merged, work)?;
        let link = self.people_link(values.len());
        let labels = self.column_labels();
        let mut rows = Vec::new();
        for cells in &values {
            for period in 0..self.periods.len() {
                work.consume(self.columns.count() * WORK_PER_CELL)?;
                rows.push(self.row(cells, period, &labels, link.as_deref()));
            }
        }
        Ok(Value::Array(rows).into())
    }

    /// The cells of each breakdown value in the order of the result.
    fn value_cells<'t>(
        &self,
        merged: &'t RetentionCounts,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<ValueCells<'t>>> {
        let Some(breakdown) = &self.query.common.breakdown else {
            let mut cells = self.empty_cells(None);
            merged.values().for_each(|(_, code)| self.add(&mut cells, merged, code));
            return Ok(vec![cells]);
        };
        let mut ordered = Vec::new();
        for (text, code) in merged.values() {
            let rows = merged.cells.periods(code).filter_map(|period| merged.cells.row(code, period));
            let total: u64 = rows.map(|row| row.counts.first().copied().map_or(0, u64::from)).sum();
            work.consume(self.periods.len())?;
            ordered.push((Reverse(total), text, code));
        }
        if ordered.len() > limits::BREAKDOWN_VALUES {
            return Err(limits::too_many("breakdown", "distinct values", limits::BREAKDOWN_VALUES));
        }
        work.consume(ordered.len())?;
        ordered.sort_unstable();
        let limit = breakdown.limit.unwrap_or(usize::MAX).min(ordered.len());
        let result_values = limit + usize::from(limit < ordered.len());
        let cells = self.periods.len().saturating_mul(self.columns.count());
        if result_values.saturating_mul(cells) > limits::RESULT_CELLS {
            return Err(limits::too_many("breakdown", "cells in the result", limits::RESULT_CELLS));
        }
        let (kept, others) = ordered.split_at(limit);
        let mut values = Vec::with_capacity(result_values);
        for (_, text, code) in kept {
            work.consume(cells)?;
            let mut cells = self.empty_cells(Some(text));
            self.add(&mut cells, merged, *code);
            values.push(cells);
        }
        if !others.is_empty() {
            let mut combined = self.empty_cells(Some(OTHER));
            for (.., code) in others {
                work.consume(self.periods.len() + self.columns.count())?;
                self.add(&mut combined, merged, *code);
            }
            values.push(combined);
        }
        Ok(values)
    }

    fn empty_cells<'t>(&self, value: Option<&'t str>) -> ValueCells<'t> {
        let cells = self.periods.len() * self.columns.count();
        let sums = if self.number.is_some() { cells } else { 0 };
        ValueCells { value, counts: vec![0; cells], sums: vec![ExactSum::default(); sums] }
    }

    /// Adds the cells of a value.
    fn add(&self, cells: &mut ValueCells<'_>, merged: &RetentionCounts, code: u32) {
        for period in merged.cells.periods(code) {
            let Some(row) = merged.cells.row(code, period) else { continue };
            let first = period * self.columns.count();
            for (count, more) in cells.counts.iter_mut().skip(first).zip(row.counts) {
                *count += u64::from(*more);
            }
            for (sum, more) in cells.sums.iter_mut().skip(first).zip(row.sums) {
                sum.merge(more.clone());
            }
        }
    }

    fn row(&self, cells: &ValueCells<'_>, period: usize, labels: &[String], link: Option<&str>) -> Value {
        let first = period * self.columns.count();
        let cell = |(column, label): (usize, &String)| {
            let count = cells.counts.get(first + column).copied().unwrap_or(0);
            let mut cell = json!({"count": count, "label": label});
            if let (Some(aggregation), Some(sum)) = (&self.query.aggregation, cells.sums.get(first + column))
            {
                #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
                let value = match aggregation.statistic {
                    AggregationType::Sum => sum.value(),
                    AggregationType::Average if count > 0 => sum.value() / count as f64,
                    AggregationType::Average => 0.0,
                };
                cell["aggregation_value"] = number_json(value);
            }
            cell
        };
        let start = self.periods.starts().get(period).map(zoned_text);
        let people = link.filter(|_| cells.value != Some(OTHER)).map(|link| {
            let mut url = link.to_owned();
            push_pair(&mut url, "selected_interval", &period.to_string());
            if let Some(value) = cells.value {
                push_pair(&mut url, "breakdown_value", value);
            }
            url
        });
        json!({
            "label": self.periods.label(period),
            "date": start,
            "breakdown_value": cells.value,
            "values": labels.iter().enumerate().map(cell).collect::<Vec<_>>(),
            "people_url": people.filter(|url| url.len() <= limits::LINK_BYTES),
        })
    }

    fn column_labels(&self) -> Vec<String> {
        let label = |column| match self.query.brackets.is_empty() {
            true => self.periods.label(column),
            false => self.periods.bracket_label(&self.columns.distance_text(column)),
        };
        (0..self.columns.count()).map(label).collect()
    }

    /// A people link without its row: the query's parameters with absolute dates. `None` if links would be too long.
    fn people_link(&self, values: usize) -> Option<String> {
        let mut url = format!("/api/projects/{}/persons/retention/?", self.project_id);
        for (key, value) in self.query.to_insight_filters() {
            if !matches!(key.as_str(), "date_from" | "date_to" | "explicit_date") {
                push_value(&mut url, &key, &value);
            }
        }
        push_pair(&mut url, "date_from", &utc_text(&self.range.from));
        push_pair(&mut url, "date_to", &utc_text(&self.range.to));
        limits::links_fit(url.len(), self.periods.len() * values).then_some(url)
    }
}
