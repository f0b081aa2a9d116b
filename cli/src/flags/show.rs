//! Flags as people read them.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::describe::{condition_text, conditions, rollout_text, value_text, variants};
use crate::show::quantities::{age, percent};
use crate::show::table::{Cell, render};
use crate::show::text::sanitize;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn state_text(flag: &Value) -> &'static str {
    if flag["active"] == true { "on" } else { "off" }
}

fn called_text(flag: &Value, now: DateTime<Utc>) -> String {
    let at = flag["last_called_at"].as_str().and_then(|at| at.parse().ok());
    at.map_or_else(|| "never".to_owned(), |at| age(at, now))
}

/// A page of flags as a table.
pub fn list_text(page: &Value, now: DateTime<Utc>, columns: usize) -> String {
    let flags = page["results"].as_array().map_or(&[][..], Vec::as_slice);
    if flags.is_empty() {
        return "no flags\n".to_owned();
    }
    let rows: Vec<Vec<Cell>> = flags
        .iter()
        .map(|flag| {
            let stale = if flag["status"] == "STALE" { "stale" } else { "" };
            vec![
                Cell::text(text(&flag["key"])),
                Cell::text(state_text(flag)),
                Cell::text(rollout_text(flag)),
                Cell::text(stale),
                Cell::text(called_text(flag, now)),
            ]
        })
        .collect();
    render(&["key", "state", "rollout", "", "last called"], &rows, columns)
}

/// One flag, a line for each fact.
pub fn flag_text(flag: &Value, now: DateTime<Utc>) -> String {
    let mut lines =
        vec![format!("{} (flag {}, version {})", text(&flag["key"]), flag["id"], flag["version"])];
    let mut push = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("  {name:<13}{value}"));
        }
    };
    push("name", text(&flag["name"]).to_owned());
    let stale = if flag["status"] == "STALE" { ", stale" } else { "" };
    push("state", format!("{}{stale}", state_text(flag)));
    for (index, condition) in conditions(flag).iter().enumerate() {
        push(&format!("condition {}", index + 1), condition_text(condition));
    }
    for variant in variants(flag) {
        let share = percent(variant["rollout_percentage"].as_f64().unwrap_or(0.0));
        push("variant", format!("{}: {share}", text(&variant["key"])));
    }
    for (value, payload) in flag["filters"]["payloads"].as_object().into_iter().flatten() {
        push("payload", format!("{value}: {}", value_text(payload)));
    }
    push("tags", value_text(&flag["tags"]));
    push("last called", called_text(flag, now));
    let who = |field: &str| match text(&flag[field]["email"]) {
        "" => String::new(),
        email => format!(" by {email}"),
    };
    push("created", format!("{}{}", text(&flag["created_at"]), who("created_by")));
    push("changed", format!("{}{}", text(&flag["updated_at"]), who("last_modified_by")));
    lines.iter().map(|line| format!("{}\n", sanitize(line).trim_end())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn flag() -> Value {
        json!({
            "id": 7, "key": "banner", "name": "Which \u{1b}[31mbanner", "active": true, "status": "STALE", "version": 3,
            "filters": {"groups": [{"properties": [], "rollout_percentage": 50}],
                "multivariate": {"variants": [{"key": "control", "rollout_percentage": 34}, {"key": "test", "rollout_percentage": 66}]},
                "payloads": {"test": "{\"a\":1}"}},
            "tags": ["web", "shop"], "last_called_at": "2026-01-05T07:00:00Z", "created_at": "2025-12-01T00:00:00Z",
            "created_by": {"email": "ada@example.com"}, "updated_at": "2026-01-01T00:00:00Z", "last_modified_by": null,
        })
    }

    #[test]
    fn a_flag_is_shown_line_by_line_without_control_characters() {
        let expected = "\
banner (flag 7, version 3)
  name         Which  [31mbanner
  state        on, stale
  condition 1  all: 50 %
  variant      control: 34 %
  variant      test: 66 %
  payload      test: {\"a\":1}
  tags         web, shop
  last called  3 h ago
  created      2025-12-01T00:00:00Z by ada@example.com
  changed      2026-01-01T00:00:00Z
";
        assert_eq!(flag_text(&flag(), "2026-01-05T10:00:00Z".parse().unwrap()), expected);
    }

    #[test]
    fn a_list_has_a_row_for_each_flag() {
        let off = json!({"key": "x", "active": false, "filters": {"groups": [{}]}, "status": "ACTIVE", "last_called_at": null});
        let page = json!({"results": [flag(), off]});
        let text = list_text(&page, "2026-01-05T10:00:00Z".parse().unwrap(), 80);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["key", "state", "rollout", "last", "called"]);
        assert_eq!(rows[2], ["banner", "on", "50", "%,", "2", "variants", "stale", "3", "h", "ago"]);
        assert_eq!(rows[3], ["x", "off", "100", "%", "never"]);
        assert_eq!(list_text(&json!({"results": []}), Utc::now(), 80), "no flags\n");
    }
}
