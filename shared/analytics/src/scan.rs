//! The scan interface of the event store: the request, and the columns that it returns.
//!
//! Must stay true: a [`Partition`] holds *all* requested events of its actors; partitions share no actor; inside a
//! [`EventRun`] rows are ordered by (actor, time, seq); an event that was captured twice appears once; an actor is the canonical
//! person after all merges. So calculations need no hash table over actors and no sort.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

pub use crate::dictionary::Dictionary;
pub use pennon_filters::dates::Micros;

/// Arrival sequence number of an event. Later arrivals have larger values; it orders events of equal time.
pub type Seq = u128;

/// The event names that a scan reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventSelection {
    /// Every event, whatever its name.
    All,
    /// Only events with one of these names.
    Named(BTreeSet<String>),
}

/// A column of an event, beside event name, actor and time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ColumnKey {
    /// A property of the event, by its key.
    Property(String),
    /// The distinct id that the event was captured with.
    DistinctId,
    /// All properties of the event, as one object. It may or may not contain the group keys `$group_N`.
    AllProperties,
}

/// A column that is not part of the event: joined from persons, groups, sessions and cohorts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JoinedColumnKey {
    /// The person's id, as text.
    PersonId,
    /// A current property of the person, by its key.
    Person(String),
    /// Whether the person has one of these distinct ids: true or false in every row.
    HasDistinctId(BTreeSet<String>),
    /// All current properties of the person, as one object.
    PersonProperties,
    /// All properties of the event's group of the type with this index, as one object.
    GroupProperties(u8),
    /// A property, by its key, of the event's group of the type with this index.
    Group(u8, String),
    /// A field of the event's session.
    Session(String),
    /// Whether the person is in the cohort with this id: true or false in every row.
    InCohort(u64),
    /// The first and the last instant that count for the row's other actor, as a list of two; missing if none do. Set when
    /// partitions of two actor kinds are related, never loaded.
    TimeBounds,
}

/// A reference to a column of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnRef {
    /// A column of the event.
    Event(ColumnKey),
    /// A joined column.
    Joined(JoinedColumnKey),
}

/// A request to the event store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRequest {
    /// The event names to read.
    pub events: EventSelection,
    /// First instant, inclusive.
    pub from: Micros,
    /// Last instant, inclusive.
    pub to: Micros,
    /// The columns to read; a run has exactly these.
    pub columns: BTreeSet<ColumnKey>,
    /// Whether events of *different* actors at one time must be ordered by arrival too: then runs have [`ArrivalOrder::Seqs`].
    pub arrivals: bool,
}

/// The code of a row without a value in a [`Column`].
pub const MISSING: u32 = u32::MAX;

/// A dictionary-encoded column: row `i` has the value `values[codes[i]]`, or none when its code is [`MISSING`].
///
/// The dictionary may have duplicates and values that no row has. JSON null is a value, not a missing one. A clone shares
/// the memory of the original.
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
    /// A column of codes into a dictionary.
    pub fn new(codes: Vec<u32>, values: Vec<Value>) -> Self {
        Self { codes: codes.into(), values: Arc::new(values.into()) }
    }

    /// A column of codes into `dictionary` that copies only the values that its rows have.
    pub(crate) fn gathered(codes: impl Iterator<Item = u32>, dictionary: &[Value]) -> Self {
        let mut values = Vec::new();
        let mut add = |value: &Value| {
            values.push(value.clone());
            u32::try_from(values.len() - 1).unwrap_or(MISSING)
        };
        // For few rows of a long dictionary, a hash map is cheaper than a table of its length.
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

/// The arrival order of the rows of a run, which orders rows of equal actor and time. All runs of a partition use the same
/// variant, so that their rows can be compared.
#[derive(Debug, Clone, PartialEq)]
pub enum ArrivalOrder {
    /// No two rows of the partition have the same actor and the same time.
    Untied,
    /// By row: its index among the partition's events of the same actor and time.
    Ties(ScalarBuffer<u32>),
    /// By row: its arrival sequence number.
    Seqs(Arc<Vec<Seq>>),
}

impl Default for ArrivalOrder {
    fn default() -> Self {
        Self::Seqs(Arc::default())
    }
}

impl ArrivalOrder {
    /// The sort key of a row among rows of the same actor and time.
    #[inline]
    pub fn at(&self, row: usize) -> Seq {
        match self {
            Self::Untied => 0,
            Self::Ties(ties) => ties.get(row).copied().unwrap_or(0).into(),
            Self::Seqs(seqs) => seqs.get(row).copied().unwrap_or(0),
        }
    }
}

impl FromIterator<Seq> for ArrivalOrder {
    fn from_iter<I: IntoIterator<Item = Seq>>(seqs: I) -> Self {
        Self::Seqs(Arc::new(seqs.into_iter().collect()))
    }
}

/// The events of one name of one partition. A clone shares the memory of the original.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRun {
    /// The event's name.
    pub event: String,
    /// Index into [`Partition::actors`], ascending.
    pub actors: ScalarBuffer<u32>,
    /// Event time; ascending within an actor.
    pub times: ScalarBuffer<Micros>,
    /// Arrival order; ascending within an actor and a time.
    pub order: ArrivalOrder,
    /// The requested columns.
    pub columns: BTreeMap<ColumnKey, Column>,
    /// The joined columns; empty in a run from the event store.
    pub joined_columns: BTreeMap<JoinedColumnKey, Column>,
}

impl Default for EventRun {
    fn default() -> Self {
        let (actors, times) = (ScalarBuffer::from(Vec::new()), ScalarBuffer::from(Vec::new()));
        let (columns, joined_columns) = (BTreeMap::new(), BTreeMap::new());
        Self { event: String::new(), actors, times, order: ArrivalOrder::default(), columns, joined_columns }
    }
}

impl EventRun {
    /// A column; none if it was not requested.
    pub fn column(&self, key: &ColumnRef) -> Option<&Column> {
        match key {
            ColumnRef::Event(key) => self.columns.get(key),
            ColumnRef::Joined(key) => self.joined_columns.get(key),
        }
    }
}

/// A disjoint share of the actors with all their requested events. At most one run per event name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partition {
    /// Ids of the actors, ascending. Partitions from the event store have persons. Some actors may have no row.
    pub actors: Arc<Vec<Uuid>>,
    /// The group keys or distinct ids, in the order of `actors`; empty for persons.
    pub keys: Vec<String>,
    /// One run per event name that occurs, ordered by name.
    pub runs: Vec<EventRun>,
    /// The kind of the actors. A query that counts two kinds gets all of its events once in partitions of each kind.
    pub counted: ActorKind,
    /// By actor: when it was created. Filled in by the join if the plan reads it, else empty.
    pub created: Vec<Micros>,
}

/// The kind of actor that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ActorKind {
    /// Persons, with merged persons resolved to their canonical id.
    #[default]
    Persons,
    /// Distinct ids, if the project setting `aggregate_by_distinct_id` is on.
    DistinctIds,
    /// Groups of the type with this index.
    Groups(u8),
}

impl ActorKind {
    /// The column with the actor's key; none for persons.
    pub(crate) fn column(self) -> Option<ColumnKey> {
        match self {
            Self::Persons => None,
            Self::DistinctIds => Some(ColumnKey::DistinctId),
            Self::Groups(index) => Some(group_column(index)),
        }
    }
}

/// The event column with the group key of a group type.
pub(crate) fn group_column(index: u8) -> ColumnKey {
    ColumnKey::Property(format!("$group_{index}"))
}
