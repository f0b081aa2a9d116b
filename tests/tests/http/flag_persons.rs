//! Flags and conditions evaluated for persons and groups: evaluation reasons, my flags, static cohorts, blast radius.

use pennon_eventstore::{GroupRecord, PersonRecord};
use pennon_tests::{Keys, TestApp, as_worker, now_micros};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn path(end: &str) -> String {
    format!("{FLAGS}{end}")
}

async fn flag(app: &TestApp, body: Value) -> u64 {
    app.post(FLAGS, body).await.expect(201)["id"].as_u64().unwrap()
}

/// A flag for all persons whose property `key` is `value`.
async fn flag_on(app: &TestApp, key: &str, properties: Value) -> u64 {
    flag(app, json!({"key": key, "filters": {"groups": [{"properties": properties}]}})).await
}

fn is(key: &str, value: Value) -> Value {
    json!({"key": key, "type": "person", "value": value, "operator": "exact"})
}

async fn import(app: &TestApp, persons: Vec<(Vec<String>, Value)>) {
    let record = |(distinct_ids, properties): (Vec<String>, Value)| PersonRecord {
        distinct_ids,
        properties: properties.as_object().unwrap().clone(),
        created_at: None,
    };
    app.services
        .events
        .add_persons(1, persons.into_iter().map(record).collect(), now_micros())
        .await
        .unwrap();
}

fn one(id: &str, properties: Value) -> (Vec<String>, Value) {
    (vec![id.to_owned()], properties)
}

async fn import_groups(app: &TestApp, index: u32, name: &str, groups: &[(&str, Value)]) {
    let record = |(key, properties): &(&str, Value)| GroupRecord {
        type_name: name.to_owned(),
        index,
        key: (*key).to_owned(),
        properties: properties.as_object().unwrap().clone(),
    };
    app.services.events.add_groups(1, groups.iter().map(record).collect(), now_micros()).await.unwrap();
}

async fn reasons(app: &TestApp, query: &str) -> Value {
    app.get(&path(&format!("evaluation_reasons/?{query}"))).await.expect(200)
}

async fn blast(app: &TestApp, properties: Value) -> (u64, u64) {
    let response =
        app.post(&path("user_blast_radius/"), json!({"condition": {"properties": properties}})).await;
    let body = response.expect(200);
    assert_eq!((&body["users_affected"], &body["total_users"]), (&body["affected"], &body["total"]));
    (body["affected"].as_u64().unwrap(), body["total"].as_u64().unwrap())
}

