//! Time of the inner loops of calculations on one thread, on generated events: `cargo run --profile dist -p pennon-analytics --example loops`.
//!
//! Must stay true: the events are the same in every run, so that the check sums beside the times, which are of the whole
//! results, show whether a change of a loop changed a number. Arguments: events (10,000,000), repetitions (7), and part
//! of the names of the queries to run.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use pennon_analytics::scan::{
    ArrivalOrder, Column, ColumnKey, Dictionary, EventRun, EventSelection, MISSING, Partition, ScanRequest,
};
use pennon_analytics::{Definitions, ParsedQuery, PartitionResult, Plan, ProjectContext, Query};
use pennon_filters::dates::WeekStart;
use serde_json::{Value, json};
use uuid::Uuid;

const PARTITIONS: u64 = 20;
const DAY: i64 = 86_400_000_000;
/// 2026-01-01.
const START: i64 = 1_767_225_600_000_000;
const URLS: usize = 2_000;
const BROWSERS: usize = 14;
/// By how often they are drawn: a page view first, the three steps of the funnel next.
const NAMES: [&str; 12] = [
    "$pageview",
    "viewed",
    "added_to_cart",
    "purchased",
    "$autocapture",
    "$pageleave",
    "$feature_flag_called",
    "search",
    "filter_changed",
    "video_played",
    "login",
    "comment_added",
];

/// A generator of numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Small numbers more often than large ones.
    fn skewed(&mut self, count: usize) -> u32 {
        ((count as f64).powf(self.unit()) - 1.0) as u32
    }
}

/// The rows of one event name.
#[derive(Default)]
struct Rows {
    actors: Vec<u32>,
    times: Vec<i64>,
    browsers: Vec<u32>,
    urls: Vec<u32>,
    amounts: Vec<u32>,
}

/// All events of a share of the persons.
struct Share {
    actors: Arc<Vec<Uuid>>,
    rows: BTreeMap<&'static str, Rows>,
    dictionaries: BTreeMap<&'static str, Arc<Dictionary>>,
}

fn event(dice: &mut Dice, place: u64, shopping: bool) -> usize {
    let roll = dice.unit();
    match (place, shopping) {
        (0, _) => 0,
        (1, true) => 1,
        (_, true) if roll < 0.2 => 1,
        (_, true) if roll < 0.26 => 2,
        (_, true) if roll < 0.29 => 3,
        _ if roll < 0.45 => 0,
        _ => 4 + dice.skewed(NAMES.len() - 4) as usize,
    }
}

fn share(seed: u64, events: u64) -> Share {
    let mut dice = Dice(seed);
    let persons = events / 20;
    let mut ids: Vec<Uuid> = (0..persons)
        .map(|_| {
            Uuid::from_u128(
                u128::from(seed) << 120 | u128::from(dice.next()) << 32 | u128::from(dice.next() >> 32),
            )
        })
        .collect();
    ids.sort_unstable();
    let mut rows: BTreeMap<&'static str, Rows> = BTreeMap::new();
    for actor in 0..persons as u32 {
        // Few persons do much.
        let sessions = 1 + (0.75 / (dice.unit() + 0.02)) as u64;
        let mut list = Vec::new();
        let browser = dice.skewed(BROWSERS);
        for _ in 0..sessions.min(400) {
            let mut time = START + (dice.unit() * 59.9 * DAY as f64) as i64;
            let shopping = dice.unit() < 0.5;
            for place in 0..1 + dice.next() % 15 {
                list.push((time, event(&mut dice, place, shopping)));
                time += 1_000 + (dice.unit() * 50e6) as i64;
            }
        }
        list.sort_unstable();
        list.dedup_by_key(|(time, _)| *time);
        for (time, name) in list {
            let of = rows.entry(NAMES[name]).or_default();
            of.actors.push(actor);
            of.times.push(time);
            of.browsers.push(if dice.unit() < 0.92 { browser } else { dice.skewed(BROWSERS) });
            of.urls.push(dice.skewed(URLS));
            of.amounts.push(if matches!(name, 2 | 3) { (dice.next() % 19_801) as u32 } else { MISSING });
        }
    }
    let path = |index| {
        json!(format!("https://app.example.com/{}/{index}", ["p", "docs", "shop", "blog"][index % 4]))
    };
    let dictionaries = [
        ("$browser", (0..BROWSERS).map(|index| json!(format!("Browser {index}"))).collect()),
        ("$current_url", (0..URLS).map(path).collect()),
        ("amount", (0..19_801).map(|cents| json!(f64::from(cents + 199) / 100.0)).collect::<Vec<_>>()),
    ];
    let dictionaries = dictionaries.map(|(key, values)| (key, Arc::new(values.into())));
    Share { actors: Arc::new(ids), rows, dictionaries: dictionaries.into() }
}

