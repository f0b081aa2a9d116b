//! One installation for one test.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use pennon::api::{Services, api};
use pennon::embedded::Embedded;
use pennon::workspace::{ApplyOptions, Workspace, apply};
use pennon_calculation::Calculator;
use pennon_calculation::jobs::{JobKey, JobLimits, JobOutcome, left_over};
use pennon_core::app::App;
use pennon_core::clock::{Clock, NOW_HEADER};
use pennon_core::payload_keys::PayloadKeys;
use pennon_core::store::round_trips::RoundTrips;
use pennon_core::store::{PartitionQuery, Write, keys};
use pennon_core::throttle::Rates;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::calls::{Noting, as_worker, noting_objects, record_calls};
use crate::meter::{Meter, Metered};
use crate::{Faults, TestResponse, log, schema};

/// The instant of a test's clock.
pub const NOW: &str = "2026-01-05T10:00:00Z";

/// [`NOW`] in microseconds since the epoch.
pub fn now_micros() -> i64 {
    NOW.parse::<chrono::DateTime<chrono::Utc>>().expect("an instant").timestamp_micros()
}

/// The encryption key of payloads: 32 zeros.
pub(crate) const PAYLOAD_KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// The secrets of the keys in the workspace of every test.
#[derive(Debug, Clone, Copy)]
pub struct Keys;

impl Keys {
    /// Olive, owner of the organization, with every scope.
    pub const OWNER: &'static str = "phx_owner_0123456789012345678901234567890123456";
    /// Mel, a member, with every scope.
    pub const MEMBER: &'static str = "phx_member_012345678901234567890123456789012345";
    /// Olive's key that may only read flags.
    pub const READ_FLAGS: &'static str = "phx_readflags_0123456789012345678901234567890";
    /// Olive's key that is limited to project 2.
    pub const ONLY_SECOND: &'static str = "phx_onlysecond_012345678901234567890123456789";
    /// Olive's key without scopes.
    pub const NO_SCOPES: &'static str = "phx_noscopes_01234567890123456789012345678901";
    /// Sam, owner of another organization.
    pub const STRANGER: &'static str = "phx_stranger_0123456789012345678901234567890";
}

/// The standard workspace: projects 1 and 2 of one organization, project 9 of another.
fn standard() -> Value {
    let org = "01900000-0000-7000-8000-000000000001";
    let other = "01900000-0000-7000-8000-000000000002";
    let user = |id: u64, name: &str, email: &str, organization: &str, level: &str| {
        json!({"id": id, "email": email, "first_name": name, "distinct_id": format!("user-{id}"),
               "memberships": [{"organization": organization, "level": level}]})
    };
    let key = |label: &str, user: &str, scopes: Value, projects: Value, value: &str| json!({"label": label, "user": user, "scopes": scopes, "projects": projects, "value": value});
    let project = |id: &str, organization: &str, name: &str| {
        json!({"id": id, "organization": organization, "name": name, "token": format!("phc_project_{id}"),
               "timezone": "UTC", "group_types": ["organization", "company"]})
    };
    let olive = "owner@example.com";
    json!({
        "organizations": [{"id": org, "name": "Acme"}, {"id": other, "name": "Other"}],
        "users": [user(1, "Olive", olive, org, "owner"), user(2, "Mel", "member@example.com", org, "member"),
                  user(3, "Sam", "stranger@example.com", other, "owner")],
        "projects": [project("1", org, "Shop"), project("2", org, "Blog"), project("9", other, "Foreign")],
        "keys": [
            key("owner", olive, json!(["*"]), json!([]), Keys::OWNER),
            key("member", "member@example.com", json!(["*"]), json!([]), Keys::MEMBER),
            key("read", olive, json!(["feature_flag:read"]), json!([]), Keys::READ_FLAGS),
            key("second", olive, json!(["*"]), json!(["2"]), Keys::ONLY_SECOND),
            key("none", olive, json!([]), json!([]), Keys::NO_SCOPES),
            key("stranger", "stranger@example.com", json!(["*"]), json!([]), Keys::STRANGER),
        ],
    })
}

