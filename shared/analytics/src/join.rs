//! Joins person properties, group properties, cohort membership and sessions to events.
//!
//! A plan lists the data that it reads ([`DataRequirements`]). The caller loads it ([`JoinData`]), and the plan joins it to the scanned
//! partitions.
//!
//! Must stay true: after the join every value that a calculation reads is a column of its run, so filters, breakdowns and
//! expressions have one source; joined values are current ones, whatever the time of the event.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use pennon_filters::error::CalcResult;
use pennon_filters::text::text_length;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::creation::{CreationData, CreationRequest, PersonTimes};
use crate::dictionary_encoder::DictionaryEncoder;
use crate::scan::{
    Column, ColumnKey, EventRun, JoinedColumnKey, MISSING, Micros, Partition, ScanRequest, group_column,
};

/// The data that a plan reads.
#[derive(Debug, Clone, PartialEq)]
pub struct DataRequirements {
    /// The main event scan.
    pub scan: ScanRequest,
    /// The columns joined to its rows.
    pub joined_columns: BTreeSet<JoinedColumnKey>,
    /// Keys of person properties; some are only read by cohorts.
    pub persons: BTreeSet<String>,
    /// Keys of group properties, by group type index.
    pub groups: BTreeMap<u8, BTreeSet<String>>,
    /// All person properties are needed as one object: [`PropertyTable::whole`].
    pub whole_persons: bool,
    /// Group types whose properties are needed as one object.
    pub whole_groups: BTreeSet<u8>,
    /// Distinct ids to resolve to persons.
    pub distinct_ids: BTreeSet<String>,
    /// Static cohorts whose member lists are needed.
    pub cohort_lists: BTreeSet<u64>,
    /// The scan from which sessions are built; none if no session field is read.
    pub sessions: Option<ScanRequest>,
    /// The session fields that are read.
    pub(crate) session_fields: BTreeSet<String>,
    /// What is read for the creation times of actors; none if they are not read.
    pub creations: Option<CreationRequest>,
    /// One scan for each behavioural cohort criterion. A criterion may depend on those before it.
    pub behaviours: Vec<ScanRequest>,
}

impl DataRequirements {
    /// The scans beside the main scan, in the order of their partitions in [`JoinData::further`].
    pub fn further_scans(&self) -> impl Iterator<Item = &ScanRequest> {
        let creations = self.creations.iter().filter_map(|request| request.events.as_ref());
        self.sessions.iter().chain(creations).chain(&self.behaviours)
    }
}

/// The loaded join data. [`crate::Plan::join`] computes `first_group_events`, `sessions` and `behaviours` from `further`.
#[derive(Debug, Default)]
pub struct JoinData {
    /// Person properties.
    pub persons: PropertyTable<Uuid>,
    /// Group properties, by group type index.
    pub groups: BTreeMap<u8, PropertyTable<String>>,
    /// Canonical person id of each distinct id.
    pub named: HashMap<String, Uuid>,
    /// Canonical person ids of the members of each static cohort.
    pub cohort_lists: BTreeMap<u64, HashSet<Uuid>>,
    /// The creation times of persons that imports recorded, ascending by canonical id. Several parts of a person have the
    /// earliest.
    pub imported_creations: Vec<(Uuid, Micros)>,
    /// The partitions of each of [`DataRequirements::further_scans`].
    pub further: Vec<Vec<Partition>>,
    /// The times of the earliest events of persons. A person may be in several lists: the earliest counts.
    pub first_person_events: Vec<PersonTimes>,
    /// The times of the earliest events of groups, by key.
    pub first_group_events: HashMap<String, Micros>,
    /// Session fields, by session id.
    pub sessions: PropertyTable<String>,
    /// For each behavioural criterion, the persons that match it.
    pub behaviours: Vec<HashSet<Uuid>>,
    /// Whether `first_group_events`, `sessions` and `behaviours` were computed, see [`crate::Plan::derive`].
    pub is_derived: bool,
}

impl JoinData {
    pub(crate) fn creation_data(&self) -> CreationData<'_> {
        CreationData {
            of_persons: &self.first_person_events,
            imported: &self.imported_creations,
            of_groups: &self.first_group_events,
        }
    }
}

