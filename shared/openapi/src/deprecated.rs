//! Deprecated operations and fields, with their replacements. `docs/deprecated.md` lists the same.

use serde_json::{Value, json};

/// Deprecated operation ids and their replacements.
const OPERATIONS: [(&str, &str); 3] = [
    ("decide", "POST /flags/"),
    ("getNoDecision", "GET /flags/"),
    ("getLocalEvaluationOfToken", "GET /flags/definitions/"),
];

/// Deprecated fields and parameters: the schema or field that they belong to (empty: any), the name, and the replacement.
const FIELDS: [(&str, &str, &str); 10] = [
    ("", "funnel_window_days", "funnel_window_interval"),
    ("", "super_groups", "feature_enrollment"),
    ("", "holdout_groups", "holdout"),
    ("", "evaluation_tags", "evaluation_contexts"),
    ("", "users_affected", "affected"),
    ("", "total_users", "total"),
    ("trendsFilter", "compare", "compareFilter"),
    ("InsightInput", "filters", "query"),
    ("Insight", "filters", "query"),
    ("InsightRow", "filters", "query"),
];

/// Marks deprecated operations and fields in `document`.
pub fn mark(document: &mut Value) {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (_, operation) in paths.filter_map(|(_, methods)| methods.as_object_mut()).flatten() {
        let id = operation["operationId"].as_str();
        if let Some((_, instead)) = OPERATIONS.iter().find(|(known, _)| id == Some(known)) {
            note(operation, instead);
        }
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            if let Some(instead) = parameter["name"].as_str().and_then(|name| replacement("", name)) {
                note(parameter, instead);
            }
        }
        mark_fields(operation, "");
    }
    for (name, schema) in document["components"]["schemas"].as_object_mut().into_iter().flatten() {
        mark_fields(schema, name);
    }
}

/// Marks deprecated fields below `node`, a part of the schema or field `owner`.
fn mark_fields(node: &mut Value, owner: &str) {
    match node {
        Value::Object(parts) => {
            for (keyword, part) in parts {
                match part.as_object_mut() {
                    Some(fields) if keyword == "properties" => {
                        for (name, schema) in fields {
                            mark_fields(schema, name);
                            if let Some(instead) = replacement(owner, name) {
                                note(schema, instead);
                            }
                        }
                    }
                    _ => mark_fields(part, owner),
                }
            }
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| mark_fields(part, owner)),
        _ => {}
    }
}

/// The replacement of field `name` of `owner`; none if it is not deprecated.
fn replacement(owner: &str, name: &str) -> Option<&'static str> {
    let found = FIELDS.iter().find(|(of, known, _)| *known == name && (of.is_empty() || *of == owner));
    found.map(|(_, _, instead)| *instead)
}

fn note(node: &mut Value, instead: &str) {
    let before = node["description"].as_str().unwrap_or_default();
    let description = format!("{before} Deprecated: use `{instead}`.").trim_start().to_owned();
    node["deprecated"] = true.into();
    node["description"] = json!(description);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;
    use crate::document;

    /// What the document marks: operations by method and path, fields and parameters by name; each with its description.
    fn marked(node: &Value, name: &str, found: &mut BTreeSet<(String, String)>) {
        match node {
            Value::Object(parts) => {
                if node["deprecated"] == true {
                    let name = node["name"].as_str().unwrap_or(name);
                    found.insert((name.to_owned(), node["description"].as_str().unwrap().to_owned()));
                }
                for (part, below) in parts {
                    let is_method = ["get", "post", "put", "patch", "delete"].contains(&part.as_str());
                    let inner =
                        if is_method { format!("{} {name}", part.to_uppercase()) } else { part.clone() };
                    marked(below, &inner, found);
                }
            }
            Value::Array(parts) => parts.iter().for_each(|part| marked(part, name, found)),
            _ => {}
        }
    }

    /// The rows of the page: deprecated parts with their replacements.
    fn listed() -> BTreeSet<(String, String)> {
        let rows = include_str!("../../../docs/deprecated.md").lines().filter(|line| line.starts_with("| `"));
        let row = |line: &str| {
            let spans: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
            (spans[0].to_owned(), spans[1].to_owned())
        };
        rows.map(row).collect()
    }

    #[test]
    fn the_page_lists_what_the_document_marks() {
        let (document, mut found) = (document("0"), BTreeSet::new());
        marked(&document["paths"], "", &mut found);
        marked(&document["components"], "", &mut found);
        let replaced = |(name, description): &(String, String)| {
            let instead = description.rsplit('`').nth(1).unwrap_or_default();
            (name.clone(), instead.to_owned())
        };
        let found: BTreeSet<(String, String)> = found.iter().map(replaced).collect();
        assert_eq!(found, listed());
        assert_eq!(found.len(), OPERATIONS.len() + FIELDS.len() - 2, "`filters` is of three schemas");
    }

    #[test]
    fn operations_without_parameters_keep_none() {
        let document = document("0");
        let operations =
            document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap());
        for (_, operation) in operations {
            let parameters = operation.get("parameters");
            assert!(parameters.is_none_or(Value::is_array), "{}: {parameters:?}", operation["operationId"]);
        }
    }

    #[test]
    fn what_takes_the_place_is_there() {
        let text = document("0").to_string();
        for (_, instead) in OPERATIONS {
            let (method, path) = instead.split_once(' ').unwrap();
            assert!(document("0")["paths"][path][method.to_lowercase()].is_object(), "{instead}");
        }
        for (_, _, instead) in FIELDS {
            assert!(text.contains(&format!("\"{instead}\":")), "{instead}");
        }
    }
}
