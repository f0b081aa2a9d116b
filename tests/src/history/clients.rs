//! Clients that send random requests for a few flags, and the final stored state.

use std::collections::{BTreeMap, btree_map};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pennon_core::store::keys::{self, RecordKind};
use pennon_core::store::{Item, PartitionQuery};
use serde_json::{Value, json};

use super::model::{Call, Entry, Fields, History, Outcome, Request, Stored, id, tracked};
use crate::{Keys, NOW, Random, TestApp, TestResponse};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const USERS: [(&str, &str); 2] = [(Keys::OWNER, "owner@example.com"), (Keys::MEMBER, "member@example.com")];
/// Keys that flags compete for.
const KEYS: [&str; 8] = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"];
/// Requests use the latest known flags.
const WORKED_ON: usize = 16;

/// Records calls.
pub struct Recorder {
    processes: [TestApp; 2],
    ticks: AtomicU64,
    calls: Mutex<Vec<Call>>,
    flags: Mutex<Vec<u64>>,
}

impl Recorder {
    /// A recorder of calls to `app` and to a second process; each client uses one of them.
    pub fn new(app: TestApp) -> Arc<Recorder> {
        Arc::new(Recorder {
            processes: [app.another_process(), app],
            ticks: AtomicU64::new(1),
            calls: Mutex::default(),
            flags: Mutex::default(),
        })
    }

    /// The installation.
    pub fn app(&self) -> &TestApp {
        &self.processes[0]
    }

    /// Makes a call as one client and records it.
    pub async fn call(&self, client: usize, request: Request) -> Outcome {
        let (key, by) = USERS[client % USERS.len()];
        let app = &self.processes[client / USERS.len() % self.processes.len()];
        let (method, path, body) = wire(&request);
        let began = self.ticks.fetch_add(1, Ordering::SeqCst);
        let response = app.call(key, method, &path, body).await;
        let ended = self.ticks.fetch_add(1, Ordering::SeqCst);
        let outcome = outcome(&request, &response);
        self.learn(&request, &outcome);
        let call = Call { request, outcome: outcome.clone(), by: by.to_owned(), began, ended };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        outcome
    }

    /// Uses new flags from here on.
    fn learn(&self, request: &Request, outcome: &Outcome) {
        if let (Request::Create(_), Outcome::Flag(fields)) = (request, outcome) {
            self.flags.lock().unwrap_or_else(PoisonError::into_inner).push(id(fields));
        }
    }

    /// The latest of the flags known.
    fn worked_on(&self) -> Vec<u64> {
        let flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        flags[flags.len().saturating_sub(WORKED_ON)..].to_vec()
    }

    /// The calls so far, and the current stored state.
    pub async fn history(&self) -> History {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        History { calls, stored: stored(self.app()).await }
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
                act(&recorder, client, number, &mut random).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a client that ends");
    }
}

async fn act(recorder: &Recorder, client: usize, number: usize, random: &mut Random) {
    let mark = format!("{client}-{number}");
    let flags = recorder.worked_on();
    let dice = if flags.is_empty() { 0 } else { random.below(100) };
    if dice < 18 {
        let mut fields = new_values(&mark, random);
        fields.insert("key".to_owned(), json!(random.pick(&KEYS)));
        fields.insert("filters".to_owned(), filters(&mark, random));
        recorder.call(client, Request::Create(fields)).await;
        return;
    }
    let flag = *random.pick(&flags);
    let change = |fields: Fields| Request::Change { flag, fields, edited: None };
    // The name identifies the change if its response is lost.
    let one = |name: &str, value: Value| {
        [(name.to_owned(), value), ("name".to_owned(), json!(mark))].into_iter().collect::<Fields>()
    };
    let request = match dice {
        18..50 => change(new_values(&mark, random)),
        50..62 => {
            let Outcome::Flag(original) = recorder.call(client, Request::Read(flag)).await else { return };
            Request::Change { flag, fields: new_values(&mark, random), edited: Some(original) }
        }
        62..74 => change(one("deleted", json!(true))),
        74..84 => change(one("deleted", json!(false))),
        84..90 => change(one("key", json!(random.pick(&KEYS)))),
        90..96 => Request::Read(flag),
        _ => Request::List,
    };
    recorder.call(client, request).await;
}

