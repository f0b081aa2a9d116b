//! Records with fields: a flag with its version, an insight, an API key.

use serde_json::{Value, json};
use stateright::semantics::SequentialSpec;

use super::{Client, ObjectKind, documented};
use crate::Random;

/// A flag: changes are not lost, versions grow by one, and an edit of an overwritten value is a conflict.
#[derive(Debug)]
pub struct FlagRecord(u64);

/// A call about a flag.
#[derive(Debug, Clone, PartialEq)]
pub enum FlagOp {
    /// Read it.
    Read,
    /// Set its name.
    Rename(u64),
    /// Set its name, as an edit of what was read before.
    Edit(u64, FlagFields),
    /// Set `active`.
    SetActive(bool),
}

/// What a flag has.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagFields {
    /// The version.
    pub version: u64,
    /// The name.
    pub name: String,
    /// Whether it is active.
    pub active: bool,
}

/// The response to a call about a flag.
#[derive(Debug, Clone, PartialEq)]
pub enum FlagRet {
    /// The flag.
    Flag(FlagFields),
    /// A 409.
    Conflict,
}

impl SequentialSpec for FlagFields {
    type Op = FlagOp;
    type Ret = FlagRet;

    fn invoke(&mut self, op: &FlagOp) -> FlagRet {
        match op {
            FlagOp::Read => return FlagRet::Flag(self.clone()),
            FlagOp::Edit(_, read) if read.version != self.version && read.name != self.name => {
                return FlagRet::Conflict;
            }
            FlagOp::Edit(mark, _) | FlagOp::Rename(mark) => self.name = mark.to_string(),
            FlagOp::SetActive(active) => self.active = *active,
        }
        self.version += 1;
        FlagRet::Flag(self.clone())
    }
}

fn flag_fields(flag: &Value) -> FlagFields {
    FlagFields {
        version: flag["version"].as_u64().expect("a version"),
        name: flag["name"].as_str().expect("a name").to_owned(),
        active: flag["active"].as_bool().expect("a state"),
    }
}

impl ObjectKind for FlagRecord {
    const NAME: &'static str = "flag";
    type Op = FlagOp;
    type Ret = FlagRet;
    type Spec = FlagFields;

    async fn create(client: &Client, number: u64) -> FlagRecord {
        FlagRecord(client.make_flag(&format!("flag-{number}"), "0").await)
    }

    fn spec(&self) -> FlagFields {
        FlagFields { version: 1, name: "0".to_owned(), active: true }
    }

    fn next(&self, responses: &[FlagRet], mark: u64, random: &mut Random) -> FlagOp {
        let read = responses.iter().rev().find_map(|ret| match ret {
            FlagRet::Flag(fields) => Some(fields.clone()),
            FlagRet::Conflict => None,
        });
        match (random.below(10), read) {
            (0..3, _) => FlagOp::Read,
            (3..6, Some(read)) => FlagOp::Edit(mark, read),
            (6..8, _) => FlagOp::SetActive(random.below(2) == 0),
            _ => FlagOp::Rename(mark),
        }
    }

    async fn call(&self, client: &Client, op: &FlagOp) -> Option<FlagRet> {
        let path = format!("feature_flags/{}/", self.0);
        let response = match op {
            FlagOp::Read => client.owner("GET", &path, Value::Null).await,
            FlagOp::Rename(mark) => client.owner("PATCH", &path, json!({"name": mark.to_string()})).await,
            FlagOp::Edit(mark, read) => {
                let original = json!({"name": read.name, "version": read.version});
                let body =
                    json!({"name": mark.to_string(), "version": read.version, "original_flag": original});
                client.owner("PATCH", &path, body).await
            }
            FlagOp::SetActive(active) => client.owner("PATCH", &path, json!({"active": active})).await,
        };
        let response = documented(response, &[200, 409])?;
        Some(match response.status.as_u16() {
            409 => FlagRet::Conflict,
            _ => FlagRet::Flag(flag_fields(&response.json())),
        })
    }

    fn is_read(op: &FlagOp) -> bool {
        *op == FlagOp::Read
    }
}

/// An insight or an API key: a name, until it is deleted.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordOp {
    /// Read it.
    Read,
    /// Set its name; restores an insight.
    Rename(u64),
    /// Delete it.
    Delete,
}

/// The name of a record; `None` while it is deleted.
pub type NameRet = Option<String>;

/// The name of a record, and whether a change of a deleted one restores it.
#[derive(Debug, Clone)]
pub struct RecordState {
    name: NameRet,
    is_restored: bool,
}

