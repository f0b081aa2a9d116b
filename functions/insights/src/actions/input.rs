//! Validation of the bodies of writes of actions.
//!
//! Must stay true: the first invalid field is reported, in the order of [`ActionInput`]; unknown fields of a step are dropped.

use pennon_analytics::limits::{ACTION_STEPS, NAME_BYTES};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Fields;
use pennon_filters::body::FieldError;
use pennon_filters::body::fields::{self, BodyField, TextRule};
use pennon_filters::body::json;
use serde_json::{Map, Value};

use crate::limits;
use crate::resource::body::{Body, invalid};

/// The fields of a step, in the order of responses.
pub const STEP_FIELDS: [&str; 10] = [
    "event",
    "properties",
    "selector",
    "tag_name",
    "text",
    "text_matching",
    "href",
    "href_matching",
    "url",
    "url_matching",
];
const MATCHINGS: [&str; 3] = ["contains", "regex", "exact"];
const TEXT: TextRule = TextRule { max_chars: NAME_BYTES, blank: true, trim: false };

/// The writable fields of a body; `None` is absent.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::option_option, reason = "absent and null are different")]
pub struct ActionInput {
    /// `name`
    pub name: Option<Option<String>>,
    /// `description`
    pub description: Option<String>,
    /// `tags`
    pub tags: Option<Vec<String>>,
    /// `post_to_slack`
    pub post_to_slack: Option<bool>,
    /// `slack_message_format`
    pub slack_message_format: Option<String>,
    /// `steps`
    pub steps: Option<Vec<Value>>,
    /// `deleted`
    pub deleted: Option<bool>,
    /// `pinned_at`: whether it is a time.
    pub pinned: Option<bool>,
}

impl ActionInput {
    /// Validates a body.
    pub fn parse(fields: &Fields) -> ApiResult<ActionInput> {
        let body = Body(fields);
        Ok(ActionInput {
            name: body.name(false)?,
            description: body.text("description", limits::DESCRIPTION_CHARS)?,
            tags: body.tags("An action")?,
            post_to_slack: body.boolean("post_to_slack")?,
            slack_message_format: body.text("slack_message_format", limits::MESSAGE_CHARS)?,
            steps: body.list("steps")?.map(steps).transpose()?,
            deleted: body.boolean("deleted")?,
            pinned: fields.get("pinned_at").map(|at| pinned(at).map_err(invalid)).transpose()?,
        })
    }
}

/// Whether a value is a time (pins) or empty (unpins).
fn pinned(value: &Value) -> Result<bool, FieldError> {
    if json::is_nothing(value) {
        return Ok(false);
    }
    fields::datetime("pinned_at", value).map(|_| true)
}

fn steps(steps: Vec<Value>) -> ApiResult<Vec<Value>> {
    if steps.len() > ACTION_STEPS {
        let detail = format!("An action must not have more than {ACTION_STEPS} steps.");
        return Err(ApiError::invalid("invalid_input", detail, Some("steps")));
    }
    steps.iter().enumerate().map(|(at, sent)| step(at, sent).map_err(invalid)).collect()
}

fn step(at: usize, sent: &Value) -> Result<Value, FieldError> {
    let sent = fields::object(&format!("steps__{at}"), sent)?;
    let mut kept = Map::new();
    for name in STEP_FIELDS {
        let attr = format!("steps__{at}__{name}");
        let field = BodyField::new(&attr, sent.get(name));
        let value = match name {
            "properties" => field.nullable(properties)?,
            "text_matching" | "href_matching" | "url_matching" => {
                let choice = |attr: &str, value: &Value| fields::choice(attr, value, &MATCHINGS);
                field.nullable(choice)?.map(|word| word.map(Value::from))
            }
            _ => {
                let text = |attr: &str, value: &Value| fields::string(attr, value, TEXT);
                field.nullable(text)?.map(|text| text.map(Value::from))
            }
        };
        if let Some(value) = value {
            kept.insert(name.to_owned(), value.unwrap_or(Value::Null));
        }
    }
    Ok(Value::Object(kept))
}

fn properties(attr: &str, value: &Value) -> Result<Value, FieldError> {
    for (at, property) in fields::list(attr, value)?.iter().enumerate() {
        fields::object(&format!("{attr}__{at}"), property)?;
    }
    Ok(value.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(body: Value) -> ApiResult<ActionInput> {
        ActionInput::parse(body.as_object().unwrap())
    }

    #[test]
    fn known_fields_of_steps_are_kept_and_others_dropped() {
        let sent = json!({"name": " Buys ", "tags": ["B", "a"], "id": 7, "steps": [
            {"event": " x ", "url": "", "text": null, "isNew": true, "properties": [{"key": "a"}]}]});
        let input = parse(sent).unwrap();
        assert_eq!(input.name, Some(Some("Buys".to_owned())));
        assert_eq!(input.tags, Some(vec!["a".to_owned(), "b".to_owned()]));
        let step = json!({"event": " x ", "properties": [{"key": "a"}], "text": null, "url": ""});
        assert_eq!(input.steps, Some(vec![step]));
        assert_eq!(parse(json!({})).unwrap(), ActionInput::default());
        assert_eq!(parse(json!({"name": null})).unwrap().name, Some(None));
        assert_eq!(parse(json!({"pinned_at": ""})).unwrap().pinned, Some(false));
        assert_eq!(parse(json!({"pinned_at": "2024-01-01"})).unwrap().pinned, Some(true));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let chars = |count: usize| "x".repeat(count);
        for (body, code, attr) in [
            (json!({"name": "  "}), "blank", "name"),
            (json!({"name": chars(401)}), "max_length", "name"),
            (json!({"name": []}), "invalid_input", "name"),
            (json!({"description": chars(limits::DESCRIPTION_CHARS + 1)}), "max_length", "description"),
            (json!({"tags": "a"}), "not_a_list", "tags"),
            (json!({"post_to_slack": "maybe"}), "invalid_input", "post_to_slack"),
            (json!({"steps": null}), "null", "steps"),
            (json!({"steps": {}}), "not_a_list", "steps"),
            (json!({"steps": vec![json!({}); ACTION_STEPS + 1]}), "invalid_input", "steps"),
            (json!({"steps": [{}, 5]}), "not_a_dict", "steps__1"),
            (json!({"steps": [{"event": {}}]}), "invalid_input", "steps__0__event"),
            (json!({"steps": [{"url_matching": "like"}]}), "invalid_choice", "steps__0__url_matching"),
            (json!({"steps": [{"properties": {}}]}), "not_a_list", "steps__0__properties"),
            (json!({"steps": [{"properties": [{}, 1]}]}), "not_a_dict", "steps__0__properties__1"),
            (json!({"deleted": 2}), "invalid_input", "deleted"),
            (json!({"pinned_at": "soon"}), "invalid_input", "pinned_at"),
        ] {
            let error = parse(body.clone()).unwrap_err().body();
            assert_eq!((&error["code"], &error["attr"]), (&json!(code), &json!(attr)), "{body}");
        }
        assert!(parse(json!({"name": chars(400), "steps": vec![json!({}); ACTION_STEPS]})).is_ok());
    }
}
