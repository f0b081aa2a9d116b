//! The values under which an actor counts, and its events for each, by the contract.

use pennon_filters::work_budget::WorkBudget;

use super::super::breakdown::{EventSubset, FunnelBreakdown, ValueDictionary, ValuePass};
use super::super::scan::{FunnelRules, FunnelScanner, RequiredValue};
use super::super::unordered::UnorderedScanner;
use super::{StepEvent, parse_events, times_and_steps};
use crate::breakdown::{BreakdownReader, TextColumn};
use crate::kinds::funnels::Attribution;
use crate::kinds::funnels::limits;
use crate::query::CohortChoice;
use crate::scan::{Column, EventRun, JoinedColumnKey, MISSING, Micros};

fn breakdown(attribution: Attribution, skip_empty: bool, unordered: bool) -> FunnelBreakdown {
    FunnelBreakdown::Values {
        reader: BreakdownReader::default(),
        dimensions: 1,
        attribution,
        skip_empty,
        unordered,
    }
}

/// Events of a text that have these values.
fn valued(funnel: &str, text: &str, values: &[u32]) -> Vec<StepEvent> {
    let mut events = parse_events(funnel, text);
    events.iter_mut().zip(values).for_each(|(event, value)| event.value = *value);
    events
}

fn passes(breakdown: &FunnelBreakdown, events: &[StepEvent]) -> Vec<ValuePass> {
    let mut passes = Vec::new();
    breakdown.list_passes(events, &breakdown.new_dictionary(), &mut passes);
    passes
}

#[test]
fn touch_attribution_takes_one_value_and_skips_empty_ones() {
    let events = valued("ab", "a0 b1 a2 b3", &[0, 7, 8, 0]);
    let all = |value| vec![ValuePass { value, required_value: None, events: EventSubset::All }];
    assert_eq!(passes(&breakdown(Attribution::FirstTouch, true, false), &events), all(7));
    assert_eq!(passes(&breakdown(Attribution::LastTouch, true, false), &events), all(8));
    let empty = valued("ab", "a0 b1", &[0, 0]);
    assert_eq!(passes(&breakdown(Attribution::FirstTouch, true, false), &empty), all(0));
    // The property of a group may be empty.
    assert_eq!(passes(&breakdown(Attribution::FirstTouch, false, false), &events), all(0));
    assert_eq!(passes(&breakdown(Attribution::LastTouch, false, false), &events), all(0));
}

#[test]
fn all_events_count_under_their_own_value() {
    let events = valued("ab", "a0 b1 a2 b3", &[8, 7, 8, 0]);
    let own = |value| ValuePass { value, required_value: None, events: EventSubset::Value };
    assert_eq!(passes(&breakdown(Attribution::AllEvents, true, false), &events), [own(0), own(7), own(8)]);
}

#[test]
fn step_attribution_uses_the_values_of_matching_events() {
    let events = valued("ab", "a0 b1 a2 b3", &[5, 7, 6, 0]);
    let bound = |value| ValuePass {
        value,
        required_value: Some(RequiredValue { step: 1, value }),
        events: EventSubset::All,
    };
    assert_eq!(passes(&breakdown(Attribution::Step(1), true, false), &events), [bound(0), bound(7)]);
    let first = |value| ValuePass {
        value,
        required_value: Some(RequiredValue { step: 0, value }),
        events: EventSubset::All,
    };
    let unordered = breakdown(Attribution::Step(0), true, true);
    assert_eq!(passes(&unordered, &events), [first(0), first(5), first(6), first(7)]);
}

#[test]
fn a_restricted_step_matches_only_events_of_its_value() {
    let run = |value: u32, values: &[u32]| -> Vec<Micros> {
        let events = valued("ab", "a0 b1 b2", values);
        let mut scanner =
            FunnelScanner::new(FunnelRules { steps: 2, window: 10, strict: false, optional: 0 });
        scanner.begin(Some(RequiredValue { step: 1, value }));
        events.iter().for_each(|event| scanner.process_instant(std::slice::from_ref(event)));
        times_and_steps(scanner.best_path()).0
    };
    assert_eq!(run(7, &[1, 7, 8]), [0, 1]);
    assert_eq!(run(8, &[1, 7, 8]), [0, 2]);
    assert_eq!(run(9, &[1, 7, 8]), [0]);
}

