//! Which events a series, a step, an exclusion or a criterion means: an event's name or an action, and filters.
//!
//! Must stay true: this is the only place that knows what an action matches.

use crate::action::{self, Step};
use crate::error::CalcResult;
use crate::filter::{Filter, Mask, Predicate};
use crate::plan::Compiler;
use crate::query::EventOrAction;
use crate::scan::Run;
use crate::work::WorkBudget;

/// Events that count for something.
#[derive(Debug, Clone)]
pub(crate) struct Matcher {
    /// An event that matches one of these, and the filters, counts.
    alternatives: Vec<Step>,
    filters: Predicate,
}

impl Matcher {
    /// Compiles a source with its own filters, and asks the scan for what it reads. None for an action that does not exist.
    pub(crate) fn new(
        source: &EventOrAction,
        filters: &Filter,
        compiler: &mut Compiler<'_>,
        attr: &str,
    ) -> CalcResult<Option<Self>> {
        let alternatives = match source {
            EventOrAction::Event(name) => {
                vec![Step { event: name.clone(), predicate: Predicate::All(Vec::new()) }]
            }
            EventOrAction::Action(id) => {
                let definitions = compiler.definitions;
                let Some(action) = definitions.actions.get(id) else { return Ok(None) };
                action::steps(*id, action, compiler, attr)?
            }
        };
        for alternative in &alternatives {
            compiler.event(alternative.event.as_ref());
        }
        Ok(Some(Self { alternatives, filters: compiler.predicate(filters, attr)? }))
    }

    /// An event matches one of these steps, and the filters.
    pub(crate) fn parts(&self) -> (&[Step], &Predicate) {
        (&self.alternatives, &self.filters)
    }

    /// The rows of a run that count.
    pub(crate) fn mask(&self, run: &Run, work: &WorkBudget<'_>) -> CalcResult<Mask> {
        let mut mask = Mask::Nothing;
        for alternative in &self.alternatives {
            if alternative.event.as_ref().is_none_or(|name| *name == run.event) {
                mask = mask.or(alternative.predicate.mask(run, work)?);
            }
        }
        match mask {
            Mask::Nothing => Ok(Mask::Nothing),
            mask => Ok(mask.and(self.filters.mask(run, work)?)),
        }
    }
}
