#![allow(clippy::unwrap_used)]

use super::*;
use crate::insight::record::tests::{insight, instant as at};
use serde_json::json;

fn query(parameters: &[(&str, &str)]) -> Result<InsightListQuery, FieldError> {
    let owned: Vec<_> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    InsightListQuery::parse(&owned, at("2024-01-10T00:00:00Z").with_timezone(&chrono_tz::UTC))
}

fn rows(bodies: &[Value]) -> Vec<InsightRow> {
    let insights = bodies.iter().zip(1..).map(|(body, id)| insight(id, body.clone()));
    insights.map(|insight| InsightRow::new(&insight, 1)).collect()
}

/// Ids of the listed rows, in order.
fn shown(rows: &[InsightRow], parameters: &[(&str, &str)]) -> Vec<u64> {
    let query = query(parameters).unwrap();
    let views = [(2, at("2024-01-03T00:00:00Z")), (3, at("2024-01-02T00:00:00Z"))].into_iter().collect();
    let mut shown: Vec<_> = rows.iter().filter(|row| query.matches(row, 1, &Dashboards::default())).collect();
    shown.sort_by(|left, right| query.compare(left, right, &views));
    shown.into_iter().map(|row| row.id).collect()
}

#[test]
fn filters_combine_with_and() {
    let rows = rows(&[
        json!({"name": "Weekly REVENUE", "saved": true, "tags": ["a"]}),
        json!({"derived_name": "revenue count", "favorited": true}),
        json!({"description": "about Revenue", "saved": true, "tags": ["b"]}),
        json!({"tags": ["revenue-team"]}),
        json!({"name": "signups"}),
    ]);
    assert_eq!(shown(&rows, &[("search", "revenue")]), [1, 2, 3, 4]);
    assert_eq!(shown(&rows, &[("search", "revenue"), ("saved", "yes")]), [1, 3]);
    assert_eq!(shown(&rows, &[("saved", "0")]), [2, 4, 5]);
    assert_eq!(shown(&rows, &[("favorited", "false")]), [2]);
    assert_eq!(shown(&rows, &[("tags", "[\"A\", \"b\"]")]), [1, 3]);
    assert_eq!(shown(&rows, &[("short_id", "short002")]), [2]);
    assert_eq!(shown(&rows, &[("short_id", "SHORT002")]), [] as [u64; 0]);
    assert_eq!(shown(&rows, &[("user", "")]), [1, 2, 3, 4, 5]);
    assert_eq!(shown(&rows, &[("created_by", "2")]), [] as [u64; 0]);
    assert_eq!(shown(&rows, &[("created_by", "[2, 1]")]), [1, 2, 3, 4, 5]);
    assert_eq!(shown(&rows, &[("dashboards", "[1]")]), [] as [u64; 0]);
    assert_eq!(shown(&rows, &[("dashboards", "[]"), ("other", "x")]), [1, 2, 3, 4, 5]);
}