#[test]
fn unordered_the_first_event_is_restricted_to_the_value() {
    let run = |value: u32, values: &[u32]| -> Vec<Micros> {
        let events = valued("ab", "b0 a1 b2", values);
        let bound = Some(RequiredValue { step: 0, value });
        times_and_steps(
            UnorderedScanner::new(2, 10).run(bound, &events, &WorkBudget::new(&|| false)).unwrap(),
        )
        .0
    };
    assert_eq!(run(7, &[7, 8, 8]), [0, 1]);
    assert_eq!(run(8, &[7, 8, 8]), [1, 2]);
    assert_eq!(run(9, &[7, 8, 8]), Vec::<Micros>::new());
}

fn values_of(parts: usize) -> ValueDictionary {
    let attribution = Attribution::FirstTouch;
    let reader = BreakdownReader::default();
    FunnelBreakdown::Values { reader, dimensions: parts, attribution, skip_empty: true, unordered: false }
        .new_dictionary()
}

#[test]
fn values_of_several_keys_are_distinguished_by_position() {
    let texts = |values: &[&str], codes: &[u32]| TextColumn {
        codes: codes.to_vec().into(),
        table: (0..).take(values.len()).collect(),
        missing: MISSING,
        values: values.iter().map(|text| (*text).to_owned()).collect(),
    };
    let mut values = values_of(2);
    let mut keys = |first: TextColumn, second: TextColumn| {
        let rows = first.codes.len();
        let codes = values.codes(vec![first, second], rows, &WorkBudget::new(&|| false)).unwrap();
        let key = |code| (code == 0, values.key(code).join("|"));
        (0..rows).map(|row| key(codes.code_of(row))).collect::<Vec<_>>()
    };
    let (a, b) =
        (texts(&["x", "y"], &[0, 0, MISSING, MISSING, 1]), texts(&["x", "z"], &[0, MISSING, 0, MISSING, 1]));
    let want = [(false, "x|x"), (false, "x|"), (false, "|x"), (true, "|"), (false, "y|z")];
    assert_eq!(keys(a, b), want.map(|(empty, key)| (empty, key.to_owned())));
    // Another run has codes of its own; the values are the same.
    let (a, b) = (texts(&["y", "x"], &[1, 0]), texts(&["z", "x"], &[1, 0]));
    assert_eq!(keys(a, b), [(false, "x|x".to_owned()), (false, "y|z".to_owned())]);
}

#[test]
fn more_values_than_the_limit_are_rejected() {
    let codes = |count: usize| {
        let texts = TextColumn {
            codes: (0..u32::try_from(count).unwrap()).collect(),
            table: (0..u32::try_from(count).unwrap()).collect(),
            missing: MISSING,
            values: (0..count).map(|value| value.to_string()).collect(),
        };
        values_of(1)
            .codes(vec![texts], count, &WorkBudget::new(&|| false))
            .map(|codes| (0..count).filter(|row| codes.code_of(*row) > 0).count())
    };
    let most = limits::BREAKDOWN_VALUES;
    assert_eq!(codes(most), Ok(most));
    assert_eq!(codes(most + 1).unwrap_err().attr.as_deref(), Some("breakdown"));
}

#[test]
fn an_actor_counts_in_each_of_its_cohorts() {
    let choices = vec![CohortChoice::Cohort(3), CohortChoice::All, CohortChoice::Cohort(4)];
    let breakdown = FunnelBreakdown::Cohorts(choices);
    let member = |codes: Vec<u32>| Column::new(codes, vec![false.into(), true.into()]);
    let mut run = EventRun { actors: vec![0, 1].into(), ..EventRun::default() };
    run.joined_columns.insert(JoinedColumnKey::InCohort(3), member(vec![1, 0]));
    run.joined_columns.insert(JoinedColumnKey::InCohort(4), member(vec![0, 0]));
    let mut values = breakdown.new_dictionary();
    let codes = breakdown.codes(&run, &mut values, &WorkBudget::new(&|| false)).unwrap().unwrap();
    let keys = |code: u32| {
        let mut passes = Vec::new();
        breakdown.list_passes(&valued("a", "a0", &[code]), &values, &mut passes);
        assert!(
            passes.iter().all(|pass| pass.required_value.is_none() && pass.events == EventSubset::Cohort)
        );
        passes.iter().flat_map(|pass| breakdown.key(pass.value, &values)).collect::<Vec<_>>()
    };
    assert_eq!([0, 1].map(|row| keys(codes.code_of(row))), [vec!["3", "0"], vec!["0"]]);
}
