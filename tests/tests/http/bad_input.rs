//! Invalid input over HTTP: every row of the contract's validation tables for flags returns its own error, and
//! nothing is written.

use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

/// The expected error of a row: code, detail, attribute.
type Row = (Value, &'static str, &'static str, Option<&'static str>);

/// The standard workspace with cohorts: 1 good, 2 on events, 3 refers to 2. Flag 1 is on, flag 2 off.
async fn shop() -> TestApp {
    let person =
        json!({"properties": {"type": "AND", "values": [{"key": "a", "type": "person", "value": "x"}]}});
    let behaviour = json!({"properties": {"type": "AND", "values": [
        {"key": "$pageview", "type": "behavioral", "value": "performed_event", "event_type": "events",
         "time_value": 1, "time_interval": "week"}]}});
    let nested =
        json!({"properties": {"type": "AND", "values": [{"key": "id", "type": "cohort", "value": 2}]}});
    let app = TestApp::with(json!({"cohorts": [
        {"project": "1", "id": 1, "name": "good", "filters": person},
        {"project": "1", "id": 2, "name": "visitors", "filters": behaviour},
        {"project": "1", "id": 3, "name": "outer", "filters": nested},
        {"project": "2", "id": 4, "name": "foreign", "filters": person},
    ]}))
    .await;
    app.flag("on").await;
    app.post(FLAGS, json!({"key": "off", "active": false})).await.expect(201);
    app
}

/// Everything that is stored of flag 1, and how many flags there are.
async fn stored(app: &TestApp) -> (Value, Value) {
    let flag = app.get(&format!("{FLAGS}1/")).await.expect(200);
    (flag, app.get(FLAGS).await.expect(200)["count"].clone())
}

#[track_caller]
fn expect(response: &TestResponse, sent: &Value, code: &str, detail: &str, attr: Option<&str>) {
    let expected = json!({"type": "validation_error", "code": code, "detail": detail, "attr": attr});
    assert_eq!((response.status.as_u16(), &response.json()), (400, &expected), "{sent}");
}

/// Sends each row as a create (with a key, if it has none) and as a change of flag 1.
async fn refuse_everywhere(rows: Vec<Row>) {
    let app = shop().await;
    let before = stored(&app).await;
    for (sent, code, detail, attr) in rows {
        let changed = app.patch(&format!("{FLAGS}1/"), sent.clone()).await;
        expect(&changed, &sent, code, detail, attr);
        let mut body = sent.clone();
        if body.get("key").is_none() {
            body["key"] = json!("new");
        }
        expect(&app.post(FLAGS, body).await, &sent, code, detail, attr);
    }
    assert_eq!(stored(&app).await, before, "a refused write has no effect");
}

const BLANK: &str = "This field may not be blank.";
const NULL: &str = "This field may not be null.";
const NOT_TEXT: &str = "Not a valid string.";
const NOT_BOOLEAN: &str = "Must be a valid boolean.";
const NOT_A_DATE: &str = "Datetime has wrong format. Use one of these formats instead: \
                          YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].";

#[tokio::test]
async fn fields_of_the_wrong_kind_are_named() {
    refuse_everywhere(vec![
        (json!({"key": null}), "null", NULL, Some("key")),
        (json!({"key": ""}), "blank", BLANK, Some("key")),
        (json!({"key": "  "}), "blank", BLANK, Some("key")),
        (json!({"key": ["a"]}), "invalid_input", NOT_TEXT, Some("key")),
        (json!({"key": true}), "invalid_input", NOT_TEXT, Some("key")),
        (
            json!({"key": "a b"}),
            "invalid_key",
            "Only letters, numbers, hyphens (-) & underscores (_) are allowed.",
            Some("key"),
        ),
        (json!({"key": "off"}), "unique", "There is already a feature flag with this key.", Some("key")),
        (json!({"name": {}}), "invalid_input", NOT_TEXT, Some("name")),
        (json!({"name": null}), "null", NULL, Some("name")),
        (json!({"active": "perhaps"}), "invalid_input", NOT_BOOLEAN, Some("active")),
        (json!({"active": null}), "null", NULL, Some("active")),
        (json!({"active": 2}), "invalid_input", NOT_BOOLEAN, Some("active")),
        (json!({"deleted": "x"}), "invalid_input", NOT_BOOLEAN, Some("deleted")),
        (json!({"created_at": "yesterday"}), "invalid_input", NOT_A_DATE, Some("created_at")),
        (json!({"last_called_at": 5}), "invalid_input", NOT_A_DATE, Some("last_called_at")),
        (json!({"version": "x"}), "invalid_input", "A valid integer is required.", Some("version")),
        (json!({"version": 1.5}), "invalid_input", "A valid integer is required.", Some("version")),
        (json!({"tags": "a"}), "not_a_list", "Expected a list of items but got type \"str\".", Some("tags")),
        (json!({"tags": {}}), "not_a_list", "Expected a list of items but got type \"dict\".", Some("tags")),
        (json!({"tags": [1, []]}), "invalid_input", NOT_TEXT, Some("tags")),
        (
            json!({"analytics_dashboards": [7]}),
            "does_not_exist",
            "Invalid pk \"7\" - object does not exist.",
            Some("analytics_dashboards"),
        ),
        (
            json!({"analytics_dashboards": ["x"]}),
            "incorrect_type",
            "Incorrect type. Expected pk value, received str.",
            Some("analytics_dashboards"),
        ),
        (
            json!({"evaluation_runtime": "edge"}),
            "invalid_choice",
            "\"edge\" is not a valid choice.",
            Some("evaluation_runtime"),
        ),
        (
            json!({"creation_context": "x"}),
            "invalid_choice",
            "\"x\" is not a valid choice.",
            Some("creation_context"),
        ),
        (
            json!({"bucketing_identifier": "x"}),
            "invalid_choice",
            "\"x\" is not a valid choice.",
            Some("bucketing_identifier"),
        ),
        (
            json!({"has_encrypted_payloads": true}),
            "invalid_input",
            "Encrypted payloads require the flag to be a remote configuration.",
            None,
        ),
        (
            json!({"bucketing_identifier": "device_id", "ensure_experience_continuity": true}),
            "invalid_input",
            "Cannot enable 'persist across authentication steps' when using device ID bucketing. These features are \
             incompatible.",
            None,
        ),
        // Of several bad fields the first in the contract's order.
        (json!({"filters": null, "key": "", "name": []}), "invalid_input", NOT_TEXT, Some("name")),
        (json!({"filters": null, "key": "", "active": 7}), "blank", BLANK, Some("key")),
        (json!({"tags": 1, "filters": null}), "null", NULL, Some("filters")),
    ])
    .await;
}

/// Filters of one condition with one property.
fn property(property: Value) -> Value {
    json!({"filters": {"groups": [{"properties": [property]}]}})
}

fn condition(condition: Value) -> Value {
    json!({"filters": {"groups": [condition]}})
}

fn filters(more: Value) -> Value {
    let mut filters = json!({"groups": [{}]});
    more.as_object().unwrap().iter().for_each(|(name, value)| filters[name] = value.clone());
    json!({"filters": filters})
}

#[tokio::test]
async fn conditions_and_variants_of_the_wrong_form_are_named() {
    let rows = [
        (
            filters(json!({"aggregation_group_type_index": "0"})),
            "aggregation_group_type_index must be an integer or null, got str",
        ),
        (json!({"filters": {"groups": "x"}}), "groups must be a list, got str"),
        (condition(json!(7)), "groups[0] must be a dictionary, got int"),
        (condition(json!({"variant": 7})), "groups[0].variant must be a string or null, got int"),
        (
            condition(json!({"rollout_percentage": "50"})),
            "groups[0].rollout_percentage must be a number or null, got str",
        ),
        (
            condition(json!({"rollout_percentage": 101})),
            "groups[0].rollout_percentage must be between 0 and 100, got 101",
        ),
        (
            condition(json!({"rollout_percentage": -0.5})),
            "groups[0].rollout_percentage must be between 0 and 100, got -0.5",
        ),
        (condition(json!({"properties": {}})), "groups[0].properties must be a list, got dict"),
        (condition(json!({"properties": [1]})), "groups[0].properties[0] must be a dictionary, got int"),
        (filters(json!({"multivariate": []})), "multivariate must be a dictionary or null, got list"),
        (filters(json!({"multivariate": {"variants": 1}})), "multivariate.variants must be a list"),
        (
            filters(json!({"multivariate": {"variants": [{"key": 1}]}})),
            "multivariate.variants[0].key must be a string",
        ),
        (
            filters(json!({"multivariate": {"variants": [{"key": "a"}]}})),
            "multivariate.variants[0].rollout_percentage must be a number, got null",
        ),
        (
            filters(json!({"multivariate": {"variants": [{"key": "a", "rollout_percentage": "x"}]}})),
            "multivariate.variants[0].rollout_percentage must be a number, got str",
        ),
        (
            filters(json!({"multivariate": {"variants": [{"key": "a", "rollout_percentage": 200}]}})),
            "multivariate.variants[0].rollout_percentage must be between 0 and 100, got 200",
        ),
        (
            filters(json!({"multivariate": {"variants": [{"key": "a", "rollout_percentage": 99}]}})),
            "Invalid variant definitions: Variant rollout percentages must sum to 100.",
        ),
        (condition(json!({"variant": "a"})), "Filters are not valid (variant override does not exist)"),
        (filters(json!({"payloads": []})), "Payloads must be passed as a dictionary"),
        (filters(json!({"payloads": {"true": "{"}})), "Payload value is not valid JSON"),
        (filters(json!({"payloads": {"a": 1}})), "Payload keys must be 'true' for boolean flags"),
        (
            filters(
                json!({"multivariate": {"variants": [{"key": "a", "rollout_percentage": 100}]}, "payloads": {"b": 1}}),
            ),
            "Payload keys must match a variant key for multivariate flags",
        ),
    ];
    let mut rows: Vec<Row> =
        rows.into_iter().map(|(sent, detail)| (sent, "invalid_input", detail, Some("filters"))).collect();
    rows.push((json!({"filters": null}), "null", NULL, Some("filters")));
    let not_an_object = "Expected a dictionary of items but got type \"list\".";
    rows.push((json!({"filters": [1]}), "not_a_dict", not_an_object, Some("filters")));
    refuse_everywhere(rows).await;
}

/// Refuses everywhere rows about filters.
async fn refuse_filters(rows: Vec<(Value, &'static str, &'static str)>) {
    refuse_everywhere(
        rows.into_iter().map(|(sent, code, detail)| (sent, code, detail, Some("filters"))).collect(),
    )
    .await;
}

#[tokio::test]
async fn properties_of_the_wrong_form_or_type_are_named() {
    let depends = |key: Value| {
        property(json!({"key": key, "type": "flag", "operator": "flag_evaluates_to", "value": true}))
    };
    let of_a_group = |more: Value| {
        let mut sent = property(more);
        sent["filters"]["aggregation_group_type_index"] = json!(0);
        sent
    };
    let other_types = "Filters are not valid (can only use person, cohort, and flag properties)";
    let rows = vec![
        (
            property(json!({"type": "person"})),
            "invalid_input",
            "groups[0].properties[0].key: a property key is required",
        ),
        (
            property(json!({"key": "p", "type": "person", "operator": "like", "value": "x"})),
            "invalid_input",
            "groups[0].properties[0].operator: unsupported operator for feature flags; operator must be one of \
             exact, is_not, icontains, not_icontains, regex, not_regex, gt, gte, lt, lte, is_set, \
             is_not_set, is_date_exact, is_date_before, is_date_after, in, not_in, flag_evaluates_to, \
             between, not_between, starts_with, not_starts_with, ends_with, not_ends_with, \
             icontains_multi, not_icontains_multi, semver_eq, semver_neq, semver_gt, semver_gte, \
             semver_lt, semver_lte, semver_tilde, semver_caret, semver_wildcard",
        ),
        (
            property(json!({"key": "p", "value": 1})),
            "invalid_input",
            "Filters are not valid (can only use person, cohort, and flag properties); add \"type\": \"person\"",
        ),
        (property(json!({"key": "p", "type": "event", "value": 1})), "invalid_input", other_types),
        (
            property(json!({"key": "1", "type": "flag", "value": true})),
            "invalid_input",
            "Flag properties must use the 'flag_evaluates_to' operator",
        ),
        (
            depends(json!("on")),
            "invalid_input",
            "Flag dependencies must reference flag IDs (integers), not flag keys. Invalid reference: 'on'",
        ),
        (depends(json!("99")), "invalid_input", "Flag dependency references non-existent flag with ID 99"),
        (
            depends(json!("2")),
            "invalid_input",
            "Cannot create dependency on disabled flag 'off' (ID: 2). Flag dependencies must reference active flags only.",
        ),
        (
            of_a_group(json!({"key": "p", "type": "person", "value": 1})),
            "invalid_input",
            "Filters are not valid (can only use group properties)",
        ),
        (
            of_a_group(json!({"key": "p", "type": "group", "group_type_index": 1, "value": 1})),
            "invalid_input",
            "Filters are not valid (can only use group properties)",
        ),
    ];
    refuse_filters(rows).await;
}

#[tokio::test]
async fn values_that_operators_cannot_take_are_named() {
    let person = |operator: &str, value: Value| {
        property(json!({"key": "p", "type": "person", "operator": operator, "value": value}))
    };
    let cohort = |value: Value| property(json!({"key": "id", "type": "cohort", "value": value}));
    let rows = vec![
        (cohort(json!(99)), "cohort_does_not_exist", "Cohort with id 99 does not exist"),
        (cohort(json!(4)), "cohort_does_not_exist", "Cohort with id 4 does not exist"),
        (
            cohort(json!(2)),
            "behavioral_cohort_found",
            "Cohort 'visitors' with filters on events cannot be used in feature flags.",
        ),
        (
            cohort(json!(3)),
            "behavioral_cohort_found",
            "Cohort 'visitors' with filters on events cannot be used in feature flags.",
        ),
        (person("is_date_before", json!("soon")), "invalid_date", "Invalid date value: soon"),
        (person("is_date_after", json!("-10000d")), "invalid_date", "Invalid date value: -10000d"),
        (
            person("icontains", json!(["@x.io"])),
            "invalid_value",
            "Invalid value for operator icontains: ['@x.io']",
        ),
        (person("gt", json!(5)), "invalid_value", "Invalid value for operator gt: 5"),
        (person("regex", json!([1, 2])), "invalid_value", "Invalid value for operator regex: [1, 2]"),
        (person("lte", json!(null)), "invalid_value", "Invalid value for operator lte: None"),
        (
            person("in", json!(["x"])),
            "invalid_operator",
            "The 'in' operator is only valid for cohort properties, not 'person' properties.",
        ),
        (
            person("not_in", json!("x")),
            "invalid_operator",
            "The 'not_in' operator is only valid for cohort properties, not 'person' properties.",
        ),
    ];
    refuse_filters(rows).await;
}

#[tokio::test]
async fn creating_requires_more_than_changing() {
    let app = shop().await;
    let missing = app.post(FLAGS, json!({"name": "x"})).await;
    missing.expect_invalid("required", "This field is required.", Some("key"));
    let replaced = app.call(Keys::OWNER, "PUT", &format!("{FLAGS}1/"), json!({"name": "x"})).await;
    replaced.expect_invalid("required", "This field is required.", Some("key"));
    let detail = "Feature flags must have at least one condition set (group).";
    for filters in [json!({}), json!({"groups": []}), json!({"payloads": {}})] {
        let made = app.post(FLAGS, json!({"key": "k", "filters": filters})).await;
        made.expect_invalid("invalid_input", detail, Some("filters"));
    }
    let pattern = property(json!({"key": "p", "type": "person", "operator": "regex", "value": "(["}));
    let mut body = pattern.clone();
    body["key"] = json!("k");
    let made = app.post(FLAGS, body).await;
    made.expect_invalid("invalid_input", "Can't evaluate flag - please check release conditions", None);
    app.patch(&format!("{FLAGS}1/"), pattern).await.expect(200);
    app.patch(&format!("{FLAGS}1/"), json!({"filters": {"groups": []}})).await.expect(200);
}

#[tokio::test]
async fn dependencies_are_protected_both_ways() {
    let app = shop().await;
    let on = |ids: &[u64]| {
        let of = |id: &u64| json!({"key": id.to_string(), "type": "flag", "operator": "flag_evaluates_to", "value": true});
        json!({"groups": [{"properties": ids.iter().map(of).collect::<Vec<_>>()}]})
    };
    let one = |id: u64| format!("{FLAGS}{id}/");
    let itself = app.patch(&one(1), json!({"filters": on(&[1])})).await;
    itself.expect_invalid("invalid_input", "Feature flag 'on' cannot depend on itself", Some("filters"));
    let mut dependents = Vec::new();
    for number in 0..7 {
        let body = json!({"key": format!("d{number}"), "filters": on(&[1])});
        dependents.push(app.post(FLAGS, body).await.expect(201)["id"].as_u64().unwrap());
    }
    let circle = app.patch(&one(1), json!({"filters": on(&[dependents[0]])})).await;
    circle.expect_invalid(
        "invalid_input",
        "Circular dependency detected: on \u{2192} d0 \u{2192} on",
        Some("filters"),
    );
    let named: Vec<String> = (0..5).map(|number| format!("d{number} (ID: {})", dependents[number])).collect();
    let named = format!("{} and 2 more", named.join(", "));
    let deleting = app.patch(&one(1), json!({"deleted": true})).await.expect(400);
    let switching = app.patch(&one(1), json!({"active": false})).await.expect(400);
    for (response, word, advice) in
        [(deleting, "delete", "update or delete"), (switching, "disable", "update or disable")]
    {
        let start = format!("Cannot {word} this feature flag because other flags depend on it: ");
        let end = format!(". Please {advice} the dependent flags first.");
        let detail = response["detail"].as_str().unwrap();
        assert!(detail.starts_with(&start) && detail.ends_with(&end), "{detail}");
        let list = detail[start.len()..detail.len() - end.len()].replace(", and", " and");
        assert_eq!(list, named);
        assert_eq!((&response["code"], &response["attr"]), (&json!("invalid_input"), &Value::Null));
    }
    for id in dependents {
        app.patch(&one(id), json!({"active": false})).await.expect(200);
    }
    app.patch(&one(1), json!({"active": false})).await.expect(200);
    let enabling = app.patch(&one(3), json!({"active": true})).await;
    let detail = "Cannot enable this feature flag because it depends on disabled flags: on (ID: 1). \
                  Please enable the dependency flags first.";
    enabling.expect_invalid("invalid_input", detail, None);
    app.patch(&one(1), json!({"deleted": true})).await.expect(200);
}
