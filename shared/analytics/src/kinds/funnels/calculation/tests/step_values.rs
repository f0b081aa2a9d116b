//! The scan of all values of a step at once against one bound scan for each value.

use pennon_filters::work_budget::WorkBudget;

use super::super::breakdown::{EventSubset, ValuePass};
use super::super::scan::RequiredValue;
use super::super::step_values::StepValueScanner;
use super::*;

const STEPS: usize = 4;

/// The values that the events of a step have, each with its path.
type Paths = Vec<(u32, Vec<Micros>)>;

fn passes(step: usize, events: &[StepEvent]) -> Vec<ValuePass> {
    let mut values: Vec<u32> =
        events.iter().filter(|event| event.matches.has_step(step)).map(|event| event.value).collect();
    values.sort_unstable();
    values.dedup();
    let pass = |value| ValuePass {
        value,
        required_value: Some(RequiredValue { step, value }),
        events: EventSubset::All,
    };
    values.into_iter().map(pass).collect()
}

fn one_by_one(rules: FunnelRules, step: usize, events: &[StepEvent]) -> Paths {
    let mut scanner = FunnelScanner::new(rules);
    let never = || false;
    let path = |pass: ValuePass| {
        let reached = scanner.run(pass.required_value, events, &WorkBudget::new(&never)).unwrap();
        (pass.value, times_and_steps(reached).0)
    };
    passes(step, events).into_iter().map(path).collect()
}

fn at_once(scanner: &mut StepValueScanner, step: usize, events: &[StepEvent]) -> Paths {
    let mut paths = Vec::new();
    let callback = |value: u32, reached: Option<BestPath<'_>>| {
        if let Some(reached) = reached {
            assert_eq!(reached.steps.trailing_ones() as usize, reached.times.len());
        }
        paths.push((value, times_and_steps(reached).0));
    };
    scanner.run(&passes(step, events), events, &WorkBudget::new(&|| false), callback).unwrap();
    paths
}

/// The events of several actors. An event takes any steps, has one of a few values, and may be an exclusion.
fn actors(exclusions: bool) -> impl Strategy<Value = Vec<Vec<StepEvent>>> {
    let step = prop_oneof![
        6 => (0..STEPS).prop_map(|step| vec![step]),
        2 => prop::sample::subsequence((0..STEPS).collect::<Vec<_>>(), 0..=STEPS),
    ];
    let gap = (0..STEPS - 1, 1..STEPS).prop_filter("a range", |(from, to)| from < to);
    let gaps = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(gap, 1..3)];
    let one = (0_i64..30, step, gaps, 0_u32..4).prop_map(move |(time, steps, gaps, value)| {
        let gaps = if exclusions { gaps } else { Vec::new() };
        StepEvent { value, ..event(time, &steps, &gaps) }
    });
    let actor_events = prop::collection::vec(one, 0..24).prop_map(|mut events| {
        events.sort_by_key(|event| event.time);
        events
    });
    prop::collection::vec(actor_events, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6_000))]

    #[test]
    fn all_values_at_once_give_the_paths_of_single_values(
        actors in actors(true), steps in 1..=STEPS, step in 0..STEPS, window in 0_i64..40,
    ) {
        let (step, rules) = (step % steps, FunnelRules { steps, window, strict: false, optional: 0 });
        let mut scanner = StepValueScanner::new(rules, step, true).unwrap();
        for events in actors {
            let events: Vec<StepEvent> = events.iter().map(|event| within(steps, event)).collect();
            prop_assert_eq!(at_once(&mut scanner, step, &events), one_by_one(rules, step, &events), "{:?}", events);
        }
    }

    #[test]
    fn in_strict_order_all_values_at_once_give_the_paths_of_single_values(
        actors in actors(false), steps in 1..=STEPS, step in 0..STEPS, window in 0_i64..40,
    ) {
        let (step, rules) = (step % steps, FunnelRules { steps, window, strict: true, optional: 0 });
        let mut scanner = StepValueScanner::new(rules, step, false).unwrap();
        for events in actors {
            let seen = |event: &StepEvent| StepEvent { matches: event.matches.with(MatchBits::any_event()), ..*event };
            let events: Vec<StepEvent> = events.iter().map(|event| seen(&within(steps, event))).collect();
            prop_assert_eq!(at_once(&mut scanner, step, &events), one_by_one(rules, step, &events), "{:?}", events);
        }
    }
}

/// The event without steps and gaps that the funnel does not have.
fn within(steps: usize, event: &StepEvent) -> StepEvent {
    let own = (0..steps).filter(|step| event.matches.has_step(*step)).map(MatchBits::step);
    let gaps = (1..steps).filter(|gap| event.matches.exclusions() >> gap & 1 != 0);
    let gaps = gaps.map(|gap| MatchBits::exclusion(gap - 1, gap));
    StepEvent { matches: own.chain(gaps).fold(MatchBits::default(), MatchBits::with), ..*event }
}

#[test]
fn funnels_that_can_extend_a_start_twice_are_scanned_value_by_value() {
    let rules = FunnelRules { steps: 3, window: 10, strict: false, optional: 0 };
    assert!(StepValueScanner::new(rules, 0, true).is_some());
    assert!(StepValueScanner::new(rules, 3, false).is_none(), "no such step");
    assert!(StepValueScanner::new(FunnelRules { optional: 2, ..rules }, 0, false).is_none());
    assert!(StepValueScanner::new(FunnelRules { strict: true, ..rules }, 0, false).is_some());
    assert!(StepValueScanner::new(FunnelRules { strict: true, ..rules }, 0, true).is_none());
}
