//! Redaction of responses for sharing tokens.
//!
//! Must stay true: the response contains no user of the organization at any depth, and no link that needs an API key.

use serde_json::{Value, json};

/// Removes users and links to actors from `response`.
pub fn redact(response: &mut Value) {
    match response {
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "created_by" | "last_modified_by" => *value = Value::Null,
                    _ if is_actors_link(name) && !value.is_null() => {
                        *value = if value.is_array() { json!([]) } else { Value::Null };
                    }
                    _ if is_user(value) => *value = Value::Null,
                    _ => redact(value),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                match is_user(item) {
                    true => *item = Value::Null,
                    false => redact(item),
                }
            }
        }
        _ => {}
    }
}

/// Whether a field of a result links to the actors behind a number.
fn is_actors_link(name: &str) -> bool {
    let is_of_people = name.contains("people") || name.contains("persons");
    is_of_people && (name.ends_with("_url") || name.ends_with("_urls"))
}

/// Whether a value is a user of the organization.
fn is_user(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.contains_key("email") && fields.contains_key("distinct_id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_links_to_people_are_removed_at_every_depth() {
        let user = json!({"id": 1, "uuid": "u", "distinct_id": "d", "first_name": "Olive", "email": "o@example.com"});
        let mut response = json!({
            "name": "n", "created_by": user, "last_modified_by": user, "query_status": null,
            "result": [
                {"count": 3, "persons_urls": [{"url": "api/x"}], "action": {"made_by": user, "name": "a"}},
                [{"converted_people_url": "/api/x", "dropped_people_url": null, "people": [], "order": 0}],
                {"values": [{"people_url": "/api/x", "people_urls": ["/api/x"], "count": 1}], "users": [user, 2]},
            ],
            "query": {"source": {"created_by": "o@example.com", "email": "sent", "current_url": "https://x"}},
        });
        redact(&mut response);
        let expected = json!({
            "name": "n", "created_by": null, "last_modified_by": null, "query_status": null,
            "result": [
                {"count": 3, "persons_urls": [], "action": {"made_by": null, "name": "a"}},
                [{"converted_people_url": null, "dropped_people_url": null, "people": [], "order": 0}],
                {"values": [{"people_url": null, "people_urls": [], "count": 1}], "users": [null, 2]},
            ],
            "query": {"source": {"created_by": null, "email": "sent", "current_url": "https://x"}},
        });
        assert_eq!(response, expected);
    }
}
