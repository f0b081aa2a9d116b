//! Clients that send random requests for a few insights, and the final stored state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use pennon_core::clock::NOW_HEADER;
use pennon_core::store::PartitionQuery;
use pennon_core::store::keys::{self, RecordKind};
use pennon_flag_rules::stamp;
use serde_json::{Value, json};

use super::{Call, Entry, Fields, History, Outcome, Request, Stored};
use crate::{Keys, NOW, Random, TestApp, TestResponse};

const INSIGHTS: &str = "/api/projects/1/insights/";
const USERS: [&str; 2] = [Keys::OWNER, Keys::MEMBER];
/// Dashboards that insights are put on.
pub const DASHBOARDS: u64 = 6;
/// The insights that requests change.
const WORKED_ON: usize = 5;

/// Records calls.
pub struct Recorder {
    processes: [TestApp; 2],
    ticks: AtomicU64,
    calls: Mutex<Vec<Call>>,
    started: BTreeMap<u64, String>,
}

/// The dashboards of every history.
pub fn workspace() -> Value {
    let one = |id: u64| json!({"project": "1", "id": id, "name": format!("D{id}")});
    json!({"dashboards": (1..=DASHBOARDS).map(one).collect::<Vec<Value>>()})
}

impl Recorder {
    /// A recorder of calls to `app` and to a second process, about a few new insights.
    pub async fn new(app: TestApp) -> Arc<Recorder> {
        // The effect of a call with a 503 is unknown.
        let mut started = BTreeMap::new();
        for number in 0.. {
            let description = format!("start-{number}");
            app.post(INSIGHTS, json!({"name": "n", "description": description})).await;
            let list = app.get(INSIGHTS).await.json();
            let made = list["results"].as_array().into_iter().flatten();
            let made =
                made.filter_map(|it| Some((it["id"].as_u64()?, it["description"].as_str()?.to_owned())));
            started.extend(made);
            if started.len() >= WORKED_ON && list["count"] == started.len() {
                break;
            }
        }
        Arc::new(Recorder {
            processes: [app.another_process(), app],
            ticks: AtomicU64::new(1),
            calls: Mutex::default(),
            started,
        })
    }

    /// The installation.
    pub fn app(&self) -> &TestApp {
        &self.processes[0]
    }