impl Share {
    fn partition(&self, scan: &ScanRequest) -> Partition {
        let requested = |name: &str| match &scan.events {
            EventSelection::All => true,
            EventSelection::Named(names) => names.contains(name),
        };
        let runs = self.rows.iter().filter(|(name, _)| requested(name)).map(|(name, rows)| {
            let columns = scan.columns.iter().map(|key| (key.clone(), self.column(rows, key))).collect();
            EventRun {
                event: (*name).to_owned(),
                actors: rows.actors.clone().into(),
                times: rows.times.clone().into(),
                order: ArrivalOrder::Untied,
                columns,
                joined_columns: BTreeMap::new(),
            }
        });
        Partition { actors: self.actors.clone(), runs: runs.collect(), ..Partition::default() }
    }

    fn column(&self, rows: &Rows, key: &ColumnKey) -> Column {
        let ColumnKey::Property(key) = key else { return Column::default() };
        let codes = match key.as_str() {
            "$browser" => &rows.browsers,
            "$current_url" => &rows.urls,
            _ => &rows.amounts,
        };
        let Some(values) = self.dictionaries.get(key.as_str()) else { return Column::default() };
        Column { codes: codes.clone().into(), values: values.clone() }
    }
}

fn queries() -> Vec<(&'static str, Value)> {
    let step = |name: &str| json!({"kind": "EventsNode", "event": name});
    let steps = json!([step("viewed"), step("added_to_cart"), step("purchased")]);
    let all = json!({"date_from": "2026-01-01", "date_to": "2026-03-01"});
    let month = json!({"date_from": "2026-01-20", "date_to": "2026-02-18"});
    let funnel = |more: Value| {
        let mut query = json!({"kind": "FunnelsQuery", "series": steps, "dateRange": all});
        query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        query
    };
    let trend = |series: Value, more: Value| {
        let mut query =
            json!({"kind": "TrendsQuery", "series": [series], "interval": "day", "dateRange": month});
        query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        query
    };
    let math = |math: &str| json!({"kind": "EventsNode", "event": "viewed", "math": math});
    let by = |key: &str, limit: u32| json!({"breakdownFilter": {"breakdown": key, "breakdown_type": "event", "breakdown_limit": limit}});
    let filtered = json!({"kind": "EventsNode", "event": "added_to_cart", "math": "sum", "math_property": "amount",
        "properties": [{"key": "amount", "value": 50, "operator": "gt", "type": "event"}]});
    let retention = |filter: Value, more: Value| {
        let entity = json!({"id": "$pageview"});
        let mut query = json!({"kind": "RetentionQuery", "dateRange": month,
            "retentionFilter": {"totalIntervals": 11, "targetEntity": entity, "returningEntity": entity}});
        query["retentionFilter"].as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
        query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        query
    };
    let returning = json!({"returningEntity": {"id": "viewed"}});
    let by_period = |kind: &str, event: Value, more: Value| {
        let series = [json!({"kind": "EventsNode", "event": event})];
        let mut query = json!({"kind": kind, "series": series, "interval": "day", "dateRange": month});
        query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        query
    };
    let criterion = json!({"stickinessFilter": {"stickinessCriteria": {"operator": "gte", "value": 2}}});
    vec![
        ("retention", retention(json!({}), json!({}))),
        ("retention of two events", retention(returning, json!({}))),
        ("retention first time", retention(json!({"retentionType": "retention_first_time"}), json!({}))),
        ("retention in windows", retention(json!({"timeWindowMode": "24_hour_windows"}), json!({}))),
        ("retention by browser", retention(json!({}), by("$browser", 25))),
        ("funnel", funnel(json!({}))),
        ("funnel by browser", funnel(by("$browser", 10))),
        ("funnel strict", funnel(json!({"funnelsFilter": {"funnelOrderType": "strict"}}))),
        ("daily total", trend(math("total"), json!({}))),
        ("daily uniques", trend(math("dau"), json!({}))),
        ("total by url", trend(json!({"kind": "EventsNode", "event": "$pageview"}), by("$current_url", 25))),
        ("filtered sum", trend(filtered, json!({}))),
        ("rolling uniques", trend(math("weekly_active"), json!({}))),
        ("stickiness", by_period("StickinessQuery", json!("viewed"), json!({}))),
        ("stickiness of every event", by_period("StickinessQuery", Value::Null, criterion)),
        ("lifecycle", by_period("LifecycleQuery", json!("viewed"), json!({}))),
        ("lifecycle of every event", by_period("LifecycleQuery", Value::Null, json!({}))),
        (
            "paths",
            json!({"kind": "PathsQuery", "dateRange": month,
            "pathsFilter": {"includeEventTypes": ["hogql"], "pathsHogQLExpression": "event"}}),
        ),
    ]
}

