//! A funnel and a trend over the events of a store, and the same numbers from the model.

use std::collections::BTreeSet;

use chrono::DateTime;
use pennon_analytics::{Definitions, JoinData, ParsedQuery, PartitionResult, ProjectContext, Query};
use pennon_eventstore::EventStore;
use pennon_filters::dates::WeekStart;
use serde_json::{Value, json};

use super::model::Model;
use super::steps::{FIRST_DAY, MINUTE};
use crate::support::NOW;

const DAY: i64 = 24 * 60 * MINUTE;
/// Days on which events happen.
const DAYS: i64 = 3;

/// The numbers of both queries.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    /// Persons that viewed, and those that bought within a day of a view.
    pub funnel: [u64; 2],
    /// Views of each day, and persons that viewed.
    pub views: Vec<u64>,
    pub viewers: Vec<u64>,
}

/// What the queries give.
pub async fn calculated(events: &EventStore, project: u64) -> Numbers {
    let range = json!({"date_from": "2023-11-11", "date_to": "2023-11-13"});
    let node = |name: &str, math: &str| json!({"kind": "EventsNode", "event": name, "math": math});
    let funnel = json!({
        "kind": "FunnelsQuery", "dateRange": range, "series": [node("seen", "total"), node("bought", "total")],
        "funnelsFilter": {"funnelWindowInterval": 1, "funnelWindowIntervalUnit": "day"}
    });
    let trend = json!({
        "kind": "TrendsQuery", "dateRange": range, "interval": "day",
        "series": [node("seen", "total"), node("seen", "dau")]
    });
    let (funnel, trend) = (result(events, project, &funnel).await, result(events, project, &trend).await);
    let count = |step: usize| funnel[step]["count"].as_u64().unwrap_or(0);
    let data = |series: usize| {
        let data = trend[series]["data"].as_array().cloned().unwrap_or_default();
        data.iter().map(|number| number.as_f64().unwrap() as u64).collect()
    };
    Numbers { funnel: [count(0), count(1)], views: data(0), viewers: data(1) }
}

async fn result(events: &EventStore, project: u64, node: &Value) -> Value {
    let ParsedQuery::Query(query) = Query::from_query_node(node).unwrap() else {
        panic!("not a query: {node}")
    };
    let context = ProjectContext {
        project_id: project.to_string(),
        timezone: "UTC".parse().unwrap(),
        week_start: WeekStart::from_day(0),
        test_account_filters: Vec::new(),
        path_cleaning_filters: Vec::new(),
        earliest_event: None,
        aggregate_by_distinct_id: false,
        definitions: Definitions::default(),
    };
    let plan = query.plan(&context, DateTime::from_timestamp_micros(NOW).unwrap()).unwrap();
    let scan = events.scan(project, &[], plan.scan()).await.unwrap();
    let mut merged = PartitionResult::default();
    for partition in plan.join(scan.partitions, JoinData::default(), &|| false).unwrap() {
        merged = merged.merge(plan.partial(&partition, &|| false).unwrap());
    }
    plan.finish(merged, &|| false).unwrap().result
}

/// What they must give.
pub fn expected(model: &Model) -> Numbers {
    let (views, purchases) = (model.times("seen"), model.times("bought"));
    let converts = |views: &[i64], purchases: &[i64]| {
        views.iter().any(|view| purchases.iter().any(|purchase| (0..=DAY).contains(&(purchase - view))))
    };
    let buyers = views
        .iter()
        .filter(|(person, views)| purchases.get(person).is_some_and(|purchases| converts(views, purchases)));
    let day = |time: &i64| (time - FIRST_DAY) / DAY;
    let of_day = |number: i64| views.values().flatten().filter(|time| day(time) == number).count() as u64;
    let viewers = |number: i64| {
        let seen = views.iter().filter(|(_, times)| times.iter().any(|time| day(time) == number));
        seen.map(|(person, _)| person).collect::<BTreeSet<_>>().len() as u64
    };
    Numbers {
        funnel: [views.len() as u64, buyers.count() as u64],
        views: (0..DAYS).map(of_day).collect(),
        viewers: (0..DAYS).map(viewers).collect(),
    }
}
