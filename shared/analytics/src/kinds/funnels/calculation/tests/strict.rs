//! The pass over the gaps of strict funnels against the scan over instants.

use std::collections::BTreeMap;

use pennon_filters::work_budget::WorkBudget;

use super::super::k_way_merge::{MatchedRun, RowMatches, gallop};
use super::super::one_run_per_step::ScanResult;
use super::super::strict::StrictScan;
use super::*;
use crate::scan::{ArrivalOrder, EventRun};

/// A row: actor, time, and what it matches.
type Row = (u32, Micros, MatchBits);

/// The path of each actor; `None` if the full scan over instants is needed.
type ActorOutcomes = BTreeMap<u32, Option<Vec<Micros>>>;

const BOUNDS: (Micros, Micros) = (3, 57);

fn rules(steps: usize, window: Micros) -> FunnelRules {
    FunnelRules { steps, window, strict: true, optional: 0 }
}

/// Rows of a run in their order, and what it takes to make it one.
fn run_of(rows: &[Row], order: &ArrivalOrder) -> (EventRun, RowMatches) {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|(actor, time, _)| (*actor, *time));
    let (actors, times) = (rows.iter().map(|row| row.0).collect(), rows.iter().map(|row| row.1).collect());
    let marks = match rows.first() {
        Some((.., first)) if rows.iter().all(|row| row.2 == *first) => RowMatches::Same(*first),
        _ => RowMatches::Each(rows.iter().map(|row| row.2).collect()),
    };
    (EventRun { actors, times, order: order.clone(), ..EventRun::default() }, marks)
}

/// The outcomes of the pass; `None` if it does not support the runs.
fn outcomes(rules: FunnelRules, runs: &[Vec<Row>], order: &ArrivalOrder) -> Option<ActorOutcomes> {
    let seen = |row: &Row| !row.2.is_empty();
    let runs: Vec<_> = runs.iter().filter(|rows| rows.iter().any(seen)).collect();
    let runs: Vec<_> = runs.into_iter().map(|rows| run_of(rows, order)).collect();
    let runs: Vec<_> = runs.iter().map(|(run, marks)| MatchedRun::new(run, marks.clone(), None)).collect();
    let mut outcomes = ActorOutcomes::new();
    let result = |result: ScanResult<'_>| {
        let (actor, outcome) = match result {
            ScanResult::Outcome(outcome) => {
                assert_eq!(outcome.steps.trailing_ones() as usize, outcome.times.len());
                (outcome.actor, Some(outcome.times.to_vec()))
            }
            ScanResult::Tied(actor) => (actor, None),
        };
        assert!(outcomes.last_key_value().is_none_or(|(before, _)| *before < actor), "actors in order");
        outcomes.insert(actor, outcome);
        Ok(())
    };
    StrictScan::new(rules, BOUNDS, &runs)?.run(&WorkBudget::new(&|| false), result).unwrap();
    Some(outcomes)
}

/// Events of an actor that are seen, in order of time.
fn events(runs: &[Vec<Row>], actor: u32) -> Vec<StepEvent> {
    let own = |row: &&Row| row.0 == actor && !row.2.is_empty() && (BOUNDS.0..=BOUNDS.1).contains(&row.1);
    let events = runs.iter().flatten().filter(own);
    let mut events: Vec<_> = events.map(|row| StepEvent { time: row.1, matches: row.2, value: 0 }).collect();
    events.sort_by_key(|event| event.time);
    events
}

/// A run whose rows are seen or not, and take no step or one of two.
fn runs(times: Micros) -> impl Strategy<Value = Vec<Vec<Row>>> {
    let seen = MatchBits::any_event();
    let kinds = (0_usize..4, 0_usize..4, 0_usize..7).prop_map(move |(one, other, kind)| match kind {
        0 | 1 => vec![seen],
        2 | 3 => vec![seen.with(MatchBits::step(one))],
        4 => vec![seen, MatchBits::default()],
        5 => vec![seen.with(MatchBits::step(one)), seen, MatchBits::default()],
        _ => vec![seen.with(MatchBits::step(one)), seen.with(MatchBits::step(other)), seen],
    });
    let run = kinds.prop_flat_map(move |kinds| {
        let row = (0_u32..6, 0..times, prop::sample::select(kinds));
        prop::collection::vec(row, 0..24)
    });
    prop::collection::vec(run, 1..7)
}

