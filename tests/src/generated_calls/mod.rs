//! Calls of one client, generated from a seed, over a store that fails; and what the API must show afterwards.
//!
//! A write with a 2xx is done, one with a 4xx is not, and one with a 503 may be either. Must stay true: what is expected follows from
//! the requests and the statuses alone.

mod records;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use serde_json::{Value, json};

pub use records::Kind;
use records::Known;
pub use steps::{ROLES, worker_time};

use crate::{Faults, Keys, Random, TestApp, TestResponse};

/// Calls of one seed.
pub const CALLS: usize = 40;
/// Maximum duration of a request, by the gateway.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(29);
/// How often a create with an idempotency key is sent.
const CREATE_ATTEMPTS: usize = 3;

/// A client and what it knows.
pub struct Session {
    app: TestApp,
    project: u64,
    seed: u64,
    random: Random,
    /// The number of the current call.
    step: usize,
    known: Vec<Known>,
    /// Role accesses: flag, id, and whether they may exist and may be absent.
    accesses: Vec<(u64, u64, bool, bool)>,
    /// API keys: id, and the labels that they may have; none if they may be absent.
    api_keys: Vec<(String, BTreeSet<Option<String>>)>,
    /// The names of creates that were refused.
    refused: BTreeSet<(Kind, String)>,
    /// Whether a dashboard was deleted with its insights.
    may_delete_insights: bool,
    /// The number of responses by status.
    pub statuses: BTreeMap<u16, usize>,
    /// The calls and their statuses.
    pub log: Vec<String>,
}

impl Session {
    /// The client of `seed` in `project`, served by a process of its own over a store with faults.
    pub fn new(app: &TestApp, faults: &Faults, project: u64, seed: u64) -> Session {
        Session {
            app: app.failing_process(faults),
            project,
            seed,
            random: Random::new(seed),
            step: 0,
            known: Vec::new(),
            accesses: Vec::new(),
            api_keys: Vec::new(),
            refused: BTreeSet::new(),
            may_delete_insights: false,
            statuses: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// Makes all calls.
    pub async fn run(&mut self) {
        for step in 0..CALLS {
            self.step = step;
            self.make_call().await;
        }
    }

    /// The ids of all records that were created.
    pub fn ids(&self) -> impl Iterator<Item = (Kind, u64)> {
        self.known.iter().map(|known| (known.kind, known.id))
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/projects/{}/{rest}/", self.project)
    }

    /// A name that no other call uses.
    fn name(&self) -> String {
        format!("n{}x{}", self.seed, self.step)
    }

    /// Sends a request; checks what holds for every response.
    async fn send(&mut self, method: &str, path: &str, body: Value, key: Option<&str>) -> TestResponse {
        let mut request = TestApp::request(Keys::OWNER, method, path, body.clone());
        if let Some(key) = key.and_then(|key| HeaderValue::from_str(key).ok()) {
            request.headers_mut().insert("idempotency-key", key);
        }
        let started = Instant::now();
        let response = self.app.send(request).await;
        let status = response.status.as_u16();
        self.log.push(format!("{}: {method} {path} {body} -> {status}", self.step));
        *self.statuses.entry(status).or_default() += 1;
        assert!(started.elapsed() < REQUEST_TIME_MAX, "{method} {path}: {:?}", started.elapsed());
        if status == 503 {
            let seconds = response.header("retry-after").parse::<u32>();
            assert!(seconds.is_ok(), "{method} {path}: a 503 without Retry-After: {}", response.text);
        }
        response
    }

    /// Creates a record. `is_valid` is `None` if the body may be refused.
    async fn create(&mut self, kind: Kind, body: Value, is_valid: Option<bool>) {
        let path = self.path(kind.path());
        let key = (self.random.below(2) == 0).then(|| self.name());
        let mut response = self.send("POST", &path, body.clone(), key.as_deref()).await;
        for _ in 1..CREATE_ATTEMPTS {
            if key.is_none() || response.status.as_u16() != 503 {
                break;
            }
            response = self.send("POST", &path, body.clone(), key.as_deref()).await;
        }
        match response.status.as_u16() {
            201 => {
                assert_ne!(is_valid, Some(false), "an invalid body was accepted: {path} {body}");
                let id = response.json()["id"].as_u64().expect("an id");
                self.known.push(Known::new(kind, id, &body));
            }
            503 => {}
            status => {
                assert_ne!(is_valid, Some(true), "{path} {body}: {status} {}", response.text);
                let name = body[kind.name_field()].as_str().unwrap_or_default();
                self.refused.insert((kind, name.to_owned()));
            }
        }
    }

    /// Changes the record at `index` of the known ones. `is_valid` is `None` if the body may be refused.
    async fn update(&mut self, index: usize, method: &str, body: Value, is_valid: Option<bool>) {
        let Known { kind, id, .. } = self.known[index];
        let path = self.path(&format!("{}/{id}", kind.path()));
        let response = self.send(method, &path, body.clone(), None).await;
        match response.status.as_u16() {
            200 => {
                assert_ne!(is_valid, Some(false), "an invalid body was accepted: {path} {body}");
                self.known[index].acknowledge(&body);
            }
            503 => self.known[index].allow(&body),
            status => assert_ne!(is_valid, Some(true), "{path} {body}: {status} {}", response.text),
        }
    }

    /// Checks over `app`, whose store does not fail, that acknowledged writes are there and refused ones are not.
    pub async fn check_state(&self, app: &TestApp) {
        for known in &self.known {
            let path = self.path(&format!("{}/{}", known.kind.path(), known.id));
            let response = app.get(&path).await;
            let may_be_absent =
                known.may_be_deleted() || known.kind == Kind::Insight && self.may_delete_insights;
            match response.status.as_u16() {
                200 => known.check(&response.json()),
                404 if known.kind.hides_deleted() && may_be_absent => {}
                status => panic!("{path}: {status}"),
            }
        }
        for kind in Kind::ALL {
            let list = app.get(&format!("{}?limit=1000", self.path(kind.path()))).await.expect(200);
            for record in list["results"].as_array().into_iter().flatten() {
                let name = record[kind.name_field()].as_str().unwrap_or_default().to_owned();
                assert!(!self.refused.contains(&(kind, name)), "a refused create is there: {record}");
            }
        }
        self.check_accesses(app).await;
        let keys = app.get("/api/personal_api_keys/").await.expect(200);
        for (id, labels) in &self.api_keys {
            let listed = keys.as_array().into_iter().flatten().find(|key| key["id"] == json!(id));
            let label = listed.and_then(|key| key["label"].as_str()).map(str::to_owned);
            assert!(labels.contains(&label), "the key {id} has the label {label:?}, not one of {labels:?}");
        }
    }

    async fn check_accesses(&self, app: &TestApp) {
        for (flag, id, may_exist, may_be_absent) in &self.accesses {
            let path = self.path(&format!("feature_flags/{flag}/role_access"));
            let list = app.get(&format!("{path}?limit=1000")).await.expect(200);
            let exists = list["results"].as_array().into_iter().flatten().any(|it| it["id"] == json!(id));
            let is_expected = if exists { *may_exist } else { *may_be_absent };
            assert!(is_expected, "role access {id} of flag {flag}: {exists}");
        }
    }
}
