//! Scans a partition actor by actor, and chooses between the fast paths and the full scan.
//!
//! Must stay true: exactly the actors with an event that can begin a path are scanned, once per breakdown value that they
//! count under. Cancellation is checked after a bounded amount of work, whether of one actor or of many.

use pennon_filters::dates::buckets::Buckets;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::breakdown::{EventSubset, FunnelBreakdown, TouchAttribution, ValueDictionary, ValuePass};
use super::k_way_merge::{self, KWayMerge, MatchedRun};
use super::one_run_per_step::{OneRunPerStepScan, ScanResult};
use super::periods::{PeriodEntry, PeriodScanner, UnorderedPeriodScanner};
use super::scan::{BestPath, FunnelRules, FunnelScanner, MatchBits, StepEvent};
use super::step_values::StepValueScanner;
use super::strict::StrictScan;
use super::unordered::UnorderedScanner;
use super::{CompiledFunnel, Outcome};
use crate::kinds::funnels::StepOrder;
use crate::kinds::funnels::limits;
use crate::scan::{Micros, Partition};

/// The events of the current actor, with views for the passes over them.
#[derive(Default)]
struct ActorEvents {
    all: Vec<StepEvent>,
    /// The events sorted by value, for passes over a single value. Empty until needed.
    by_value: Vec<StepEvent>,
    cohort_events: Vec<StepEvent>,
}

impl ActorEvents {
    /// The events that a pass processes.
    fn for_pass(&mut self, pass: ValuePass, values: &ValueDictionary) -> &[StepEvent] {
        match pass.events {
            EventSubset::All => &self.all,
            EventSubset::Value => {
                if self.by_value.is_empty() {
                    self.by_value.extend_from_slice(&self.all);
                    // The stable sort keeps events of one value in order.
                    self.by_value.sort_by_key(|event| event.value);
                }
                let start = self.by_value.partition_point(|event| event.value < pass.value);
                let end = self.by_value.partition_point(|event| event.value <= pass.value);
                &self.by_value[start..end]
            }
            EventSubset::Cohort => {
                self.cohort_events.clear();
                self.cohort_events
                    .extend(self.all.iter().filter(|event| values.is_member(event.value, pass.value)));
                &self.cohort_events
            }
        }
    }
}

impl CompiledFunnel {
    pub(super) fn rules(&self) -> FunnelRules {
        let optional = self.query.steps.iter().enumerate().filter(|(_, step)| step.optional);
        FunnelRules {
            steps: self.query.series.len(),
            window: self.query.window.micros(),
            strict: self.query.order == StepOrder::Strict,
            optional: optional.fold(0, |bits, (step, _)| bits | 1 << step),
        }
    }

    /// Calls back for every actor and value that reached a step and is not excluded.
    pub(super) fn outcomes(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
        mut callback: impl FnMut(Outcome<'_>),
    ) -> CalcResult<ValueDictionary> {
        let rules = self.rules();
        let mut emit = |actor: u32, value: u32, reached: Option<BestPath<'_>>| {
            if let Some(BestPath { times, steps }) = reached {
                callback(Outcome { actor, value, times, steps });
            }
        };
        if self.query.order == StepOrder::Unordered {
            let mut scanner = UnorderedScanner::new(rules.steps, rules.window);
            return self.for_each_pass(partition, work, |actor, pass, events, work| {
                emit(actor, pass.value, scanner.run(pass.required_value, events, work)?);
                Ok(())
            });
        }
        let (values, runs) = self.matched_runs(partition, work)?;
        let mut scan = ActorScan::new(self, &runs, &values, work);
        let mut scanner = FunnelScanner::new(rules);
        let touch = self.breakdown.touch_attribution();
        let has_no_breakdown = matches!(self.breakdown, FunnelBreakdown::None);
        let fast_path =
            FastPath::new(rules, self.bounds, &runs, touch).filter(|_| has_no_breakdown || touch.is_some());
        if let Some(fast_path) = fast_path {
            fast_path.run(work, |result| match result {
                ScanResult::Outcome(outcome) => {
                    callback(outcome);
                    Ok(())
                }
                ScanResult::Tied(actor) => scan.scan_actor(actor, |pass, events, work| {
                    if let Some(BestPath { times, steps }) = scanner.run(pass.required_value, events, work)? {
                        callback(Outcome { actor, value: pass.value, times, steps });
                    }
                    Ok(())
                }),
            })?;
        } else if has_no_breakdown {
            scan.scan_until_converted(&mut scanner, emit)?;
        } else if let Some(mut scanner) = self.step_value_scanner(rules) {
            scan.scan_step_values(&mut scanner, emit)?;
        } else {
            scan.scan_all(
                |matches| matches.has_step(0),
                |actor, pass, events, work| {
                    emit(actor, pass.value, scanner.run(pass.required_value, events, work)?);
                    Ok(())
                },
            )?;
        }
        drop(runs);
        Ok(values)
    }

