#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::json;

fn parse(body: Value) -> Result<InsightInput, Value> {
    InsightInput::parse(body.as_object().unwrap()).map_err(|error| error.body())
}

fn refused(body: Value, code: &str, detail: &str, attr: &str) {
    let error = parse(body.clone()).unwrap_err();
    let want = json!({"type": "validation_error", "code": code, "detail": detail, "attr": attr});
    assert_eq!(error, want, "{body}");
}

#[test]
fn texts_may_be_null_empty_or_numbers_and_have_a_limit() {
    let input = parse(json!({"name": 12, "derived_name": null, "description": ""})).unwrap();
    assert_eq!(input.name, Some(Some("12".to_owned())));
    assert_eq!(input.derived_name, Some(None));
    assert_eq!(input.description, Some(Some(String::new())));
    let long = "ü".repeat(401);
    for name in ["name", "derived_name", "description"] {
        refused(
            json!({name: long}),
            "max_length",
            "Ensure this field has no more than 400 characters.",
            name,
        );
        refused(json!({name: [1]}), "invalid_input", "Not a valid string.", name);
        assert!(parse(json!({name: "ü".repeat(400)})).is_ok());
    }
}

#[test]
fn switches_numbers_and_tags() {
    for (word, on) in [(json!("Yes"), true), (json!("off"), false), (json!(1), true), (json!(false), false)] {
        assert_eq!(parse(json!({"saved": word})).unwrap().saved, Some(on));
    }
    refused(json!({"favorited": "maybe"}), "invalid_input", "Must be a valid boolean.", "favorited");
    refused(json!({"order": "x"}), "invalid_input", "A valid integer is required.", "order");
    assert_eq!(parse(json!({"order": null})).unwrap().order, Some(None));
    let input = parse(json!({"tags": [" B ", "a", "b", ""]})).unwrap();
    assert_eq!(input.tags, Some(vec!["a".to_owned(), "b".to_owned()]));
    refused(json!({"tags": "a"}), "not_a_list", "Expected a list of items but got type \"str\".", "tags");
    refused(json!({"tags": [1]}), "invalid_input", "Not a valid string.", "tags");
}

#[test]
fn filters_come_as_object_text_or_old_list() {
    let requested = json!({"events": [{"id": "a"}]});
    for sent in [requested.clone(), json!(requested.to_string()), json!([requested.clone(), {"b": 1}])] {
        assert_eq!(
            parse(json!({"filters": sent})).unwrap().filters.map(Value::Object),
            Some(requested.clone())
        );
    }
    assert_eq!(parse(json!({"filters": {}})).unwrap().filters, Some(Map::new()));
    assert_eq!(parse(json!({"filters": "{"})).unwrap_err()["attr"], "filters");
    assert_eq!(parse(json!({"filters": 5})).unwrap_err()["code"], "not_a_dict");
    let large = json!({"filters": {"a": "x".repeat(limits::QUERY_BYTES)}});
    assert_eq!(parse(large).unwrap_err()["attr"], "filters");
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(limits::NESTING), "]".repeat(limits::NESTING));
    assert_eq!(parse(json!({"filters": deep})).unwrap_err()["attr"], "filters");
}

#[test]
fn a_query_is_a_node_or_its_text() {
    let node = json!({"kind": "InsightVizNode", "newer": 1, "source": {"kind": "TrendsQuery", "series": []}});
    assert_eq!(parse(json!({"query": node})).unwrap().query, Some(Some(node.clone())));
    assert_eq!(parse(json!({"query": node.to_string()})).unwrap().query, Some(Some(node)));
    assert_eq!(parse(json!({"query": null})).unwrap().query, Some(None));
    for wrong in [
        json!("{"),
        json!("[]"),
        json!({}),
        json!({"kind": "Trends"}),
        json!({"kind": "InsightVizNode"}),
        json!({"kind": "TrendsQuery"}),
        json!({"kind": "TrendsQuery", "series": {}}),
        json!({"kind": "TrendsQuery", "series": [{"kind": "OtherNode"}]}),
        json!({"kind": "TrendsQuery", "series": [{"kind": "ActionsNode", "id": "x"}]}),
        json!({"kind": "TrendsQuery", "series": [], "interval": "fortnight"}),
    ] {
        let error = parse(json!({"query": wrong})).unwrap_err();
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("invalid_request"), &json!("parse_error")),
            "{wrong}"
        );
    }
    let large = json!({"query": {"kind": "TrendsQuery", "series": [], "a": "x".repeat(limits::QUERY_BYTES)}});
    assert_eq!(parse(large).unwrap_err()["attr"], "query");
}

#[test]
fn dashboards_are_numbers_each_once_and_not_too_many() {
    let dashboards = |sent: Value| parse(json!({"dashboards": sent})).unwrap().dashboards;
    assert_eq!(dashboards(json!([7, "5", 7])), Some(vec![7, 5]));
    assert_eq!(dashboards(json!([])), Some(vec![]));
    assert_eq!(parse(json!({})).unwrap().dashboards, None);
    assert_eq!(parse(json!({"dashboards": [1], "deleted": true})).unwrap().dashboards, None);
    refused(
        json!({"dashboards": {}}),
        "not_a_list",
        "Expected a list of items but got type \"dict\".",
        "dashboards",
    );
    let detail = "Incorrect type. Expected pk value, received list.";
    refused(json!({"dashboards": [[1]]}), "incorrect_type", detail, "dashboards");
    refused(
        json!({"dashboards": [-1]}),
        "does_not_exist",
        "Invalid pk \"-1\" - object does not exist.",
        "dashboards",
    );
    let many: Vec<usize> = (0..=limits::DASHBOARDS).collect();
    assert_eq!(parse(json!({"dashboards": many})).unwrap_err()["attr"], "dashboards");
}

#[test]
fn read_only_and_unknown_fields_are_ignored() {
    let body =
        json!({"id": 9, "short_id": "x", "created_by": 1, "result": [], "_create_in_folder": "a", "b": {}});
    assert_eq!(parse(body).unwrap(), InsightInput::default());
}
