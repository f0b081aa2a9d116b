//! Merges of persons: which distinct ids are one person.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stateright::semantics::SequentialSpec;

use super::{Client, ObjectKind, documented};
use crate::Random;

const IDS: usize = 4;

/// A few distinct ids that are merged.
#[derive(Debug)]
pub struct MergedPersons {
    prefix: String,
}

/// A call about the persons.
#[derive(Debug, Clone, PartialEq)]
pub enum PersonOp {
    /// Merge the persons of two ids.
    Merge(usize, usize),
    /// Read the ids of the person of one.
    Read(usize),
}

/// The response.
#[derive(Debug, Clone, PartialEq)]
pub enum PersonRet {
    /// It was stored.
    Merged,
    /// The numbers of the ids.
    Ids(BTreeSet<usize>),
}

/// The number of the person of each id.
#[derive(Debug, Clone)]
pub struct PersonState([usize; IDS]);

impl Default for PersonState {
    /// Each id is a person.
    fn default() -> PersonState {
        PersonState(std::array::from_fn(|own| own))
    }
}

impl SequentialSpec for PersonState {
    type Op = PersonOp;
    type Ret = PersonRet;

    fn invoke(&mut self, op: &PersonOp) -> PersonRet {
        match *op {
            PersonOp::Merge(from, to) => {
                let (from, to) = (self.0[from], self.0[to]);
                self.0.iter_mut().filter(|person| **person == from).for_each(|person| *person = to);
                PersonRet::Merged
            }
            PersonOp::Read(id) => {
                PersonRet::Ids((0..IDS).filter(|other| self.0[*other] == self.0[id]).collect())
            }
        }
    }
}

impl MergedPersons {
    fn id(&self, number: usize) -> String {
        format!("{}-{number}", self.prefix)
    }

    async fn capture(client: &Client, events: Vec<Value>) -> Option<()> {
        let body = json!({"api_key": "phc_project_1", "batch": events});
        documented(client.send("", "POST", "/batch/", body).await, &[200]).map(|_| ())
    }
}

impl ObjectKind for MergedPersons {
    const NAME: &'static str = "persons";
    type Op = PersonOp;
    type Ret = PersonRet;
    type Spec = PersonState;

    async fn create(client: &Client, number: u64) -> MergedPersons {
        let object = MergedPersons { prefix: format!("person-{number}") };
        let seen = |id| json!({"event": "seen", "distinct_id": object.id(id)});
        while MergedPersons::capture(client, (0..IDS).map(seen).collect()).await.is_none() {}
        object
    }

    fn spec(&self) -> PersonState {
        PersonState::default()
    }

    fn next(&self, _: &[PersonRet], _: u64, random: &mut Random) -> PersonOp {
        let ids = IDS as u64;
        let from = random.below(ids);
        let to = (from + 1 + random.below(ids - 1)) % ids;
        let [from, to] = [from, to].map(|id| usize::try_from(id).unwrap_or_default());
        if random.below(5) < 2 { PersonOp::Merge(from, to) } else { PersonOp::Read(from) }
    }

    async fn call(&self, client: &Client, op: &PersonOp) -> Option<PersonRet> {
        match *op {
            PersonOp::Merge(from, to) => {
                let properties = json!({"alias": self.id(from)});
                let event = json!({"event": "$merge_dangerously", "distinct_id": self.id(to), "properties": properties});
                MergedPersons::capture(client, vec![event]).await?;
                Some(PersonRet::Merged)
            }
            PersonOp::Read(id) => {
                let path = format!("persons/?distinct_id={}", self.id(id));
                let page = documented(client.owner("GET", &path, Value::Null).await, &[200])?.json();
                let ids = page["results"][0]["distinct_ids"].as_array().cloned().unwrap_or_default();
                Some(PersonRet::Ids(
                    (0..IDS).filter(|number| ids.contains(&json!(self.id(*number)))).collect(),
                ))
            }
        }
    }

    fn is_read(op: &PersonOp) -> bool {
        matches!(op, PersonOp::Read(_))
    }
}