    /// The scanner for all values of an attributed step; `None` without step attribution or if it does not support the funnel.
    fn step_value_scanner(&self, rules: FunnelRules) -> Option<StepValueScanner> {
        let step = self.breakdown.attributed_step()?;
        StepValueScanner::new(rules, step, !self.query.exclusions.is_empty())
    }

    /// Calls back for every actor and value with its entries.
    pub(super) fn entries(
        &self,
        buckets: &Buckets,
        partition: &Partition,
        work: &WorkBudget<'_>,
        mut callback: impl FnMut(u32, u32, &[PeriodEntry]),
    ) -> CalcResult<ValueDictionary> {
        let (rules, depths) = (self.rules(), self.conversion_depths());
        if self.query.order == StepOrder::Unordered {
            let mut scanner = UnorderedPeriodScanner::new(rules, depths);
            return self.for_each_pass(partition, work, |actor, pass, events, work| {
                callback(actor, pass.value, scanner.run(pass.required_value, buckets, events, work)?);
                Ok(())
            });
        }
        let mut scanner = PeriodScanner::new(rules, depths);
        self.for_each_pass(partition, work, |actor, pass, events, work| {
            callback(actor, pass.value, scanner.run(pass.required_value, buckets, events, work)?);
            Ok(())
        })
    }

    /// Calls back for every actor that can begin a path and every value it counts under, with the events to process.
    fn for_each_pass(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
        callback: impl FnMut(u32, ValuePass, &[StepEvent], &WorkBudget<'_>) -> CalcResult<()>,
    ) -> CalcResult<ValueDictionary> {
        let (values, runs) = self.matched_runs(partition, work)?;
        let unordered = self.query.order == StepOrder::Unordered;
        let begins = |matches: MatchBits| if unordered { matches.steps() != 0 } else { matches.has_step(0) };
        ActorScan::new(self, &runs, &values, work).scan_all(begins, callback)?;
        drop(runs);
        Ok(values)
    }

    /// The breakdown values of a partition, and its runs with matching rows.
    fn matched_runs<'a>(
        &self,
        partition: &'a Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<(ValueDictionary, Vec<MatchedRun<'a>>)> {
        let mut values = self.breakdown.new_dictionary();
        let runs = self
            .step_matcher
            .matched_runs(partition, work, |run| self.breakdown.codes(run, &mut values, work))?;
        Ok((values, runs))
    }
}

/// A fast path, which reads fewer events than the full scan.
enum FastPath<'a> {
    OneRunPerStep(OneRunPerStepScan<'a>),
    Strict(StrictScan<'a>),
}

impl<'a> FastPath<'a> {
    /// Selects a fast path; `None` if none applies.
    fn new(
        rules: FunnelRules,
        bounds: (Micros, Micros),
        runs: &'a [MatchedRun<'a>],
        touch: Option<TouchAttribution>,
    ) -> Option<Self> {
        match (rules.strict, touch) {
            (false, _) => OneRunPerStepScan::new(rules, bounds, runs, touch).map(Self::OneRunPerStep),
            (true, None) => StrictScan::new(rules, bounds, runs).map(Self::Strict),
            // In strict order any event can decide the attribution.
            (true, Some(_)) => None,
        }
    }

    /// Calls back for every actor that began a path, in ascending order.
    fn run(
        self,
        work: &WorkBudget<'_>,
        callback: impl FnMut(ScanResult<'_>) -> CalcResult<()>,
    ) -> CalcResult<()> {
        match self {
            Self::OneRunPerStep(scan) => scan.run(work, callback),
            Self::Strict(scan) => scan.run(work, callback),
        }
    }
}

/// The full scan: merges and processes the events of one actor after the other.
struct ActorScan<'a> {
    breakdown: &'a FunnelBreakdown,
    runs: &'a [MatchedRun<'a>],
    values: &'a ValueDictionary,
    merge: KWayMerge<'a>,
    work: &'a WorkBudget<'a>,
    events: ActorEvents,
    passes: Vec<ValuePass>,
}

