//! Compares a response with what a case expects: objects by the keys expected, arrays element by element, and matchers.

use regex::Regex;
use serde_json::Value;

/// Adds the problems of `got` to `problems`.
pub(super) fn differences(want: &Value, got: Option<&Value>, path: &str, problems: &mut Vec<String>) {
    let Some(got) = got else {
        problems.push(format!("{path}: want {} got nothing", short(want)));
        return;
    };
    let mut wrong = |what: String| problems.push(format!("{path}: want {what} got {}", short(got)));
    match (want, got) {
        (Value::String(text), _) if text == "$any" => {}
        (Value::String(text), _) if text.starts_with("$re:") => {
            let pattern = &text["$re:".len()..];
            let text = match got {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            };
            let fits = Regex::new(pattern).expect("a pattern");
            if !text.is_some_and(|text| fits.is_match(&text)) {
                wrong(format!("a match of /{pattern}/"));
            }
        }
        (Value::Object(fields), _) if is_matcher(want) => {
            for (name, argument) in fields {
                if let Some(what) = mismatch(name, argument, got) {
                    wrong(what);
                }
            }
        }
        (Value::Object(fields), Value::Object(_)) => {
            for (name, value) in fields {
                differences(value, got.get(name), &format!("{path}.{name}"), problems);
            }
        }
        (Value::Array(items), Value::Array(found)) if items.len() == found.len() => {
            for (index, (item, found)) in items.iter().zip(found).enumerate() {
                differences(item, Some(found), &format!("{path}.{index}"), problems);
            }
        }
        (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => {}
        _ if want == got => {}
        _ => wrong(short(want)),
    }
}

fn is_matcher(want: &Value) -> bool {
    let fields = want.as_object().filter(|fields| fields.len() == 1);
    fields.is_some_and(|fields| {
        fields.keys().any(|name| {
            matches!(&**name, "$len" | "$has" | "$not" | "$set" | "$approx" | "$keys" | "$haskeys")
        })
    })
}

/// What the matcher wants, if `got` is not that.
fn mismatch(name: &str, argument: &Value, got: &Value) -> Option<String> {
    match name {
        "$len" => {
            let length = got.as_array().map(Vec::len);
            (length != argument.as_u64().and_then(|length| length.try_into().ok()))
                .then(|| format!("an array of {argument}"))
        }
        "$set" => {
            let (expected, found) = (items(argument), items(got));
            let is_set = got.is_array() && expected.len() == found.len() && pairs(expected, found);
            (!is_set).then(|| format!("in any order {}", short(argument)))
        }
        "$approx" => {
            let near = |want: f64, got: f64| (want - got).abs() <= 1e-9 * want.abs().max(1.0);
            let is_near = argument.as_f64().zip(got.as_f64()).is_some_and(|(want, got)| near(want, got));
            (!is_near).then(|| format!("about {argument}"))
        }
        "$keys" | "$haskeys" => {
            let has = |key: &Value| key.as_str().is_some_and(|key| got.get(key).is_some());
            let count = got.as_object().map(serde_json::Map::len);
            let fits = items(argument).iter().all(has)
                && (name == "$haskeys" || count == Some(items(argument).len()));
            (!fits).then(|| format!("an object with the keys {}", short(argument)))
        }
        "$not" => fits(argument, got).then(|| format!("anything but {}", short(argument))),
        _ => {
            let (expected, found) = (items(argument), items(got));
            (!got.is_array() || !pairs(expected, found)).then(|| format!("an array with {}", short(argument)))
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

/// Whether each expected element has its own match among the actual ones.
fn pairs(expected: &[Value], found: &[Value]) -> bool {
    fn place(at: usize, fits: &[Vec<bool>], partner: &mut [Option<usize>], tried: &mut [bool]) -> bool {
        for candidate in 0..partner.len() {
            if fits[at][candidate] && !tried[candidate] {
                tried[candidate] = true;
                if partner[candidate].is_none_or(|other| place(other, fits, partner, tried)) {
                    partner[candidate] = Some(at);
                    return true;
                }
            }
        }
        false
    }
    let fits: Vec<Vec<bool>> =
        expected.iter().map(|want| found.iter().map(|got| fits(want, got)).collect()).collect();
    let mut partner = vec![None; found.len()];
    (0..expected.len()).all(|at| place(at, &fits, &mut partner, &mut vec![false; found.len()]))
}

pub(super) fn fits(want: &Value, got: &Value) -> bool {
    let mut problems = Vec::new();
    differences(want, Some(got), "", &mut problems);
    problems.is_empty()
}

/// The value at a dotted path such as `results.0.id`.
pub(super) fn at_path<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    })
}

fn short(value: &Value) -> String {
    shortened(&value.to_string(), 160)
}

/// The beginning of a text.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let start: String = text.chars().take(most).collect();
    if start.len() < text.len() { start + "..." } else { start }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn matchers_find_what_fits_and_nothing_else() {
        let got = json!({"a": [1, {"b": "xyz", "c": null}], "n": 3.0, "t": "W/\"1\""});
        for want in [
            json!({}),
            json!({"n": 3}),
            json!({"a": {"$len": 2}}),
            json!({"a": [1, {"b": "$re:^x"}]}),
            json!({"a": {"$has": [{"b": "$any", "c": "$any"}]}}),
            json!({"n": {"$not": 4}, "a": [{"$not": 2}, "$any"]}),
            json!({"n": "$re:^3"}),
            json!({"a": {"$set": [{"b": "xyz"}, 1]}, "n": {"$approx": 3.000_000_000_1}}),
            json!({"$keys": ["n", "t", "a"]}),
            json!({"$haskeys": ["n"]}),
        ] {
            assert!(fits(&want, &got), "{want}");
        }
        for want in [
            json!({"b": "$any"}),
            json!({"n": "3"}),
            json!({"a": {"$len": 1}}),
            json!({"a": [1]}),
            json!({"a": {"$has": [1, 1]}}),
            json!({"n": {"$not": 3}}),
            json!({"a": [1, {"c": false}]}),
            json!([]),
            json!({"a": {"$set": [1]}}),
            json!({"n": {"$approx": 3.1}}),
            json!({"$keys": ["n", "t"]}),
            json!({"$haskeys": ["z"]}),
        ] {
            assert!(!fits(&want, &got), "{want}");
        }
        assert_eq!(at_path(&got, "a.1.b"), Some(&json!("xyz")));
        assert_eq!(at_path(&got, "a.2.b"), None);
    }
}
