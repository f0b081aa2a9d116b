#![allow(clippy::unwrap_used)]
use std::io::Read as _;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use pennon_core::clock::Clock;
use pennon_core::http::edge;
use serde_json::Value;
use tower::ServiceExt;

/// The document that the code describes, as indented JSON.
fn generated() -> String {
    format!("{:#}", pennon_openapi::document(env!("CARGO_PKG_VERSION")))
}

/// Sends a GET request and returns status, headers and body.
async fn get(path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, Vec<u8>) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    let response = edge(crate::router(), Clock::Running).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, to_bytes(body, usize::MAX).await.unwrap().to_vec())
}

#[tokio::test]
async fn json_and_yaml_have_the_same_content() {
    let (status, headers, json) = get("/api/schema/", &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["content-type"], "application/json");
    let document: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(document["paths"]["/api/schema/"]["get"].is_object());
    let (_, headers, yaml) = get("/api/schema?format=yaml", &[("accept", "application/json")]).await;
    assert_eq!(headers["content-type"], "application/yaml");
    let read: Value = serde_saphyr::from_str(std::str::from_utf8(&yaml).unwrap()).unwrap();
    assert_eq!(read, document);
}

#[tokio::test]
async fn the_media_type_follows_the_format_parameter_or_the_accept_header() {
    let cases = [
        ("", "", "application/json"),
        ("", "*/*", "application/json"),
        ("", "text/html", "application/json"),
        ("", "application/yaml", "application/yaml"),
        ("", "application/vnd.oai.openapi", "application/vnd.oai.openapi"),
        ("", "application/vnd.oai.openapi+json, */*", "application/vnd.oai.openapi+json"),
        ("", "application/json;q=0.5, Application/YAML;q=0.9", "application/yaml"),
        ("", "application/yaml;q=0", "application/json"),
        ("?format=json", "application/yaml", "application/json"),
        ("?format=yaml", "", "application/yaml"),
    ];
    for (query, accept, media) in cases {
        let (status, headers, _) = get(&format!("/api/schema/{query}"), &[("accept", accept)]).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers["content-type"], media, "{query} {accept}");
        assert_eq!(headers["vary"], "Accept, Accept-Encoding");
    }
    assert_eq!(get("/api/schema/?format=xml", &[]).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_document_is_compressed_for_clients_that_accept_it() {
    for query in ["", "?format=yaml"] {
        let path = format!("/api/schema/{query}");
        let (_, plain_headers, plain) = get(&path, &[]).await;
        assert!(!plain_headers.contains_key("content-encoding"));
        let (_, headers, gzipped) = get(&path, &[("accept-encoding", "gzip, br")]).await;
        assert_eq!(headers["content-encoding"], "gzip");
        assert_ne!(headers["etag"], plain_headers["etag"]);
        assert!(gzipped.len() < plain.len() / 8, "{} of {} bytes", gzipped.len(), plain.len());
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&gzipped[..]), &mut text).unwrap();
        assert_eq!(text, plain);
    }
}

#[tokio::test]
async fn if_none_match_returns_304() {
    for path in ["/", "/api/schema/", "/docs", "/docs/"] {
        let (_, headers, _) = get(path, &[]).await;
        let tag = headers["etag"].to_str().unwrap();
        assert!(tag.starts_with('"'), "{path}: {tag} is weak");
        for known in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
            let (status, headers, body) = get(path, &[("if-none-match", &known)]).await;
            assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0), "{path} {known}");
            assert_eq!(headers["etag"], tag);
        }
        assert_eq!(get(path, &[("if-none-match", "\"other\"")]).await.0, StatusCode::OK);
    }
    let (_, json, _) = get("/api/schema/", &[]).await;
    let (_, yaml, _) = get("/api/schema/?format=yaml", &[]).await;
    assert_ne!(json["etag"], yaml["etag"]);
}

