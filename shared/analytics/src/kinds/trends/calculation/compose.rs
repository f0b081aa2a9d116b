//! Turns the merged partial results into the result's rows: periods, series, cohorts, formulas.
//!
//! Must stay true: rows of the current period come before those of the previous one. In a formula, a series without a row
//! for a breakdown value counts as zeros.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::CompiledTrend;
use super::accumulator::Accumulator;
use super::breakdown_values::BreakdownValue;
use super::partial_result::PartialResult;
use super::rows::{RowRules, RowValue, ValueRow};
use crate::kinds::trends::clickhouse_rows::SeriesNumbers;
use crate::kinds::trends::{Display, Formula};
use crate::query::{BreakdownBy, CohortChoice};

/// A row of the result, and the period and series or formula that it belongs to.
#[derive(Debug, Clone)]
pub(super) struct ResultRow {
    /// Index of the period.
    pub(super) period: usize,
    /// Index of the series; 0 for a formula.
    pub(super) series: usize,
    /// Index of the formula, if the row is a formula's.
    pub(super) formula: Option<usize>,
    pub(super) row: ValueRow,
}

/// The accumulators by period and series.
type AccumulatorsByPeriodSeries = HashMap<usize, Vec<(BreakdownValue, Accumulator)>>;

impl CompiledTrend {
    /// All rows in result order, and whether breakdown values were cut off by the limit.
    pub(super) fn result_rows(
        &self,
        sum: PartialResult,
        work: &WorkBudget<'_>,
    ) -> CalcResult<(Vec<ResultRow>, bool)> {
        let mut by_period_series = AccumulatorsByPeriodSeries::new();
        for ((period_series, key), accumulator) in sum.accumulators {
            by_period_series.entry(period_series).or_default().push((key, accumulator));
        }
        let (mut result_rows, mut cut) = (Vec::new(), false);
        let mut rows_of_formulas: Vec<Vec<ResultRow>> = vec![Vec::new(); self.formulas.len()];
        for period in 0..self.periods.len() {
            let series: Vec<Vec<ValueRow>> = (0..self.counters.len())
                .map(|series| {
                    let accumulators =
                        by_period_series.remove(&self.period_series(period, series)).unwrap_or_default();
                    let (rows, was_cut) = self.rows(period, series, accumulators, work)?;
                    cut |= was_cut;
                    Ok(rows)
                })
                .collect::<CalcResult<_>>()?;
            let output = |(series, row)| ResultRow { period, series, formula: None, row };
            for (index, (formula, rows)) in self.formulas.iter().zip(&mut rows_of_formulas).enumerate() {
                let formula_rows = self.formula_rows(&formula.formula, &series).into_iter();
                rows.extend(formula_rows.map(|row| ResultRow { formula: Some(index), ..output((0, row)) }));
            }
            match self.separate_cohorts() {
                _ if !self.formulas.is_empty() => {}
                None => {
                    let rows = series.into_iter().enumerate();
                    result_rows.extend(
                        rows.flat_map(|(series, rows)| rows.into_iter().map(move |row| (series, row)))
                            .map(output),
                    );
                }
                Some(choices) => {
                    for choice in choices {
                        let of_choice = |row: &&ValueRow| row.value == RowValue::Cohort(*choice);
                        result_rows.extend(series.iter().enumerate().flat_map(|(series, rows)| {
                            rows.iter().filter(of_choice).map(move |row| output((series, row.clone())))
                        }));
                    }
                }
            }
        }
        // A formula's rows of both periods come before the next formula.
        result_rows.extend(rows_of_formulas.into_iter().flatten());
        Ok((result_rows, cut))
    }

