//! Histories of concurrent calls about one object, and a checker of linearizability: is there one order of the calls, in agreement with
//! the times at which they began and ended, that a sequential specification of the object explains?
//!
//! The checker is stateright's [`LinearizabilityTester`]; the specifications are written from the description of the API. It searches for
//! an order by backtracking, so histories are short and objects are many, which loses nothing: a system is linearizable if the
//! history of each object is. [`crate::history`] and [`crate::insight_history`] check what this does not: the activity log, summary
//! rows and lists after long histories of objects that compete.
//!
//! Must stay true:
//! * a tick is a microsecond, and no two are equal; a read that may be late by a promised time is the same as one that began so much
//!   earlier, because caches age by the same clock;
//! * a write without a response may have happened or not; a read without one is left out.

mod evaluation;
mod ownership;
mod persons;
mod records;
mod tiles;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use crate::{Keys, Random, TestApp, TestResponse};

pub use evaluation::{EvaluatedFlag, FlagState, FlagStateOp};
pub use ownership::{
    AccessOp, AccessRet, AccessState, FlagKey, FlagKeyOp, FlagKeyOwner, FlagKeyRet, RoleAccess,
};
pub use persons::{MergedPersons, PersonOp, PersonRet, PersonState};
pub use records::{
    FlagFields, FlagOp, FlagRecord, FlagRet, InsightRecord, PersonalKey, RecordOp, RecordState,
};
pub use tiles::{DashboardTiles, TileOp, TileRet, TileState};

/// Objects with calls at the same time.
const OBJECTS_AT_ONCE: usize = 8;

/// A kind of object.
pub trait ObjectKind: Send + Sync + Sized + 'static {
    /// What its findings are called.
    const NAME: &'static str;
    /// A call.
    type Op: Clone + Debug + Send + Sync + 'static;
    /// A response.
    type Ret: Clone + Debug + PartialEq + Send + Sync + 'static;
    /// What the object may return, without concurrency.
    type Spec: SequentialSpec<Op = Self::Op, Ret = Self::Ret> + Clone + Send + 'static;

    /// Creates the object with this number.
    fn create(client: &Client, number: u64) -> impl Future<Output = Self> + Send;
    /// The state after its creation.
    fn spec(&self) -> Self::Spec;
    /// The next call of a client that has got `responses`; `mark` is a number that no other call has.
    fn next(&self, responses: &[Self::Ret], mark: u64, random: &mut Random) -> Self::Op;
    /// Makes the call; `None` if its response does not say whether it happened.
    fn call(&self, client: &Client, op: &Self::Op) -> impl Future<Output = Option<Self::Ret>> + Send;
    /// Whether a call changes nothing.
    fn is_read(op: &Self::Op) -> bool;
    /// How late a response may be, as promised.
    fn staleness(_op: &Self::Op) -> Duration {
        Duration::ZERO
    }
    /// The creation as a call, if what was before it may still be seen.
    fn creation() -> Option<(Self::Op, Self::Ret)> {
        None
    }
    /// Removes what later objects have no room beside.
    fn remove(&self, _client: &Client) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// The two processes of an installation, and their clock.
pub struct Installation {
    processes: [TestApp; 2],
    last_tick: AtomicU64,
    last_mark: AtomicU64,
    start: Instant,
}

impl Installation {
    /// Two processes, of which `app` is one.
    pub fn new(app: TestApp) -> Arc<Installation> {
        let (last_tick, last_mark) = (AtomicU64::default(), AtomicU64::default());
        let processes = [app.another_process(), app];
        Arc::new(Installation { processes, last_tick, last_mark, start: Instant::now() })
    }

    /// What objects require of the workspace.
    pub fn workspace() -> Value {
        let role = |id: &&str| {
            json!({"id": id, "organization": "01900000-0000-7000-8000-000000000001", "name": id,
                                      "feature_flags_access_level": 37, "members": []})
        };
        json!({"roles": ownership::ROLES.iter().map(role).collect::<Vec<_>>()})
    }

