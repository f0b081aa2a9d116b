//! Compares a response with what a case expects: by the keys expected, element by element, numbers within a tolerance.

use serde_json::Value;

/// Adds the problems of `got` to `problems`.
pub fn differences(want: &Value, got: &Value, path: &str, tolerance: f64, problems: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            for (key, want) in want {
                match got.get(key) {
                    Some(got) => differences(want, got, &format!("{path}.{key}"), tolerance, problems),
                    None => problems.push(format!("{path}.{key}: missing")),
                }
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (index, (want, got)) in want.iter().zip(got).enumerate() {
                differences(want, got, &format!("{path}.{index}"), tolerance, problems);
            }
        }
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap_or(f64::NAN), other.as_f64().unwrap_or(f64::NAN));
            let most = tolerance * one.abs().max(other.abs()).max(1.0);
            let near = (one - other).abs() <= most;
            if one != other && !near {
                problems.push(format!("{path}: want {one} got {other}"));
            }
        }
        _ if want == got => {}
        _ => problems.push(format!("{path}: want {want} got {}", short(got))),
    }
}

/// The same for lists whose elements may stand in any order.
pub fn any_order(want: &Value, got: &Value, path: &str, tolerance: f64, problems: &mut Vec<String>) {
    let (Some(expected), Some(found)) = (want.as_array(), got.as_array()) else {
        return differences(want, got, path, tolerance, problems);
    };
    if expected.len() != found.len() {
        problems.push(format!("{path}: want {} elements got {}", expected.len(), short(got)));
        return;
    }
    let fit = |want: &Value, got: &Value| {
        let mut problems = Vec::new();
        differences(want, got, "", tolerance, &mut problems);
        problems.is_empty()
    };
    let fits: Vec<Vec<bool>> =
        expected.iter().map(|want| found.iter().map(|got| fit(want, got)).collect()).collect();
    let mut partner = vec![None; found.len()];
    for (index, want) in expected.iter().enumerate() {
        if !place(index, &fits, &mut partner, &mut vec![false; found.len()]) {
            problems.push(format!("{path}: no element like {want} in {}", short(got)));
        }
    }
}

/// Finds a partner for an element, moving others where that helps.
fn place(index: usize, fits: &[Vec<bool>], partner: &mut [Option<usize>], tried: &mut [bool]) -> bool {
    for candidate in 0..partner.len() {
        if fits[index][candidate] && !tried[candidate] {
            tried[candidate] = true;
            if partner[candidate].is_none_or(|other| place(other, fits, partner, tried)) {
                partner[candidate] = Some(index);
                return true;
            }
        }
    }
    false
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}
