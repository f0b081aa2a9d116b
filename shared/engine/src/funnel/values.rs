//! Under which values of a breakdown an actor counts, and by which of its events.
//!
//! Must stay true: an actor counts under a value of its own events, or of none where all are empty; by cohorts it counts
//! under each that it belongs to. Rows carry codes, which have a meaning within one partition only.

use std::collections::HashMap;

use arrow_buffer::ScalarBuffer;

use super::scan::{Bound, StepEvent};
use crate::breakdown::{Reader, Texts};
use crate::error::CalcResult;
use crate::limits;
use crate::plan::Compiler;
use crate::query::{Attribution, BreakdownBy, CohortChoice, DimensionSource, FunnelsQuery, StepOrder};
use crate::scan::{FactKey, RowKey, Run};
use crate::work::WorkBudget;

/// How a funnel is split into rows.
#[derive(Debug, Clone)]
pub(super) enum Split {
    /// It is not.
    Whole,
    /// By values of events.
    Values {
        /// What reads them.
        reader: Reader,
        /// How many texts make a value.
        parts: usize,
        /// Which of them an actor counts under.
        attribution: Attribution,
        /// Touches pass over events whose value is empty.
        skip_empty: bool,
        /// In any order: the values are those of all events.
        unordered: bool,
    },
    /// By cohorts.
    Cohorts(Vec<CohortChoice>),
}

/// The event of an actor whose value it counts under, where that is one for all its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Touch {
    /// The last one; else the first one.
    pub(super) last: bool,
    /// Events with an empty value are passed over.
    pub(super) skip_empty: bool,
}

/// The values of a partition, each once. Code 0 is the empty one.
#[derive(Debug)]
pub(super) struct Values {
    parts: usize,
    texts: HashMap<String, u32>,
    by_text: Vec<String>,
    known: HashMap<(u32, u32), u32>,
    /// By code, counting from 1: the value without its last text, and the code of that text.
    parents: Vec<(u32, u32)>,
    /// The sets of cohorts that persons are in, one bit a cohort; these have codes of their own.
    sets: HashMap<u64, u32>,
    by_set: Vec<u64>,
}

/// One scan of an actor's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    /// The row that it counts for.
    pub(super) value: u32,
    /// A value that the event of a step must have.
    pub(super) bound: Option<Bound>,
    /// Which events are seen.
    pub(super) only: Only,
}

/// Which events of an actor a scan sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Only {
    /// All.
    All,
    /// Those with the value of the pass.
    Value,
    /// Those of members of the cohort of the pass.
    Cohort,
}

/// The codes of the values of the rows of a run.
#[derive(Debug)]
pub(super) enum Codes {
    /// One a row.
    Each(Vec<u32>),
    /// By the code that a row has in its column.
    Coded { codes: ScalarBuffer<u32>, table: Vec<u32>, missing: u32 },
}

impl Codes {
    /// The code of a row.
    #[inline]
    pub(super) fn of(&self, row: usize) -> u32 {
        match self {
            Self::Each(codes) => codes.get(row).copied().unwrap_or(0),
            Self::Coded { codes, table, missing } => {
                let code = codes.get(row).and_then(|code| table.get(*code as usize));
                code.copied().unwrap_or(*missing)
            }
        }
    }
}

impl Pass {
    fn new(value: u32, only: Only) -> Self {
        Self { value, bound: None, only }
    }
}