    /// All rows in result order of numbers whose breakdown values are limited already, and whether values were cut off. For
    /// queries of one period without formulas.
    pub(super) fn rows_of_limited_values(&self, numbers: Vec<SeriesNumbers>) -> (Vec<ResultRow>, bool) {
        let breakdown = self.query.common.breakdown.as_ref();
        let rules = self.row_rules();
        let mut by_series: BTreeMap<usize, (Vec<ValueRow>, bool)> = BTreeMap::new();
        for SeriesNumbers { series, value, value_count, data } in numbers {
            let (rows, cut) = by_series.entry(series).or_default();
            *cut |= breakdown.is_some_and(|breakdown| value_count > rules.limit(breakdown));
            let value = if breakdown.is_some() { RowValue::Texts(value) } else { RowValue::NoBreakdown };
            rows.push(ValueRow { value, data, kept_values: Vec::new() });
        }
        let was_cut = by_series.values().any(|(_, cut)| *cut);
        let rows = by_series.into_iter().flat_map(|(series, (rows, cut))| {
            let rows = rules.complete_limited_rows(rows, cut).into_iter();
            rows.map(move |row| ResultRow { period: 0, series, formula: None, row })
        });
        (rows.collect(), was_cut)
    }

    /// The cohorts, if the API treats each as a query of its own: a single one, or a list that includes all users.
    pub(super) fn separate_cohorts(&self) -> Option<&[CohortChoice]> {
        match self.query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
            Some(BreakdownBy::Cohorts { choices, .. })
                if choices.len() == 1 || choices.contains(&CohortChoice::All) =>
            {
                Some(choices)
            }
            _ => None,
        }
    }

    /// The rows of one series in one period, and whether values were cut off.
    fn rows(
        &self,
        period: usize,
        series: usize,
        accumulators: Vec<(BreakdownValue, Accumulator)>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<(Vec<ValueRow>, bool)> {
        let Some(counter) = self.counters.get(series).and_then(Option::as_ref) else {
            return Ok((Vec::new(), false));
        };
        let width = self.periods.get(period).map_or(0, super::bucket_mapping::Period::width);
        let first_bucket_only = self.counts_first_bucket_only(&counter.math);
        let breakdown = self.query.common.breakdown.as_ref();
        let mut counted = Vec::with_capacity(accumulators.len());
        for (key, accumulator) in accumulators {
            work.check()?;
            let aggregate = (counter.statistic(), counter.aggregation.as_ref());
            let mut numbers = accumulator.finish(width, aggregate, first_bucket_only, work);
            numbers.iter_mut().for_each(|number| *number *= counter.multiplier);
            counted.push((key, numbers));
        }
        if counted.is_empty() && breakdown.is_none() {
            counted.push((BreakdownValue::NoBreakdown, vec![0.0; width]));
        }
        let (mut rows, cut) = self.row_rules().rows(counted, breakdown);
        if breakdown.is_none() && self.query.smoothing > 1 && !self.query.display.is_total() {
            rows.iter_mut().for_each(|row| row.data = smoothed(&row.data, self.query.smoothing));
        }
        Ok((rows, cut))
    }

    fn row_rules(&self) -> RowRules {
        let display = self.query.display;
        RowRules {
            total: display.is_total(),
            running: display == Display::ActionsLineGraphCumulative,
            default_limit: display.default_value_limit(),
        }
    }

    /// Evaluates a formula over the rows of all series of a period.
    fn formula_rows(&self, formula: &Formula, series: &[Vec<ValueRow>]) -> Vec<ValueRow> {
        let mut values: BTreeMap<&RowValue, ()> = BTreeMap::new();
        series.iter().flatten().for_each(|row| {
            values.insert(&row.value, ());
        });
        let width = series.iter().flatten().map(|row| row.data.len()).max().unwrap_or(0);
        let by_value: Vec<BTreeMap<&RowValue, &ValueRow>> =
            series.iter().map(|rows| rows.iter().map(|row| (&row.value, row)).collect()).collect();
        let mut rows: Vec<ValueRow> = values
            .into_keys()
            .map(|value| {
                let of_value: Vec<Option<&ValueRow>> =
                    by_value.iter().map(|rows| rows.get(value).copied()).collect();
                let value_at = |bucket: usize| {
                    formula.evaluate(|letter| {
                        let row = of_value.get(letter).copied().flatten();
                        row.and_then(|row| row.data.get(bucket)).copied().unwrap_or(0.0)
                    })
                };
                ValueRow {
                    value: value.clone(),
                    data: (0..width).map(value_at).collect(),
                    kept_values: Vec::new(),
                }
            })
            .collect();
        if let Some(choices) = self.separate_cohorts() {
            let cohort_position =
                |row: &ValueRow| choices.iter().position(|choice| row.value == RowValue::Cohort(*choice));
            rows.sort_by_key(cohort_position);
        } else if self.query.comparison.is_some() {
            let count =
                |row: &ValueRow| if self.query.display.is_total() { 0.0 } else { row.data.iter().sum() };
            rows.sort_by(|left, right| compare_natural(&left.value.texts(), &right.value.texts()));
            rows.sort_by(|left, right| count(right).total_cmp(&count(left)));
        } else {
            rows.sort_by(compare_formula_rows);
        }
        rows
    }
}