/// The standard workspace, with the lists of `more` appended to its lists.
fn standard_and(more: Value) -> Value {
    let mut workspace = standard();
    for (section, added) in more.as_object().expect("sections") {
        let list = workspace[section].as_array().cloned().unwrap_or_default();
        workspace[section] = list.into_iter().chain(added.as_array().cloned().unwrap_or_default()).collect();
    }
    workspace
}

/// An installation in memory, with its events in a temporary directory.
pub struct TestApp {
    /// The services of the functions.
    pub services: Services,
    /// Counts the calls to DynamoDB.
    pub round_trips: RoundTrips,
    /// Counts billed units; off except for [`TestApp::metered`].
    pub meter: Meter,
    router: Router,
    embedded: Embedded,
    faults: Option<Faults>,
    events: Arc<tempfile::TempDir>,
}

/// The maximum response of a function behind a gateway, without the part for headers.
const GATEWAY_BYTES_MAX: usize = 6_000_000;

/// Checks that a gateway would accept the body: as text in JSON, or in base64 if it is compressed.
fn passes(path: &str, headers: &header::HeaderMap, body: &[u8]) {
    if body.len() < GATEWAY_BYTES_MAX / 6 {
        return;
    }
    let text = std::str::from_utf8(body).ok().filter(|_| !headers.contains_key(header::CONTENT_ENCODING));
    let length = match text {
        Some(text) => Value::from(text).to_string().len() - 2,
        None => body.len().div_ceil(3) * 4,
    };
    assert!(length <= GATEWAY_BYTES_MAX, "{path} has a response of {length} bytes");
}

impl TestApp {
    /// The standard workspace.
    pub async fn new() -> TestApp {
        TestApp::with(json!({})).await
    }

    /// The standard workspace, with the lists of `more` appended to its lists.
    pub async fn with(more: Value) -> TestApp {
        TestApp::of(&standard_and(more)).await
    }

    /// Exactly this workspace.
    pub async fn of(workspace: &Value) -> TestApp {
        TestApp::in_memory(workspace, TestApp::frozen(), None).await
    }

    /// Exactly this workspace, with a running clock.
    pub async fn running(workspace: &Value) -> TestApp {
        TestApp::in_memory(workspace, Clock::Running, None).await
    }

    /// The standard workspace, over a store that fails according to `faults`.
    pub async fn failing(faults: &Faults) -> TestApp {
        TestApp::failing_with(faults, json!({})).await
    }

    /// The standard workspace and `more`, over a store that fails according to `faults`.
    pub async fn failing_with(faults: &Faults, more: Value) -> TestApp {
        TestApp::in_memory(&standard_and(more), TestApp::frozen(), Some(faults)).await
    }

    /// Disables the size limit of the definitions feed, so that more can be written than fits.
    pub async fn forget_room(&self) {
        let records = &self.services.app.store.records;
        if let Ok(Some(row)) = records.get(&keys::project_version(1)).await {
            let set = records.transact(vec![Write::SetFeedBytes(row.key, row.count, 0)]).await;
            assert!(set.is_ok(), "{set:?}");
        }
    }

    /// The standard workspace in a file, which is read and written as a local server does. Nothing is counted.
    pub async fn in_file() -> TestApp {
        TestApp::in_file_with(json!({})).await
    }

    /// Like [`TestApp::in_file`], with additional workspace entries.
    pub async fn in_file_with(more: Value) -> TestApp {
        let directory = tempfile::tempdir().expect("a directory");
        let embedded = Embedded::open(directory.path()).await.expect("an embedded database");
        TestApp::filled(embedded, &standard_and(more), TestApp::frozen(), None, directory).await
    }

    fn frozen() -> Clock {
        Clock::Frozen(NOW.parse().expect("an instant"))
    }

    async fn in_memory(workspace: &Value, clock: Clock, faults: Option<&Faults>) -> TestApp {
        let embedded = Embedded::in_memory().await.expect("an embedded database");
        let events = tempfile::tempdir().expect("a directory");
        TestApp::filled(embedded, workspace, clock, faults, events).await
    }

    async fn filled(
        embedded: Embedded,
        workspace: &Value,
        clock: Clock,
        faults: Option<&Faults>,
        events: tempfile::TempDir,
    ) -> TestApp {
        let file = Workspace::parse(&workspace.to_string()).expect("a workspace");
        apply(&embedded.store(None).records, &file, ApplyOptions::default(), clock.now(None))
            .await
            .expect("an applied workspace");
        TestApp::with_parts(embedded, clock, faults.cloned(), Arc::new(events), Meter::default())
    }