/// Properties of persons, groups or sessions, stored by column.
#[derive(Debug)]
pub struct PropertyTable<Id> {
    rows: HashMap<Id, u32>,
    columns: BTreeMap<String, ColumnBuilder>,
    /// All properties of each row as one object; none if not needed.
    whole: Option<Vec<Value>>,
}

/// A dictionary-encoded column under construction.
#[derive(Debug, Default)]
struct ColumnBuilder {
    codes: Vec<u32>,
    values: Vec<Value>,
    known: DictionaryEncoder<Value>,
    /// Approximate memory of the values; each is stored twice.
    value_bytes: usize,
}

impl ColumnBuilder {
    fn add(&mut self, value: Option<&Value>) {
        let code = value.map_or(MISSING, |value| {
            self.known.get(value).unwrap_or_else(|| {
                self.value_bytes += 2 * (size_of::<(Value, u32)>() + text_length(value));
                self.values.push(value.clone());
                self.known.code(value.clone()).0
            })
        });
        self.codes.push(code);
    }
}

impl<Id> Default for PropertyTable<Id> {
    fn default() -> Self {
        Self { rows: HashMap::new(), columns: BTreeMap::new(), whole: None }
    }
}

impl<Id: Eq + Hash> PropertyTable<Id> {
    /// An empty table with these property keys as columns.
    pub fn new(keys: &BTreeSet<String>) -> Self {
        let columns = keys.iter().map(|key| (key.clone(), ColumnBuilder::default())).collect();
        Self { rows: HashMap::new(), columns, whole: None }
    }

    /// An empty table with these property keys as columns, and a column with all properties as one object.
    pub fn whole(keys: &BTreeSet<String>) -> Self {
        Self { whole: Some(Vec::new()), ..Self::new(keys) }
    }

    /// Adds a row. Does nothing if the id is already present. Properties with other keys are ignored.
    pub fn add(&mut self, id: Id, properties: &Map<String, Value>) {
        let Ok(row) = u32::try_from(self.rows.len()) else { return };
        match self.rows.entry(id) {
            Entry::Occupied(_) => return,
            Entry::Vacant(place) => _ = place.insert(row),
        }
        if let Some(whole) = &mut self.whole {
            whole.push(Value::Object(properties.clone()));
        }
        for (key, column) in &mut self.columns {
            column.add(properties.get(key));
        }
    }

    /// Approximate memory of the values of all columns, in bytes.
    pub(crate) fn value_bytes(&self) -> usize {
        self.columns.values().map(|column| column.value_bytes).sum()
    }

    /// The properties objects of several ids, in their order.
    pub(crate) fn objects<'a, Q: Eq + Hash + ?Sized + 'a>(
        &self,
        ids: impl Iterator<Item = Option<&'a Q>>,
    ) -> Column
    where
        Id: Borrow<Q>,
    {
        let code = |id: Option<&Q>| self.rows.get(id?).copied();
        let values = self.whole.as_deref().unwrap_or_default();
        Column::gathered(ids.map(|id| code(id).unwrap_or(MISSING)), values)
    }

    /// The table of rows with these ids, in their order: of each column the codes and values, and the properties objects. `None`
    /// if a list has another length, or an id is there twice.
    pub(crate) fn from_rows(
        ids: Vec<Id>,
        columns: BTreeMap<String, (Vec<u32>, Vec<Value>)>,
        whole: Option<Vec<Value>>,
    ) -> Option<Self> {
        let length = ids.len();
        let rows: HashMap<Id, u32> = ids.into_iter().zip(0..).collect();
        let has_all = rows.len() == length
            && whole.as_ref().is_none_or(|objects| objects.len() == length)
            && columns.values().all(|(codes, _)| codes.len() == length);
        let columns = columns.into_iter().map(|(key, (codes, values))| {
            let value_bytes = values.iter().map(|value| size_of::<Value>() + text_length(value)).sum();
            (key, ColumnBuilder { codes, values, value_bytes, ..ColumnBuilder::default() })
        });
        let columns = columns.collect();
        has_all.then_some(Self { rows, columns, whole })
    }