    async fn call(&self, client: usize, request: Request) {
        let key = USERS[client % USERS.len()];
        let app = &self.processes[client / USERS.len() % self.processes.len()];
        let (method, path, body, now) = wire(&request);
        let mut sent = TestApp::request(key, method, &path, body);
        sent.headers_mut().insert(NOW_HEADER, now.to_rfc3339().parse().expect("a header"));
        let began = self.ticks.fetch_add(1, Ordering::SeqCst);
        let response = app.send(sent).await;
        let ended = self.ticks.fetch_add(1, Ordering::SeqCst);
        let outcome = outcome(&request, &response);
        let call = Call { request, outcome, began, ended };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// The calls so far, and the current stored state.
    pub async fn history(&self) -> History {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        History { started: self.started.clone(), calls, stored: stored(self.app()).await }
    }
}

/// Has `clients` clients make `operations` random calls together.
pub async fn run(recorder: &Arc<Recorder>, seed: u64, clients: usize, operations: usize) {
    let tasks = (0..clients).map(|client| {
        let recorder = recorder.clone();
        let own = operations / clients + usize::from(client < operations % clients);
        tokio::spawn(async move {
            let mut random = Random::new(seed.wrapping_add(client as u64 * 0x1000_0001));
            for number in 0..own {
                let request = random_request(&recorder.started, client, number, &mut random);
                recorder.call(client, request).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a client that ends");
    }
}

fn random_request(
    insights: &BTreeMap<u64, String>,
    client: usize,
    number: usize,
    random: &mut Random,
) -> Request {
    let insight = *random.pick(&insights.keys().copied().collect::<Vec<u64>>());
    let mark = json!(format!("{client}-{number}"));
    let change = |field: &str, value: Value| {
        Request::Change(
            insight,
            Fields::from_iter([("description".to_owned(), mark.clone()), (field.to_owned(), value)]),
        )
    };
    match random.below(100) {
        0..10 => change("favorited", json!(random.below(2) == 0)),
        10..20 => change("derived_name", mark.clone()),
        20..28 => change("tags", json!([format!("t{client}-{number}")])),
        28..36 => change("filters", json!({"events": [{"id": mark}]})),
        36..42 => Request::Change(insight, Fields::from_iter([("description".to_owned(), mark)])),
        42..60 => {
            let mut ids: Vec<u64> = (1..=DASHBOARDS).filter(|_| random.below(2) == 0).collect();
            if random.below(2) == 0 {
                ids.reverse();
            }
            change("dashboards", json!(ids))
        }
        60..68 => change("deleted", json!(true)),
        68..80 => change("deleted", json!(false)),
        80..88 => Request::View(insight, i64::try_from(random.below(1_000_000)).unwrap_or(0)),
        88..95 => Request::Read(insight),
        _ => Request::List,
    }
}

/// The instant of the start.
fn start() -> DateTime<Utc> {
    NOW.parse().expect("an instant")
}

fn wire(request: &Request) -> (&'static str, String, Value, DateTime<Utc>) {
    match request {
        Request::Change(insight, fields) => {
            ("PATCH", format!("{INSIGHTS}{insight}/"), Value::Object(fields.clone()), start())
        }
        Request::Read(insight) => ("GET", format!("{INSIGHTS}{insight}/"), Value::Null, start()),
        Request::List => ("GET", format!("{INSIGHTS}?order=id"), Value::Null, start()),
        Request::View(insight, at) => {
            let at = start() + TimeDelta::microseconds(*at);
            ("POST", format!("{INSIGHTS}{insight}/viewed/"), Value::Null, at)
        }
    }
}

fn outcome(request: &Request, response: &TestResponse) -> Outcome {
    let status = response.status.as_u16();
    match (status, request) {
        (200, Request::List) => {
            Outcome::Insights(response.json()["results"].as_array().cloned().unwrap_or_default())
        }
        (200, Request::View(..)) => Outcome::Done,
        (200, _) => Outcome::Insights(vec![response.json()]),
        (404, Request::Change(..) | Request::Read(_) | Request::View(..)) => Outcome::Missing,
        (503, _) => Outcome::Busy,
        _ => Outcome::Other(status, response.text.clone()),
    }
}

/// Everything that is stored of the insights of project 1.
async fn stored(app: &TestApp) -> Stored {
    let records = &app.services.app.store.records;
    let query = async |pk: String| records.query(PartitionQuery::partition(pk)).await.expect("rows");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let mut stored = Stored::default();
    for item in query(keys::records_pk(1, RecordKind::Insight)).await {
        stored.records.insert(number(&item.key.sk), item.body().expect("a record"));
    }
    let mut sum = 0_i64;
    for shard in 0..keys::INSIGHT_ROW_SHARDS {
        for row in query(keys::insight_rows_pk(1, shard)).await {
            let id = number(&row.key.sk);
            sum = sum.wrapping_add(stamp(i64::try_from(id).expect("small"), row.version));
            stored.rows.push(id);
        }
    }
    stored.rows.sort_unstable();
    let version = records.get(&keys::insights_version(1)).await.expect("a version").expect("a version");
    stored.is_proven = version.sums.rows == sum;
    for dashboard in 1..=DASHBOARDS {
        for pointer in query(keys::dashboard_children_pk(1, dashboard)).await {
            let insight = pointer.key.sk.strip_prefix(keys::DASHBOARD_TILES).expect("a tile");
            stored.pointers.push((dashboard, number(insight)));
        }
    }
    let log = query(keys::activity_month_pk(1, "Insight", NOW)).await;
    stored.entries = log.iter().map(|item| entry(&item.body().expect("an entry"))).collect();
    let days = query(keys::activity_days_pk(1, "Insight")).await;
    stored.counted = days.iter().map(|day| day.count).sum();
    for insight in stored.records.keys() {
        stored.own.insert(*insight, query(keys::activity_of_item_pk(1, "Insight", *insight)).await.len());
        if let Some(view) = records.get(&keys::views(1, *insight)).await.expect("a view") {
            stored.views.insert(*insight, view.count - start().timestamp_micros());
        }
    }
    stored
}

fn entry(body: &Value) -> Entry {
    let changes = body["detail"]["changes"].as_array().into_iter().flatten();
    let change = |it: &Value| {
        (it["field"].as_str().expect("a field").to_owned(), (it["before"].clone(), it["after"].clone()))
    };
    Entry {
        insight: body["item_id"].as_str().and_then(|id| id.parse().ok()).expect("a number"),
        kind: body["activity"].as_str().expect("a word").to_owned(),
        changes: changes.map(change).collect(),
    }
}
