//! Assembles the OpenAPI document from operations and schemas.

use std::collections::BTreeMap;

use pennon_core::http::{GATEWAY_BYTES_MAX, GZIP_ABOVE_BYTES};
use serde_json::{Map, Value, json};

use crate::examples::example_body;
use crate::limits::group_digits;
use crate::{Operation, Parameter, Response, Security, components, deprecated, operations};

fn description() -> String {
    format!(
        "Feature flags, insights, funnels and trends. Every path is served with and \
         without its trailing slash. Paths below `/api/projects/{{project_id}}/` are also served below \
         `/api/environments/{{project_id}}/`. If an operation has the parameter `format`, the path may end in \
         `.json` or `.csv` instead of the slash, with the same meaning. Bodies of flags, role access, \
         dashboards, cohorts and actions may be HTML forms, in which lists and objects are JSON texts. \
         Responses of more than {} bytes are compressed if the request has `Accept-Encoding: gzip`; a \
         response that exceeds the limit of a function behind a gateway ({} MB) is a 400 instead.",
        group_digits(GZIP_ABOVE_BYTES),
        GATEWAY_BYTES_MAX / 1_000_000,
    )
}

/// The OpenAPI document for release `version`.
pub fn document(version: &str) -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let all = operations();
    for operation in &all {
        let methods = paths.entry(operation.path).or_default();
        methods.insert(operation.method.to_lowercase(), operation_object(operation));
    }
    let mut tags: Vec<&str> = Vec::new();
    for operation in &all {
        if !tags.contains(&operation.tag) {
            tags.push(operation.tag);
        }
    }
    let schemas: BTreeMap<&str, Value> = components().into_iter().collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Pennon",
            "version": version,
            "description": description(),
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags.into_iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {
                "type": "http", "scheme": "bearer",
                "description": "A personal API key (`pennon keys create`). The query parameter \
                    `personal_api_key` is accepted too.",
            }},
            "headers": {"RetryAfter": {
                "description": "Seconds until the request should be repeated.", "schema": {"type": "integer", "minimum": 0},
            }},
        },
    });
    deprecated::mark(&mut document);
    document
}

fn operation_object(operation: &Operation) -> Value {
    let responses: BTreeMap<String, Value> = operation
        .responses
        .iter()
        .map(|(status, it)| (status.to_string(), response_object(*status, it, operation)))
        .collect();
    let mut object = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": responses,
    });
    let (required_scope, security) = match &operation.security {
        Security::Scope(scope) => (format!("Scope: `{scope}`."), None),
        Security::AnyKey => ("Any key.".to_owned(), None),
        Security::Or(scope, other) => {
            (format!("Scope: `{scope}`; or {other}."), Some(json!([{"key": []}, {}])))
        }
        Security::Open => ("No API key is required.".to_owned(), Some(json!([]))),
    };
    object["description"] = format!("{} {required_scope}", operation.description).trim().into();
    if let Some(security) = security {
        object["security"] = security;
    }
    if !operation.parameters.is_empty() {
        object["parameters"] = operation.parameters.iter().map(parameter).collect();
    }
    if !operation.body.is_empty() {
        let mut content = content(&operation.body);
        if let Some(example) = example_body(operation.id) {
            content["application/json"]["example"] = example;
        }
        object["requestBody"] = json!({"required": operation.body_required, "content": content});
    }
    object
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    })
}

fn content(of: &[(&'static str, Value)]) -> Value {
    let media = of.iter().map(|(media, schema)| ((*media).to_owned(), json!({"schema": schema})));
    Value::Object(media.collect())
}

fn response_object(status: u16, response: &Response, operation: &Operation) -> Value {
    let mut object = json!({"description": response.description});
    if response.may_be_empty {
        // OpenAPI cannot express that a body may be missing. If there is one, it is an error.
        object["x-may-be-empty"] = true.into();
    } else if !response.content.is_empty() {
        object["content"] = content(&response.content);
    }
    if response.retry_after {
        object["headers"] = json!({"Retry-After": {"$ref": "#/components/headers/RetryAfter"}});
    }
    if status < 300 && !operation.links.is_empty() {
        let links = operation.links.iter().map(|link| {
            let parameters: Map<String, Value> =
                link.parameters.iter().map(|(name, found)| ((*name).to_owned(), json!(found))).collect();
            (link.name.to_owned(), json!({"operationId": link.operation, "parameters": parameters}))
        });
        object["links"] = Value::Object(links.collect());
    }
    object
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_references_resolve() {
        let all = operations();
        let ids: BTreeSet<&str> = all.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), all.len());
        let routes: BTreeSet<(&str, &str)> = all.iter().map(|it| (it.method, it.path)).collect();
        assert_eq!(routes.len(), all.len());
        for operation in &all {
            assert!(operation.path.starts_with('/'), "{}", operation.path);
            let statuses: BTreeSet<u16> = operation.responses.iter().map(|(status, _)| *status).collect();
            assert_eq!(statuses.len(), operation.responses.len(), "{}", operation.id);
            let is_not_allowed = operation.summary.starts_with("Not allowed: ");
            assert_eq!(statuses.iter().any(|status| *status < 400), !is_not_allowed, "{}", operation.id);
            for link in &operation.links {
                let target = all.iter().find(|it| it.id == link.operation);
                let target = target.unwrap_or_else(|| panic!("{} leads nowhere", operation.id));
                for (name, _) in &link.parameters {
                    let is_there = target.parameters.iter().any(|it| it.name == *name);
                    assert!(is_there, "{}: {} has no {name}", operation.id, target.id);
                }
            }
        }
        let document = document("0").to_string();
        let known = components();
        for reference in document.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(known.iter().any(|(known, _)| *known == name), "there is no schema {name}");
        }
        for (name, _) in &known {
            assert!(document.contains(&format!("#/components/schemas/{name}\"")), "nothing refers to {name}");
        }
    }
}
