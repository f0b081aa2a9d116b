//! The rows of one series in one period: bins numeric values, applies the breakdown limit and sorts.
//!
//! Must stay true: values over the limit are added up in the row of other values, not lost. The order depends only on
//! numbers and texts.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use pennon_filters::text::numeric;
use serde_json::{Value, json};

use super::breakdown_values::BreakdownValue;
use crate::query::{Breakdown, BreakdownBy, BreakdownForm, CohortChoice};

/// The breakdown value for missing, null and empty.
pub(super) const NULL: &str = "$$_posthog_breakdown_null_$$";
/// The breakdown value of the row that adds up the values over the limit.
pub(super) const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// The breakdown value of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowValue {
    /// There is no breakdown.
    NoBreakdown,
    /// One text per dimension.
    Texts(Vec<String>),
    /// A cohort, or all users.
    Cohort(CohortChoice),
}

/// The numbers of one breakdown value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ValueRow {
    pub(super) value: RowValue,
    /// One number per bucket, or a single total; cumulative for a running sum.
    pub(super) data: Vec<f64>,
    /// For the row of other values: the values that are not in it.
    pub(super) kept_values: Vec<RowValue>,
}

/// How rows are limited and sorted.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowRules {
    /// One total instead of one number per bucket.
    pub(super) total: bool,
    /// Cumulative sums over the buckets.
    pub(super) running: bool,
    /// Limit of values if the query sets none.
    pub(super) default_limit: usize,
}

impl RowValue {
    /// Whether it is the value of the row of other values.
    pub(super) fn is_other(&self) -> bool {
        matches!(self, Self::Texts(texts) if texts.iter().any(|text| text == OTHER))
    }

    /// Sort class: real values, then null, then other.
    pub(super) fn class(&self) -> u8 {
        match self {
            other if other.is_other() => 2,
            Self::Texts(texts) if texts.iter().any(|text| text == NULL) => 1,
            _ => 0,
        }
    }

    /// The texts for sorting and labels.
    pub(super) fn texts(&self) -> Vec<String> {
        match self {
            Self::NoBreakdown => Vec::new(),
            Self::Texts(texts) => texts.clone(),
            Self::Cohort(CohortChoice::All) => vec!["all".to_owned()],
            Self::Cohort(CohortChoice::Cohort(id)) => vec![id.to_string()],
        }
    }

    /// The `breakdown_value` of a series.
    pub(super) fn json(&self, breakdown: &Breakdown) -> Value {
        match (self, &breakdown.by) {
            (Self::Cohort(choice), _) => choice.json(),
            (Self::Texts(texts), BreakdownBy::Dimensions { form: BreakdownForm::Several, .. }) => {
                json!(texts)
            }
            (Self::Texts(texts), _) => json!(texts.first()),
            (Self::NoBreakdown, _) => Value::Null,
        }
    }
}

impl RowRules {
    /// The sum of a row's numbers.
    fn size(data: &[f64]) -> f64 {
        data.iter().sum()
    }

    /// Builds the rows, and returns whether values were cut off by the limit.
    pub(super) fn rows(
        self,
        counted: Vec<(BreakdownValue, Vec<f64>)>,
        breakdown: Option<&Breakdown>,
    ) -> (Vec<ValueRow>, bool) {
        let mut rows = rows_by_value(counted, breakdown);
        let mut cut = false;
        if let Some(breakdown) = breakdown
            && matches!(breakdown.by, BreakdownBy::Dimensions { .. })
        {
            let limit = self.limit(breakdown);
            rows.sort_by(|left, right| self.rank(left, right, Self::size));
            if rows.len() > limit {
                cut = true;
                let other_rows = rows.split_off(limit);
                if !breakdown.hide_other {
                    let kept_values = rows.iter().map(|row| row.value.clone()).collect();
                    rows.push(sum_rows(&other_rows, kept_values));
                }
            }
        }
        if self.running {
            for row in &mut rows {
                row.data = running_sum(&row.data);
            }
        }
        if breakdown.is_some() {
            rows.sort_by(Self::order);
        }
        (rows, cut)
    }

    /// The number of breakdown values that stay.
    pub(super) fn limit(self, breakdown: &Breakdown) -> usize {
        breakdown.limit.unwrap_or(self.default_limit)
    }

    /// Sorts rows that are limited and summed already, and with `cut` adds to the row of other values those that are not in
    /// it.
    pub(super) fn complete_limited_rows(self, mut rows: Vec<ValueRow>, cut: bool) -> Vec<ValueRow> {
        let other = rows.iter().position(|row| row.value.is_other()).filter(|_| cut);
        if let Some(mut other) = other.map(|at| rows.remove(at)) {
            let last = |data: &[f64]| data.last().copied().unwrap_or(0.0);
            // The last of cumulative sums is the sum of what they add up.
            let size = if self.running { last } else { Self::size };
            rows.sort_by(|left, right| self.rank(left, right, size));
            other.kept_values = rows.iter().map(|row| row.value.clone()).collect();
            rows.push(other);
        }
        rows.sort_by(Self::order);
        rows
    }

