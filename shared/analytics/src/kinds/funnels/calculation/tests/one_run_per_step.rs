//! The pass over runs of one step each against the scan over instants.

use std::collections::BTreeMap;

use pennon_filters::work_budget::WorkBudget;

use super::super::breakdown::{TouchAttribution, ValueCodes};
use super::super::k_way_merge::{MatchedRun, RowMatches};
use super::super::one_run_per_step::{OneRunPerStepScan, ScanResult};
use super::*;
use crate::mask::Mask;
use crate::scan::EventRun;

/// A row: actor, time, whether it counts, code of its value.
type Row = (u32, Micros, bool, u32);

/// Per actor: value code and path times; `None` for actors that need the full scan.
type ActorOutcomes = BTreeMap<u32, Option<(u32, Vec<Micros>)>>;

fn marked(step: usize, rows: &[Row], run: &mut EventRun) -> (RowMatches, ValueCodes) {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|(actor, time, ..)| (*actor, *time));
    run.actors = rows.iter().map(|row| row.0).collect();
    run.times = rows.iter().map(|row| row.1).collect();
    let mask = if rows.iter().all(|row| row.2) {
        Mask::Every
    } else {
        Mask::Rows(rows.iter().map(|row| row.2).collect())
    };
    let marks = RowMatches::Same(MatchBits::default()).with(MatchBits::step(step), &mask);
    (marks, ValueCodes::PerRow(rows.iter().map(|row| row.3).collect()))
}

fn direct(
    steps: &[Vec<Row>],
    bounds: (Micros, Micros),
    window: Micros,
    touch: Option<TouchAttribution>,
) -> ActorOutcomes {
    let rules = FunnelRules { steps: steps.len(), window, strict: false, optional: 0 };
    let mut runs = vec![EventRun::default(); steps.len()];
    let mut all = Vec::new();
    for (step, (rows, run)) in steps.iter().zip(&mut runs).enumerate() {
        let (marks, values) = marked(step, rows, run);
        let counts = rows.iter().any(|row| row.2);
        all.extend(counts.then_some((&*run, marks, values)));
    }
    let runs: Vec<_> =
        all.into_iter().map(|(run, marks, values)| MatchedRun::new(run, marks, Some(values))).collect();
    let mut outcomes = ActorOutcomes::new();
    let result = |result: ScanResult<'_>| {
        let (actor, outcome) = match result {
            ScanResult::Outcome(outcome) => (outcome.actor, Some((outcome.value, outcome.times.to_vec()))),
            ScanResult::Tied(actor) => (actor, None),
        };
        assert!(outcomes.insert(actor, outcome).is_none());
        Ok(())
    };
    OneRunPerStepScan::new(rules, bounds, &runs, touch)
        .unwrap()
        .run(&WorkBudget::new(&|| false), result)
        .unwrap();
    outcomes
}

/// Events of an actor that count, in order of time: step, time and value.
fn events(steps: &[Vec<Row>], bounds: (Micros, Micros), actor: u32) -> Vec<(usize, Micros, u32)> {
    let mut events = Vec::new();
    for (step, rows) in steps.iter().enumerate() {
        let own = rows.iter().filter(|row| row.0 == actor && row.2 && (bounds.0..=bounds.1).contains(&row.1));
        events.extend(own.map(|row| (step, row.1, row.3)));
    }
    events.sort_by_key(|event| event.1);
    events
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec((0_u32..4, 0_i64..40, prop::bool::weighted(0.8), 0_u32..3), 0..12)
}

proptest! {
    #[test]
    fn paths_equal_those_of_the_full_scan(
        steps in prop::collection::vec(rows(), 1..5),
        bounds in (0_i64..10, 30_i64..40),
        window in 0_i64..30,
        last in any::<bool>(),
        skip_empty in any::<bool>(),
        whole in any::<bool>(),
    ) {
        let touch = (!whole).then_some(TouchAttribution { last, skip_empty });
        let outcomes = direct(&steps, bounds, window, touch);
        for actor in 0..4 {
            let events = events(&steps, bounds, actor);
            let list: Vec<StepEvent> = events.iter().map(|event| super::event(event.1, &[event.0], &[])).collect();
            let path = scan(steps.len(), window, &list);
            let mut touches = events.iter().filter(|event| event.2 != 0 || !skip_empty);
            let found = if last { touches.next_back() } else { touches.next() };
            let value = if whole { 0 } else { found.map_or(0, |event| event.2) };
            match outcomes.get(&actor) {
                None => prop_assert!(path.is_empty()),
                Some(Some(outcome)) => prop_assert_eq!(outcome, &(value, path)),
                // Only an instant with events of several steps is left to the other scan.
                Some(None) => {
                    let ties = |one: &(usize, Micros, u32)| {
                        events.iter().any(|other| one.1 == other.1 && one.0 != other.0)
                    };
                    prop_assert!(events.iter().any(ties));
                }
            }
        }
    }
}
