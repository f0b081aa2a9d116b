//! Counts of events by the text of a property, compared with a plain count: for any dictionaries of values, any number of
//! unused entries, and any division of the events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pennon_analytics::scan::{ArrivalOrder, Column, ColumnKey, Dictionary, EventRun, MISSING, Partition};
use pennon_analytics::{Definitions, ParsedQuery, ProjectContext, Query};
use pennon_filters::dates::WeekStart;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::merged_partials::MergedPartials;

const DAY: i64 = 86_400_000_000;
/// 2026-01-01.
const START: i64 = 1_767_225_600_000_000;
const DAYS: usize = 5;
const NULL: &str = "$$_posthog_breakdown_null_$$";
const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// Values and their texts; the code after the last one means a missing value.
fn values() -> Vec<(Value, &'static str)> {
    vec![
        (json!("a"), "a"),
        (json!("b"), "b"),
        (json!("a"), "a"),
        (json!(5), "5"),
        (json!("5"), "5"),
        (json!(5.0), "5"),
        (json!(""), NULL),
        (json!(null), NULL),
        (json!(true), "true"),
        (json!("c/"), "c/"),
    ]
}

/// An event: its name, its time in hours, its code, and whether it passes the filter.
type Event = (bool, i64, usize, bool);

/// Counts by series, text and day.
type Counts = BTreeMap<(usize, String), Vec<u64>>;

fn run(name: &str, events: &[Event], unused: usize) -> Option<EventRun> {
    let mut own: Vec<&Event> = events.iter().filter(|event| event.0 == (name == "one")).collect();
    own.sort_by_key(|event| event.1);
    let mut list: Vec<Value> = (0..unused).map(|index| json!(format!("unused {index}"))).collect();
    list.extend(values().into_iter().map(|(value, _)| value));
    let known = values().len();
    let code = |event: &&Event| {
        if event.2 < known { u32::try_from(unused + event.2).unwrap() } else { MISSING }
    };
    let codes: Vec<u32> = own.iter().map(code).collect();
    let dictionary: Arc<Dictionary> = Arc::new(list.into());
    let passes = own.iter().map(|event| u32::from(event.3)).collect();
    let key = |key: &str| ColumnKey::Property(key.to_owned());
    (!own.is_empty()).then(|| EventRun {
        event: name.to_owned(),
        actors: vec![0; own.len()].into(),
        times: own.iter().map(|event| START + event.1 * DAY / 24).collect(),
        order: ArrivalOrder::Ties((0..).take(own.len()).collect()),
        columns: BTreeMap::from([
            (key("k"), Column { codes: codes.into(), values: dictionary }),
            (key("n"), Column::new(passes, vec![json!(0), json!(1)])),
        ]),
        joined_columns: BTreeMap::new(),
    })
}

fn by_hand(events: &[Event]) -> Counts {
    let values = values();
    let mut counts = Counts::new();
    for (one, hour, code, passes) in events {
        let Ok(day) = usize::try_from(hour.div_euclid(24)) else { continue };
        if day >= DAYS || (*one && !passes) {
            continue;
        }
        let text = values.get(*code).map_or(NULL, |(_, text)| *text);
        let of_text = counts.entry((usize::from(!one), text.to_owned())).or_insert_with(|| vec![0; DAYS]);
        of_text[day] += 1;
    }
    counts
}

/// The rows of a series in order: the most frequent texts, then events without a text, then the others.
fn rows(counts: &Counts, series: usize, limit: usize) -> Vec<(String, Vec<u64>)> {
    let own = counts.iter().filter(|((of, _), _)| *of == series);
    let mut own: Vec<_> = own.map(|((_, text), data)| (text.clone(), data.clone())).collect();
    own.sort_by_key(|(text, data)| (text == NULL, std::cmp::Reverse(data.iter().sum::<u64>()), text.clone()));
    if own.len() > limit {
        let rest = own.split_off(limit);
        let sum = (0..DAYS).map(|day| rest.iter().map(|(_, data)| data[day]).sum()).collect();
        own.push((OTHER.to_owned(), sum));
    }
    own
}

fn calculate(parts: &[Vec<Event>], unused: &[usize], limit: usize) -> Value {
    let node = json!({
        "kind": "TrendsQuery", "interval": "day",
        "series": [
            {"kind": "EventsNode", "event": "one", "properties": [{"key": "n", "value": 1, "operator": "exact", "type": "event"}]},
            {"kind": "EventsNode", "event": "two"},
        ],
        "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-05"},
        "breakdownFilter": {"breakdown": "k", "breakdown_type": "event", "breakdown_limit": limit},
    });
    let project = ProjectContext {
        project_id: "1".to_owned(),
        timezone: chrono_tz::UTC,
        week_start: WeekStart::Sunday,
        test_account_filters: Vec::new(),
        path_cleaning_filters: Vec::new(),
        earliest_event: Some(START),
        aggregate_by_distinct_id: false,
        definitions: Definitions::default(),
    };
    let ParsedQuery::Query(query) = Query::from_query_node(&node).unwrap() else { unreachable!() };
    let plan = query.plan(&project, "2026-04-01T00:00:00Z".parse().unwrap()).unwrap();
    let partial = |(index, events): (usize, &Vec<Event>)| {
        let runs = ["one", "two"].iter().filter_map(|name| run(name, events, unused[index % unused.len()]));
        let actors = Arc::new(vec![Uuid::from_u128(index as u128)]);
        let partition = Partition { actors, runs: runs.collect(), ..Partition::default() };
        plan.partial(&partition, &|| false).unwrap()
    };
    let mut sum = MergedPartials::default();
    parts.iter().enumerate().map(partial).for_each(|partial| sum.add(partial));
    sum.finish(&plan).unwrap().result
}

proptest! {
    #[test]
    fn events_are_counted_by_text_and_day(
        parts in prop::collection::vec(
            prop::collection::vec((any::<bool>(), -30_i64..150, 0_usize..12, prop::bool::weighted(0.7)), 0..80), 1..5),
        // If a dictionary is long for so few rows, every text is looked up.
        unused in prop::sample::select(vec![vec![0], vec![3, 0], vec![0, 2_000], vec![2_000]]),
        limit in prop::sample::select(vec![2_usize, 25]),
    ) {
        let got = calculate(&parts, &unused, limit);
        let all: Vec<Event> = parts.iter().flatten().copied().collect();
        let counts = by_hand(&all);
        let want: Vec<_> = [0, 1].into_iter().flat_map(|series| rows(&counts, series, limit)).collect();
        let got: Vec<(String, Vec<u64>)> = got.as_array().unwrap().iter().map(|row| {
            let data = row["data"].as_array().unwrap().iter().map(|count| count.as_f64().unwrap() as u64);
            (row["breakdown_value"].as_str().unwrap().to_owned(), data.collect())
        }).collect();
        prop_assert_eq!(got, want);
    }
}

#[test]
fn every_text_has_its_own_row() {
    let texts: BTreeSet<&str> = values().into_iter().map(|(_, text)| text).collect();
    let events: Vec<Event> = (0..values().len()).map(|code| (false, 30, code, true)).collect();
    let got = calculate(&[events], &[0], 25);
    let shown: BTreeSet<&str> =
        got.as_array().unwrap().iter().map(|row| row["breakdown_value"].as_str().unwrap()).collect();
    assert_eq!(shown, texts);
}
