//! What a calculation asks of the event store, and the columns it gets back.
//!
//! Must stay true: a [`Partition`] holds *all* events of its actors that the request names; partitions share no actor;
//! inside a [`Run`] rows are ordered by (actor, time, seq); an event that was captured twice appears once; an actor is
//! the final person, merges applied. So calculations need no hash table over actors and no sort.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use serde_json::Value;
use uuid::Uuid;

pub use crate::dictionary::Dictionary;
use crate::repartition::ActorKind;

/// An instant: microseconds since the Unix epoch, UTC.
pub type Micros = i64;

/// Arrival order of an event. Later arrivals have larger values; equal times are ordered by it.
pub type Seq = u128;

/// Which event names a scan reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventSelection {
    /// Every event, whatever its name.
    All,
    /// Only events with one of these names.
    Named(BTreeSet<String>),
}

/// A value that a calculation reads beside event name, actor and time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnKey {
    /// A property of the event, by its key.
    Property(String),
    /// The distinct id that the event came with.
    DistinctId,
    /// All properties of the event, as one object; with its groups as `$group_N` is not promised.
    AllProperties,
}

/// A value of a row that its event does not carry: joined from what is known of persons, groups, sessions and cohorts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JoinedColumnKey {
    /// The person's id, as text.
    PersonId,
    /// A property of the person as it is now, by its key.
    Person(String),
    /// Whether the person has one of these distinct ids: true or false in every row.
    HasDistinctId(BTreeSet<String>),
    /// All properties of the person as they are now, as one object.
    PersonProperties,
    /// All properties of the group that the event has of the type with this index, as one object.
    GroupProperties(u8),
    /// A property, by its key, of the group that the event has of the type with this index.
    Group(u8, String),
    /// A field of the event's session.
    Session(String),
    /// Whether the person is in the cohort with this id: true or false in every row.
    InCohort(u64),
}

/// Where a value of a row stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnRef {
    /// In the event.
    Event(ColumnKey),
    /// In what was joined to it.
    Joined(JoinedColumnKey),
}

/// What a calculation reads from the event store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRequest {
    /// The event names wanted.
    pub events: EventSelection,
    /// First instant wanted, inclusive.
    pub from: Micros,
    /// Last instant wanted, inclusive.
    pub to: Micros,
    /// The columns wanted; a run has exactly these.
    pub columns: BTreeSet<ColumnKey>,
    /// Whether events of *different* actors at one time are ordered by arrival too: [`Order::Seqs`] is given then.
    pub arrivals: bool,
}

/// Code of a row that has no value in a [`Column`].
pub const MISSING: u32 = u32::MAX;

/// A dictionary-coded column: row `i` has the value `values[codes[i]]`, or none when its code is [`MISSING`].
///
/// Values may repeat in the dictionary, and some may belong to no row; an explicit JSON null is a value of its own. A clone
/// shares its memory with the original.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// One code a row.
    pub codes: ScalarBuffer<u32>,
    /// The distinct values.
    pub values: Arc<Dictionary>,
}

impl Default for Column {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new())
    }
}

impl Column {
    /// A column of these codes of a dictionary.
    pub fn new(codes: Vec<u32>, values: Vec<Value>) -> Self {
        Self { codes: codes.into(), values: Arc::new(values.into()) }
    }

    /// Rows with these codes of a dictionary; the column has only the values that its rows have.
    pub(crate) fn gathered(codes: impl Iterator<Item = u32>, dictionary: &[Value]) -> Self {
        let mut values = Vec::new();
        let mut add = |value: &Value| {
            values.push(value.clone());
            u32::try_from(values.len() - 1).unwrap_or(MISSING)
        };
        // A few rows of a long dictionary do not pay for its length.
        if codes.size_hint().1.is_some_and(|rows| rows < dictionary.len() / 16) {
            let mut known: HashMap<u32, u32> = HashMap::new();
            let mut code = |old: u32| {
                let value = dictionary.get(usize::try_from(old).ok()?)?;
                Some(*known.entry(old).or_insert_with(|| add(value)))
            };
            let codes = codes.map(|old| code(old).unwrap_or(MISSING)).collect();
            return Self::new(codes, values);
        }
        let mut new_codes = vec![MISSING; dictionary.len()];
        let mut code = |old: u32| {
            let old = usize::try_from(old).ok()?;
            let new = new_codes.get_mut(old)?;
            if *new == MISSING {
                *new = add(&dictionary[old]);
            }
            Some(*new)
        };
        let codes = codes.map(|old| code(old).unwrap_or(MISSING)).collect();
        Self::new(codes, values)
    }

    /// The value of a row.
    pub fn value(&self, row: usize) -> Option<&Value> {
        let code = *self.codes.get(row)?;
        self.values.get(usize::try_from(code).ok()?)
    }
}

/// The arrival order of the rows of a run, as far as rows of equal actor and time have to be told apart. All runs of a
/// partition use one form, so that their rows can be compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// No two rows of the partition have the same actor and the same time.
    Untied,
    /// By row: which of the partition's events of this actor and time it is, counted from 0.
    Ties(ScalarBuffer<u32>),
    /// By row: its arrival.
    Seqs(Arc<Vec<Seq>>),
}

impl Default for Order {
    fn default() -> Self {
        Self::Seqs(Arc::default())
    }
}

impl Order {
    /// What the row is ordered by among rows of the same actor and time.
    #[inline]
    pub fn at(&self, row: usize) -> Seq {
        match self {
            Self::Untied => 0,
            Self::Ties(ties) => ties.get(row).copied().unwrap_or(0).into(),
            Self::Seqs(seqs) => seqs.get(row).copied().unwrap_or(0),
        }
    }
}

impl FromIterator<Seq> for Order {
    fn from_iter<I: IntoIterator<Item = Seq>>(seqs: I) -> Self {
        Self::Seqs(Arc::new(seqs.into_iter().collect()))
    }
}

/// The events of one name, of the actors of one partition. A clone shares its memory with the original.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The event's name.
    pub event: String,
    /// Index into [`Partition::actors`], ascending.
    pub actors: ScalarBuffer<u32>,
    /// When it happened; ascending within an actor.
    pub times: ScalarBuffer<Micros>,
    /// Arrival order; ascending within an actor and a time.
    pub order: Order,
    /// The columns that the request named.
    pub columns: BTreeMap<ColumnKey, Column>,
    /// What was joined to the rows; empty as the event store gives a run.
    pub facts: BTreeMap<JoinedColumnKey, Column>,
}

impl Default for Run {
    fn default() -> Self {
        let (actors, times) = (ScalarBuffer::from(Vec::new()), ScalarBuffer::from(Vec::new()));
        let (columns, facts) = (BTreeMap::new(), BTreeMap::new());
        Self { event: String::new(), actors, times, order: Order::default(), columns, facts }
    }
}

impl Run {
    /// A column; none when it was not asked for.
    pub fn column(&self, key: &ColumnRef) -> Option<&Column> {
        match key {
            ColumnRef::Event(key) => self.columns.get(key),
            ColumnRef::Joined(key) => self.facts.get(key),
        }
    }
}

/// A share of the actors with all their events that the request names. At most one run per event name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partition {
    /// Ids of the actors, ascending: persons as the event store gives a partition. Some may have no row.
    pub actors: Arc<Vec<Uuid>>,
    /// The keys of actors that are no persons, in the order of the actors; empty for persons.
    pub keys: Vec<String>,
    /// One run per event name that occurs, ordered by name.
    pub runs: Vec<Run>,
    /// What the actors are. A question that counts two kinds gets all of its events once as partitions of each.
    pub counted: ActorKind,
}
