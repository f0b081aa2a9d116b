//! The breakdown of a funnel: which values an actor counts under, and which of its events count for each.
//!
//! Must stay true: an actor counts under values of its own events, or under the empty value if all are empty; with cohorts
//! it counts under each cohort it belongs to. Codes of values are valid only within one partition.

use std::collections::HashMap;

use arrow_buffer::ScalarBuffer;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::scan::{RequiredValue, StepEvent};
use crate::breakdown::{BreakdownReader, TextColumn};
use crate::compiler::Compiler;
use crate::kinds::funnels::limits;
use crate::kinds::funnels::{Attribution, FunnelsQuery, StepOrder};
use crate::query::{BreakdownBy, CohortChoice, DimensionSource};
use crate::scan::{ColumnRef, EventRun, JoinedColumnKey};

/// The compiled breakdown.
#[derive(Debug, Clone)]
pub(super) enum FunnelBreakdown {
    /// No breakdown.
    None,
    /// By property values of events.
    Values {
        /// Reads the values.
        reader: BreakdownReader,
        /// Number of dimensions.
        dimensions: usize,
        /// Selects the values that an actor counts under.
        attribution: Attribution,
        /// First and last touch skip events with an empty value.
        skip_empty: bool,
        /// Unordered funnel: step attribution uses the values of all events.
        unordered: bool,
    },
    /// By cohort membership.
    Cohorts(Vec<CohortChoice>),
}

/// First or last touch attribution, where an actor counts under a single value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TouchAttribution {
    /// Last touch rather than first touch.
    pub(super) last: bool,
    /// Skips events with an empty value.
    pub(super) skip_empty: bool,
}

/// The distinct breakdown values of a partition, numbered by codes. Code 0 is the empty value.
#[derive(Debug)]
pub(super) struct ValueDictionary {
    dimensions: usize,
    texts: HashMap<String, u32>,
    by_text: Vec<String>,
    codes: HashMap<(u32, u32), u32>,
    /// By code minus 1: the code of the value without its last text, and the code of that text.
    parents: Vec<(u32, u32)>,
    /// The sets of cohorts that persons belong to, one bit per cohort, and their codes.
    sets: HashMap<u64, u32>,
    by_set: Vec<u64>,
}

/// One scan of an actor's events for one breakdown value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValuePass {
    /// Code of the value that it counts under.
    pub(super) value: u32,
    /// Restricts a step to events with the value.
    pub(super) required_value: Option<RequiredValue>,
    /// The events to scan.
    pub(super) events: EventSubset,
}

/// The events of an actor that a scan processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventSubset {
    /// All events.
    All,
    /// Events with the scan's value.
    Value,
    /// Events of members of the scan's cohort.
    Cohort,
}

/// The code of each row's value in a run.
#[derive(Debug)]
pub(super) enum ValueCodes {
    /// One code per row.
    PerRow(Vec<u32>),
    /// Column codes, a table from column code to value code, and the value code of rows outside the table.
    ByColumnCode { codes: ScalarBuffer<u32>, table: Vec<u32>, missing: u32 },
}

impl ValueCodes {
    /// The code of a row.
    #[inline]
    pub(super) fn code_of(&self, row: usize) -> u32 {
        match self {
            Self::PerRow(codes) => codes.get(row).copied().unwrap_or(0),
            Self::ByColumnCode { codes, table, missing } => {
                let code = codes.get(row).and_then(|code| table.get(*code as usize));
                code.copied().unwrap_or(*missing)
            }
        }
    }
}

impl ValuePass {
    fn new(value: u32, events: EventSubset) -> Self {
        Self { value, required_value: None, events }
    }
}

