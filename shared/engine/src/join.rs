//! What is known beside events: properties of persons and groups, lists of cohorts, sessions; and its join to rows.
//!
//! A plan says what it needs ([`Needs`]); whoever runs it gathers that ([`Facts`]) and joins it to the partitions. Must
//! stay true: after the join every value that a calculation reads is a column of its row, so that filters, breakdowns
//! and expressions look nowhere else; facts are those of now, whatever the time of the event.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::dictionary_encoder::Codes;
use crate::error::CalcResult;
use crate::scan::{Column, ColumnKey, JoinedColumnKey, MISSING, Partition, Run, ScanRequest};
use crate::text::text_length;
use crate::work::WorkBudget;

/// What has to be known for a calculation.
#[derive(Debug, Clone, PartialEq)]
pub struct Needs {
    /// The events.
    pub scan: ScanRequest,
    /// What is joined to their rows.
    pub facts: BTreeSet<JoinedColumnKey>,
    /// Properties of persons by their key; some are read by cohorts only.
    pub persons: BTreeSet<String>,
    /// Properties of groups by their key, by the index of their type.
    pub groups: BTreeMap<u8, BTreeSet<String>>,
    /// All properties of persons are needed, whatever their key: [`Properties::whole`].
    pub whole_persons: bool,
    /// The same of the groups of these types.
    pub whole_groups: BTreeSet<u8>,
    /// Distinct ids whose persons are needed.
    pub distinct_ids: BTreeSet<String>,
    /// Static cohorts whose lists are needed.
    pub rosters: BTreeSet<u64>,
    /// Events from which sessions are made; none when no session is asked for.
    pub sessions: Option<ScanRequest>,
    /// The fields of sessions that are asked for.
    pub(crate) session_fields: BTreeSet<String>,
    /// For each behaviour that a cohort asks of its members, the events that tell of it. Each may ask
    /// for those before it.
    pub behaviours: Vec<ScanRequest>,
}

impl Needs {
    /// The scans beside that of the question itself, in the order in which [`Facts::further`] has their
    /// partitions.
    pub fn further_scans(&self) -> impl Iterator<Item = &ScanRequest> {
        self.sessions.iter().chain(&self.behaviours)
    }
}

/// What was gathered. [`crate::Plan::join`] makes sessions and behaviours of the further scans.
#[derive(Debug, Default)]
pub struct Facts {
    /// Properties of persons.
    pub persons: Properties<Uuid>,
    /// Properties of groups, by the index of their type.
    pub groups: BTreeMap<u8, Properties<String>>,
    /// The persons of distinct ids, merges applied.
    pub named: HashMap<String, Uuid>,
    /// Members of static cohorts: persons, merges applied.
    pub rosters: BTreeMap<u64, HashSet<Uuid>>,
    /// The partitions of each of [`Needs::further_scans`].
    pub further: Vec<Vec<Partition>>,
    /// Fields of sessions, by their id.
    pub sessions: Properties<String>,
    /// For each behaviour, who showed it.
    pub behaviours: Vec<HashSet<Uuid>>,
}

/// Properties of persons, groups or sessions, column by column.
#[derive(Debug)]
pub struct Properties<Id> {
    rows: HashMap<Id, u32>,
    columns: BTreeMap<String, Growing>,
    /// All properties of each as one object, in the order of the rows, where they are wanted.
    whole: Option<Vec<Value>>,
}

/// A column to which rows are added.
#[derive(Debug, Default)]
struct Growing {
    codes: Vec<u32>,
    values: Vec<Value>,
    known: Codes<Value>,
    /// What the values take, about: each is there twice.
    value_bytes: usize,
}

impl Growing {
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

impl<Id> Default for Properties<Id> {
    fn default() -> Self {
        Self { rows: HashMap::new(), columns: BTreeMap::new(), whole: None }
    }
}

impl<Id: Eq + Hash> Properties<Id> {
    /// Nobody yet, of whom these keys will be known.
    pub fn new(keys: &BTreeSet<String>) -> Self {
        let columns = keys.iter().map(|key| (key.clone(), Growing::default())).collect();
        Self { rows: HashMap::new(), columns, whole: None }
    }

    /// Nobody yet, of whom these keys and all properties together will be known.
    pub fn whole(keys: &BTreeSet<String>) -> Self {
        Self { whole: Some(Vec::new()), ..Self::new(keys) }
    }

    /// Adds somebody, once: of who is known already nothing changes. Properties of other keys are passed over.
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

    /// What the values of all columns take in memory, about.
    pub(crate) fn value_bytes(&self) -> usize {
        self.columns.values().map(|column| column.value_bytes).sum()
    }

    /// All properties of several, in their order.
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

    /// Everybody.
    pub fn ids(&self) -> impl Iterator<Item = &Id> {
        self.rows.keys()
    }

    /// A property of somebody.
    pub fn value<Q: Eq + Hash + ?Sized>(&self, id: &Q, key: &str) -> Option<&Value>
    where
        Id: Borrow<Q>,
    {
        let row = usize::try_from(*self.rows.get(id)?).ok()?;
        let column = self.columns.get(key)?;
        column.values.get(usize::try_from(*column.codes.get(row)?).ok()?)
    }

