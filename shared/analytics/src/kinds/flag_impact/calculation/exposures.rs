//! The first exposure of each actor, and the variant that it saw.
//!
//! Must stay true: an actor that saw two variants within the date range counts under none of them, in whatever order its
//! events are read.

use pennon_filters::error::CalcResult;
use pennon_filters::text::{text_length, text_of};
use pennon_filters::work_budget::WorkBudget;
use serde_json::Value;

use crate::compiler::Compiler;
use crate::filter::Predicate;
use crate::kinds::flag_impact::limits;
use crate::kinds::flag_impact::query::Exposure;
use crate::mask::Mask;
use crate::scan::{Column, ColumnKey, ColumnRef, EventRun, MISSING, Micros, Partition};

/// The event that SDKs send when an application calls a flag.
const CALLED: &str = "$feature_flag_called";
/// Its properties with the flag and with the variant.
const CALLED_FLAG: &str = "$feature_flag";
const CALLED_RESPONSE: &str = "$feature_flag_response";

/// The variant of an actor that saw several.
const SEVERAL: u32 = MISSING - 1;
/// The variant of a value that was not read yet.
const UNREAD: u32 = MISSING - 2;

/// Reads exposures from events.
#[derive(Debug, Clone)]
pub(super) struct ExposureReader {
    /// The event; `None` for every event.
    event: Option<String>,
    /// The column with the flag's key, and the key; `None` if the variant's column is of this flag only.
    flag: Option<(ColumnKey, String)>,
    /// The column with the variant.
    variant: ColumnKey,
}

/// The exposures of the actors of a partition.
#[derive(Debug)]
pub(super) struct Exposures {
    /// By actor: the time of its first exposure; `Micros::MAX` without one.
    first: Vec<Micros>,
    /// By actor: its variant, an index into `names`, [`SEVERAL`], or [`MISSING`].
    variants: Vec<u32>,
    /// The variants that were seen.
    pub(super) names: Vec<String>,
}

/// What an actor saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// One variant, an index into the names.
    Variant(usize),
    /// Several variants.
    Several,
}

impl Exposures {
    /// Whether and what an actor saw.
    pub(super) fn seen(&self, actor: usize) -> Option<Seen> {
        match self.variants.get(actor).copied()? {
            MISSING => None,
            SEVERAL => Some(Seen::Several),
            variant => Some(Seen::Variant(variant as usize)),
        }
    }

    /// The time of an actor's first exposure, if it saw exactly one variant.
    #[inline]
    pub(super) fn start(&self, actor: u32) -> Option<Micros> {
        let variant = *self.variants.get(actor as usize)?;
        if variant >= SEVERAL { None } else { self.first.get(actor as usize).copied() }
    }

    /// The time of an actor's first exposure to any variant.
    pub(super) fn first(&self, actor: usize) -> Micros {
        self.first.get(actor).copied().unwrap_or(Micros::MAX)
    }

    /// The number of actors of the partition.
    pub(super) fn actors(&self) -> usize {
        self.variants.len()
    }

    fn add(&mut self, actor: usize, time: Micros, variant: u32) {
        let (Some(first), Some(seen)) = (self.first.get_mut(actor), self.variants.get_mut(actor)) else {
            return;
        };
        *first = time.min(*first);
        if *seen == MISSING {
            *seen = variant;
        } else if *seen != variant {
            *seen = SEVERAL;
        }
    }

    /// The index of a variant; [`MISSING`] for a value that names none.
    fn variant_of(&mut self, value: Option<&Value>) -> CalcResult<u32> {
        let Some(text) = value.and_then(text_of).filter(|text| !text.is_empty()) else { return Ok(MISSING) };
        let known = self.names.iter().position(|name| *name == text);
        let index = known.unwrap_or(self.names.len());
        if known.is_none() {
            if text.len() > limits::VARIANT_BYTES {
                return Err(limits::too_long("exposure", "variant of an exposure", limits::VARIANT_BYTES));
            }
            if index >= limits::SEEN_VARIANTS {
                return Err(limits::too_many_variants());
            }
            self.names.push(text.into_owned());
        }
        Ok(u32::try_from(index).unwrap_or(MISSING))
    }
}

