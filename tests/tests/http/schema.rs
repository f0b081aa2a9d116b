//! The OpenAPI document against the route tables, and as it is served.

use std::collections::BTreeSet;

use pennon_tests::TestApp;

/// Routes by method and path, without slash. Names of parameters are ignored.
fn spelt(method: &str, path: &str) -> String {
    let path = path.strip_suffix('/').unwrap_or(path);
    let parts: Vec<&str> =
        path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect();
    format!("{method} {}", parts.join("/"))
}

/// Every route of the API that is not an alias: no project alias and no format suffix. The console and its assets are pages, not
/// operations.
fn routes() -> BTreeSet<String> {
    let groups = pennon::api::function_routes();
    let known: BTreeSet<(&str, &str)> =
        groups.iter().map(|it| (it.method.as_str(), it.path.as_str())).collect();
    let is_ending = |method: &str, path: &str| {
        let shorter = path.strip_suffix(".json").or(path.strip_suffix(".csv"));
        shorter.is_some_and(|shorter| known.contains(&(method, shorter)))
    };
    known
        .iter()
        .filter(|(method, path)| !path.starts_with("/api/environments/") && !is_ending(method, path))
        .filter(|(_, path)| !["/", "/assets/{name}"].contains(path))
        .map(|(method, path)| spelt(method, path))
        .collect()
}

#[test]
fn every_route_is_an_operation_and_every_operation_a_route() {
    let operations = pennon_openapi::operations();
    let described: BTreeSet<String> = operations.iter().map(|it| spelt(it.method, it.path)).collect();
    let routes = routes();
    let missing: Vec<_> = routes.difference(&described).collect();
    assert!(missing.is_empty(), "not in the document: {missing:#?}");
    let more: Vec<_> = described.difference(&routes).collect();
    assert!(more.is_empty(), "in the document only: {more:#?}");
}

#[tokio::test]
async fn the_document_is_served_without_a_key() {
    let app = TestApp::new().await;
    let served = app.send(TestApp::request("", "GET", "/api/schema/", serde_json::Value::Null)).await;
    assert_eq!(served.expect(200), pennon_openapi::document(env!("CARGO_PKG_VERSION")));
    let page = app.send(TestApp::request("", "GET", "/docs/", serde_json::Value::Null)).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"));
}