    /// One property of several, in their order.
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

/// Joins facts to the rows of a partition of persons. `members` are the
/// answers of cohorts, one for each actor.
pub(crate) fn join(
    partition: &mut Partition,
    wanted: &BTreeSet<JoinedColumnKey>,
    facts: &Facts,
    members: &BTreeMap<u64, Vec<bool>>,
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    for key in wanted {
        let of_actors = of_actors(&partition.actors, key, facts, members);
        for run in &mut partition.runs {
            work.check()?;
            work.consume(run.actors.len())?;
            let column = match (key, &of_actors) {
                (_, Some(column)) => spread(column, &run.actors),
                (JoinedColumnKey::Group(index, property), None) => {
                    let groups = facts.groups.get(index);
                    groups
                        .map(|groups| by_text(run, &group_column(*index), groups, property))
                        .unwrap_or_default()
                }
                (JoinedColumnKey::GroupProperties(index), None) => {
                    let groups = facts.groups.get(index);
                    groups
                        .map(|groups| objects_by_text(run, &group_column(*index), groups))
                        .unwrap_or_default()
                }
                (JoinedColumnKey::Session(field), None) => {
                    by_text(run, &session_column(), &facts.sessions, field)
                }
                _ => Column::default(),
            };
            run.facts.insert(key.clone(), column);
        }
    }
    Ok(())
}

/// The column of events that names the group of a type.
pub(crate) fn group_column(index: u8) -> ColumnKey {
    ColumnKey::Property(format!("$group_{index}"))
}

/// The column of events that names their session.
pub(crate) fn session_column() -> ColumnKey {
    ColumnKey::Property("$session_id".to_owned())
}

/// What is known of each actor; none for what depends on the row.
fn of_actors(
    actors: &[Uuid],
    key: &JoinedColumnKey,
    facts: &Facts,
    members: &BTreeMap<u64, Vec<bool>>,
) -> Option<Column> {
    match key {
        JoinedColumnKey::PersonId => Some(Column::new(
            (0..).take(actors.len()).collect(),
            actors.iter().map(|actor| Value::String(actor.to_string())).collect(),
        )),
        JoinedColumnKey::Person(property) => Some(facts.persons.column(actors.iter().map(Some), property)),
        JoinedColumnKey::InCohort(cohort) => Some(Column::new(
            match members.get(cohort) {
                Some(answers) => answers.iter().map(|answer| u32::from(*answer)).collect(),
                None => vec![0; actors.len()],
            },
            vec![Value::Bool(false), Value::Bool(true)],
        )),
        JoinedColumnKey::HasDistinctId(ids) => {
            let named: HashSet<&Uuid> = ids.iter().filter_map(|id| facts.named.get(id)).collect();
            Some(Column::new(
                actors.iter().map(|actor| u32::from(named.contains(actor))).collect(),
                vec![Value::Bool(false), Value::Bool(true)],
            ))
        }
        JoinedColumnKey::PersonProperties => Some(facts.persons.objects(actors.iter().map(Some))),
        JoinedColumnKey::Group(..) | JoinedColumnKey::GroupProperties(_) | JoinedColumnKey::Session(_) => {
            None
        }
    }
}

/// A column of actors as a column of rows.
fn spread(column: &Column, actors: &[u32]) -> Column {
    let code = |actor: &u32| {
        let actor = usize::try_from(*actor).ok()?;
        column.codes.get(actor).copied()
    };
    Column::gathered(actors.iter().map(|actor| code(actor).unwrap_or(MISSING)), &column.values)
}

/// All properties of those whom a column of the run names.
fn objects_by_text(run: &Run, names: &ColumnKey, known: &Properties<String>) -> Column {
    let Some(names) = run.columns.get(names) else { return Column::default() };
    let texts = names.values.iter().map(crate::text::text_of).collect::<Vec<_>>();
    spread(&known.objects(texts.iter().map(Option::as_deref)), &names.codes)
}

/// What is known of those whom a column of the run names.
fn by_text(run: &Run, names: &ColumnKey, known: &Properties<String>, key: &str) -> Column {
    let Some(names) = run.columns.get(names) else { return Column::default() };
    let texts = names.values.iter().map(crate::text::text_of).collect::<Vec<_>>();
    let of_names = known.column(texts.iter().map(Option::as_deref), key);
    spread(&of_names, &names.codes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn objects_with_their_members_in_another_order_stay_two_values() {
        let mut known = Properties::new(&BTreeSet::from(["plan".to_owned()]));
        let orders = [json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}), json!({"a": 1, "b": 2})];
        for (id, plan) in ["a", "b", "c"].iter().zip(&orders) {
            known.add((*id).to_owned(), json!({"plan": plan}).as_object().unwrap());
        }
        let plans = known.column(["c", "b", "a"].into_iter().map(Some), "plan");
        let texts: Vec<_> = (0..3).map(|row| plans.value(row).unwrap().to_string()).collect();
        assert_eq!(texts, [orders[2].to_string(), orders[1].to_string(), orders[0].to_string()]);
    }

    #[test]
    fn who_is_added_again_stays_who_they_are() {
        let mut known = Properties::whole(&BTreeSet::from(["plan".to_owned()]));
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