#[tokio::test]
async fn reasons_are_shown_for_every_flag_of_the_project() {
    let app = TestApp::new().await;
    flag_on(&app, "pro", json!([is("plan", json!("pro"))])).await;
    flag(&app, json!({"key": "off", "active": false})).await;
    flag(&app, json!({"key": "none", "filters": {"groups": [{"rollout_percentage": 0}]}})).await;
    let gone = app.flag("gone").await;
    app.patch(&path(&format!("{gone}/")), json!({"deleted": true})).await.expect(200);
    import(&app, vec![one("ann", json!({"plan": "Pro"})), one("bob", json!({"plan": "free"}))]).await;
    let of = |value: Value, reason: &str, index: Value| (value, reason.to_owned(), index);
    for (who, pro) in [
        ("ann", of(json!(true), "condition_match", json!(0))),
        ("bob", of(json!(false), "no_condition_match", json!(0))),
        ("unknown", of(json!(false), "no_condition_match", json!(0))),
    ] {
        let shown = reasons(&app, &format!("distinct_id={who}")).await;
        let of = |key: &str| {
            let evaluation = &shown[key]["evaluation"];
            assert!(evaluation["description"].is_string());
            let reason = evaluation["reason"].as_str().unwrap().to_owned();
            (shown[key]["value"].clone(), reason, evaluation["condition_index"].clone())
        };
        assert_eq!(of("pro"), pro, "{who}");
        assert_eq!(of("off"), (json!(false), "disabled".to_owned(), Value::Null));
        assert_eq!(of("none"), (json!(false), "out_of_rollout_bound".to_owned(), json!(0)));
        assert_eq!(shown.as_object().unwrap().len(), 3);
    }
    for query in ["flag_keys=pro,none", "flag_keys=pro&flag_keys=none", "flag_keys=pro,%20none,unknown"] {
        let some = reasons(&app, &format!("distinct_id=ann&{query}")).await;
        assert_eq!(some.as_object().unwrap().keys().collect::<Vec<_>>(), ["pro", "none"], "{query}");
    }
    assert_eq!(
        app.get("/api/projects/2/feature_flags/evaluation_reasons?distinct_id=a").await.expect(200),
        json!({})
    );
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let app = TestApp::new().await;
    let get = async |query: &str| app.get(&path(&format!("evaluation_reasons/{query}"))).await;
    for blank in ["?distinct_id=", "?distinct_id=%20"] {
        get(blank).await.expect_invalid("blank", "This field may not be blank.", Some("distinct_id"));
    }
    for good in [
        "",
        "{}",
        "%7B%22organization%22%3A%201%7D",
        "%7B%22unknown%22%3A%22x%22%7D",
        "%7B%22organization%22%3Anull%7D",
    ] {
        get(&format!("?distinct_id=a&groups={good}")).await.expect(200);
    }
    for (bad, detail) in [
        ("%7B", "Invalid JSON in groups parameter"),
        ("x", "Invalid JSON in groups parameter"),
        ("[]", "groups must be a JSON object"),
        ("1", "groups must be a JSON object"),
    ] {
        let query = format!("?distinct_id=a&groups={bad}");
        get(&query).await.expect_invalid("invalid_input", detail, Some("groups"));
        let mine = app.get(&path(&format!("my_flags/?groups={bad}"))).await;
        mine.expect_invalid("invalid_input", detail, Some("groups"));
    }
    let refused = app.call(Keys::NO_SCOPES, "GET", &path("my_flags/"), Value::Null).await;
    assert_eq!(refused.status, 403);
    assert_eq!(
        app.call(Keys::READ_FLAGS, "GET", &path("my_flags/"), Value::Null).await.expect(200),
        json!([])
    );
}

#[tokio::test]
async fn my_flags_are_those_of_the_owner_of_the_key() {
    let app = TestApp::new().await;
    flag_on(&app, "pro", json!([is("plan", json!("pro"))])).await;
    let org = json!([{"key": "tier", "type": "group", "group_type_index": 0, "value": "gold", "operator": "exact"}]);
    let filters = json!({"groups": [{"properties": org}], "aggregation_group_type_index": 0});
    flag(&app, json!({"key": "gold", "filters": filters})).await;
    let variants = json!([{"key": "only", "rollout_percentage": 100}]);
    flag(&app, json!({"key": "many", "filters": {"groups": [{}], "multivariate": {"variants": variants}}}))
        .await;
    flag(&app, json!({"key": "off", "active": false})).await;
    import(&app, vec![one("user-1", json!({"plan": "pro"}))]).await;
    import_groups(
        &app,
        0,
        "organization",
        &[("o1", json!({"tier": "gold"})), ("o2", json!({"tier": "tin"}))],
    )
    .await;
    let values = async |key: &str, query: &str| -> Vec<(String, Value)> {
        let shown = app.call(key, "GET", &path(&format!("my_flags/{query}")), Value::Null).await.expect(200);
        let value = |entry: &Value| {
            (entry["feature_flag"]["key"].as_str().unwrap().to_owned(), entry["value"].clone())
        };
        shown.as_array().unwrap().iter().map(value).collect()
    };
    let want = |gold: bool, pro: bool| {
        let all =
            [("off", json!(false)), ("many", json!("only")), ("gold", json!(gold)), ("pro", json!(pro))];
        all.map(|(key, value)| (key.to_owned(), value)).to_vec()
    };
    assert_eq!(values(Keys::OWNER, "").await, want(false, true));
    assert_eq!(values(Keys::MEMBER, "").await, want(false, false));
    assert_eq!(values(Keys::OWNER, "?groups=%7B%22organization%22%3A%22o1%22%7D").await, want(true, true));
    assert_eq!(values(Keys::OWNER, "?groups=%7B%22organization%22%3A%22o2%22%7D").await, want(false, true));
    let shown = app.get(&path("my_flags/")).await.expect(200)[0]["feature_flag"].clone();
    assert_eq!((&shown["team_id"], &shown["active"]), (&json!(1), &json!(false)));
}

