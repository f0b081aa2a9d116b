//! Every response of the black-box tests, compared with the OpenAPI document.
//!
//! Must stay true: a response of a route that the document describes has a status and a type that its operation lists, and
//! a body that the schema of both accepts. A changed response requires a changed document.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use axum::http::{HeaderMap, StatusCode, header};
use flate2::read::GzDecoder;
use jsonschema::{Draft, Validator};
use serde_json::{Value, json};

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document::new(pennon_openapi::document("0")));

/// Maximum length of a problem's text.
const MAX_PROBLEM_CHARACTERS: usize = 600;

/// Fails the test if a response does not match the document.
pub(crate) fn check(method: &str, path: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) {
    // A 405 belongs to no operation.
    if status == StatusCode::METHOD_NOT_ALLOWED {
        return;
    }
    if let Err(wrong) = DOCUMENT.check(method, path, status.as_u16(), headers, body) {
        let wrong: String = wrong.chars().take(MAX_PROBLEM_CHARACTERS).collect();
        panic!("not as described by the document: {method} {path} {}: {wrong}", status.as_u16());
    }
}

/// The document, prepared for queries.
struct Document {
    whole: Value,
    operations: Vec<Described>,
    /// Compiled on first use: by operation, status and media type.
    validators: Mutex<HashMap<(usize, u16, String), Arc<Validator>>>,
}

/// The place of an operation in the document.
struct Described {
    method: String,
    path: String,
}

impl Document {
    fn new(whole: Value) -> Document {
        let mut operations = Vec::new();
        for (path, methods) in whole["paths"].as_object().expect("paths") {
            for method in methods.as_object().expect("methods").keys() {
                operations.push(Described { method: method.to_uppercase(), path: path.clone() });
            }
        }
        Document { whole, operations, validators: Mutex::default() }
    }

    /// The problem of a response. Requests without an operation are ignored.
    fn check(
        &self,
        method: &str,
        path: &str,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), String> {
        let Some(index) = self.operation(method, path) else { return Ok(()) };
        let Described { method, path } = &self.operations[index];
        let responses = &self.whole["paths"][path][method.to_lowercase()]["responses"];
        let response = responses.get(status.to_string()).ok_or("this status is not listed")?;
        if response["x-may-be-empty"] == true {
            return if body.is_empty() { Ok(()) } else { self.error((index, status), headers, body) };
        }
        let Some(content) = response.get("content").and_then(Value::as_object) else {
            return if body.is_empty() {
                Ok(())
            } else {
                Err("there is a body, and none is listed".to_owned())
            };
        };
        let media = media_type(headers);
        let schema = content.get(media).ok_or_else(|| {
            let listed: Vec<_> = content.keys().collect();
            format!("the type is {media:?}, and listed are {listed:?}")
        })?;
        if !(media == "application/json" || media.ends_with("+json")) {
            return Ok(());
        }
        let value: Value =
            serde_json::from_slice(&unpacked(headers, body)?).map_err(|e| format!("no JSON: {e}"))?;
        let validator = self.validator((index, status, media.to_owned()), &schema["schema"])?;
        let wrong: Vec<String> = validator
            .iter_errors(&value)
            .take(5)
            .map(|error| format!("at {:?}: {error}", error.instance_path().as_str()))
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// The problem of a body with the common format of errors.
    fn error(&self, key: (usize, u16), headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
        let value: Value =
            serde_json::from_slice(&unpacked(headers, body)?).map_err(|e| format!("no JSON: {e}"))?;
        let schema = json!({"$ref": "#/components/schemas/Error"});
        let validator = self.validator((key.0, key.1, "error".to_owned()), &schema)?;
        validator.validate(&value).map_err(|error| error.to_string())
    }

    /// The operation of a request. Of several paths that fit, the one that names more of its first parts literally.
    fn operation(&self, method: &str, path: &str) -> Option<usize> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let path = match path.strip_prefix("/api/environments/") {
            Some(rest) => format!("/api/projects/{rest}"),
            None => path.to_owned(),
        };
        let shorter = path.strip_suffix(".json").or(path.strip_suffix(".csv"));
        let spellings = [Some(path.as_str()), shorter];
        let fits = |described: &Described| {
            spellings.iter().flatten().filter_map(|path| placeholders(&described.path, path)).min()
        };
        let mut found = self.operations.iter().enumerate().filter_map(|(index, it)| Some((fits(it)?, index)));
        // Another method of a path is not an operation of a more general path either.
        let best = found.clone().map(|(rank, _)| rank).min()?;
        found
            .find(|(rank, index)| *rank == best && self.operations[*index].method == method)
            .map(|(_, index)| index)
    }

    fn validator(&self, key: (usize, u16, String), schema: &Value) -> Result<Arc<Validator>, String> {
        let mut made = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = made.get(&key) {
            return Ok(validator.clone());
        }
        // References of the schema lead into the document.
        let whole = json!({"allOf": [schema], "components": self.whole["components"]});
        let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
        let validator = options.build(&whole).map_err(|error| format!("the schema is none: {error}"))?;
        Ok(made.entry(key).or_insert(Arc::new(validator)).clone())
    }
}

