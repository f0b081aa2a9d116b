//! The pass over a partition: actor by actor, what its events amount to.
//!
//! Must stay true: whoever has an event that may begin a path is looked at once for each value it counts under, and
//! nobody else; the clock is looked at again after a bounded amount of work, be it of one actor or of many.

use super::direct::{Direct, Told};
use super::merge::{self, MarkedRun, Ticks};
use super::periods::{Entry, PeriodScanner, UnorderedPeriodScanner};
use super::queues::UnorderedScanner;
use super::scan::{Marks, Reached, Rules, Scanner, StepEvent};
use super::step_values::StepValueScanner;
use super::strict::Strict;
use super::values::{Only, Pass, Split, Touch, Values};
use super::{Funnel, Outcome};
use crate::dates::buckets::Buckets;
use crate::error::CalcResult;
use crate::limits;
use crate::query::StepOrder;
use crate::scan::{Micros, Partition};
use crate::work::WorkBudget;

/// The events of one actor after the other, as a pass sees them.
#[derive(Default)]
struct Sight {
    events: Vec<StepEvent>,
    /// The events by value, where passes take one value each.
    by_value: Vec<StepEvent>,
    seen: Vec<StepEvent>,
}

impl Sight {
    /// The events of a pass.
    fn of(&mut self, pass: Pass, values: &Values) -> &[StepEvent] {
        match pass.only {
            Only::All => &self.events,
            Only::Value => {
                if self.by_value.is_empty() {
                    self.by_value.extend_from_slice(&self.events);
                    // Stable: those of one value stay in order.
                    self.by_value.sort_by_key(|event| event.value);
                }
                let start = self.by_value.partition_point(|event| event.value < pass.value);
                let end = self.by_value.partition_point(|event| event.value <= pass.value);
                &self.by_value[start..end]
            }
            Only::Cohort => {
                self.seen.clear();
                self.seen
                    .extend(self.events.iter().filter(|event| values.is_member(event.value, pass.value)));
                &self.seen
            }
        }
    }
}

impl Funnel {
    pub(super) fn rules(&self) -> Rules {
        let optional = self.query.steps.iter().enumerate().filter(|(_, step)| step.optional);
        Rules {
            steps: self.query.series.len(),
            window: self.query.window.micros(),
            strict: self.query.order == StepOrder::Strict,
            optional: optional.fold(0, |bits, (step, _)| bits | 1 << step),
        }
    }

    /// Calls back for every actor and value with a path, unless an exclusion voids what was done.
    pub(super) fn outcomes(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
        mut back: impl FnMut(Outcome<'_>),
    ) -> CalcResult<Values> {
        let rules = self.rules();
        let mut told = |actor: u32, value: u32, reached: Option<Reached<'_>>| {
            if let Some(Reached { times, steps }) = reached {
                back(Outcome { actor, value, times, steps });
            }
        };
        if self.query.order == StepOrder::Unordered {
            let mut scanner = UnorderedScanner::new(rules.steps, rules.window);
            return self.passes(partition, work, |actor, pass, events, work| {
                told(actor, pass.value, scanner.run(pass.bound, events, work)?);
                Ok(())
            });
        }
        let (values, runs) = self.marked(partition, work)?;
        let mut walk = Walk::new(self, &runs, &values, work);
        let mut scanner = Scanner::new(rules);
        let touch = self.split.touch();
        let whole = matches!(self.split, Split::Whole);
        let special = Special::new(rules, self.bounds, &runs, touch).filter(|_| whole || touch.is_some());
        if let Some(special) = special {
            special.run(work, |told| match told {
                Told::Outcome(outcome) => {
                    back(outcome);
                    Ok(())
                }
                Told::Tied(actor) => walk.one(actor, |pass, events, work| {
                    if let Some(Reached { times, steps }) = scanner.run(pass.bound, events, work)? {
                        back(Outcome { actor, value: pass.value, times, steps });
                    }
                    Ok(())
                }),
            })?;
        } else if whole {
            walk.ordered(&mut scanner, told)?;
        } else if let Some(mut scanner) = self.step_value_scanner(rules) {
            walk.step_values(&mut scanner, told)?;
        } else {
            walk.all(
                |marks| marks.takes(0),
                |actor, pass, events, work| {
                    told(actor, pass.value, scanner.run(pass.bound, events, work)?);
                    Ok(())
                },
            )?;
        }
        drop(runs);
        Ok(values)
    }

    /// The scan of all values of an attributed step at once; none where there is no such step or no such scan.
    fn step_value_scanner(&self, rules: Rules) -> Option<StepValueScanner> {
        let step = self.split.attributed_step()?;
        StepValueScanner::new(rules, step, !self.query.exclusions.is_empty())
    }

    /// Calls back for every actor and value with the periods in which it entered.
    pub(super) fn entries(
        &self,
        buckets: &Buckets,
        partition: &Partition,
        work: &WorkBudget<'_>,
        mut back: impl FnMut(u32, u32, &[Entry]),
    ) -> CalcResult<Values> {
        let (rules, goal) = (self.rules(), self.goal());
        if self.query.order == StepOrder::Unordered {
            let mut scanner = UnorderedPeriodScanner::new(rules, goal);
            return self.passes(partition, work, |actor, pass, events, work| {
                back(actor, pass.value, scanner.run(pass.bound, buckets, events, work)?);
                Ok(())
            });
        }
        let mut scanner = PeriodScanner::new(rules, goal);
        self.passes(partition, work, |actor, pass, events, work| {
            back(actor, pass.value, scanner.run(pass.bound, buckets, events, work)?);
            Ok(())
        })
    }

