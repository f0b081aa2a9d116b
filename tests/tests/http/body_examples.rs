//! The example bodies of the OpenAPI document: each is valid by its own schema, and accepted by the server as it is.

use std::collections::BTreeMap;

use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const JSON: &str = "application/json";
/// The person of the examples.
const PERSON: &str = "01900000-0000-7000-8000-0000000000bb";

/// An operation with a JSON body, and its example.
struct Example {
    id: String,
    method: String,
    path: String,
    body: Value,
    successes: Vec<String>,
}

fn examples(document: &Value) -> Vec<Example> {
    let mut examples = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let content = &operation["requestBody"]["content"][JSON];
            if content.is_null() {
                continue;
            }
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(content["example"].is_object(), "the body of {id} has no example");
            let statuses = operation["responses"].as_object().unwrap().keys();
            examples.push(Example {
                id,
                method: method.to_uppercase(),
                path: path.clone(),
                body: content["example"].clone(),
                successes: statuses.filter(|status| status.starts_with('2')).cloned().collect(),
            });
        }
    }
    examples
}

/// A project with one record of each kind, by the collection in which they are.
async fn app_with_records(examples: &[Example]) -> (TestApp, BTreeMap<&'static str, String>) {
    let role = examples.iter().find(|it| it.id == "createRoleAccess").unwrap().body["role_id"].clone();
    let organization = "01900000-0000-7000-8000-000000000001";
    let app =
        TestApp::with(json!({"roles": [{"id": role, "organization": organization, "name": "Shop"}]})).await;
    let mut ids = BTreeMap::new();
    for (collection, body) in [
        ("feature_flags", json!({"key": "banner"})),
        ("insights", json!({"name": "Purchases"})),
        ("dashboards", json!({"name": "Shop"})),
        ("cohorts", json!({"name": "Friends", "is_static": true})),
        ("actions", json!({"name": "Bought"})),
    ] {
        let made = app.post(&format!("/api/projects/1/{collection}/"), body).await.expect(201);
        ids.insert(collection, made["id"].to_string());
    }
    app.capture(json!([{"event": "cart", "distinct_id": "ann"}])).await;
    let persons = app.get("/api/projects/1/persons/?distinct_id=ann").await.expect(200);
    ids.insert("persons", persons["results"][0]["id"].as_str().unwrap().to_owned());
    let key = json!({"label": "first", "scopes": ["*"]});
    let made = app.post("/api/personal_api_keys/", key).await.expect(201);
    ids.insert("personal_api_keys", made["id"].as_str().unwrap().to_owned());
    (app, ids)
}

/// The path with a record for each parameter.
fn filled(path: &str, ids: &BTreeMap<&'static str, String>) -> String {
    let collection = ids.iter().find(|(collection, _)| path.contains(&format!("/{collection}/{{")));
    let id = collection.map(|(_, id)| id.clone()).unwrap_or_default();
    path.replace("{project_id}", "1")
        .replace("{feature_flag_id}", &id)
        .replace("{id}", &id)
        .replace("{key}", "banner")
}

async fn send(app: &TestApp, example: &Example, ids: &BTreeMap<&'static str, String>) -> TestResponse {
    // What only an installation knows: the token of the project, the id of a person. Applications send the token, administrators a key.
    let text =
        example.body.to_string().replace("phc_token", "phc_project_1").replace(PERSON, &ids["persons"]);
    let body = serde_json::from_str(&text).unwrap();
    let path = filled(&example.path, ids);
    if example.path.starts_with("/api/") {
        return app.call(Keys::OWNER, &example.method, &path, body).await;
    }
    app.call("phc_project_1", &example.method, &path, body).await
}

#[tokio::test]
async fn each_body_has_an_example_that_the_server_accepts() {
    let document = pennon_openapi::document("0");
    let examples = examples(&document);
    assert!(examples.len() >= 40, "{} bodies", examples.len());
    let (app, ids) = app_with_records(&examples).await;
    let mut refused = Vec::new();
    for example in &examples {
        let response = send(&app, example, &ids).await;
        if !example.successes.contains(&response.status.as_u16().to_string()) {
            refused.push(format!("{}: {} {}", example.id, response.status, response.text));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn each_example_is_valid_by_the_schema_of_its_body() {
    let document = pennon_openapi::document("0");
    let mut invalid = Vec::new();
    for example in examples(&document) {
        let method = example.method.to_lowercase();
        let schema = &document["paths"][&example.path][method]["requestBody"]["content"][JSON]["schema"];
        let whole = json!({"allOf": [schema], "components": document["components"]});
        let options =
            jsonschema::options().with_draft(jsonschema::Draft::Draft202012).should_validate_formats(true);
        if let Err(problem) = options.build(&whole).unwrap().validate(&example.body) {
            invalid.push(format!("{}: {problem}", example.id));
        }
    }
    assert!(invalid.is_empty(), "{invalid:#?}");
}