    /// The ids that `keep` returns true for, with their rows.
    pub(crate) fn rows_of(&self, keep: impl Fn(&Id) -> bool) -> impl Iterator<Item = (Id, u32)>
    where
        Id: Clone,
    {
        self.rows.iter().filter(move |(id, _)| keep(id)).map(|(id, row)| (id.clone(), *row))
    }

    /// The columns of some rows.
    pub(crate) fn gathered_columns(&self, rows: &[u32]) -> impl Iterator<Item = (&str, Column)> {
        self.columns.iter().map(|(key, column)| {
            let codes = rows.iter().map(|row| {
                let row = usize::try_from(*row).unwrap_or(usize::MAX);
                column.codes.get(row).copied().unwrap_or(MISSING)
            });
            (key.as_str(), Column::gathered(codes, &column.values))
        })
    }

    /// The properties objects of some rows; `None` if the table has none.
    pub(crate) fn whole_objects(&self, rows: &[u32]) -> Option<Vec<Value>> {
        let whole = self.whole.as_ref()?;
        let object = |row: &u32| usize::try_from(*row).ok().and_then(|row| whole.get(row)).cloned();
        Some(rows.iter().map(|row| object(row).unwrap_or_default()).collect())
    }

    /// All ids, in no particular order.
    pub fn ids(&self) -> impl Iterator<Item = &Id> {
        self.rows.keys()
    }

    /// One property of one id.
    pub fn value<Q: Eq + Hash + ?Sized>(&self, id: &Q, key: &str) -> Option<&Value>
    where
        Id: Borrow<Q>,
    {
        let row = usize::try_from(*self.rows.get(id)?).ok()?;
        let column = self.columns.get(key)?;
        column.values.get(usize::try_from(*column.codes.get(row)?).ok()?)
    }

    /// One property of several ids, in their order.
    pub fn column<'a, Q: Eq + Hash + ?Sized + 'a>(
        &self,
        ids: impl Iterator<Item = Option<&'a Q>>,
        key: &str,
    ) -> Column
    where
        Id: Borrow<Q>,
    {
        let column = self.columns.get(key);
        let code = |id: Option<&Q>| {
            let row = usize::try_from(*self.rows.get(id?)?).ok()?;
            column?.codes.get(row).copied()
        };
        let values = column.map(|column| column.values.as_slice()).unwrap_or_default();
        Column::gathered(ids.map(|id| code(id).unwrap_or(MISSING)), values)
    }
}

/// Adds the joined columns of `keys` to all runs of a person partition. `members` has, for each cohort, whether each
/// actor is a member.
pub(crate) fn join(
    partition: &mut Partition,
    keys: &BTreeSet<JoinedColumnKey>,
    join_data: &JoinData,
    members: &BTreeMap<u64, Vec<bool>>,
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    for key in keys {
        let of_actors = column_of_actors(&partition.actors, key, join_data, members);
        for run in &mut partition.runs {
            work.check()?;
            work.consume(run.actors.len())?;
            let column = match (key, &of_actors) {
                (_, Some(column)) => expand_to_rows(column, &run.actors),
                (JoinedColumnKey::Group(index, property), None) => {
                    let groups = join_data.groups.get(index);
                    groups
                        .map(|groups| lookup_property(run, &group_column(*index), groups, property))
                        .unwrap_or_default()
                }
                (JoinedColumnKey::GroupProperties(index), None) => {
                    let groups = join_data.groups.get(index);
                    groups
                        .map(|groups| lookup_objects(run, &group_column(*index), groups))
                        .unwrap_or_default()
                }
                (JoinedColumnKey::Session(field), None) => {
                    lookup_property(run, &session_column(), &join_data.sessions, field)
                }
                _ => Column::default(),
            };
            run.joined_columns.insert(key.clone(), column);
        }
    }
    Ok(())
}

/// The event column with the session id.
pub(crate) fn session_column() -> ColumnKey {
    ColumnKey::Property("$session_id".to_owned())
}

