#![allow(clippy::unwrap_used)]

use super::*;
use pennon_analytics::{InsightKind, ParsedQuery};
use pennon_core::model::AccessLevel;
use uuid::Uuid;

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn project() -> Project {
    Project {
        id: 7,
        uuid: Uuid::nil(),
        organization: Uuid::nil(),
        name: "Shop".to_owned(),
        token: "phc_a".to_owned(),
        timezone: "UTC".to_owned(),
        week_start_day: None,
        test_account_filters: Vec::new(),
        path_cleaning_filters: Vec::new(),
        group_types: Vec::new(),
        aggregate_users_by_distinct_id: false,
        feature_flag_quota_exhausted: false,
        feature_flags_access_level: AccessLevel::Edit,
        created_at: instant("2024-01-01T00:00:00Z"),
        updated_at: instant("2024-01-01T00:00:00Z"),
    }
}

fn trend(request: Value) -> Query {
    match InsightKind::Trends.parse_request(request.as_object().unwrap()).unwrap() {
        ParsedQuery::Query(query) => query,
        other => panic!("{other:?}"),
    }
}

fn stored_for(query: &Query) -> CachedResult {
    let project = &project();
    CachedResult {
        settings_digest: settings_digest(project, query, "d", 0),
        result: json!([{"count": 1.0}]),
        object_ref: None,
        has_more: Some(false),
        hogql: "SELECT".to_owned(),
        timezone: project.timezone.clone(),
        last_refresh: instant("2024-01-10T00:00:00Z"),
        next_allowed_client_refresh: instant("2024-01-10T00:15:00Z"),
        cache_target_age: None,
    }
}

#[test]
fn equal_queries_have_equal_cache_keys() {
    let one = trend(json!({"events": [{"id": "a"}]}));
    let same = trend(json!({"interval": "day", "events": "[{\"id\": \"a\"}]"}));
    let other = trend(json!({"events": [{"id": "b"}]}));
    let key = cache_key(CacheScope::Request, &one, None);
    assert_eq!(key, cache_key(CacheScope::Request, &same, None));
    assert_ne!(key, cache_key(CacheScope::Request, &other, None));
    assert_ne!(key, cache_key(CacheScope::Request, &one, Some("v2")));
    assert_ne!(key, cache_key(CacheScope::Saved, &one, None));
}

#[test]
fn a_result_is_valid_for_its_settings_only() {
    let query = trend(json!({"events": [{"id": "a"}]}));
    let now = instant("2024-01-10T01:00:00Z");
    let stored = stored_for(&query);
    let of = |stored: &CachedResult, project: &Project, query: &Query| {
        stored.to_calculated(&settings_digest(project, query, "d", 0), query, now)
    };
    let shown = of(&stored, &project(), &query).unwrap();
    assert_eq!(
        stored.to_calculated(&settings_digest(&project(), &query, "other cohorts", 0), &query, now),
        None
    );
    assert!(shown.is_cached);
    assert_eq!(shown.cache_target_age, instant("2024-01-10T06:00:00Z"));
    assert_eq!(
        stored.to_calculated(&settings_digest(&project(), &query, "d", 1), &query, now),
        None,
        "something was erased"
    );
    let moved = Project { timezone: "Europe/Paris".to_owned(), ..project() };
    assert_eq!(of(&stored, &moved, &query), None);
    let sunday = Project { week_start_day: Some(1), ..project() };
    assert_eq!(of(&stored, &sunday, &query), None);
    // Test account filters matter only to queries that apply them.
    let filtered = Project { test_account_filters: vec![json!({"key": "a", "value": "b"})], ..project() };
    assert!(of(&stored, &filtered, &query).is_some());
    let query = trend(json!({"events": [{"id": "a"}], "filter_test_accounts": true}));
    let stored = stored_for(&query);
    assert_eq!(of(&stored, &filtered, &query), None);
}

#[test]
fn paths_depend_on_the_filters_of_the_project_that_they_or_their_funnel_use() {
    let query = |more: Value| {
        let mut node = json!({"kind": "PathsQuery", "pathsFilter": {}});
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        match Query::from_query_node(&node).unwrap() {
            ParsedQuery::Query(query) => query,
            other => panic!("{other:?}"),
        }
    };
    let digests = |query: &Query| {
        let cleaned =
            Project { path_cleaning_filters: vec![json!({"regex": "a", "alias": "b"})], ..project() };
        let filtered = Project { test_account_filters: vec![json!({"key": "a", "value": "b"})], ..project() };
        [project(), cleaned, filtered].map(|project| settings_digest(&project, query, "d", 0))
    };
    let [plain, cleaned, filtered] = digests(&query(json!({})));
    assert!(plain == cleaned && plain == filtered);
    let [plain, cleaned, filtered] = digests(&query(json!({"pathsFilter": {"pathReplacements": true}})));
    assert!(plain != cleaned && plain == filtered);
    let source = json!({"kind": "FunnelsQuery", "filterTestAccounts": true, "series": [{"kind": "EventsNode", "event": "a"}]});
    let funnel = json!({"funnelPathType": "funnel_path_after_step", "funnelStep": 1, "funnelSource": source});
    let [plain, cleaned, filtered] = digests(&query(json!({"funnelPathsFilter": funnel})));
    assert!(plain == cleaned && plain != filtered);
}

#[test]
fn a_result_expires_after_seven_days() {
    let query = trend(json!({"events": [{"id": "a"}]}));
    let stored = stored_for(&query);
    let digest = settings_digest(&project(), &query, "d", 0);
    assert!(stored.to_calculated(&digest, &query, instant("2024-01-17T00:00:00Z")).is_some());
    assert!(stored.to_calculated(&digest, &query, instant("2024-01-17T00:00:01Z")).is_none());
}

#[test]
fn a_result_in_the_future_is_ignored() {
    // The range ends before the result, and the result is later than the request.
    let query = trend(json!({"events": [{"id": "a"}], "date_from": "2024-01-01", "date_to": "2024-01-02"}));
    let stored = stored_for(&query);
    let digest = settings_digest(&project(), &query, "d", 0);
    assert!(stored.to_calculated(&digest, &query, instant("2024-01-09T23:59:00Z")).is_some());
    assert!(stored.to_calculated(&digest, &query, instant("2024-01-09T23:58:59.999Z")).is_none());
}