#[tokio::test]
async fn person_changes_of_events_count_at_once_and_after_compaction() {
    let app = TestApp::new().await;
    flag_on(&app, "pro", json!([is("plan", json!("pro"))])).await;
    let company =
        json!([{"key": "size", "type": "group", "group_type_index": 1, "value": "5", "operator": "gt"}]);
    let filters = json!({"groups": [{"properties": company}], "aggregation_group_type_index": 1});
    flag(&app, json!({"key": "large", "filters": filters})).await;
    app.capture(json!([
            {"event": "seen", "distinct_id": "dora", "$set": {"plan": "free"}, "timestamp": "2026-01-01T00:00:00Z"},
            {"event": "seen", "distinct_id": "dora", "properties": {"$set": {"plan": "pro"}, "$set_once": {"first": 1}}},
            {"event": "seen", "distinct_id": "device"},
            {"event": "$identify", "distinct_id": "dora", "properties": {"$anon_distinct_id": "device"}},
            {"event": "$groupidentify", "distinct_id": "dora",
             "properties": {"$group_type": "company", "$group_key": "acme", "$group_set": {"size": 9}}},
            {"event": "seen", "distinct_id": "eve", "$set": {"plan": "pro"}, "timestamp": "2026-01-02T00:00:00Z"},
            {"event": "seen", "distinct_id": "eve", "$unset": ["plan"], "timestamp": "2026-01-03T00:00:00Z"},
        ]),
    )
    .await;
    for round in ["waiting", "compacted", "restarted"] {
        let value = async |who: &str, key: &str| {
            let groups = "%7B%22company%22%3A%22acme%22%7D";
            reasons(&app, &format!("distinct_id={who}&groups={groups}")).await[key]["value"].clone()
        };
        for (who, pro) in [("dora", true), ("device", true), ("eve", false), ("zoe", false)] {
            assert_eq!(value(who, "pro").await, json!(pro), "{who} {round}");
            assert_eq!(value(who, "large").await, json!(true), "{round}");
        }
        assert_eq!(blast(&app, json!([is("plan", json!("pro"))])).await, (1, 2), "{round}");
        assert_eq!(blast(&app, json!([])).await, (2, 2), "{round}");
        let groups = json!({"condition": {"properties": []}, "group_type_index": 1});
        assert_eq!(app.post(&path("user_blast_radius/"), groups).await.expect(200)["total"], 1);
        as_worker(app.services.events.compact(1, now_micros())).await.unwrap();
        if round == "compacted" {
            app.services.flags.memory.clear();
            app.services.app.keys.clear();
        }
    }
}

async fn make_cohort(app: &TestApp, flag: u64) -> Value {
    let made = app.post(&path(&format!("{flag}/create_static_cohort_for_flag/")), json!({"key": "x"})).await;
    made.expect(201)["cohort"].clone()
}

