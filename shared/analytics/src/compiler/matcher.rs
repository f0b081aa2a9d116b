//! Event matchers: an event name or an action, plus filters. Used by series, funnel steps, exclusions and cohort criteria.
//!
//! Must stay true: this is the only place that decides which events an action matches.

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use crate::compiler::Compiler;
use crate::compiler::action::{self, Step};
use crate::filter::{Filter, Predicate};
use crate::mask::Mask;
use crate::query::EventOrAction;
use crate::scan::EventRun;

/// Selects the events of a series, step, exclusion or criterion.
#[derive(Debug, Clone)]
pub(crate) struct Matcher {
    /// An event has to match one of these, and the filters.
    alternatives: Vec<Step>,
    filters: Predicate,
}

impl Matcher {
    /// Compiles an event source with its filters and registers what they read. `None` if the action does not exist.
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
                action::compile_steps(*id, action, compiler, attr)?
            }
        };
        for alternative in &alternatives {
            compiler.include_event(alternative.event.as_ref());
        }
        Ok(Some(Self { alternatives, filters: compiler.compile_filter(filters, attr)? }))
    }

    /// The parts of the matcher: an event has to match one of these steps, and the filters.
    pub(crate) fn alternatives_and_filters(&self) -> (&[Step], &Predicate) {
        (&self.alternatives, &self.filters)
    }

    /// The rows of a run that match.
    pub(crate) fn mask(&self, run: &EventRun, work: &WorkBudget<'_>) -> CalcResult<Mask> {
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