/// Values that no other call sends, for some fields.
fn new_values(mark: &str, random: &mut Random) -> Fields {
    let all = [
        ("name", json!(mark)),
        ("tags", json!([mark])),
        ("rollback_conditions", json!([{"mark": mark}])),
        ("filters", filters(mark, random)),
        ("active", json!(random.below(2) == 0)),
    ];
    // Never only the last, which shows nothing.
    let first = random.below(all.len() as u64 - 1);
    let mut fields = Fields::new();
    for (at, (name, value)) in (0..).zip(all) {
        if at == first || random.below(4) == 0 {
            fields.insert(name.to_owned(), value);
        }
    }
    fields
}

fn filters(mark: &str, random: &mut Random) -> Value {
    json!({"groups": [{"properties": [], "rollout_percentage": random.below(101)}], "mark": mark})
}

fn wire(request: &Request) -> (&'static str, String, Value) {
    match request {
        Request::Create(fields) => ("POST", FLAGS.to_owned(), Value::Object(fields.clone())),
        Request::Change { flag, fields, edited } => {
            let mut body = fields.clone();
            if let Some(original) = edited {
                body.insert("version".to_owned(), original["version"].clone());
                body.insert("original_flag".to_owned(), Value::Object(original.clone()));
            }
            ("PATCH", format!("{FLAGS}{flag}/"), Value::Object(body))
        }
        Request::Read(flag) => ("GET", format!("{FLAGS}{flag}/"), Value::Null),
        Request::List => ("GET", format!("{FLAGS}?limit=1000"), Value::Null),
    }
}

fn outcome(request: &Request, response: &TestResponse) -> Outcome {
    let status = response.status.as_u16();
    match (status, request) {
        (200, Request::List) => {
            let page = response.json();
            Outcome::Flags(page["results"].as_array().into_iter().flatten().map(tracked).collect())
        }
        (201, Request::Create(_)) | (200, Request::Change { .. } | Request::Read(_)) => {
            Outcome::Flag(tracked(&response.json()))
        }
        (400, _) if response.json()["code"] == "unique" && response.json()["attr"] == "key" => {
            Outcome::KeyExists
        }
        (404, _) => Outcome::Missing,
        (409, _) => Outcome::Conflict,
        (503, _) => Outcome::Busy,
        _ => Outcome::Other(status, response.text.clone()),
    }
}

/// Everything that is stored of the flags of project 1.
async fn stored(app: &TestApp) -> Stored {
    let records = &app.services.app.store.records;
    let query = async |pk: String| records.query(PartitionQuery::partition(pk)).await.expect("rows");
    let mut stored = Stored::default();
    for item in query(keys::records_pk(1, RecordKind::Flag)).await {
        let flag: u64 = item.key.sk.parse().expect("a number");
        stored.flags.insert(flag, tracked(&app.get(&format!("{FLAGS}{flag}/")).await.expect(200)));
    }
    for shard in 0..keys::FLAG_ROW_SHARDS {
        let rows = query(keys::flag_rows_pk(1, shard)).await;
        stored.rows.extend(rows.iter().map(|item| item.key.sk.parse::<u64>().expect("a number")));
    }
    let listed = app.get(&format!("{FLAGS}?limit=1000")).await.expect(200);
    stored.listed =
        listed["results"].as_array().into_iter().flatten().filter_map(|flag| flag["id"].as_u64()).collect();
    stored.claims = query(keys::flag_keys_pk(1)).await.iter().map(claim).collect();
    let log = format!("PROJECT#1#ACTIVITY#FeatureFlag#{}", &NOW[..7]);
    let log = query(log).await;
    stored.entries = log.iter().map(|item| entry(&item.body().expect("an entry"))).collect();
    let mut pointers = BTreeMap::new();
    for entry in &stored.entries {
        if let btree_map::Entry::Vacant(vacant) = pointers.entry(entry.flag) {
            let own = query(format!("PROJECT#1#ACTIVITY#FeatureFlag#ITEM#{}", entry.flag)).await;
            vacant.insert(own.len());
        }
    }
    stored.pointers = pointers;
    stored
}

fn claim(item: &Item) -> (String, u64) {
    let key = item.key.sk.strip_suffix("#LIVE").expect("the row of a live flag's key");
    (key.to_owned(), item.count.unsigned_abs())
}

fn entry(body: &Value) -> Entry {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let changes = body["detail"]["changes"].as_array().into_iter().flatten();
    Entry {
        flag: text(&body["item_id"]).parse().unwrap_or_default(),
        kind: text(&body["activity"]),
        by: text(&body["user"]["email"]),
        key: text(&body["detail"]["name"]),
        changes: changes
            .map(|change| (text(&change["field"]), (change["before"].clone(), change["after"].clone())))
            .collect(),
    }
}