#[tokio::test]
async fn a_static_cohort_has_all_persons_for_whom_the_flag_is_on() {
    let app = TestApp::new().await;
    let pro = flag_on(&app, "pro", json!([is("plan", json!("pro"))])).await;
    import(
        &app,
        vec![
            one("ann", json!({"plan": "pro"})),
            one("bob", json!({"plan": "free"})),
            (vec!["cy".to_owned(), "cy-phone".to_owned()], json!({"plan": "pro"})),
        ],
    )
    .await;
    app.capture(json!([{"event": "seen", "distinct_id": "dora", "$set": {"plan": "pro"}}])).await;
    let cohort = make_cohort(&app, pro).await;
    let olive = app.get(&path(&format!("{pro}/"))).await.expect(200)["created_by"].clone();
    let want = json!({
        "id": cohort["id"], "name": "Users with feature flag pro enabled at 2026-01-05 10:00:00", "description": "",
        "groups": [], "deleted": false, "filters": {"properties": {}}, "query": null, "is_calculating": false,
        "created_by": olive, "created_at": "2026-01-05T10:00:00Z", "last_calculation": "2026-01-05T10:00:00Z",
        "errors_calculating": 0, "count": 3, "is_static": true, "experiment_set": [],
    });
    assert_eq!(cohort, want);
    let log = app.get(&path(&format!("{pro}/activity/"))).await.expect(200);
    assert_eq!(log["total_count"], 1, "only the flag's creation is in its log");

    // The cohort can be named at once, and who is in it does not change with the persons.
    let members = json!({"key": "id", "type": "cohort", "value": cohort["id"]});
    flag_on(&app, "members", json!([members])).await;
    assert_eq!(blast(&app, json!([members])).await, (3, 4));
    let others = json!({"key": "id", "type": "cohort", "value": cohort["id"], "operator": "not_in"});
    assert_eq!(blast(&app, json!([others])).await, (1, 4));
    app.capture(json!([{"event": "seen", "distinct_id": "bob", "$set": {"plan": "pro"}}])).await;
    let value =
        async |who: &str| reasons(&app, &format!("distinct_id={who}")).await["members"]["value"].clone();
    for (who, member) in
        [("ann", true), ("cy", true), ("cy-phone", true), ("dora", true), ("bob", false), ("x", false)]
    {
        assert_eq!(value(who).await, json!(member), "{who}");
    }
    // A person who is merged into one of them is one of them.
    app.capture(
        json!([{"event": "$identify", "distinct_id": "dora", "properties": {"$anon_distinct_id": "tab"}}]),
    )
    .await;
    assert_eq!(value("tab").await, json!(true));
    assert_eq!(make_cohort(&app, pro).await["count"], 4);
}

#[tokio::test]
async fn a_cohort_of_a_flag_that_is_on_for_no_person_is_empty() {
    let app = TestApp::new().await;
    import(&app, vec![one("ann", json!({}))]).await;
    let all_persons = app.flag("all-persons").await;
    assert_eq!(make_cohort(&app, all_persons).await["count"], 1);
    let off = flag(&app, json!({"key": "off", "active": false})).await;
    let filters = json!({"groups": [{}], "aggregation_group_type_index": 0});
    let of_groups = flag(&app, json!({"key": "groups", "filters": filters})).await;
    for id in [off, of_groups] {
        assert_eq!(make_cohort(&app, id).await["count"], 0);
    }
    // A dependent flag is on for the persons for whom its dependency has the required value.
    let depends = json!([{"key": all_persons.to_string(), "type": "flag", "value": false, "operator": "flag_evaluates_to"}]);
    let depends = flag_on(&app, "depends", depends).await;
    assert_eq!(make_cohort(&app, depends).await["count"], 0);
    assert_eq!(app.post(&path("999/create_static_cohort_for_flag/"), Value::Null).await.status, 404);
    let reader =
        app.call(Keys::READ_FLAGS, "POST", &path("1/create_static_cohort_for_flag/"), Value::Null).await;
    assert_eq!(reader.status, 403);
}

#[tokio::test]
async fn only_users_who_may_edit_a_flag_create_its_cohort() {
    let organization = json!({
        "id": "01900000-0000-7000-8000-000000000007", "name": "Strict", "feature_flags_access_level": 21,
    });
    let level = |level: &str| json!([{"organization": organization["id"], "level": level}]);
    let workspace = json!({
        "organizations": [organization],
        "users": [{"id": 1, "email": "o@x.com", "memberships": level("owner")},
                  {"id": 2, "email": "m@x.com", "memberships": level("member")}],
        "projects": [{"id": "1", "organization": organization["id"], "token": "phc_project_1"}],
        "keys": [{"label": "o", "user": "o@x.com", "scopes": ["*"], "value": Keys::OWNER},
                 {"label": "m", "user": "m@x.com", "scopes": ["*"], "value": Keys::MEMBER}],
    });
    let app = TestApp::of(&workspace).await;
    let flag = app.flag("guarded").await;
    let path = path(&format!("{flag}/create_static_cohort_for_flag/"));
    let refused = app.call(Keys::MEMBER, "POST", &path, Value::Null).await;
    let detail = "You don't have edit permissions for this feature flag.";
    refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    app.post(&path, Value::Null).await.expect(201);
}