    fn with_parts(
        embedded: Embedded,
        clock: Clock,
        faults: Option<Faults>,
        events: Arc<tempfile::TempDir>,
        meter: Meter,
    ) -> TestApp {
        log::watch();
        let round_trips = RoundTrips::new();
        let can_fail = !embedded.is_in_file() && !meter.is_on();
        let faults = faults.or_else(|| if can_fail { Faults::of_suite() } else { None });
        // Metered calls use the SDK.
        let counted = (!embedded.is_in_file()).then(|| round_trips.clone());
        let store = match &faults {
            Some(faults) => {
                Embedded::store_through(Noting(faults.wrap_connector(embedded.connector())), counted)
            }
            None if embedded.is_in_file() => embedded.store(None),
            None => {
                let metered = Metered(embedded.connector(), meter.clone());
                Embedded::store_through(Noting(metered), counted)
            }
        };
        let url = format!("file://{}", events.path().display());
        let payload_keys = PayloadKeys::parse(PAYLOAD_KEY).expect("a key");
        let app = App::new(store, clock).with_payload_keys(payload_keys);
        let services = TestApp::services(app, &url, &meter);
        TestApp { router: api(&services), services, round_trips, meter, embedded, faults, events }
    }

    fn services(app: App, events_url: &str, meter: &Meter) -> Services {
        let services = Services::open(app, events_url).expect("services");
        let events = noting_objects(services.events.clone(), events_url, &services.app.store, meter);
        Services::new(services.app, events)
    }

    /// Another process on the same data: it shares no memory with this one.
    pub fn another_process(&self) -> TestApp {
        let clock = self.services.app.clock;
        let (embedded, events) = (self.embedded.clone(), self.events.clone());
        TestApp::with_parts(embedded, clock, self.faults.clone(), events, self.meter.clone())
    }

    /// Another process on the same data, over a store that fails according to `faults`.
    pub fn failing_process(&self, faults: &Faults) -> TestApp {
        let (embedded, events) = (self.embedded.clone(), self.events.clone());
        let faults = Some(faults.clone());
        TestApp::with_parts(embedded, self.services.app.clock, faults, events, self.meter.clone())
    }

    /// Another process on the same data, with a calculator made of its own.
    pub fn with_calculator(&self, change: impl FnOnce(Calculator) -> Calculator) -> TestApp {
        let app = self.another_process();
        let calculator = change(app.services.calculator.clone());
        let services = Services { calculator, ..app.services.clone() };
        TestApp { router: api(&services), services, ..app }
    }

    /// Another process on the same data, whose calls are metered.
    pub fn metered(&self) -> TestApp {
        let (embedded, events) = (self.embedded.clone(), self.events.clone());
        TestApp::with_parts(embedded, self.services.app.clock, self.faults.clone(), events, Meter::on())
    }

    /// The URL of the events.
    pub fn events_url(&self) -> String {
        format!("file://{}", self.events.path().display())
    }

    /// The same installation, with rate limits per key.
    pub fn limited(self, rates: Rates) -> TestApp {
        let url = self.events_url();
        let app = self.services.app.clone().with_rate_limits(Some(rates));
        let services = TestApp::services(app, &url, &self.meter);
        TestApp { router: api(&services), services, ..self }
    }

    /// The same installation, whose process has these keys.
    pub fn with_payload_keys(self, payload_keys: PayloadKeys) -> TestApp {
        let app = self.services.app.clone().with_payload_keys(payload_keys);
        let services = TestApp::services(app, &self.events_url(), &self.meter);
        TestApp { router: api(&services), services, ..self }
    }

    /// The background jobs that wait for a worker.
    pub async fn jobs(&self) -> Vec<JobKey> {
        as_worker(left_over(&self.services.app.store.records)).await.expect("the jobs")
    }

    /// Runs the waiting jobs, like a worker that starts.
    pub async fn work(&self) -> Vec<JobOutcome> {
        let mut outcomes = Vec::new();
        for job in self.jobs().await {
            outcomes.push(as_worker(self.services.calculator.run_job(job, JobLimits::default())).await);
        }
        outcomes
    }

