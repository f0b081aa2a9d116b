//! Variables in cases: `{x}` stands for a value that is known only when the case runs.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use regex::{Captures, Regex};
use serde_json::Value;

/// The variables of a running case.
#[derive(Debug)]
pub(super) struct Variables {
    values: BTreeMap<String, Value>,
    now: DateTime<Utc>,
    pattern: Regex,
}

impl Variables {
    pub fn new() -> Variables {
        let pattern = Regex::new(r"\{([A-Za-z_][\w.-]*)(\|text)?\}").expect("a pattern");
        Variables { values: BTreeMap::new(), now: Utc::now(), pattern }
    }

    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.values.insert(name.into(), value.into());
    }

    fn value(&self, name: &str) -> Result<Value, String> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        if let Some(ago) = name.strip_prefix("day-").and_then(|ago| ago.parse().ok()) {
            return Ok((self.now - TimeDelta::days(ago)).format("%Y-%m-%d").to_string().into());
        }
        let days = name.strip_prefix("now-").and_then(|ago| ago.strip_suffix('d')?.parse().ok());
        let days = days.ok_or_else(|| format!("unknown variable {{{name}}}"))?;
        let then = self.now - TimeDelta::days(days);
        Ok(then.format("%Y-%m-%dT%H:%M:%SZ").to_string().into())
    }

    /// The value with every variable replaced, in the keys of objects too.
    pub fn fill(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => match self.pattern.captures(text) {
                Some(found) if found[0].len() == text.len() && found.get(2).is_none() => {
                    self.value(&found[1])?
                }
                _ => self.text(text)?.into(),
            },
            Value::Array(items) => {
                items.iter().map(|item| self.fill(item)).collect::<Result<Vec<_>, _>>()?.into()
            }
            Value::Object(fields) => {
                let filled = fields.iter().map(|(name, value)| Ok((self.text(name)?, self.fill(value)?)));
                Value::Object(filled.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }

    /// The text with every variable replaced by its text.
    pub fn text(&self, text: &str) -> Result<String, String> {
        let mut unknown = None;
        let filled = self.pattern.replace_all(text, |found: &Captures<'_>| match self.value(&found[1]) {
            Ok(Value::String(text)) => text,
            Ok(other) => other.to_string(),
            Err(error) => {
                unknown = Some(error);
                String::new()
            }
        });
        match unknown {
            Some(error) => Err(error),
            None => Ok(filled.into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lone_variable_keeps_its_type_and_others_become_text() {
        let mut variables = Variables::new();
        variables.set("f", 12);
        variables.set("keys.admin", "phx");
        let filled =
            variables.fill(&json!({"{f}": "{f}", "a": ["{f|text}", "id {f} of {keys.admin}", "{\"x\":1}"]}));
        assert_eq!(filled, Ok(json!({"12": 12, "a": ["12", "id 12 of phx", "{\"x\":1}"]})));
        assert!(variables.fill(&json!("{unknown}")).is_err());
        assert!(variables.text("{now-31d}").is_ok_and(|then| then.ends_with('Z')));
    }
}
