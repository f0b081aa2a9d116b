//! Each missing scope, by route: the OpenAPI document names the scopes of every operation. A key with every other scope is refused
//! with the one that it lacks; a key with only those scopes gets past the check. The scopes of the documented flag and insight
//! endpoints are listed here a second time, as the API's description has them.

use std::collections::{BTreeMap, BTreeSet};

use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

/// The scopes that an operation requires, and one that replaces the first.
#[derive(Default)]
struct Scopes {
    required: Vec<String>,
    alternative: Option<String>,
}

/// Method, path and scopes of each operation whose description names a scope.
fn operations() -> Vec<(String, String, Scopes)> {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            let Some(description) = methods[method]["description"].as_str() else { continue };
            let scopes = described_scopes(description);
            // Keys are managed by keys with every scope; key_management.rs has their tests.
            if scopes.required.iter().any(|scope| scope != "*") {
                operations.push((method.to_uppercase(), path.clone(), scopes));
            }
        }
    }
    operations
}

/// The scope in backticks after `start`, before `end`.
fn scope_between(text: &str, start: &str, end: &str) -> Option<String> {
    let (_, rest) = text.split_once(start)?;
    let (scope, rest) = rest.split_once('`')?;
    rest.starts_with(end).then(|| scope.to_owned())
}

fn described_scopes(description: &str) -> Scopes {
    let first = scope_between(description, "Scope: `", "");
    let second = scope_between(description, "The scope `", " is required too.");
    Scopes {
        required: first.into_iter().chain(second).collect(),
        alternative: scope_between(description, "The scope `", " is accepted too."),
    }
}

/// Whether a key with `granted` has `required`.
fn satisfies(granted: &str, required: &str) -> bool {
    granted == required || (required.ends_with(":read") && granted == required.replace(":read", ":write"))
}

/// A valid key value for each list of scopes.
#[derive(Default)]
struct ScopedKeys {
    values: BTreeMap<Vec<String>, String>,
}

impl ScopedKeys {
    fn value(&mut self, scopes: Vec<String>) -> String {
        let number = self.values.len();
        self.values.entry(scopes).or_insert_with(|| format!("phx_scoped_{number:04}_0123456789")).clone()
    }

    fn declared(&self) -> Value {
        let key = |(scopes, value): (&Vec<String>, &String)| json!({"label": value[4..15], "user": "owner@example.com", "scopes": scopes, "projects": [], "value": value});
        json!({"keys": self.values.iter().map(key).collect::<Vec<_>>()})
    }
}

fn request_path(path: &str) -> String {
    let mut path = path
        .replace("{project_id}", "1")
        .replace("{organization_id}", "01900000-0000-7000-8000-000000000001")
        .replace("{token}", "phc_project_1");
    while let (Some(start), Some(end)) = (path.find('{'), path.find('}')) {
        path.replace_range(start..=end, "1");
    }
    path
}