#[test]
fn only_live_dashboards_count() {
    let mut rows = rows(&[json!({"saved": true}), json!({}), json!({}), json!({})]);
    for (row, dashboards) in rows.iter_mut().zip([vec![], vec![7], vec![7, 8, 9], vec![9]]) {
        row.dashboards = dashboards;
    }
    // The dashboard 9 was deleted.
    let read = |id| (id, serde_json::from_value(json!({"name": "d", "restriction_level": 21})).unwrap());
    let live: Dashboards = [read(7), read(8)].into_iter().collect();
    let shown = |name, value| {
        let query = query(&[(name, value)]).unwrap();
        rows.iter().filter(|row| query.matches(row, 1, &live)).map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(shown("dashboards", "[7]"), [2, 3]);
    assert_eq!(shown("dashboards", "[8, 7]"), [3]);
    assert_eq!(shown("dashboards", "[9]"), [] as [u64; 0]);
    assert_eq!(shown("saved", "true"), [1, 2, 3]);
    assert_eq!(shown("saved", "false"), [2, 3, 4], "even if it is on a dashboard");
}

#[test]
fn dates_filter_by_the_last_modification() {
    // Modified at the first instant of 2024, requested on the tenth.
    let rows = rows(&[json!({})]);
    assert_eq!(shown(&rows, &[("date_from", "-10d")]), [1]);
    assert_eq!(shown(&rows, &[("date_from", "-9d")]), [] as [u64; 0]);
    assert_eq!(shown(&rows, &[("date_to", "-8d")]), [1]);
    assert_eq!(shown(&rows, &[("date_to", "2024-01-01")]), [] as [u64; 0]);
    assert_eq!(shown(&rows, &[("date_from", "2023-12-31T23:59:59Z")]), [1]);
}

#[test]
fn the_kind_is_that_of_the_query_or_else_of_the_filters() {
    let node = |kind: &str| json!({"kind": "InsightVizNode", "source": {"kind": kind, "series": []}});
    let rows = rows(&[
        json!({"filters": {"insight": "FUNNELS"}}),
        json!({"query": node("FunnelsQuery")}),
        json!({"query": node("FunnelsQuery")["source"]}),
        json!({"query": node("HogQLQuery")}),
        json!({"filters": {"insight": "OTHER"}}),
        json!({"filters": {"insight": "FUNNELS"}, "query": node("TrendsQuery")}),
    ]);
    assert_eq!(shown(&rows, &[("insight", "FUNNELS")]), [1, 2]);
    assert_eq!(shown(&rows, &[("insight", "TRENDS")]), [6]);
    assert_eq!(shown(&rows, &[("insight", "JSON")]), [2, 3, 6]);
    assert_eq!(shown(&rows, &[("insight", "SQL")]), [4]);
    assert_eq!(shown(&rows, &[("insight", "OTHER")]), [5]);
}

#[test]
fn orders_put_missing_values_last_and_break_ties_by_id() {
    let rows = rows(&[
        json!({"order": 2, "name": "b"}),
        json!({"name": "a"}),
        json!({"order": 1}),
        json!({"order": 2, "favorited": true}),
    ]);
    assert_eq!(shown(&rows, &[]), [3, 1, 4, 2]);
    assert_eq!(shown(&rows, &[("order", "-order")]), [2, 1, 4, 3]);
    assert_eq!(shown(&rows, &[("order", "name")]), [2, 1, 3, 4]);
    assert_eq!(shown(&rows, &[("order", "-id")]), [4, 3, 2, 1]);
    assert_eq!(shown(&rows, &[("order", "-favorited")]), [4, 1, 2, 3]);
    assert_eq!(
        shown(&rows, &[("order", "-last_viewed_at")]),
        [2, 3, 1, 4],
        "insights without a view are last"
    );
    assert_eq!(shown(&rows, &[("order", "last_viewed_at")]), [1, 4, 3, 2], "and first");
    assert_eq!(shown(&rows, &[("order", "-name")]), [3, 4, 1, 2]);
    assert_eq!(shown(&rows, &[("order", "saved")]), [1, 2, 3, 4]);
    assert_eq!(shown(&rows, &[("order", "-short_id")]), [4, 3, 2, 1]);
    let error = query(&[("order", "-size")]).unwrap_err();
    assert_eq!((error.code, error.detail.as_str()), ("invalid_choice", "\"-size\" is not a valid choice."));
}

#[test]
fn errors_name_the_invalid_parameter() {
    for (name, value) in
        [("dashboards", "{"), ("tags", "a"), ("tags", "[1]"), ("created_by", "x"), ("created_by", "-1")]
    {
        let error = query(&[(name, value)]).unwrap_err();
        assert_eq!(error.attr.as_deref(), Some(name));
    }
    assert!(query(&[("search", &"x".repeat(401))]).is_err());
}