    fn tick(&self) -> u64 {
        let elapsed = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let next = |last: u64| elapsed.max(last + 1);
        let update = |last| Some(next(last));
        let last = self.last_tick.fetch_update(Ordering::SeqCst, Ordering::SeqCst, update);
        next(last.unwrap_or_default())
    }
}

/// A client of one of the processes.
#[derive(Clone)]
pub struct Client {
    installation: Arc<Installation>,
    process: usize,
}

impl Client {
    /// Sends a request as `key`.
    pub async fn send(&self, key: &str, method: &str, path: &str, body: Value) -> TestResponse {
        self.installation.processes[self.process].call(key, method, path, body).await
    }

    /// The same as the owner of project 1, below the project's path.
    pub async fn owner(&self, method: &str, below: &str, body: Value) -> TestResponse {
        self.send(Keys::OWNER, method, &format!("/api/projects/1/{below}"), body).await
    }

    /// The id of a new flag. A create without a response may have happened, so each attempt has a key of its own.
    pub async fn make_flag(&self, key: &str, name: &str) -> u64 {
        for attempt in 0.. {
            let body = json!({"key": format!("{key}-{attempt}"), "name": name});
            let response = self.owner("POST", "feature_flags/", body).await;
            if let Some(made) = documented(response, &[201]) {
                return made.json()["id"].as_u64().expect("an id");
            }
        }
        unreachable!("attempts do not end")
    }

    /// A record that a create returns, repeated while the store fails.
    pub async fn make(&self, below: &str, body: Value) -> Value {
        loop {
            if let Some(made) = documented(self.owner("POST", below, body.clone()).await, &[201]) {
                return made.json();
            }
        }
    }
}

/// The response, unless it is a 503. Other statuses than `expected` are no response of the API.
pub(crate) fn documented(response: TestResponse, expected: &[u16]) -> Option<TestResponse> {
    let status = response.status.as_u16();
    if status == 503 {
        return None;
    }
    assert!(expected.contains(&status), "{status} {}", response.text);
    Some(response)
}

/// A call as it was made.
#[derive(Debug, Clone)]
pub struct Call<Op, Ret> {
    /// The client.
    pub client: u64,
    /// The request.
    pub op: Op,
    /// The response; `None` if there was none.
    pub ret: Option<Ret>,
    /// The tick at which it began.
    pub began: u64,
    /// The tick at which it ended.
    pub ended: u64,
}

/// Whether one order explains the calls of an object whose state was `spec`. Reads that may be late are compared with the other calls one
/// at a time: they begin long before all others, and the search for a place for each of them at once would take minutes.
pub fn is_linearizable<K: ObjectKind>(spec: K::Spec, calls: &[Call<K::Op, K::Ret>]) -> bool {
    let (late, others): (Vec<_>, Vec<_>) =
        calls.iter().partition(|call| K::is_read(&call.op) && !K::staleness(&call.op).is_zero());
    is_explained::<K>(spec.clone(), &others)
        && late.iter().all(|read| is_explained::<K>(spec.clone(), &[&others[..], &[*read]].concat()))
}

fn is_explained<K: ObjectKind>(spec: K::Spec, calls: &[&Call<K::Op, K::Ret>]) -> bool {
    let mut events = Vec::new();
    for (number, call) in (0..).zip(calls.iter().copied()) {
        if call.ret.is_none() && K::is_read(&call.op) {
            continue;
        }
        let late = u64::try_from(K::staleness(&call.op).as_micros()).unwrap_or(u64::MAX);
        // A client has one call at a time. One that may be late, or has no response, belongs to a client of its own.
        let client = if late > 0 || call.ret.is_none() { (1, number) } else { (0, call.client) };
        events.push((call.began.saturating_sub(late), 0, client, call));
        if call.ret.is_some() {
            events.push((call.ended, 1, client, call));
        }
    }
    events.sort_by_key(|(tick, ends, client, _)| (*tick, *ends, *client));
    let mut tester = LinearizabilityTester::new(spec);
    for (_, ends, client, call) in events {
        let recorded = match (&call.ret, ends) {
            (Some(ret), 1) => tester.on_return(client, ret.clone()).map(|_| ()),
            _ => tester.on_invoke(client, call.op.clone()).map(|_| ()),
        };
        recorded.expect("calls of a client that follow each other");
    }
    tester.is_consistent()
}