/// The reference's URLs, resolved like in a browser, with and without a stage prefix, are routes of this function.
#[tokio::test]
async fn the_reference_loads_only_its_own_assets_and_the_document() {
    let (_, console_headers, _) = get("/", &[]).await;
    for (path, root) in [("/docs", ""), ("/docs/", "../")] {
        let (status, headers, page) = get(path, &[]).await;
        assert_eq!(
            (status, headers["content-type"].to_str().unwrap()),
            (StatusCode::OK, "text/html; charset=utf-8")
        );
        for name in ["content-security-policy", "cache-control", "x-content-type-options", "referrer-policy"]
        {
            assert_eq!(headers[name], console_headers[name], "{name}");
        }
        let page = String::from_utf8(page).unwrap();
        assert!(
            !page.contains("//") && !page.contains("{root}") && !page.contains("{description}"),
            "{page}"
        );
        assert_eq!(page.matches("<script").count(), 1, "the page has an inline script");
        assert!(!page.contains("<style") && !page.contains("style="), "{page}");
        assert!(page.contains("<h1>Pennon API</h1>"), "the heading is there before the script runs");
        let prefix = format!("{root}assets/");
        let assets: Vec<&str> = page.split('"').filter(|text| text.starts_with(&prefix)).collect();
        assert_eq!(assets.len(), 3, "{page}");
        for asset in assets {
            let url = format!("/{}", asset.strip_prefix(root).unwrap());
            assert_eq!(get(&url, &[]).await.0, StatusCode::OK, "{url}");
        }
        for document in ["api/schema", "api/schema?format=yaml"] {
            assert!(page.contains(&format!("href=\"{root}{document}\"")), "{page}");
        }
    }
    assert_eq!(get("/docs/viewer.js", &[]).await.0, StatusCode::NOT_FOUND);
}

/// The page contains the description before the document is loaded.
#[tokio::test]
async fn the_reference_starts_with_the_description_of_the_document() {
    let (_, _, page) = get("/docs", &[]).await;
    let page = String::from_utf8(page).unwrap();
    let document = pennon_openapi::document(env!("CARGO_PKG_VERSION"));
    let text = page.replace("<code>", "`").replace("</code>", "`").replace("&lt;", "<").replace("&amp;", "&");
    assert!(
        text.contains(document["info"]["description"].as_str().unwrap()),
        "web/dist/reference.html is outdated. Run in web: npm run build"
    );
}

/// What the page of the console loads, as the browser resolves it: relative to the address of the page.
#[tokio::test]
async fn the_console_loads_only_its_own_assets() {
    let (status, headers, page) = get("/", &[]).await;
    assert_eq!(
        (status, headers["content-type"].to_str().unwrap()),
        (StatusCode::OK, "text/html; charset=utf-8")
    );
    assert_eq!(headers["cache-control"], "public, no-cache");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http") && !policy.contains('*'), "{policy}");
    let page = String::from_utf8(page).unwrap();
    assert!(!page.contains("//"), "{page}");
    assert_eq!(page.matches("<script").count(), 1, "{page}");
    assert!(!page.contains("<style") && !page.contains("style="), "{page}");
    let urls: Vec<&str> = page.split('"').filter(|text| text.starts_with("assets/")).collect();
    assert_eq!(urls.len(), 3, "{page}");
    for url in urls {
        let (status, headers, packed) = get(&format!("/{url}"), &[("accept-encoding", "gzip")]).await;
        assert_eq!(
            (status, headers["content-encoding"].to_str().unwrap()),
            (StatusCode::OK, "gzip"),
            "{url}"
        );
        assert_eq!(headers["cache-control"], "public, max-age=31536000, immutable", "{url}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{url}");
        let (_, plain_headers, plain) = get(&format!("/{url}"), &[]).await;
        assert!(!plain_headers.contains_key("content-encoding"), "{url}");
        assert_ne!(headers["etag"], plain_headers["etag"], "{url}");
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut text).unwrap();
        let committed =
            std::fs::read(format!("{}/../../web/dist/{url}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(text == plain && plain == committed, "{url} is not the committed file");
        let media = match url.rsplit_once('.').unwrap().1 {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            other => panic!("no media type of {other}"),
        };
        assert_eq!(headers["content-type"], media, "{url}");
    }
    assert_eq!(get("/assets/console.js", &[]).await.0, StatusCode::NOT_FOUND);
    assert_eq!(get("/assets/%2e%2e%2findex.html", &[]).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn other_methods_get_405_without_a_key() {
    let request = Request::post("/api/schema/").body(Body::empty()).unwrap();
    let response = edge(crate::router(), Clock::Running).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()["allow"], "GET, HEAD, OPTIONS");
}

#[test]
fn docs_openapi_json_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == generated() + "\n",
        "docs/openapi.json is outdated. Run: pennon openapi > docs/openapi.json"
    );
}

/// Cargo may build the dependencies of the build script with other features.
#[tokio::test]
async fn the_sent_document_is_the_one_in_docs() {
    let (_, _, sent) = get("/api/schema/", &[]).await;
    let indented: Value = serde_json::from_str(&generated()).unwrap();
    assert!(
        sent == indented.to_string().as_bytes(),
        "members have another order, or are those of another release"
    );
}