impl FunnelBreakdown {
    /// Compiles the breakdown and registers the columns it reads.
    pub(super) fn new(query: &FunnelsQuery, compiler: &mut Compiler<'_>) -> CalcResult<Self> {
        let attr = "breakdown";
        Ok(match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
            None => Self::None,
            Some(BreakdownBy::Dimensions { dimensions, .. }) => Self::Values {
                // Funnels replace missing values by the empty text before they normalize URLs.
                reader: BreakdownReader::new(dimensions, compiler, attr)?.with_missing_urls(),
                dimensions: dimensions.len(),
                attribution: query.attribution,
                skip_empty: !is_single_text(query),
                unordered: query.order == StepOrder::Unordered,
            },
            Some(BreakdownBy::Cohorts { choices, .. }) => {
                for choice in choices {
                    if let CohortChoice::Cohort(id) = choice {
                        compiler.require_value(&ColumnRef::Joined(JoinedColumnKey::InCohort(*id)), attr)?;
                    }
                }
                Self::Cohorts(choices.clone())
            }
        })
    }

    /// First or last touch attribution; `None` if an actor can count under several values.
    pub(super) fn touch_attribution(&self) -> Option<TouchAttribution> {
        match self {
            Self::Values { attribution: Attribution::FirstTouch, skip_empty, .. } => {
                Some(TouchAttribution { last: false, skip_empty: *skip_empty })
            }
            Self::Values { attribution: Attribution::LastTouch, skip_empty, .. } => {
                Some(TouchAttribution { last: true, skip_empty: *skip_empty })
            }
            _ => None,
        }
    }

    /// The step of step attribution.
    pub(super) fn attributed_step(&self) -> Option<usize> {
        match self {
            Self::Values { attribution: Attribution::Step(step), .. } => Some(*step),
            _ => None,
        }
    }

    /// Creates an empty dictionary of values.
    pub(super) fn new_dictionary(&self) -> ValueDictionary {
        let dimensions = match self {
            Self::None => 0,
            Self::Values { dimensions, .. } => *dimensions,
            Self::Cohorts(_) => 1,
        };
        ValueDictionary::new(dimensions)
    }

    /// The codes of the values of a run's rows; `None` without a breakdown.
    pub(super) fn codes(
        &self,
        run: &EventRun,
        values: &mut ValueDictionary,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<ValueCodes>> {
        match self {
            Self::None => Ok(None),
            Self::Values { reader, .. } => {
                values.codes(reader.texts(run, work)?, run.actors.len(), work).map(Some)
            }
            Self::Cohorts(choices) => {
                work.consume(run.actors.len().saturating_mul(choices.len()))?;
                Ok(Some(ValueCodes::PerRow(values.cohort_sets(run, choices))))
            }
        }
    }

    /// The value as the key of a result row: its texts, or the cohort's id.
    pub(super) fn key(&self, value: u32, values: &ValueDictionary) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Values { .. } => values.key(value),
            Self::Cohorts(choices) => match choices.get(value as usize) {
                Some(CohortChoice::Cohort(id)) => vec![id.to_string()],
                _ => vec!["0".to_owned()],
            },
        }
    }

    /// Lists the scans of an actor, one per value that it counts under.
    pub(super) fn list_passes(
        &self,
        events: &[StepEvent],
        values: &ValueDictionary,
        passes: &mut Vec<ValuePass>,
    ) {
        passes.clear();
        match self {
            Self::None => passes.push(ValuePass::new(0, EventSubset::All)),
            Self::Cohorts(choices) => {
                let choices = (0..).take(choices.len());
                let belongs =
                    |choice: &u32| events.iter().any(|event| values.is_member(event.value, *choice));
                passes.extend(
                    choices.filter(belongs).map(|choice| ValuePass::new(choice, EventSubset::Cohort)),
                );
            }
            Self::Values { attribution, skip_empty, unordered, .. } => {
                let can_attribute = |event: &&StepEvent| !skip_empty || event.value != 0;
                let touch = |event: Option<&StepEvent>| {
                    ValuePass::new(event.map_or(0, |event| event.value), EventSubset::All)
                };
                match attribution {
                    Attribution::FirstTouch => passes.push(touch(events.iter().find(can_attribute))),
                    Attribution::LastTouch => passes.push(touch(events.iter().rev().find(can_attribute))),
                    Attribution::AllEvents => {
                        passes.extend(
                            events.iter().map(|event| ValuePass::new(event.value, EventSubset::Value)),
                        );
                    }
                    Attribution::Step(step) => {
                        let step_events =
                            events.iter().filter(|event| *unordered || event.matches.has_step(*step));
                        passes.extend(step_events.map(|event| {
                            let required_value = Some(RequiredValue { step: *step, value: event.value });
                            ValuePass { value: event.value, required_value, events: EventSubset::All }
                        }));
                    }
                }
                passes.sort_unstable_by_key(|pass| pass.value);
                passes.dedup();
            }
        }
    }
}

/// Whether the result shows the value as a text rather than a list: for a single group property.
pub(super) fn is_single_text(query: &FunnelsQuery) -> bool {
    match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        Some(BreakdownBy::Dimensions { dimensions, .. }) => {
            matches!(dimensions.as_slice(), [dimension] if matches!(dimension.source, DimensionSource::Group(..)))
        }
        _ => false,
    }
}

/// Work units of looking up the code of a value, in addition to the bytes of its text.
const WORK_PER_VALUE: usize = 16;

impl ValueDictionary {
    fn new(dimensions: usize) -> Self {
        Self {
            dimensions,
            texts: std::iter::once((String::new(), 0)).collect(),
            by_text: vec![String::new()],
            codes: HashMap::new(),
            parents: Vec::new(),
            sets: HashMap::new(),
            by_set: Vec::new(),
        }
    }

    /// Number of values, including the empty one.
    pub(super) fn len(&self) -> usize {
        self.parents.len() + 1
    }