impl Split {
    /// Asks for what the breakdown reads.
    pub(super) fn new(query: &FunnelsQuery, compiler: &mut Compiler<'_>) -> CalcResult<Self> {
        let attr = "breakdown";
        Ok(match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
            None => Self::Whole,
            Some(BreakdownBy::Dimensions { dimensions: parts, .. }) => Self::Values {
                // Of a funnel missing is the empty text before URLs are cut.
                reader: Reader::new(parts, compiler, attr)?.with_missing_urls(),
                parts: parts.len(),
                attribution: query.attribution,
                skip_empty: !is_plain(query),
                unordered: query.order == StepOrder::Unordered,
            },
            Some(BreakdownBy::Cohorts { choices, .. }) => {
                for choice in choices {
                    if let CohortChoice::Cohort(id) = choice {
                        compiler.read(&RowKey::Fact(FactKey::Member(*id)), attr)?;
                    }
                }
                Self::Cohorts(choices.clone())
            }
        })
    }

    /// The event that says what an actor counts under; none where there may be several.
    pub(super) fn touch(&self) -> Option<Touch> {
        match self {
            Self::Values { attribution: Attribution::FirstTouch, skip_empty, .. } => {
                Some(Touch { last: false, skip_empty: *skip_empty })
            }
            Self::Values { attribution: Attribution::LastTouch, skip_empty, .. } => {
                Some(Touch { last: true, skip_empty: *skip_empty })
            }
            _ => None,
        }
    }

    /// The step whose events say which values an actor counts under.
    pub(super) fn attributed_step(&self) -> Option<usize> {
        match self {
            Self::Values { attribution: Attribution::Step(step), .. } => Some(*step),
            _ => None,
        }
    }

    /// No values yet.
    pub(super) fn values(&self) -> Values {
        let parts = match self {
            Self::Whole => 0,
            Self::Values { parts, .. } => *parts,
            Self::Cohorts(_) => 1,
        };
        Values::new(parts)
    }

    /// The code of the value of each row of a run; none where there is nothing to tell apart.
    pub(super) fn codes(
        &self,
        run: &Run,
        values: &mut Values,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<Codes>> {
        match self {
            Self::Whole => Ok(None),
            Self::Values { reader, .. } => {
                values.codes(reader.texts(run, work)?, run.actors.len(), work).map(Some)
            }
            Self::Cohorts(choices) => {
                work.consume(run.actors.len().saturating_mul(choices.len()))?;
                Ok(Some(Codes::Each(values.memberships(run, choices))))
            }
        }
    }

    /// The key of a row in the answer: the texts of the value, or the cohort's id.
    pub(super) fn key(&self, value: u32, values: &Values) -> Vec<String> {
        match self {
            Self::Whole => Vec::new(),
            Self::Values { .. } => values.key(value),
            Self::Cohorts(choices) => match choices.get(value as usize) {
                Some(CohortChoice::Cohort(id)) => vec![id.to_string()],
                _ => vec!["0".to_owned()],
            },
        }
    }

    /// The scans that an actor's events deserve, one a value.
    pub(super) fn passes(&self, events: &[StepEvent], values: &Values, passes: &mut Vec<Pass>) {
        passes.clear();
        match self {
            Self::Whole => passes.push(Pass::new(0, Only::All)),
            Self::Cohorts(choices) => {
                let choices = (0..).take(choices.len());
                let belongs =
                    |choice: &u32| events.iter().any(|event| values.is_member(event.value, *choice));
                passes.extend(choices.filter(belongs).map(|choice| Pass::new(choice, Only::Cohort)));
            }
            Self::Values { attribution, skip_empty, unordered, .. } => {
                let touches = |event: &&StepEvent| !skip_empty || event.value != 0;
                let touch =
                    |event: Option<&StepEvent>| Pass::new(event.map_or(0, |event| event.value), Only::All);
                match attribution {
                    Attribution::FirstTouch => passes.push(touch(events.iter().find(touches))),
                    Attribution::LastTouch => passes.push(touch(events.iter().rev().find(touches))),
                    Attribution::AllEvents => {
                        passes.extend(events.iter().map(|event| Pass::new(event.value, Only::Value)));
                    }
                    Attribution::Step(step) => {
                        let takers = events.iter().filter(|event| *unordered || event.marks.takes(*step));
                        passes.extend(takers.map(|event| {
                            let bound = Some(Bound { step: *step, value: event.value });
                            Pass { value: event.value, bound, only: Only::All }
                        }));
                    }
                }
                passes.sort_unstable_by_key(|pass| pass.value);
                passes.dedup();
            }
        }
    }
}

/// The value is a text and no list: one property of a group.
pub(super) fn is_plain(query: &FunnelsQuery) -> bool {
    match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        Some(BreakdownBy::Dimensions { dimensions: parts, .. }) => {
            matches!(parts.as_slice(), [part] if matches!(part.source, DimensionSource::Group(..)))
        }
        _ => false,
    }
}