/// Which parts of `path` stand for a parameter of `pattern`; none where they do not fit.
fn placeholders(pattern: &str, path: &str) -> Option<Vec<bool>> {
    let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
    let (expected, parts) = (pattern.split('/'), path.split('/'));
    if expected.clone().count() != parts.clone().count() {
        return None;
    }
    expected
        .zip(parts)
        .map(|(expected, part)| match expected.starts_with('{') {
            true => (!part.is_empty()).then_some(true),
            false => (expected == part).then_some(false),
        })
        .collect()
}

/// The media type of a response without its parameters; empty where it has none.
fn media_type(headers: &HeaderMap) -> &str {
    let named = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    named.split(';').next().unwrap_or_default().trim()
}

fn unpacked(headers: &HeaderMap, body: &[u8]) -> Result<Vec<u8>, String> {
    if headers.get(header::CONTENT_ENCODING).is_none_or(|coding| coding != "gzip") {
        return Ok(body.to_vec());
    }
    let mut text = Vec::new();
    GzDecoder::new(body).read_to_end(&mut text).map_err(|e| format!("no gzip: {e}"))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A document with a list, a path with a number, and a literal path that the number could match.
    fn things() -> Document {
        let thing = json!({
            "type": "object", "required": ["id", "at"], "additionalProperties": false,
            "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
        });
        let content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}});
        let one = json!({"200": {"content": content}, "204": {}});
        let table = json!({"200": {"content": {"text/csv": {"schema": {"type": "string"}}}}});
        Document::new(json!({
            "paths": {
                "/api/projects/{project_id}/things/{id}/": {"get": {"responses": one}, "patch": {"responses": one}},
                "/api/projects/{project_id}/things/all/": {"get": {"responses": table}},
            },
            "components": {"schemas": {"Thing": thing}},
        }))
    }

    fn checked(path: &str, status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> Result<(), String> {
        let headers = headers.iter().map(|(name, value)| {
            (header::HeaderName::from_static(name), value.parse().expect("a header's value"))
        });
        things().check("GET", path, status, &headers.collect(), body)
    }

    const JSON: [(&str, &str); 1] = [("content-type", "application/json; charset=utf-8")];
    const GOOD: &[u8] = br#"{"id": 7, "at": "2026-01-05T10:00:00Z"}"#;

    #[test]
    fn a_response_that_matches_is_valid_in_every_spelling_of_the_path() {
        for path in
            ["/api/projects/1/things/7/", "/api/environments/1/things/7", "/api/projects/1/things/7.json"]
        {
            assert_eq!(checked(path, 200, &JSON, GOOD), Ok(()), "{path}");
            assert!(checked(path, 200, &JSON, b"{}").is_err(), "{path}");
        }
        assert_eq!(checked("/api/projects/1/things/7/", 204, &[], b""), Ok(()));
    }

    #[test]
    fn an_invalid_body_is_reported_with_its_problem() {
        let wrong =
            |body: &str| checked("/api/projects/1/things/7/", 200, &JSON, body.as_bytes()).unwrap_err();
        let kind = wrong(r#"{"id": "7", "at": "2026-01-05T10:00:00Z"}"#);
        assert!(kind.contains("\"/id\""), "{kind}");
        let missing = wrong(r#"{"id": 7}"#);
        assert!(missing.contains("at") && missing.contains("required"), "{missing}");
        let more = wrong(r#"{"id": 7, "at": "2026-01-05T10:00:00Z", "b": 1}"#);
        assert!(more.contains("'b'"), "{more}");
        let format = wrong(r#"{"id": 7, "at": "yesterday"}"#);
        assert!(format.contains("date-time"), "{format}");
        assert!(wrong("{").contains("no JSON"));
    }

    #[test]
    fn statuses_and_types_that_are_not_listed_are_noticed() {
        let path = "/api/projects/1/things/7/";
        assert_eq!(checked(path, 418, &JSON, GOOD), Err("this status is not listed".to_owned()));
        let html = checked(path, 200, &[("content-type", "text/html")], b"<p>").unwrap_err();
        assert!(html.contains("text/html"), "{html}");
        assert!(checked(path, 200, &[], b"").is_err(), "a body is missing");
        assert!(checked(path, 204, &JSON, GOOD).is_err(), "a body too many");
    }

    #[test]
    fn packed_bodies_are_read() {
        let packed = |body: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        };
        let headers = [JSON[0], ("content-encoding", "gzip")];
        assert_eq!(checked("/api/projects/1/things/7/", 200, &headers, &packed(GOOD)), Ok(()));
        assert!(checked("/api/projects/1/things/7/", 200, &headers, &packed(b"[]")).is_err());
    }

    #[test]
    fn a_literal_segment_takes_precedence_over_a_parameter() {
        let document = things();
        let path =
            |method, path| document.operation(method, path).map(|it| document.operations[it].path.as_str());
        let all = Some("/api/projects/{project_id}/things/all/");
        assert_eq!(path("GET", "/api/projects/1/things/all/"), all);
        assert_eq!(path("GET", "/api/projects/1/things/all.csv"), all);
        assert_eq!(path("PATCH", "/api/projects/1/things/all/"), None, "the route is another's");
        assert_eq!(path("DELETE", "/api/projects/1/things/7/"), None);
        assert_eq!(path("GET", "/api/projects/1/things/"), None);
        assert_eq!(path("GET", "/api/projects//things/7"), None);
        assert_eq!(path("HEAD", "/api/projects/1/things/7/"), None);
    }
}