    /// Combines the texts of all dimensions to values, and returns their codes.
    pub(super) fn codes(
        &mut self,
        mut dimensions: Vec<TextColumn>,
        rows: usize,
        work: &WorkBudget<'_>,
    ) -> CalcResult<ValueCodes> {
        let mut text_codes = Vec::with_capacity(dimensions.len());
        for dimension in &mut dimensions {
            let texts = std::mem::take(&mut dimension.values);
            let codes = texts.into_iter().map(|text| {
                work.consume(WORK_PER_VALUE + text.len())?;
                Ok(self.text(text))
            });
            text_codes.push(codes.collect::<CalcResult<Vec<_>>>()?);
        }
        if let ([texts], [codes]) = (dimensions.as_slice(), text_codes.as_slice()) {
            let value_codes =
                codes.iter().map(|text| self.extend_value(0, 0, *text)).collect::<CalcResult<Vec<_>>>()?;
            let code = |index: &u32| value_codes.get(*index as usize).copied().unwrap_or(0);
            let table = texts.table.iter().map(code).collect();
            return Ok(ValueCodes::ByColumnCode {
                codes: texts.codes.clone(),
                table,
                missing: code(&texts.missing),
            });
        }
        let mut codes = vec![0; rows];
        for (dimension, (texts, text_codes)) in dimensions.iter().zip(&text_codes).enumerate() {
            for (row, code) in codes.iter_mut().enumerate() {
                work.consume(1)?;
                // A row without a value has an index outside the texts.
                let text = text_codes.get(texts.of(row) as usize).copied().unwrap_or(0);
                *code = self.extend_value(dimension, *code, text)?;
            }
        }
        Ok(ValueCodes::PerRow(codes))
    }

    fn text(&mut self, text: String) -> u32 {
        if let Some(code) = self.texts.get(&text) {
            return *code;
        }
        let code = u32::try_from(self.by_text.len()).unwrap_or(0);
        self.by_text.push(text.clone());
        self.texts.insert(text, code);
        code
    }

    /// The code of a value extended by one more text. If all texts are empty it stays the empty value.
    fn extend_value(&mut self, dimension: usize, value: u32, text: u32) -> CalcResult<u32> {
        if value == 0 && text == 0 {
            return Ok(0);
        }
        // The dimension's number encodes how many empty texts come before the first one.
        let parent = if value == 0 { u32::MAX - u32::try_from(dimension).unwrap_or(0) } else { value };
        if let Some(code) = self.codes.get(&(parent, text)) {
            return Ok(*code);
        }
        if self.len() > limits::BREAKDOWN_VALUES {
            return Err(limits::too_many("breakdown", "values of the breakdown", limits::BREAKDOWN_VALUES));
        }
        self.parents.push((parent, text));
        let code = u32::try_from(self.parents.len()).unwrap_or(0);
        self.codes.insert((parent, text), code);
        Ok(code)
    }

    /// The texts of a value.
    pub(super) fn key(&self, value: u32) -> Vec<String> {
        let mut key = Vec::with_capacity(self.dimensions);
        let mut next = value;
        while let Some((parent, text)) = (next as usize).checked_sub(1).and_then(|at| self.parents.get(at)) {
            key.push(self.by_text.get(*text as usize).cloned().unwrap_or_default());
            next = *parent;
        }
        key.resize(self.dimensions, String::new());
        key.reverse();
        key
    }

    /// By row: the code of the set of cohorts that its person belongs to.
    fn cohort_sets(&mut self, run: &EventRun, choices: &[CohortChoice]) -> Vec<u32> {
        let mut bits = vec![0_u64; run.actors.len()];
        for (index, choice) in choices.iter().enumerate() {
            match choice {
                CohortChoice::All => bits.iter_mut().for_each(|bits| *bits |= 1 << index),
                CohortChoice::Cohort(id) => {
                    let Some(column) = run.column(&ColumnRef::Joined(JoinedColumnKey::InCohort(*id))) else {
                        continue;
                    };
                    let member = |value: &serde_json::Value| value.as_bool() == Some(true);
                    let members: Vec<bool> = column.values.iter().map(member).collect();
                    for (bits, code) in bits.iter_mut().zip(&column.codes) {
                        if members.get(*code as usize).copied().unwrap_or(false) {
                            *bits |= 1 << index;
                        }
                    }
                }
            }
        }
        let code = |bits: u64| {
            *self.sets.entry(bits).or_insert_with(|| {
                self.by_set.push(bits);
                u32::try_from(self.by_set.len() - 1).unwrap_or(0)
            })
        };
        bits.into_iter().map(code).collect()
    }

    /// Whether a set contains a cohort.
    pub(super) fn is_member(&self, set: u32, choice: u32) -> bool {
        self.by_set.get(set as usize).is_some_and(|bits| bits >> choice & 1 != 0)
    }
}