/// Work that finding the code of a value costs beside the bytes of its text.
const PER_VALUE: usize = 16;

impl Values {
    fn new(parts: usize) -> Self {
        Self {
            parts,
            texts: std::iter::once((String::new(), 0)).collect(),
            by_text: vec![String::new()],
            known: HashMap::new(),
            parents: Vec::new(),
            sets: HashMap::new(),
            by_set: Vec::new(),
        }
    }

    /// How many there are, the empty one included.
    pub(super) fn len(&self) -> usize {
        self.parents.len() + 1
    }

    /// The codes of the values that the texts of the parts make.
    pub(super) fn codes(
        &mut self,
        mut parts: Vec<Texts>,
        rows: usize,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Codes> {
        let mut owns = Vec::with_capacity(parts.len());
        for part in &mut parts {
            let texts = std::mem::take(&mut part.values);
            let own = texts.into_iter().map(|text| {
                work.consume(PER_VALUE + text.len())?;
                Ok(self.text(text))
            });
            owns.push(own.collect::<CalcResult<Vec<_>>>()?);
        }
        if let ([texts], [own]) = (parts.as_slice(), owns.as_slice()) {
            let own = own.iter().map(|text| self.joined(0, 0, *text)).collect::<CalcResult<Vec<_>>>()?;
            let code = |index: &u32| own.get(*index as usize).copied().unwrap_or(0);
            let table = texts.table.iter().map(code).collect();
            return Ok(Codes::Coded { codes: texts.codes.clone(), table, missing: code(&texts.missing) });
        }
        let mut codes = vec![0; rows];
        for (part, (texts, own)) in parts.iter().zip(&owns).enumerate() {
            for (row, code) in codes.iter_mut().enumerate() {
                work.consume(1)?;
                // A row without a value has an index outside of the texts.
                let text = own.get(texts.of(row) as usize).copied().unwrap_or(0);
                *code = self.joined(part, *code, text)?;
            }
        }
        Ok(Codes::Each(codes))
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

    /// The code of a value with one more text. While all texts are empty it stays the empty value.
    fn joined(&mut self, part: usize, value: u32, text: u32) -> CalcResult<u32> {
        if value == 0 && text == 0 {
            return Ok(0);
        }
        // Empty texts before the first one are told by the number of the part.
        let parent = if value == 0 { u32::MAX - u32::try_from(part).unwrap_or(0) } else { value };
        if let Some(code) = self.known.get(&(parent, text)) {
            return Ok(*code);
        }
        if self.len() > limits::BREAKDOWN_VALUES {
            return Err(limits::too_many("breakdown", "values of the breakdown", limits::BREAKDOWN_VALUES));
        }
        self.parents.push((parent, text));
        let code = u32::try_from(self.parents.len()).unwrap_or(0);
        self.known.insert((parent, text), code);
        Ok(code)
    }

    /// The texts of a value.
    pub(super) fn key(&self, value: u32) -> Vec<String> {
        let mut key = Vec::with_capacity(self.parts);
        let mut next = value;
        while let Some((parent, text)) = (next as usize).checked_sub(1).and_then(|at| self.parents.get(at)) {
            key.push(self.by_text.get(*text as usize).cloned().unwrap_or_default());
            next = *parent;
        }
        key.resize(self.parts, String::new());
        key.reverse();
        key
    }

    /// By row, the bits of the cohorts that its person is in; values are then sets of cohorts.
    fn memberships(&mut self, run: &Run, choices: &[CohortChoice]) -> Vec<u32> {
        let mut bits = vec![0_u64; run.actors.len()];
        for (index, choice) in choices.iter().enumerate() {
            match choice {
                CohortChoice::All => bits.iter_mut().for_each(|bits| *bits |= 1 << index),
                CohortChoice::Cohort(id) => {
                    let Some(column) = run.column(&RowKey::Fact(FactKey::Member(*id))) else { continue };
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

    /// The set has the cohort.
    pub(super) fn is_member(&self, set: u32, choice: u32) -> bool {
        self.by_set.get(set as usize).is_some_and(|bits| bits >> choice & 1 != 0)
    }
}
