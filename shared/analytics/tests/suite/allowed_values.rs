//! An error about a value that is not allowed lists the allowed values.

use pennon_analytics::InsightKind;
use pennon_filters::CalcError;
use serde_json::{Value, json};

use crate::support::World;

fn with(base: &Value, more: &Value) -> Value {
    let mut all = base.as_object().unwrap().clone();
    all.extend(more.as_object().unwrap().clone());
    Value::Object(all)
}

fn funnel(more: &Value) -> CalcError {
    let body = with(&json!({"events": [{"id": "a"}, {"id": "b"}]}), more);
    InsightKind::Funnels.parse_request(body.as_object().unwrap()).unwrap_err()
}

fn trend(more: &Value) -> CalcError {
    let body = with(&json!({"events": [{"id": "a"}]}), more);
    InsightKind::Trends.parse_request(body.as_object().unwrap()).unwrap_err()
}

#[test]
fn errors_about_query_fields_list_the_allowed_values() {
    let types = ["event", "person", "cohort", "group", "session", "hogql"];
    let by_step = json!({"breakdown": "a", "breakdown_attribution_type": "middle"});
    let operators =
        ["exact", "is_not", "icontains", "not_icontains", "regex", "gt", "lt", "is_set", "is_not_set"];
    let of_type = |kind: &str| json!({"properties": [{"key": "a", "value": 1, "type": kind}]});
    let compared = json!({"properties": [{"key": "a", "value": 1, "operator": "like"}]});
    let summed =
        json!({"events": [{"id": "a", "math": "sum", "math_property": "n", "math_property_type": "group"}]});
    let refusals: [(CalcError, &str, &[&str]); 10] = [
        (funnel(&json!({"funnel_order_type": "loose"})), "loose", &["ordered", "strict", "unordered"]),
        (funnel(&json!({"funnel_viz_type": "pie"})), "pie", &["steps", "trends", "time_to_convert"]),
        (funnel(&by_step), "middle", &["first_touch", "last_touch", "all_events", "step"]),
        (funnel(&json!({"breakdown": "a", "breakdown_type": "thing"})), "thing", &types),
        (trend(&json!({"breakdown": "a", "breakdown_type": "thing"})), "thing", &types),
        (trend(&json!({"interval": "decade"})), "decade", &["minute", "hour", "day", "week", "month"]),
        (trend(&json!({"display": "Pie"})), "Pie", &["ActionsLineGraph", "ActionsBar", "ActionsPie"]),
        (
            trend(&of_type("recording")),
            "recording",
            &["event", "person", "cohort", "group", "session", "element"],
        ),
        (trend(&compared), "like", &operators),
        (trend(&summed), "group", &["event_properties", "person_properties"]),
    ];
    for (error, given, allowed) in refusals {
        assert_lists(&error.detail, given, allowed);
    }
}

fn assert_lists(detail: &str, given: &str, allowed: &[&str]) {
    assert!(detail.contains(given), "{detail}");
    let (_, list) = detail.split_once(given).unwrap();
    for word in allowed {
        assert!(
            list.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|one| one == *word),
            "{word}: {detail}"
        );
    }
}

#[test]
fn errors_about_cohort_criteria_list_the_allowed_values() {
    let refusal = |criterion: Value| {
        let rules =
            json!({"properties": {"type": "AND", "values": [{"type": "AND", "values": [criterion]}]}});
        let world = World::of_case(&json!({
            "project": {}, "persons": [], "groups": [], "events": [],
            "cohorts": [{"id": 1, "name": "c", "filters": rules}],
        }));
        world.project.membership(1, world.now).unwrap_err().detail
    };
    for kind in ["event", "hogql", "thing"] {
        let detail = refusal(json!({"key": "1 = 1", "value": 1, "type": kind}));
        assert_lists(&detail, kind, &["person", "cohort", "behavioral"]);
    }
    let behaved = |more: Value| {
        let base = json!({"key": "a", "type": "behavioral", "event_type": "events", "value": "performed_event_multiple",
            "operator_value": 2, "time_value": 30, "time_interval": "day"});
        refusal(with(&base, &more))
    };
    let detail = behaved(json!({"value": "danced"}));
    assert_lists(
        &detail,
        "danced",
        &["performed_event", "performed_event_multiple", "performed_event_sequence"],
    );
    let detail = behaved(json!({"operator": "near"}));
    assert_lists(&detail, "near", &["eq", "gt", "gte", "lt", "lte"]);
    assert_lists(
        &refusal(json!({"key": "a", "type": "person"})),
        "incomplete",
        &["key", "value", "is_set", "is_not_set"],
    );
}
