//! `pennon flags set`: changes a flag with the conflict check of the API.

use serde_json::{Map, Value, json};

use super::describe::{conditions, rollout};
use super::find;
use crate::args::SetFlag;
use crate::client::ApiClient;
use crate::show::quantities::percent;

/// The result of a change.
#[derive(Debug)]
pub struct Change {
    /// The flag after it, as the API returns it.
    pub flag: Value,
    /// What changed, a line for each; empty if the flag already was as it should be, and nothing was sent.
    pub lines: Vec<String>,
}

/// Changes the flag of `options`.
pub async fn set(client: &ApiClient, options: &SetFlag) -> Result<Change, String> {
    let flag = find(client, &options.key).await?;
    let (changed, lines) = plan(&flag, options)?;
    if changed.is_empty() {
        return Ok(Change { flag, lines });
    }
    let path = format!("feature_flags/{}/", flag["id"]);
    let body = patch_body(&flag, changed);
    let flag = client.patch(&path, &body).await.map_err(|failure| match failure.status {
        409 => format!("{failure} `pennon flags get {}` shows the flag as it is now", options.key),
        _ => failure.to_string(),
    })?;
    Ok(Change { flag, lines })
}

/// The fields that change, and a line about each.
fn plan(flag: &Value, options: &SetFlag) -> Result<(Map<String, Value>, Vec<String>), String> {
    let (mut changed, mut lines) = (Map::new(), Vec::new());
    if let Some(active) = options.active
        && flag["active"] != active
    {
        changed.insert("active".to_owned(), json!(active));
        let state = |is_on: bool| if is_on { "on" } else { "off" };
        lines.push(format!("state: {} -> {}", state(!active), state(active)));
    }
    if let Some(percentage) = options.rollout {
        let index = find_condition(flag, options)?;
        let before = rollout(&conditions(flag)[index]);
        if before != percentage {
            let mut filters = flag["filters"].clone();
            filters["groups"][index]["rollout_percentage"] = to_number(percentage);
            changed.insert("filters".to_owned(), filters);
            lines.push(format!("condition {}: {} -> {}", index + 1, percent(before), percent(percentage)));
        }
    }
    Ok((changed, lines))
}

/// The index of the condition whose rollout changes.
fn find_condition(flag: &Value, options: &SetFlag) -> Result<usize, String> {
    let count = conditions(flag).len();
    let key = &options.key;
    match (options.condition, count) {
        (_, 0) => {
            Err(format!("flag `{key}` has no condition whose rollout could change; add one in the console"))
        }
        (None, 1) => Ok(0),
        (None, _) => Err(format!(
            "flag `{key}` has {count} conditions; name one with --condition, as `pennon flags get {key}` numbers them"
        )),
        (Some(number), _) => usize::try_from(number)
            .ok()
            .filter(|number| *number <= count)
            .map(|number| number - 1)
            .ok_or_else(|| format!("flag `{key}` has no condition {number}; it has {count}")),
    }
}

/// A percentage as the console writes it: without decimals where there are none.
fn to_number(percentage: f64) -> Value {
    if percentage.fract() == 0.0 { json!(percentage as u64) } else { json!(percentage) }
}

/// The body of the request: a concurrent change of the same fields is a conflict, one of other fields is not.
fn patch_body(flag: &Value, changed: Map<String, Value>) -> Value {
    let original: Map<String, Value> =
        changed.keys().map(|field| (field.clone(), flag[field.as_str()].clone())).collect();
    let mut body = changed;
    body.insert("version".to_owned(), flag["version"].clone());
    body.insert("original_flag".to_owned(), Value::Object(original));
    Value::Object(body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::{Command, FlagsCommand, command_of};

    fn planned(words: &str, flag: &Value) -> Result<(Map<String, Value>, Vec<String>), String> {
        let Command::Flags(flags) = command_of(&format!("pennon flags set k {words}")) else {
            panic!("{words}")
        };
        let FlagsCommand::Set(options) = flags.command else { panic!("{words}") };
        plan(flag, &options)
    }

    fn flag(groups: Value) -> Value {
        json!({"id": 1, "key": "k", "active": true, "version": 4, "filters": {"groups": groups, "payloads": {"true": "1"}}})
    }

    #[test]
    fn only_what_differs_is_sent_with_the_version_and_the_original() {
        let flag = flag(json!([{"properties": [], "rollout_percentage": 50}]));
        let (changed, lines) = planned("--active false --rollout 20", &flag).unwrap();
        assert_eq!(lines, ["state: on -> off", "condition 1: 50 % -> 20 %"]);
        let filters =
            json!({"groups": [{"properties": [], "rollout_percentage": 20}], "payloads": {"true": "1"}});
        let original = json!({"active": true, "filters": flag["filters"]});
        assert_eq!(
            patch_body(&flag, changed),
            json!({"active": false, "filters": filters, "version": 4, "original_flag": original})
        );
        let (changed, lines) = planned("--active true --rollout 50", &flag).unwrap();
        assert!(changed.is_empty() && lines.is_empty());
    }

    #[test]
    fn one_of_several_conditions_is_named() {
        let several = flag(json!([{"rollout_percentage": 10}, {"rollout_percentage": null}]));
        assert!(planned("--rollout 5", &several).unwrap_err().contains("name one with --condition"));
        assert!(
            planned("--rollout 5 --condition 3", &several).unwrap_err().contains("no condition 3; it has 2")
        );
        let (changed, lines) = planned("--rollout 12.5% --condition 2", &several).unwrap();
        assert_eq!(lines, ["condition 2: 100 % -> 12.5 %"]);
        assert_eq!(
            changed["filters"]["groups"],
            json!([{"rollout_percentage": 10}, {"rollout_percentage": 12.5}])
        );
        assert!(planned("--rollout 5", &flag(json!([]))).unwrap_err().contains("no condition"));
    }
}
