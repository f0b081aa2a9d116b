//! The corpus of calculation cases over HTTP: events in, numbers out, in every form in which a query can be put.
//!
//! All cases lie in one installation, each in a project of its own; those on operators share one. Must stay true: nothing
//! here is shared with the product, neither the conversion of requests to query nodes nor the comparison.

mod compare;
mod dates;
mod endpoint_cases;
mod links;
mod node;
mod world;

use serde_json::{Map, Value, json};

pub use compare::{any_order, differences};
pub use endpoint_cases::EndpointCase;
pub use links::Followed;
pub use node::{node, unboxed};
pub use world::World;

use crate::{Keys, TestApp, TestResponse};
use pennon_core::clock::NOW_HEADER;

/// The start of the error of unsupported queries.
pub const NOT_SUPPORTED: &str = "Not supported yet";

/// One query of a case, and what has to come back.
#[derive(Debug, Clone)]
pub struct QueryCase {
    /// The case.
    pub name: String,
    /// The project that holds its events.
    pub project: u64,
    /// The instant of the request.
    pub now: String,
    /// `funnel`, `trend` or `correlation`.
    pub endpoint: &'static str,
    /// The legacy request.
    pub body: Map<String, Value>,
    /// What the response has to be.
    pub expect: Expect,
}

/// What has to come back.
#[derive(Debug, Clone)]
pub struct Expect {
    /// The status.
    pub status: u16,
    /// The compared part of the result.
    pub view: fn(&Value) -> Value,
    /// What it has to be, by the keys that are named; null for anything.
    pub want: Value,
    /// Rows may stand in any order.
    pub unordered: bool,
    /// How far numbers may be off, relatively.
    pub tolerance: f64,
}

/// The form of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The legacy request in a body.
    Post,
    /// The legacy request in a query string.
    Get,
    /// A query node.
    Node,
}

/// The outcome of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Refused as not supported yet, with this text.
    NotCovered(String),
    /// Something else came.
    Failed(String),
}

impl QueryCase {
    /// Whether the query can be put in a form.
    pub fn has(&self, form: Form) -> bool {
        match form {
            Form::Post => true,
            Form::Get => query_string(&self.body).len() < 6_000,
            Form::Node => self.endpoint != "correlation" && node::series(&self.body) > 0,
        }
    }

    /// Puts the query.
    pub async fn send_request(&self, app: &TestApp, form: Form) -> TestResponse {
        let project = self.project;
        let path = match self.endpoint {
            "correlation" => "insights/funnel/correlation",
            "funnel" => "insights/funnel",
            _ => "insights/trend",
        };
        let path = format!("/api/projects/{project}/{path}/");
        let (method, path, body) = match form {
            Form::Post => ("POST", path, Value::Object(self.body.clone())),
            Form::Get => ("GET", format!("{path}?{}", query_string(&self.body)), Value::Null),
            Form::Node => {
                let body = json!({"query": node(self.endpoint, &self.body), "refresh": "force_blocking"});
                ("POST", format!("/api/projects/{project}/query/"), body)
            }
        };
        at(app, &self.now, method, &path, body).await
    }

    /// Checks a response.
    pub fn check(&self, form: Form, response: &TestResponse) -> Verdict {
        let output_text = response.text.chars().take(400).collect::<String>();
        if response.status.as_u16() == 400 && response.text.contains(NOT_SUPPORTED) {
            return Verdict::NotCovered(output_text);
        }
        if response.status.as_u16() != self.expect.status {
            return Verdict::Failed(format!("status {}: {output_text}", response.status));
        }
        if self.expect.status != 200 || self.expect.want.is_null() {
            return Verdict::Passed;
        }
        let body = response.json();
        let result = match form {
            Form::Node if self.endpoint == "funnel" => unboxed(&self.body, body["results"].clone()),
            Form::Node => body["results"].clone(),
            _ => body["result"].clone(),
        };
        let got = (self.expect.view)(&result);
        let mut problems = Vec::new();
        let compare = if self.expect.unordered { any_order } else { differences };
        compare(&self.expect.want, &got, "result", self.expect.tolerance, &mut problems);
        match problems.is_empty() {
            true => Verdict::Passed,
            false => Verdict::Failed(problems.join("; ")),
        }
    }
}

/// Sends a request at an instant.
pub async fn at(app: &TestApp, now: &str, method: &str, path: &str, body: Value) -> TestResponse {
    let mut request = TestApp::request(Keys::OWNER, method, path, body);
    request.headers_mut().insert(NOW_HEADER, now.parse().expect("an instant"));
    app.send(request).await
}

/// A request as a query string, with values other than texts as JSON.
pub fn query_string(body: &Map<String, Value>) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let pairs = body.iter().filter(|(_, value)| !value.is_null());
    pairs
        .map(|(key, value)| format!("{}={}", encode(key), encode(&text(value))))
        .collect::<Vec<_>>()
        .join("&")
}