#[tokio::test]
async fn long_and_short_member_lists_give_the_same_evaluation() {
    let app = TestApp::new().await;
    let persons = (0..2600).map(|n| one(&format!("person-{n}"), json!({"even": n % 2 == 0})));
    import(&app, persons.collect()).await;
    let even = flag_on(&app, "even", json!([is("even", json!(true))])).await;
    let cohort = make_cohort(&app, even).await;
    assert_eq!(cohort["count"], 1300);
    let members = json!({"key": "id", "type": "cohort", "value": cohort["id"]});
    assert_eq!(blast(&app, json!([members])).await, (1300, 2600));
    flag_on(&app, "members", json!([members])).await;
    for (who, member) in
        [("person-0", true), ("person-1", false), ("person-2598", true), ("person-2600", false)]
    {
        let shown = reasons(&app, &format!("distinct_id={who}")).await;
        assert_eq!(shown["members"]["value"], json!(member), "{who}");
    }
    assert_eq!(blast(&app, json!([members, is("even", json!(false))])).await, (0, 2600));
}

#[tokio::test]
async fn cohorts_of_the_workspace_decide_by_list_or_by_rule() {
    let rule = json!({"properties": {"type": "OR", "values": [{"type": "AND", "values": [is("plan", json!("pro"))]}]}});
    let app = TestApp::with(json!({"cohorts": [
        {"project": "1", "id": 4, "name": "Listed", "is_static": true, "distinct_ids": ["bob", "cy-phone"]},
        {"project": "1", "id": 5, "name": "Pros", "filters": rule},
    ]}))
    .await;
    import(
        &app,
        vec![
            one("ann", json!({"plan": "pro"})),
            one("bob", json!({"plan": "pro"})),
            (vec!["cy".to_owned(), "cy-phone".to_owned()], json!({"plan": "free"})),
        ],
    )
    .await;
    let member = |id: u64| json!({"key": "id", "type": "cohort", "value": id});
    flag_on(&app, "listed", json!([member(4)])).await;
    flag_on(&app, "pros", json!([member(5)])).await;
    for (who, listed, pro) in
        [("ann", false, true), ("bob", true, true), ("cy", true, false), ("zoe", false, false)]
    {
        let shown = reasons(&app, &format!("distinct_id={who}")).await;
        assert_eq!(
            (&shown["listed"]["value"], &shown["pros"]["value"]),
            (&json!(listed), &json!(pro)),
            "{who}"
        );
    }
    assert_eq!(blast(&app, json!([member(4)])).await, (2, 3));
    assert_eq!(blast(&app, json!([member(4), member(5)])).await, (1, 3));
    assert_eq!(blast(&app, json!([member(99)])).await, (0, 3));
}