/// The calls of a history, one on each line.
pub fn lines<K: ObjectKind>(calls: &[Call<K::Op, K::Ret>]) -> String {
    let line = |call: &Call<K::Op, K::Ret>| {
        format!(
            "{:>9} to {:>9}, client {}: {:?} returned {:?}",
            call.began, call.ended, call.client, call.op, call.ret
        )
    };
    calls.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How many objects, and calls by how many clients, a run has.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Objects.
    pub objects: u64,
    /// Clients of each object.
    pub clients: u64,
    /// Calls of each client.
    pub calls: u64,
}

/// Makes random calls about objects of one kind, and returns the histories that no order explains.
pub async fn run<K: ObjectKind>(installation: &Arc<Installation>, seed: u64, scale: Scale) -> Vec<String> {
    let mut findings = Vec::new();
    let mut numbers = 0..scale.objects;
    loop {
        let numbers: Vec<u64> = numbers.by_ref().take(OBJECTS_AT_ONCE).collect();
        if numbers.is_empty() {
            return findings;
        }
        let start = |number| tokio::spawn(check_object::<K>(installation.clone(), seed, number, scale));
        for task in numbers.into_iter().map(start).collect::<Vec<_>>() {
            findings.extend(task.await.expect("a history"));
        }
    }
}

async fn check_object<K: ObjectKind>(
    installation: Arc<Installation>,
    seed: u64,
    number: u64,
    scale: Scale,
) -> Option<String> {
    let maker = Client { installation: installation.clone(), process: 0 };
    let began = installation.tick();
    let object = Arc::new(K::create(&maker, number).await);
    let ended = installation.tick();
    let clients = (0..scale.clients).map(|id| {
        let process = usize::try_from(id % 2).unwrap_or_default();
        let client = Client { installation: installation.clone(), process };
        let random = Random::new(seed ^ (number << 20) ^ (id << 8));
        tokio::spawn(make_calls(object.clone(), client, id, scale.calls, random))
    });
    let creation =
        K::creation().map(|(op, ret)| Call { client: scale.clients, op, ret: Some(ret), began, ended });
    let mut calls: Vec<_> = creation.into_iter().collect();
    for client in clients.collect::<Vec<_>>() {
        calls.extend(client.await.expect("the calls of a client"));
    }
    calls.sort_by_key(|call| call.began);
    object.remove(&maker).await;
    let is_explained = is_linearizable::<K>(object.spec(), &calls);
    (!is_explained).then(|| format!("{} {number}: no order explains\n{}", K::NAME, lines::<K>(&calls)))
}

async fn make_calls<K: ObjectKind>(
    object: Arc<K>,
    client: Client,
    id: u64,
    count: u64,
    mut random: Random,
) -> Vec<Call<K::Op, K::Ret>> {
    let mut calls: Vec<Call<K::Op, K::Ret>> = Vec::new();
    let mut responses = Vec::new();
    for _ in 0..count {
        let mark = client.installation.last_mark.fetch_add(1, Ordering::SeqCst);
        let op = object.next(&responses, mark, &mut random);
        let began = client.installation.tick();
        let ret = object.call(&client, &op).await;
        let ended = client.installation.tick();
        responses.extend(ret.clone());
        calls.push(Call { client: id, op, ret, began, ended });
    }
    calls
}