/// Trailing average over at most `width` numbers, rounded down.
fn smoothed(data: &[f64], width: u32) -> Vec<f64> {
    let width = usize::try_from(width).unwrap_or(usize::MAX).max(1);
    (0..data.len())
        .map(|index| {
            let slice = &data[(index + 1).saturating_sub(width)..=index];
            #[expect(clippy::cast_precision_loss, reason = "there are few buckets")]
            let average = slice.iter().sum::<f64>() / slice.len() as f64;
            average.floor()
        })
        .collect()
}

/// Order of a formula's rows: real values, null, other; then by descending sum, descending numbers bucket by bucket, and
/// descending text.
fn compare_formula_rows(left: &ValueRow, right: &ValueRow) -> Ordering {
    let size = |row: &ValueRow| -> f64 { row.data.iter().sum() };
    let numbers = || {
        let pairs = right.data.iter().zip(&left.data);
        pairs
            .map(|(right, left)| right.total_cmp(left))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    };
    (left.value.class().cmp(&right.value.class()))
        .then(size(right).total_cmp(&size(left)))
        .then_with(numbers)
        .then_with(|| right.value.texts().cmp(&left.value.texts()))
}

/// Natural order: case-insensitive, digits compared as numbers.
fn compare_natural(left: &[String], right: &[String]) -> Ordering {
    let pieces = |texts: &[String]| -> Vec<(bool, u128, String)> {
        let text = texts.join("::").to_lowercase();
        let mut pieces: Vec<String> = Vec::new();
        for character in text.chars() {
            match pieces.last_mut() {
                Some(piece)
                    if piece.ends_with(|last: char| last.is_ascii_digit() == character.is_ascii_digit()) =>
                {
                    piece.push(character);
                }
                _ => pieces.push(character.to_string()),
            }
        }
        let piece = |piece: String| (piece.parse::<u128>().is_err(), piece.parse().unwrap_or(0), piece);
        pieces.into_iter().map(piece).collect()
    };
    pieces(left).cmp(&pieces(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_texts_are_ordered_by_size() {
        let mut texts = ["b", "A10", "a2", "B1", "10", "9"].map(|text| vec![text.to_owned()]);
        texts.sort_by(|left, right| compare_natural(left, right));
        assert_eq!(texts.concat(), ["9", "10", "a2", "A10", "b", "B1"]);
    }

    #[test]
    fn formulas_put_the_later_text_first_on_a_tie() {
        let row = |text: &str, data: &[f64]| ValueRow {
            value: RowValue::Texts(vec![text.to_owned()]),
            data: data.to_vec(),
            kept_values: Vec::new(),
        };
        let mut rows = [
            row("London", &[0.0]),
            row(super::super::rows::NULL, &[9.0]),
            row("Paris", &[0.0]),
            row("Rome", &[1.0]),
        ];
        rows.sort_by(compare_formula_rows);
        let names: Vec<_> = rows.iter().map(|row| row.value.texts().concat()).collect();
        assert_eq!(names, ["Rome", "Paris", "London", super::super::rows::NULL]);
    }
}