impl ExposureReader {
    /// Registers the events and columns that exposures are read from.
    pub(super) fn new(exposure: &Exposure, key: &str, compiler: &mut Compiler<'_>) -> CalcResult<Self> {
        let property = |name: &str| ColumnKey::Property(name.to_owned());
        let reader = match exposure {
            Exposure::FlagCalled => Self {
                event: Some(CALLED.to_owned()),
                flag: Some((property(CALLED_FLAG), key.to_owned())),
                variant: property(CALLED_RESPONSE),
            },
            Exposure::Property { event } => {
                Self { event: event.clone(), flag: None, variant: property(&format!("$feature/{key}")) }
            }
        };
        compiler.include_event(reader.event.as_ref());
        for column in reader.flag.iter().map(|(column, _)| column).chain([&reader.variant]) {
            compiler.require_value(&ColumnRef::Event(column.clone()), "exposure")?;
        }
        Ok(reader)
    }

    /// The exposures of a partition within `bounds`, among the events that pass `shared`.
    pub(super) fn read(
        &self,
        partition: &Partition,
        shared: &Predicate,
        bounds: (Micros, Micros),
        work: &WorkBudget<'_>,
    ) -> CalcResult<Exposures> {
        let actors = partition.actors.len();
        work.consume(actors)?;
        let mut exposures = Exposures {
            first: vec![Micros::MAX; actors],
            variants: vec![MISSING; actors],
            names: Vec::new(),
        };
        for run in &partition.runs {
            if self.event.as_ref().is_none_or(|event| *event == run.event) {
                let mask = shared.mask(run, work)?;
                if mask != Mask::Nothing {
                    self.read_run(run, &mask, bounds, &mut exposures, work)?;
                }
            }
        }
        Ok(exposures)
    }

    fn read_run(
        &self,
        run: &EventRun,
        mask: &Mask,
        (from, to): (Micros, Micros),
        exposures: &mut Exposures,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let Some(variants) = run.columns.get(&self.variant) else { return Ok(()) };
        let flags = match &self.flag {
            Some((column, key)) => match run.columns.get(column) {
                Some(column) => Some((column, which_are(column, key, work)?)),
                None => return Ok(()),
            },
            None => None,
        };
        let mut variants_of_codes = vec![UNREAD; variants.values.len()];
        work.consume(variants_of_codes.len())?;
        for (row, (actor, time)) in run.actors.iter().zip(&run.times).enumerate() {
            work.consume(1)?;
            let is_of_flag = flags.as_ref().is_none_or(|(column, are)| has(are, column.codes.get(row)));
            if !is_of_flag || *time < from || *time > to || !mask.has(row) {
                continue;
            }
            let Some(code) = variants.codes.get(row).map(|code| *code as usize) else { continue };
            let Some(known) = variants_of_codes.get_mut(code) else { continue };
            if *known == UNREAD {
                *known = exposures.variant_of(variants.values.get(code))?;
            }
            if *known != MISSING {
                exposures.add(*actor as usize, *time, *known);
            }
        }
        Ok(())
    }
}

/// By code of a column: whether its value is this text.
fn which_are(column: &Column, text: &str, work: &WorkBudget<'_>) -> CalcResult<Vec<bool>> {
    let is_text = |value: &Value| {
        work.consume(1 + text_length(value))?;
        Ok(text_of(value).is_some_and(|value| value == text))
    };
    column.values.iter().map(is_text).collect()
}

fn has(values: &[bool], code: Option<&u32>) -> bool {
    code.and_then(|code| values.get(*code as usize)).is_some_and(|is| *is)
}