impl<'a> ActorScan<'a> {
    fn new(
        funnel: &'a CompiledFunnel,
        runs: &'a [MatchedRun<'a>],
        values: &'a ValueDictionary,
        work: &'a WorkBudget<'_>,
    ) -> Self {
        let merge = KWayMerge::new(runs, funnel.bounds);
        Self {
            breakdown: &funnel.breakdown,
            runs,
            values,
            merge,
            work,
            events: ActorEvents::default(),
            passes: Vec::new(),
        }
    }

    /// Calls back for every actor with an event that can begin a path.
    fn scan_all(
        &mut self,
        begins: impl Fn(MatchBits) -> bool,
        mut callback: impl FnMut(u32, ValuePass, &[StepEvent], &WorkBudget<'_>) -> CalcResult<()>,
    ) -> CalcResult<()> {
        for actor in k_way_merge::entering_actors(self.runs, begins) {
            self.scan_actor(actor, |pass, events, work| callback(actor, pass, events, work))?;
        }
        Ok(())
    }

    /// Calls back for every value that an actor counts under. Actors must be visited in ascending order.
    fn scan_actor(
        &mut self,
        actor: u32,
        mut callback: impl FnMut(ValuePass, &[StepEvent], &WorkBudget<'_>) -> CalcResult<()>,
    ) -> CalcResult<()> {
        self.load_actor(actor)?;
        let (events, passes) = (self.events.all.len(), self.passes.len());
        let requires_value = self.passes.first().is_some_and(|pass| pass.required_value.is_some());
        if requires_value && !limits::step_values_fit(events, passes) {
            return Err(limits::too_many_step_values());
        }
        for pass in &self.passes {
            let events = self.events.for_pass(*pass, self.values);
            callback(*pass, events, self.work)?;
        }
        Ok(())
    }

    /// Moves to an actor, and collects its events and the passes over them.
    fn load_actor(&mut self, actor: u32) -> CalcResult<()> {
        self.work.consume(1 + self.merge.seek(actor))?;
        self.merge.collect(&mut self.events.all);
        self.work.consume(self.events.all.len())?;
        self.events.by_value.clear();
        self.breakdown.list_passes(&self.events.all, self.values, &mut self.passes);
        Ok(())
    }

    /// Scans all values of each actor at once, for step attribution.
    fn scan_step_values(
        &mut self,
        scanner: &mut StepValueScanner,
        mut emit: impl FnMut(u32, u32, Option<BestPath<'_>>),
    ) -> CalcResult<()> {
        for actor in k_way_merge::entering_actors(self.runs, |matches| matches.has_step(0)) {
            self.load_actor(actor)?;
            let (passes, events) = (&self.passes, &self.events.all);
            scanner.run(passes, events, self.work, |value, reached| emit(actor, value, reached))?;
        }
        Ok(())
    }

    /// Without a breakdown, for ordered funnels: stops reading an actor's events when it converted.
    fn scan_until_converted(
        &mut self,
        scanner: &mut FunnelScanner,
        mut emit: impl FnMut(u32, u32, Option<BestPath<'_>>),
    ) -> CalcResult<()> {
        for actor in k_way_merge::entering_actors(self.runs, |matches| matches.has_step(0)) {
            self.work.consume(1 + self.merge.seek(actor))?;
            scanner.begin(None);
            while !scanner.has_converted()
                && let Some(instant) = self.merge.next()
            {
                self.work.consume(instant.len())?;
                scanner.process_instant(instant);
            }
            emit(actor, 0, scanner.best_path());
        }
        Ok(())
    }
}
