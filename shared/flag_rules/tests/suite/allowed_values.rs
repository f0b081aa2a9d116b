//! An error about a value that is not allowed lists the allowed values.

use pennon_flag_rules::blast_radius::Conditions;
use serde_json::json;

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
fn errors_about_group_key_operators_list_the_allowed_values() {
    let property =
        json!({"key": "$group_key", "type": "group", "group_type_index": 0, "operator": "gt", "value": 1});
    let body = json!({"condition": {"properties": [property]}, "group_type_index": 0});
    let error = Conditions::parse(body.as_object().unwrap()).unwrap_err();
    let operators = ["exact", "is_not", "in", "not_in", "icontains", "not_icontains", "regex", "not_regex"];
    assert_lists(&error.detail, "gt", &operators);
}