/// The column with one value per actor; none if the value depends on the row.
fn column_of_actors(
    actors: &[Uuid],
    key: &JoinedColumnKey,
    join_data: &JoinData,
    members: &BTreeMap<u64, Vec<bool>>,
) -> Option<Column> {
    match key {
        JoinedColumnKey::PersonId => Some(Column::new(
            (0..).take(actors.len()).collect(),
            actors.iter().map(|actor| Value::String(actor.to_string())).collect(),
        )),
        JoinedColumnKey::Person(property) => {
            Some(join_data.persons.column(actors.iter().map(Some), property))
        }
        JoinedColumnKey::InCohort(cohort) => Some(Column::new(
            match members.get(cohort) {
                Some(members) => members.iter().map(|is_member| u32::from(*is_member)).collect(),
                None => vec![0; actors.len()],
            },
            vec![Value::Bool(false), Value::Bool(true)],
        )),
        JoinedColumnKey::HasDistinctId(ids) => {
            let named: HashSet<&Uuid> = ids.iter().filter_map(|id| join_data.named.get(id)).collect();
            Some(Column::new(
                actors.iter().map(|actor| u32::from(named.contains(actor))).collect(),
                vec![Value::Bool(false), Value::Bool(true)],
            ))
        }
        JoinedColumnKey::PersonProperties => Some(join_data.persons.objects(actors.iter().map(Some))),
        JoinedColumnKey::Group(..)
        | JoinedColumnKey::GroupProperties(_)
        | JoinedColumnKey::Session(_)
        | JoinedColumnKey::TimeBounds => None,
    }
}

/// Expands a column of actors to a column of rows.
fn expand_to_rows(column: &Column, actors: &[u32]) -> Column {
    let code = |actor: &u32| {
        let actor = usize::try_from(*actor).ok()?;
        column.codes.get(actor).copied()
    };
    Column::gathered(actors.iter().map(|actor| code(actor).unwrap_or(MISSING)), &column.values)
}

/// The properties objects of the ids in column `names` of the run.
fn lookup_objects(run: &EventRun, names: &ColumnKey, known: &PropertyTable<String>) -> Column {
    let Some(names) = run.columns.get(names) else { return Column::default() };
    let texts = names.values.iter().map(pennon_filters::text::text_of).collect::<Vec<_>>();
    expand_to_rows(&known.objects(texts.iter().map(Option::as_deref)), &names.codes)
}

/// Property `key` of the ids in column `names` of the run.
fn lookup_property(run: &EventRun, names: &ColumnKey, known: &PropertyTable<String>, key: &str) -> Column {
    let Some(names) = run.columns.get(names) else { return Column::default() };
    let texts = names.values.iter().map(pennon_filters::text::text_of).collect::<Vec<_>>();
    let of_names = known.column(texts.iter().map(Option::as_deref), key);
    expand_to_rows(&of_names, &names.codes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn objects_with_their_members_in_another_order_stay_two_values() {
        let mut known = PropertyTable::new(&BTreeSet::from(["plan".to_owned()]));
        let orders = [json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}), json!({"a": 1, "b": 2})];
        for (id, plan) in ["a", "b", "c"].iter().zip(&orders) {
            known.add((*id).to_owned(), json!({"plan": plan}).as_object().unwrap());
        }
        let plans = known.column(["c", "b", "a"].into_iter().map(Some), "plan");
        let texts: Vec<_> = (0..3).map(|row| plans.value(row).unwrap().to_string()).collect();
        assert_eq!(texts, [orders[2].to_string(), orders[1].to_string(), orders[0].to_string()]);
    }

    #[test]
    fn adding_an_id_again_changes_nothing() {
        let mut known = PropertyTable::whole(&BTreeSet::from(["plan".to_owned()]));
        for (id, properties) in [
            ("a", json!({"plan": "free"})),
            ("b", json!({})),
            ("a", json!({"plan": "free"})),
            ("c", json!({"plan": "paid"})),
        ] {
            known.add(id.to_owned(), properties.as_object().unwrap());
        }
        let plans = ["a", "b", "c"].map(|id| known.value(id, "plan").cloned());
        assert_eq!(plans, [Some(json!("free")), None, Some(json!("paid"))]);
        let whole = known.objects(["c", "a", "c"].into_iter().map(Some));
        assert_eq!(**whole.values, [json!({"plan": "paid"}), json!({"plan": "free"})]);
        assert_eq!(whole.codes, [0, 1, 0]);
    }
}