fn plan(query_node: &Value) -> Plan {
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
    let now = "2026-04-01T00:00:00Z".parse().unwrap();
    let ParsedQuery::Query(query) = Query::from_query_node(query_node).unwrap() else { unreachable!() };
    query.plan(&project, now).unwrap()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let events: u64 = arguments.next().map_or(10_000_000, |text| text.parse().unwrap());
    let repetitions: usize = arguments.next().map_or(7, |text| text.parse().unwrap());
    let part = arguments.next().unwrap_or_default();
    let shares: Vec<Share> = (1..=PARTITIONS).map(|seed| share(seed, events / PARTITIONS)).collect();
    let names: BTreeSet<_> = shares.iter().flat_map(|share| share.rows.keys()).collect();
    let rows: usize = shares.iter().flat_map(|share| share.rows.values()).map(|rows| rows.times.len()).sum();
    println!("{rows} events of {} names", names.len());
    println!("| query | rows | ms: least | median | result |");
    println!("|---|---|---|---|---|");
    for (name, query_node) in queries().into_iter().filter(|(name, _)| name.contains(&part)) {
        let plan = plan(&query_node);
        let partitions: Vec<Partition> = shares.iter().map(|share| share.partition(plan.scan())).collect();
        let rows: usize = partitions.iter().flat_map(|part| &part.runs).map(|run| run.times.len()).sum();
        let mut times = Vec::new();
        let mut hasher = DefaultHasher::new();
        for turn in 0..repetitions {
            let before = Instant::now();
            let parts = partitions.iter().map(|part| plan.partial(part, &|| false).unwrap());
            let output = plan
                .finish(parts.fold(PartitionResult::default(), PartitionResult::merge), &|| false)
                .unwrap();
            times.push(before.elapsed().as_secs_f64() * 1e3);
            if turn == 0 {
                output.result.to_string().hash(&mut hasher);
            }
        }
        times.sort_by(f64::total_cmp);
        println!(
            "| {name} | {rows} | {:.1} | {:.1} | {:016x} |",
            times[0],
            times[repetitions / 2],
            hasher.finish()
        );
    }
}