#[tokio::test]
async fn a_blast_radius_counts_persons_or_groups() {
    let app = TestApp::new().await;
    import(
        &app,
        vec![
            one("p1", json!({"age": 25, "joined": "2026-01-01"})),
            one("p2", json!({"age": "25", "joined": "2025-12-01"})),
            one("p3", json!({"age": 30})),
        ],
    )
    .await;
    import_groups(
        &app,
        0,
        "organization",
        &[("org:1", json!({"n": 1})), ("org:2", json!({"n": 2})), ("x", json!({}))],
    )
    .await;
    assert_eq!(blast(&app, json!([is("age", json!([25]))])).await, (2, 3));
    assert_eq!(blast(&app, json!([])).await, (3, 3));
    let after = json!([{"key": "joined", "type": "person", "value": "-7d", "operator": "is_date_after"}]);
    assert_eq!(blast(&app, after).await, (1, 3));
    let send_request = async |body: Value| app.post(&path("user_blast_radius/"), body).await;
    assert_eq!(send_request(json!({"condition": null})).await.expect(200)["affected"], 3);
    let of_group = |property: Value| {
        let mut property = property;
        property["type"] = json!("group");
        property["group_type_index"] = json!(0);
        json!({"condition": {"properties": [property], "rollout_percentage": 5}, "group_type_index": 0})
    };
    let counts = async |body: Value| {
        let body = send_request(body).await.expect(200);
        (body["users_affected"].as_u64().unwrap(), body["total_users"].as_u64().unwrap())
    };
    assert_eq!(counts(of_group(json!({"key": "n", "value": [1, "2"], "operator": "exact"}))).await, (2, 3));
    let keyed = json!({"key": "$group_key", "value": "org:", "operator": "icontains"});
    assert_eq!(counts(of_group(keyed)).await, (2, 3));
    assert_eq!(counts(json!({"condition": {"properties": []}, "group_type_index": 1})).await, (0, 0));
    assert_eq!(counts(json!({"condition": {"properties": []}, "group_type_index": 4})).await, (0, 0));
    let persons = json!({"condition": {"properties": [is("age", json!(30))]}, "group_type_index": 0});
    assert_eq!(counts(persons).await, (1, 3));

    let mut other = of_group(json!({"key": "n", "value": 1}));
    other["group_type_index"] = json!(1);
    let detail = "Invalid group type index for feature flag condition.";
    send_request(other).await.expect_invalid("invalid_input", detail, None);
    let unsupported =
        send_request(of_group(json!({"key": "$group_key", "value": 5, "operator": "gt"}))).await;
    assert!(unsupported.expect(400)["detail"].as_str().unwrap().contains("not supported"));
    let listed =
        send_request(of_group(json!({"key": "$group_key", "value": ["a"], "operator": "regex"}))).await;
    assert_eq!(listed.status, 400);
    let reader =
        app.call(Keys::READ_FLAGS, "POST", &path("user_blast_radius/"), json!({"condition": null})).await;
    assert_eq!(reader.expect(200)["total"], 3);
}

#[tokio::test]
async fn a_blast_radius_equals_counting_person_by_person() {
    let app = TestApp::new().await;
    let mut noise = 7_u64;
    let mut below = |most: u64| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (noise >> 33) % most
    };
    let mut persons: Vec<(String, Value)> = Vec::new();
    for n in 0..200 {
        let mut properties = json!({"size": below(10)});
        if below(2) == 0 {
            properties["plan"] = json!(["pro", "free", "team"][below(3) as usize]);
        }
        persons.push((format!("p{n}"), properties));
    }
    let (imported, captured) = persons.split_at(120);
    import(&app, imported.iter().map(|(id, properties)| one(id, properties.clone())).collect()).await;
    let events = captured.iter().map(|(id, set)| json!({"event": "seen", "distinct_id": id, "$set": set}));
    app.capture(events.collect::<Vec<_>>()).await;
    for round in 0..20 {
        if round == 10 {
            as_worker(app.services.events.compact(1, now_micros())).await.unwrap();
        }
        let (least, plan) = (below(10), ["pro", "free", "none"][below(3) as usize]);
        let size = json!({"key": "size", "type": "person", "value": least, "operator": "gte"});
        let not = json!({"key": "plan", "type": "person", "value": plan, "operator": "is_not"});
        let want =
            persons.iter().filter(|(_, it)| it["size"].as_u64() >= Some(least) && it["plan"] != plan).count();
        assert_eq!(blast(&app, json!([size, not])).await, (want as u64, 200), "{least} {plan}");
    }
}

#[tokio::test]
async fn evaluation_for_one_person_takes_few_round_trips() {
    let app = TestApp::with(json!({"cohorts": [
        {"project": "1", "id": 4, "name": "Listed", "is_static": true, "distinct_ids": ["bob"]},
    ]}))
    .await;
    import(&app, vec![one("bob", json!({"plan": "pro"}))]).await;
    flag_on(&app, "listed", json!([{"key": "id", "type": "cohort", "value": 4}])).await;
    for n in 0..5 {
        app.flag(&format!("flag-{n}")).await;
    }
    let waits = async |end: &str, warm: bool| {
        if !warm {
            app.services.flags.memory.clear();
            app.services.app.keys.clear();
        }
        app.round_trips.reset();
        app.get(&path(end)).await.expect(200);
        app.round_trips.sequential()
    };
    // The key beside the rows and waiting events; then manifest and merges beside flags and cohorts.
    for end in ["evaluation_reasons/?distinct_id=bob", "my_flags/"] {
        assert!(waits(end, false).await <= 2 && waits(end, true).await <= 2, "{end}");
    }
}