impl RecordState {
    /// The state of a new record.
    pub fn new(name: &str, is_restored: bool) -> RecordState {
        RecordState { name: Some(name.to_owned()), is_restored }
    }
}

impl SequentialSpec for RecordState {
    type Op = RecordOp;
    type Ret = NameRet;

    fn invoke(&mut self, op: &RecordOp) -> NameRet {
        match op {
            RecordOp::Rename(mark) if self.is_restored || self.name.is_some() => {
                self.name = Some(mark.to_string())
            }
            RecordOp::Delete => self.name = None,
            RecordOp::Read | RecordOp::Rename(_) => {}
        }
        self.name.clone()
    }
}

fn next_name(mark: u64, random: &mut Random, deletes: u64) -> RecordOp {
    match random.below(100) {
        one if one < deletes => RecordOp::Delete,
        one if one < 50 => RecordOp::Read,
        _ => RecordOp::Rename(mark),
    }
}

/// An insight: changes are not lost, and a deleted one is missing until it is restored.
#[derive(Debug)]
pub struct InsightRecord(u64);

impl ObjectKind for InsightRecord {
    const NAME: &'static str = "insight";
    type Op = RecordOp;
    type Ret = NameRet;
    type Spec = RecordState;

    async fn create(client: &Client, _: u64) -> InsightRecord {
        let query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "seen"}]});
        let insight = client.make("insights/", json!({"name": "0", "query": query})).await;
        InsightRecord(insight["id"].as_u64().expect("an id"))
    }

    fn spec(&self) -> RecordState {
        RecordState::new("0", true)
    }

    fn next(&self, _: &[NameRet], mark: u64, random: &mut Random) -> RecordOp {
        next_name(mark, random, 20)
    }

    async fn call(&self, client: &Client, op: &RecordOp) -> Option<NameRet> {
        let path = format!("insights/{}/", self.0);
        let response = match op {
            RecordOp::Read => client.owner("GET", &format!("{path}?basic=true"), Value::Null).await,
            RecordOp::Rename(mark) => {
                client.owner("PATCH", &path, json!({"name": mark.to_string(), "deleted": false})).await
            }
            RecordOp::Delete => client.owner("PATCH", &path, json!({"deleted": true})).await,
        };
        let response = documented(response, &[200, 404])?;
        let is_gone = response.status == 404 || *op == RecordOp::Delete;
        Some((!is_gone).then(|| response.json()["name"].as_str().expect("a name").to_owned()))
    }

    fn is_read(op: &RecordOp) -> bool {
        *op == RecordOp::Read
    }
}

/// An API key: changes are not lost, and a revoked one does not come back.
#[derive(Debug)]
pub struct PersonalKey {
    id: String,
    first_label: String,
}

const KEYS: &str = "/api/personal_api_keys/";

impl ObjectKind for PersonalKey {
    const NAME: &'static str = "API key";
    type Op = RecordOp;
    type Ret = NameRet;
    type Spec = RecordState;

    async fn create(client: &Client, number: u64) -> PersonalKey {
        for attempt in 0.. {
            // A user's labels are unique, and an attempt without a response may have stored its key.
            let first_label = format!("key-{number}-{attempt}");
            let body = json!({"label": first_label, "scopes": ["*"]});
            let made = documented(client.send(crate::Keys::OWNER, "POST", KEYS, body).await, &[201]);
            if let Some(made) = made {
                return PersonalKey {
                    id: made.json()["id"].as_str().expect("an id").to_owned(),
                    first_label,
                };
            }
        }
        unreachable!("attempts do not end")
    }

    fn spec(&self) -> RecordState {
        RecordState::new(&self.first_label, false)
    }

    fn next(&self, _: &[NameRet], mark: u64, random: &mut Random) -> RecordOp {
        next_name(mark, random, 6)
    }

    async fn call(&self, client: &Client, op: &RecordOp) -> Option<NameRet> {
        let path = format!("{KEYS}{}/", self.id);
        let (method, body) = match op {
            RecordOp::Read => ("GET", Value::Null),
            RecordOp::Rename(mark) => ("PATCH", json!({"label": mark.to_string()})),
            RecordOp::Delete => ("DELETE", Value::Null),
        };
        let response =
            documented(client.send(crate::Keys::OWNER, method, &path, body).await, &[200, 204, 404])?;
        let is_shown = response.status == 200;
        Some(is_shown.then(|| response.json()["label"].as_str().expect("a label").to_owned()))
    }

    fn is_read(op: &RecordOp) -> bool {
        *op == RecordOp::Read
    }

    async fn remove(&self, client: &Client) {
        // A user has at most a hundred.
        while self.call(client, &RecordOp::Delete).await.is_none() {}
    }
}