/// Leaves out the rows that have an actor and a time that another row has.
fn untied(mut runs: Vec<Vec<Row>>) -> Vec<Vec<Row>> {
    let mut taken = std::collections::BTreeSet::new();
    runs.iter_mut().for_each(|rows| rows.retain(|row| taken.insert((row.0, row.1))));
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn paths_equal_those_of_the_full_scan(
        runs in runs(60), steps in 1_usize..=4, window in 0_i64..40, ties in any::<bool>(),
    ) {
        let (runs, order) =
            if ties { (runs, ArrivalOrder::Ties(Vec::new().into())) } else { (untied(runs), ArrivalOrder::Untied) };
        let rules = rules(steps, window);
        // A step that the funnel does not have is none.
        let own = |row: &Row| row.2.steps() >> steps == 0;
        let runs: Vec<Vec<Row>> = runs.iter().map(|rows| rows.iter().copied().filter(own).collect()).collect();
        let outcomes = outcomes(rules, &runs, &order).unwrap();
        for actor in 0..6 {
            let events = events(&runs, actor);
            let path = scan_by(rules, &events).0;
            match outcomes.get(&actor) {
                None => prop_assert!(path.is_empty()),
                Some(Some(outcome)) => prop_assert_eq!(outcome, &path, "{:?}", events),
                Some(None) => {
                    prop_assert!(ties && events.windows(2).any(|pair| pair[0].time == pair[1].time));
                }
            }
        }
    }

    #[test]
    fn gallop_finds_the_same_index_as_linear_search(
        mut numbers in prop::collection::vec(0_u32..50, 0..60), from in 0_usize..60, target in 0_u32..52,
    ) {
        numbers.sort_unstable();
        let from = from.min(numbers.partition_point(|number| *number < target));
        let want = numbers.partition_point(|number| *number < target);
        prop_assert_eq!(gallop(from, numbers.len(), |place| numbers[place] < target), want);
    }
}

/// Events of one actor, with a run per letter; capitals are steps, in the order of the alphabet.
fn best_path_times(steps: usize, text: &str) -> Option<Vec<Micros>> {
    let mut runs: BTreeMap<char, Vec<Row>> = BTreeMap::new();
    for word in text.split_whitespace() {
        let (name, time) = word.split_at(1);
        let name = name.chars().next().unwrap();
        let step = u32::from(name).checked_sub(u32::from('A')).filter(|step| *step < 26);
        let marks = step.map_or(MatchBits::any_event(), |step| {
            MatchBits::any_event().with(MatchBits::step(step as usize))
        });
        runs.entry(name).or_default().push((0, time.parse().unwrap(), marks));
    }
    let runs: Vec<_> = runs.into_values().collect();
    outcomes(rules(steps, 20), &runs, &ArrivalOrder::Ties(Vec::new().into())).unwrap().remove(&0).unwrap()
}

#[test]
fn other_events_are_searched_between_the_steps() {
    assert_eq!(best_path_times(3, "A10 B11 C12"), Some(vec![10, 11, 12]));
    assert_eq!(best_path_times(3, "x9 A10 B12 C13 x14"), Some(vec![10, 12, 13]));
    assert_eq!(best_path_times(3, "A10 x11 B12 C13"), Some(vec![10]));
    assert_eq!(best_path_times(3, "A10 B11 y12 C13"), Some(vec![10, 11]));
    assert_eq!(best_path_times(3, "A10 B11 B12 C13"), Some(vec![10, 11, 13]), "a repeat breaks nothing");
    assert_eq!(best_path_times(3, "A10 B11 x12 B13 C14"), Some(vec![10, 11]));
    assert_eq!(
        best_path_times(3, "A10 B11 x12 A20 B21 C22"),
        Some(vec![20, 21, 22]),
        "a later path gets further"
    );
    assert_eq!(
        best_path_times(4, "A10 D11 B12"),
        Some(vec![10]),
        "steps that no actor reaches break paths too"
    );
    assert_eq!(best_path_times(2, "A10 B31"), Some(vec![10]));
}

#[test]
fn instants_with_several_events_need_the_full_scan() {
    // An event at the instant of a step breaks nothing, which the pass does not support.
    assert_eq!(best_path_times(3, "A10 B11 x11 C12"), None);
    assert_eq!(best_path_times(3, "A10 x10 B11"), None);
    assert_eq!(best_path_times(3, "A10 C11 x11 B12"), None, "with the stop, the path goes on");
    assert_eq!(best_path_times(2, "A10 B10"), None);
    // Elsewhere it does not matter.
    assert_eq!(best_path_times(2, "x5 y5 A10 B11"), Some(vec![10, 11]));
    assert_eq!(best_path_times(2, "A10 x12 B13 x13"), Some(vec![10]));
    assert_eq!(best_path_times(2, "A10 x10"), Some(vec![10]));
}

#[test]
fn unsupported_funnels_need_the_full_scan() {
    let both = MatchBits::any_event().with(MatchBits::step(0)).with(MatchBits::step(1));
    let exclusion = MatchBits::any_event().with(MatchBits::exclusion(0, 1));
    for marks in [both, exclusion] {
        let runs = vec![vec![(0, 10, marks)]];
        assert_eq!(outcomes(rules(2, 10), &runs, &ArrivalOrder::Untied), None);
    }
    let runs = vec![vec![(0, 10, MatchBits::any_event().with(MatchBits::step(0)))]];
    assert_eq!(outcomes(FunnelRules { optional: 2, ..rules(2, 10) }, &runs, &ArrivalOrder::Untied), None);
    assert_eq!(outcomes(FunnelRules { strict: false, ..rules(2, 10) }, &runs, &ArrivalOrder::Untied), None);
}