    /// Calls back for every actor that may begin a path and every value it counts under, with the events to be seen.
    fn passes(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
        back: impl FnMut(u32, Pass, &[StepEvent], &WorkBudget<'_>) -> CalcResult<()>,
    ) -> CalcResult<Values> {
        let (values, runs) = self.marked(partition, work)?;
        let unordered = self.query.order == StepOrder::Unordered;
        let begins = |marks: Marks| if unordered { marks.steps() != 0 } else { marks.takes(0) };
        Walk::new(self, &runs, &values, work).all(begins, back)?;
        drop(runs);
        Ok(values)
    }

    /// The values of a partition, and its runs that matter.
    fn marked<'a>(
        &self,
        partition: &'a Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<(Values, Vec<MarkedRun<'a>>)> {
        let mut values = self.split.values();
        let runs = self.marker.marked(partition, work, |run| self.split.codes(run, &mut values, work))?;
        Ok((values, runs))
    }
}

/// A pass for funnels of a kind, which looks at fewer events.
enum Special<'a> {
    Ordered(Direct<'a>),
    Strict(Strict<'a>),
}

impl<'a> Special<'a> {
    /// None when there is no such pass.
    fn new(
        rules: Rules,
        bounds: (Micros, Micros),
        runs: &'a [MarkedRun<'a>],
        touch: Option<Touch>,
    ) -> Option<Self> {
        match (rules.strict, touch) {
            (false, _) => Direct::new(rules, bounds, runs, touch).map(Self::Ordered),
            (true, None) => Strict::new(rules, bounds, runs).map(Self::Strict),
            // In strict order any event may say what an actor counts under.
            (true, Some(_)) => None,
        }
    }

    /// Calls back for every actor that began a path, in their order.
    fn run(self, work: &WorkBudget<'_>, back: impl FnMut(Told<'_>) -> CalcResult<()>) -> CalcResult<()> {
        match self {
            Self::Ordered(direct) => direct.run(work, back),
            Self::Strict(strict) => strict.run(work, back),
        }
    }
}

/// One actor after the other, instant by instant.
struct Walk<'a> {
    split: &'a Split,
    runs: &'a [MarkedRun<'a>],
    values: &'a Values,
    ticks: Ticks<'a>,
    work: &'a WorkBudget<'a>,
    sight: Sight,
    passes: Vec<Pass>,
}

impl<'a> Walk<'a> {
    fn new(
        funnel: &'a Funnel,
        runs: &'a [MarkedRun<'a>],
        values: &'a Values,
        work: &'a WorkBudget<'_>,
    ) -> Self {
        let ticks = Ticks::new(runs, funnel.bounds);
        Self { split: &funnel.split, runs, values, ticks, work, sight: Sight::default(), passes: Vec::new() }
    }

    /// Calls back for every actor with an event that may begin a path.
    fn all(
        &mut self,
        begins: impl Fn(Marks) -> bool,
        mut back: impl FnMut(u32, Pass, &[StepEvent], &WorkBudget<'_>) -> CalcResult<()>,
    ) -> CalcResult<()> {
        for actor in merge::entrants(self.runs, begins) {
            self.one(actor, |pass, events, work| back(actor, pass, events, work))?;
        }
        Ok(())
    }

    /// Calls back for every value that an actor counts under. Actors must come in ascending order.
    fn one(
        &mut self,
        actor: u32,
        mut back: impl FnMut(Pass, &[StepEvent], &WorkBudget<'_>) -> CalcResult<()>,
    ) -> CalcResult<()> {
        self.visit(actor)?;
        let (events, passes) = (self.sight.events.len(), self.passes.len());
        let is_bound = self.passes.first().is_some_and(|pass| pass.bound.is_some());
        if is_bound && !limits::step_values_fit(events, passes) {
            return Err(limits::too_many_step_values());
        }
        for pass in &self.passes {
            let events = self.sight.of(*pass, self.values);
            back(*pass, events, self.work)?;
        }
        Ok(())
    }

    /// Goes on to an actor, and collects its events and the scans that they deserve.
    fn visit(&mut self, actor: u32) -> CalcResult<()> {
        self.work.consume(1 + self.ticks.seek(actor))?;
        self.ticks.collect(&mut self.sight.events);
        self.work.consume(self.sight.events.len())?;
        self.sight.by_value.clear();
        self.split.passes(&self.sight.events, self.values, &mut self.passes);
        Ok(())
    }

    /// In order, broken down by the values of a step: one scan for all values of an actor.
    fn step_values(
        &mut self,
        scanner: &mut StepValueScanner,
        mut told: impl FnMut(u32, u32, Option<Reached<'_>>),
    ) -> CalcResult<()> {
        for actor in merge::entrants(self.runs, |marks| marks.takes(0)) {
            self.visit(actor)?;
            let (passes, events) = (&self.passes, &self.sight.events);
            scanner.run(passes, events, self.work, |value, reached| told(actor, value, reached))?;
        }
        Ok(())
    }

    /// Without a breakdown, in order: events are read no further than the completion.
    fn ordered(
        &mut self,
        scanner: &mut Scanner,
        mut told: impl FnMut(u32, u32, Option<Reached<'_>>),
    ) -> CalcResult<()> {
        for actor in merge::entrants(self.runs, |marks| marks.takes(0)) {
            self.work.consume(1 + self.ticks.seek(actor))?;
            scanner.begin(None);
            while !scanner.is_complete()
                && let Some(tick) = self.ticks.next()
            {
                self.work.consume(tick.len())?;
                scanner.tick(tick);
            }
            told(actor, 0, scanner.reached());
        }
        Ok(())
    }
}