    /// Sends a request. Its response must match the OpenAPI document.
    pub async fn send(&self, request: Request<Body>) -> TestResponse {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let response = async {
            let response = self.router.clone().oneshot(request).await.expect("a response");
            let (parts, body) = response.into_parts();
            (parts, body.collect().await.expect("a body").to_bytes())
        };
        let (parts, bytes) = record_calls(&path, response).await;
        let text = String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| "(binary)".to_owned());
        log::learn(&text);
        passes(&path, &parts.headers, &bytes);
        schema::check(&method, &path, parts.status, &parts.headers, &bytes);
        TestResponse { status: parts.status, headers: parts.headers, text, bytes: bytes.to_vec() }
    }

    /// Sends a request as the key `key`, with a JSON body unless it is null. Over the rare faults of the suite a read with a 503 is sent again,
    /// as clients do, because several in a row exhaust the retries of the product.
    pub async fn call(&self, key: &str, method: &str, path: &str, body: Value) -> TestResponse {
        let response = self.send(TestApp::request(key, method, path, body.clone())).await;
        let has_rare_faults = self.faults.as_ref().is_some_and(Faults::are_of_suite);
        if !has_rare_faults || method != "GET" || response.status != StatusCode::SERVICE_UNAVAILABLE {
            return response;
        }
        assert!(response.headers.contains_key(header::RETRY_AFTER), "{method} {path}: {}", response.text);
        self.send(TestApp::request(key, method, path, body)).await
    }

    /// A request to be extended.
    pub fn request(key: &str, method: &str, path: &str, body: Value) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "api.test");
        if !key.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        if body.is_null() {
            return request.body(Body::empty()).expect("a request");
        }
        let request = request.header(header::CONTENT_TYPE, "application/json");
        request.body(Body::from(body.to_string())).expect("a request")
    }

    /// GET as the owner.
    pub async fn get(&self, path: &str) -> TestResponse {
        self.call(Keys::OWNER, "GET", path, Value::Null).await
    }

    /// POST as the owner.
    pub async fn post(&self, path: &str, body: Value) -> TestResponse {
        self.call(Keys::OWNER, "POST", path, body).await
    }

    /// PATCH as the owner.
    pub async fn patch(&self, path: &str, body: Value) -> TestResponse {
        self.call(Keys::OWNER, "PATCH", path, body).await
    }

    /// Applies a workspace file.
    pub async fn apply(&self, workspace: Value) {
        let file = Workspace::parse(&workspace.to_string()).expect("a workspace");
        let now = self.services.app.clock.now(None);
        apply(&self.services.app.store.records, &file, ApplyOptions::default(), now)
            .await
            .expect("it is applied");
    }

    /// Sends a request as the owner, at another instant.
    pub async fn at(&self, now: &str, method: &str, path: &str, body: Value) -> TestResponse {
        let mut request = TestApp::request(Keys::OWNER, method, path, body);
        request.headers_mut().insert(NOW_HEADER, now.parse().expect("a header"));
        self.send(request).await
    }

    /// Sends a list of events to project 1, as an SDK does.
    pub async fn capture(&self, events: impl Into<Value>) {
        let body = json!({"api_key": "phc_project_1", "batch": events.into()});
        assert_eq!(self.call("", "POST", "/batch/", body).await.expect(200), json!({"status": 1}));
    }

    /// Compacts the waiting events of project 1.
    pub async fn compact(&self) {
        as_worker(self.services.events.compact(1, now_micros())).await.expect("a compaction");
    }

    /// The activity entries of a scope of project 1 in the month of [`NOW`], oldest first.
    pub async fn activity(&self, scope: &str) -> Vec<Value> {
        let month = PartitionQuery::partition(format!("PROJECT#1#ACTIVITY#{scope}#2026-01"));
        let items = self.services.app.store.records.query(month).await.expect("entries");
        let mut entries: Vec<Value> = items.iter().map(|item| item.body().expect("an entry")).collect();
        entries.sort_by_key(|entry| entry["created_at"].as_str().map(str::to_owned));
        entries
    }

    /// Creates a flag with this key in project 1 and returns its id.
    pub async fn flag(&self, key: &str) -> u64 {
        let made = self.post("/api/projects/1/feature_flags/", json!({"key": key})).await;
        made.expect(201)["id"].as_u64().expect("a number")
    }
}