    /// The order that decides which values stay within the limit.
    fn rank(self, left: &ValueRow, right: &ValueRow, size: fn(&[f64]) -> f64) -> Ordering {
        // For totals, null competes with the real values.
        let class = |row: &ValueRow| if self.total { 0 } else { row.value.class() };
        class(left)
            .cmp(&class(right))
            .then(size(&right.data).total_cmp(&size(&left.data)))
            .then_with(|| left.value.texts().cmp(&right.value.texts()))
    }

    /// The order of the rows in the result.
    fn order(left: &ValueRow, right: &ValueRow) -> Ordering {
        (left.value.class().cmp(&right.value.class()))
            .then(Self::size(&right.data).total_cmp(&Self::size(&left.data)))
            .then_with(|| left.value.texts().cmp(&right.value.texts()))
    }
}

fn sum_rows(other_rows: &[ValueRow], kept_values: Vec<RowValue>) -> ValueRow {
    let width = other_rows.first().map_or(0, |row| row.data.len());
    let dimensions = other_rows.first().map_or(0, |row| row.value.texts().len());
    let mut data = vec![0.0; width];
    for row in other_rows {
        data.iter_mut().zip(&row.data).for_each(|(sum, more)| *sum += more);
    }
    ValueRow { value: RowValue::Texts(vec![OTHER.to_owned(); dimensions]), data, kept_values }
}

/// Cumulative sums.
pub(super) fn running_sum(data: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    data.iter()
        .map(|number| {
            sum += number;
            sum
        })
        .collect()
}

/// One row per value, with numeric values binned where the query has bins.
fn rows_by_value(
    mut counted: Vec<(BreakdownValue, Vec<f64>)>,
    breakdown: Option<&Breakdown>,
) -> Vec<ValueRow> {
    counted.sort_by(|left, right| left.0.cmp(&right.0));
    let bins = compute_bins(&counted, breakdown);
    let mut rows: BTreeMap<RowValue, Vec<f64>> = BTreeMap::new();
    for (key, data) in counted {
        let value = match key {
            BreakdownValue::NoBreakdown => RowValue::NoBreakdown,
            BreakdownValue::Cohort(choice) => RowValue::Cohort(choice),
            BreakdownValue::Texts(texts) => {
                let dimension = |(index, text): (usize, &Option<String>)| {
                    let text = match bins.get(index).copied().flatten() {
                        Some(bins) => text.as_deref().and_then(numeric).map(|number| bins.label(number)),
                        None => text.clone(),
                    };
                    text.unwrap_or_else(|| NULL.to_owned())
                };
                RowValue::Texts(texts.iter().enumerate().map(dimension).collect())
            }
        };
        match rows.entry(value) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(data);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                entry.get_mut().iter_mut().zip(data).for_each(|(sum, more)| *sum += more);
            }
        }
    }
    rows.into_iter().map(|(value, data)| ValueRow { value, data, kept_values: Vec::new() }).collect()
}

/// Equal-width bins over the numbers of a dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bins {
    min: f64,
    max: f64,
    count: u32,
}

fn compute_bins(counted: &[(BreakdownValue, Vec<f64>)], breakdown: Option<&Breakdown>) -> Vec<Option<Bins>> {
    let Some(BreakdownBy::Dimensions { dimensions, .. }) = breakdown.map(|breakdown| &breakdown.by) else {
        return Vec::new();
    };
    let bins_of_dimension = |(index, count): (usize, Option<u32>)| {
        let numbers = counted.iter().filter_map(|(key, _)| match key {
            BreakdownValue::Texts(texts) => texts.get(index)?.as_deref().and_then(numeric),
            _ => None,
        });
        let (min, max) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), number| {
            (min.min(number), max.max(number))
        });
        Some(Bins { min, max, count: count? })
    };
    dimensions.iter().map(|dimension| dimension.bins).enumerate().map(bins_of_dimension).collect()
}

impl Bins {
    /// Lower and upper edge of a bin. The last bin's upper edge is raised by 0.01 to include the maximum.
    fn edges(self, bin: u32) -> (f64, f64) {
        let width = (self.max - self.min) / f64::from(self.count);
        let end = self.min + f64::from(bin + 1) * width;
        let end = if bin + 1 == self.count { end + 0.01 } else { end };
        (self.min + f64::from(bin) * width, end)
    }

    /// The label of the bin that contains a number.
    fn label(self, number: f64) -> String {
        let width = (self.max - self.min) / f64::from(self.count);
        // Because of rounding, the division may give a neighbour of the right bin.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "casts of floats saturate"
        )]
        let near = if width > 0.0 { ((number - self.min) / width) as u32 } else { self.count };
        let last = self.count - 1;
        let mut candidates = near.saturating_sub(1)..=near.saturating_add(1).min(last);
        let bin = candidates.find(|bin| {
            let (from, until) = self.edges(*bin);
            from <= number && number < until
        });
        let (from, until) = self.edges(bin.unwrap_or(last));
        format!("[{},{}]", format_number(from), format_number(until))
    }
}

/// The shortest decimal form, without the sign of minus zero.
fn format_number(number: f64) -> String {
    format!("{}", number + 0.0)
}

/// Parses the edges from a bin's label.
pub(super) fn parse_bin_label(text: &str) -> Option<(f64, f64)> {
    let (from, until) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(',')?;
    Some((numeric(from)?, numeric(until)?))
}