/// A call, and what its key lacks.
struct Call {
    method: String,
    path: String,
    key: String,
    lacks: Option<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_missing_scope_is_named_by_every_route() {
    let operations = operations();
    let scopes = operations.iter().flat_map(|(_, _, scopes)| &scopes.required);
    let all: BTreeSet<String> =
        scopes.flat_map(|scope| [":read", ":write"].map(|end| of_object(scope, end))).collect();
    let mut keys = ScopedKeys::default();
    let mut calls = Vec::new();
    for (method, path, scopes) in &operations {
        let mut add = |granted: Vec<String>, lacks: Option<&String>| {
            let (method, path) = (method.clone(), request_path(path));
            calls.push(Call { method, path, key: keys.value(granted), lacks: lacks.cloned() });
        };
        for lacked in &scopes.required {
            let grants = |one: &&String| {
                !satisfies(one, lacked)
                    && !scopes.alternative.as_ref().is_some_and(|other| satisfies(one, other))
            };
            add(all.iter().filter(grants).cloned().collect(), Some(lacked));
        }
        add(scopes.required.clone(), None);
        if let Some(alternative) = &scopes.alternative {
            add(vec![alternative.clone()], None);
        }
    }
    assert!(calls.len() > 230, "{} calls", calls.len());
    let app = TestApp::with(keys.declared()).await;
    for Call { method, path, key, lacks } in calls {
        let response = app.call(&key, &method, &path, json!({})).await;
        if let Some(scope) = lacks {
            let detail = format!("API key missing required scope '{scope}'");
            assert_eq!(response.status, 403, "{method} {path} without {scope}: {}", response.text);
            response.expect_error(403, "authentication_error", "permission_denied", &detail, None);
        } else {
            let refused = response.status == 401 || response.text.contains("missing required scope");
            assert!(!refused, "{method} {path}: {} {}", response.status, response.text);
        }
    }
    // Nothing was written by calls that lack a scope for writing.
    let flags = app.call(Keys::OWNER, "GET", "/api/projects/1/feature_flags/", Value::Null).await.expect(200);
    assert_eq!(flags["count"], 0);
}

fn of_object(scope: &str, end: &str) -> String {
    let (object, _) = scope.split_once(':').unwrap();
    format!("{object}{end}")
}

/// The 37 documented endpoints below `/api/projects/{project_id}`, and the scope of each.
const DOCUMENTED: [(&str, &[(&str, &str)]); 6] = [
    (
        "feature_flag:read",
        &[
            ("GET", "/feature_flags/"),
            ("GET", "/feature_flags/{feature_flag_id}/role_access/"),
            ("GET", "/feature_flags/{feature_flag_id}/role_access/{id}/"),
            ("GET", "/feature_flags/{id}/"),
            ("GET", "/feature_flags/{id}/status/"),
            ("GET", "/feature_flags/evaluation_reasons/"),
            ("GET", "/feature_flags/local_evaluation/"),
            ("GET", "/feature_flags/my_flags/"),
            ("POST", "/feature_flags/user_blast_radius/"),
        ],
    ),
    (
        "feature_flag:write",
        &[
            ("POST", "/feature_flags/"),
            ("POST", "/feature_flags/{feature_flag_id}/role_access/"),
            ("DELETE", "/feature_flags/{feature_flag_id}/role_access/{id}/"),
            ("PATCH", "/feature_flags/{id}/"),
            ("DELETE", "/feature_flags/{id}/"),
            ("POST", "/feature_flags/{id}/create_static_cohort_for_flag/"),
            ("POST", "/feature_flags/{id}/dashboard/"),
            ("POST", "/feature_flags/{id}/enrich_usage_dashboard/"),
        ],
    ),
    (
        "activity_log:read",
        &[
            ("GET", "/feature_flags/{id}/activity/"),
            ("GET", "/feature_flags/activity/"),
            ("GET", "/insights/{id}/activity/"),
            ("GET", "/insights/activity/"),
        ],
    ),
    ("sharing_configuration:read", &[("GET", "/insights/{id}/sharing/")]),
    ("insight:write", &[("POST", "/insights/"), ("PATCH", "/insights/{id}/"), ("DELETE", "/insights/{id}/")]),
    (
        "insight:read",
        &[
            ("GET", "/insights/"),
            ("GET", "/insights/{id}/"),
            ("POST", "/insights/{id}/viewed/"),
            ("POST", "/insights/cancel/"),
            ("GET", "/insights/funnel/"),
            ("POST", "/insights/funnel/"),
            ("GET", "/insights/funnel/correlation/"),
            ("POST", "/insights/funnel/correlation/"),
            ("GET", "/insights/my_last_viewed/"),
            ("POST", "/insights/timing/"),
            ("GET", "/insights/trend/"),
            ("POST", "/insights/trend/"),
        ],
    ),
];

#[test]
fn documented_endpoints_have_the_scopes_of_their_description() {
    let operations = operations();
    assert_eq!(DOCUMENTED.iter().map(|(_, endpoints)| endpoints.len()).sum::<usize>(), 37);
    for (scope, endpoints) in DOCUMENTED {
        for (method, below) in endpoints {
            let path = format!("/api/projects/{{project_id}}{below}");
            let found = operations.iter().find(|(other, at, _)| other == method && *at == path);
            let (_, _, scopes) = found.unwrap_or_else(|| panic!("{method} {path} is not in the document"));
            assert_eq!(scopes.required, [scope], "{method} {path}");
        }
    }
}
