//! `pennon flags test`: evaluates a flag for a person.

use serde_json::{Map, Value, json};

use super::describe::{condition_text, conditions, value_text};
use super::find;
use crate::args::{NamedValue, TestFlag};
use crate::client::ApiClient;
use crate::show::text::sanitize;

/// The evaluation of a flag for a person.
#[derive(Debug)]
pub struct Evaluated {
    key: String,
    distinct_id: String,
    value: Value,
    reason: String,
    description: String,
    condition_index: Option<usize>,
    /// The condition in words, if one decided.
    condition: Option<String>,
}

/// Evaluates the flag of `options`, with the stored properties of the person, or with those of the options over them.
pub async fn evaluate(client: &ApiClient, options: &TestFlag) -> Result<Evaluated, String> {
    let flag = find(client, &options.key).await?;
    let (value, evaluation) = match options.person.is_empty() || flag["active"] != true {
        true => evaluate_stored(client, options).await?,
        false => evaluate_with_properties(client, options).await?,
    };
    let index = evaluation["condition_index"].as_u64().and_then(|index| usize::try_from(index).ok());
    Ok(Evaluated {
        key: options.key.clone(),
        distinct_id: options.distinct_id.clone(),
        value,
        reason: value_text(&evaluation["reason"]),
        description: value_text(&evaluation["description"]),
        condition_index: index,
        condition: index.and_then(|index| conditions(&flag).get(index)).map(condition_text),
    })
}

/// The value and `{"reason", "condition_index", "description"}` of `evaluation_reasons/`.
async fn evaluate_stored(client: &ApiClient, options: &TestFlag) -> Result<(Value, Value), String> {
    let groups = Value::Object(text_fields(&options.groups)).to_string();
    let query =
        [("distinct_id", options.distinct_id.as_str()), ("groups", &groups), ("flag_keys", &options.key)];
    let mut values = client.get("feature_flags/evaluation_reasons/", &query).await?;
    let mut evaluated = values[options.key.as_str()].take();
    if evaluated.is_null() {
        return Err(format!("flag `{}` was deleted meanwhile", options.key));
    }
    Ok((evaluated["value"].take(), evaluated["evaluation"].take()))
}

/// The same of the endpoint for SDKs, which takes properties of the person.
async fn evaluate_with_properties(client: &ApiClient, options: &TestFlag) -> Result<(Value, Value), String> {
    let project = client.get("", &[]).await?;
    let properties: Map<String, Value> =
        options.person.iter().map(|it| (it.name.clone(), property_value(&it.value))).collect();
    let body = json!({
        "token": project["api_token"], "distinct_id": options.distinct_id, "groups": text_fields(&options.groups),
        "person_properties": properties, "flag_keys": [options.key], "evaluation_runtime": "all",
    });
    let response = client.post_to("/flags/?v=2", &body).await?;
    let evaluated = &response["flags"][options.key.as_str()];
    if evaluated.is_null() {
        return Err(format!(
            "flag `{}` was not evaluated: it was switched off or deleted meanwhile",
            options.key
        ));
    }
    let value = match &evaluated["variant"] {
        Value::Null => evaluated["enabled"].clone(),
        variant => variant.clone(),
    };
    let reason = &evaluated["reason"];
    let evaluation = json!({
        "reason": reason["code"], "condition_index": reason["condition_index"], "description": reason["description"],
    });
    Ok((value, evaluation))
}

fn text_fields(values: &[NamedValue]) -> Map<String, Value> {
    values.iter().map(|it| (it.name.clone(), json!(it.value))).collect()
}

/// A number or a switch where the text is exactly that in JSON, else the text: 1.10 is a version.
fn property_value(text: &str) -> Value {
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let scalar = parsed.filter(|value| value.is_number() || value.is_boolean());
    let written = scalar.as_ref().map(Value::to_string);
    if written.as_deref() == Some(text) { scalar.unwrap_or_default() } else { json!(text) }
}

impl Evaluated {
    /// The evaluation as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "key": self.key, "distinct_id": self.distinct_id, "value": self.value, "reason": self.reason,
            "condition_index": self.condition_index, "description": self.description,
        })
    }

    /// The evaluation as lines of text.
    pub fn to_text(&self) -> String {
        let value = match &self.value {
            Value::Bool(true) => "on".to_owned(),
            Value::Bool(false) => "off".to_owned(),
            variant => format!("variant {}", value_text(variant)),
        };
        let mut lines = vec![format!("{} for {}: {value}", self.key, self.distinct_id)];
        let description =
            if self.description.is_empty() { String::new() } else { format!(" ({})", self.description) };
        lines.push(format!("  reason     {}{description}", self.reason));
        if let (Some(index), Some(condition)) = (self.condition_index, &self.condition) {
            lines.push(format!("  condition  {}: {condition}", index + 1));
        }
        lines.iter().map(|line| format!("{}\n", sanitize(line))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_a_number_only_if_it_is_written_like_one() {
        assert_eq!(property_value("30"), json!(30));
        assert_eq!(property_value("1.5"), json!(1.5));
        assert_eq!(property_value("true"), json!(true));
        for text in ["1.10", "007", "1e3", "pro", "", "null", "\"x\"", "[1]", " 1"] {
            assert_eq!(property_value(text), json!(text), "{text}");
        }
    }

    #[test]
    fn the_value_comes_first_then_the_reason() {
        let evaluated = Evaluated {
            key: "k".to_owned(),
            distinct_id: "eva\u{1b}[2J".to_owned(),
            value: json!("test"),
            reason: "condition_match".to_owned(),
            description: "Matched condition set 2".to_owned(),
            condition_index: Some(1),
            condition: Some("all: 20 %".to_owned()),
        };
        let expected = "k for eva [2J: variant test\n  reason     condition_match (Matched condition set 2)\n  condition  2: all: 20 %\n";
        assert_eq!(evaluated.to_text(), expected);
        assert_eq!(evaluated.to_json()["condition_index"], 1);
    }
}
