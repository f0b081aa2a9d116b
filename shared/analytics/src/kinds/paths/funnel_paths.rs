//! Paths around a funnel: the actors of one of its steps, and which of their events are in the paths.
//!
//! Must stay true: the funnel has no breakdown and one outcome per actor; the step that bounds the events has a time.

use pennon_filters::error::{CalcError, CalcResult};

use super::raw_query::RawFunnelPaths;
use crate::kinds::funnels::{FunnelVizType, FunnelsQuery, StepOrder};

/// Restricts paths to the actors of a funnel step, and to a part of their events.
#[derive(Debug, Clone, PartialEq)]
pub struct FunnelPaths {
    /// The funnel, without a breakdown and with `Steps` visualization.
    pub source: FunnelsQuery,
    /// Which events of the actors are kept.
    pub path_type: FunnelPathType,
    /// The actors that reached this step (counted from 1); if negative, those that dropped off before it.
    pub step: i64,
}

/// Which events are kept, relative to the time of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunnelPathType {
    /// From the step on.
    After,
    /// Until the step.
    Before,
    /// From the step before to the step.
    Between,
}

impl FunnelPathType {
    const NAMES: [(&'static str, Self); 3] = [
        ("funnel_path_after_step", Self::After),
        ("funnel_path_before_step", Self::Before),
        ("funnel_path_between_steps", Self::Between),
    ];

    /// The names that requests use.
    pub fn names() -> [&'static str; 3] {
        Self::NAMES.map(|(name, _)| name)
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| *name)
    }
}

impl FunnelPaths {
    /// Parses the restriction.
    pub(super) fn parse(raw: &RawFunnelPaths<'_>) -> CalcResult<Self> {
        let name = raw.path_type.text()?.unwrap_or_default();
        let path_type = FunnelPathType::NAMES.iter().find(|(known, _)| *known == name);
        let Some((_, path_type)) = path_type else {
            let names = FunnelPathType::names().join(", ");
            return Err(CalcError::invalid(
                raw.path_type.attr,
                format!("\"{name}\" is not a valid choice. It must be one of {names}."),
            ));
        };
        let mut source = raw.source.clone();
        source.viz = FunnelVizType::Steps;
        source.common.breakdown = None;
        (source.from_step, source.to_step, source.bin_count) = (None, None, None);
        let last = i64::try_from(source.series.len()).unwrap_or(i64::MAX);
        let step =
            raw.step.integer()?.filter(|step| (1..=last).contains(step) || (-last..=-2).contains(step));
        let Some(step) = step else {
            let detail = format!("Must be a step, 1 to {last}, or one that was not reached, -2 to -{last}.");
            return Err(CalcError::invalid(raw.step.attr, detail));
        };
        let paths = Self { source, path_type: *path_type, step };
        paths.validate_bounding_steps(raw)?;
        Ok(paths)
    }

    /// Validates that the steps at the ends of the kept events exist and have a time.
    fn validate_bounding_steps(&self, raw: &RawFunnelPaths<'_>) -> CalcResult<()> {
        let bounding_step = self.bounding_step();
        let mut needed = vec![bounding_step];
        if self.path_type == FunnelPathType::Between {
            match bounding_step.checked_sub(1) {
                Some(before) => needed.push(before),
                None => {
                    let detail = format!(
                        "There is no step before the first one: {} needs a later step.",
                        self.path_type.name()
                    );
                    return Err(CalcError::invalid(raw.step.attr, detail));
                }
            }
        }
        match needed.into_iter().find(|step| self.source.step_options(*step).optional) {
            Some(step) => {
                let detail = format!(
                    "Step {} of the funnel is optional, so it has no time that could bound the paths. Use a required step.",
                    step + 1
                );
                Err(CalcError::invalid(raw.step.attr, detail))
            }
            None => Ok(()),
        }
    }

    /// The index of the step whose time bounds the events: the selected one, or for drop-offs the last one that was reached.
    pub(super) fn bounding_step(&self) -> usize {
        let number = usize::try_from(self.step.unsigned_abs()).unwrap_or(1);
        number - if self.step > 0 { 1 } else { 2 }
    }

    /// The index of the step that drop-offs did not reach; `None` if the actors reached the step.
    pub(super) fn missed_step(&self) -> Option<usize> {
        (self.step < 0).then(|| self.bounding_step() + 1)
    }

    /// The position of a step's time among the times of an outcome: only required steps have one.
    pub(super) fn time_index(&self, step: usize) -> usize {
        match self.source.order {
            StepOrder::Unordered => step,
            StepOrder::Ordered | StepOrder::Strict => {
                (0..step).filter(|before| !self.source.step_options(*before).optional).count()
            }
        }
    }
}
