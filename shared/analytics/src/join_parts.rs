//! The join data of one part of a calculation, in a form that can be passed to another process.
//!
//! Must stay true: a part gets all data of its persons, and what depends on no person; so joined columns are those of an undivided
//! calculation.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::creation::PersonTimes;
use crate::join::{JoinData, PropertyTable};
use crate::person_range::PersonRange;
use crate::scan::Micros;

/// Derived join data ([`crate::Plan::derive`]) of a range of the persons.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredJoinData {
    persons: StoredTable<Uuid>,
    groups: BTreeMap<u8, StoredTable<String>>,
    named: Vec<(String, Uuid)>,
    cohort_lists: BTreeMap<u64, Vec<Uuid>>,
    imported_creations: Vec<(Uuid, Micros)>,
    first_person_events: Vec<(Vec<Uuid>, Vec<Micros>)>,
    first_group_events: Vec<(String, Micros)>,
    sessions: StoredTable<String>,
    behaviours: Vec<Vec<Uuid>>,
}

/// A [`PropertyTable`]: ids, and the codes of each column with its values as a JSON list.
#[derive(Debug, Serialize, Deserialize)]
struct StoredTable<Id> {
    ids: Vec<Id>,
    columns: BTreeMap<String, (Vec<u32>, String)>,
    whole: Option<String>,
}

/// Stored join data is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidJoinData;

impl JoinData {
    /// The stored form of the data of the persons of `range`, after it was derived.
    pub fn stored(&self, range: PersonRange) -> StoredJoinData {
        let within = |persons: &HashSet<Uuid>| {
            persons.iter().copied().filter(|person| range.contains(*person)).collect::<Vec<_>>()
        };
        let times = |of: &PersonTimes| {
            let places = range.places(&of.persons);
            let times = of.times.get(places.clone()).unwrap_or_default();
            (of.persons[places].to_vec(), times.to_vec())
        };
        let created = self.imported_creations.iter().copied();
        StoredJoinData {
            persons: StoredTable::of(&self.persons, |person| range.contains(*person)),
            groups: self.groups.iter().map(|(index, of)| (*index, StoredTable::of(of, |_| true))).collect(),
            named: self.named.iter().map(|(id, person)| (id.clone(), *person)).collect(),
            cohort_lists: self.cohort_lists.iter().map(|(id, persons)| (*id, within(persons))).collect(),
            imported_creations: created.filter(|(person, _)| range.contains(*person)).collect(),
            first_person_events: self.first_person_events.iter().map(times).collect(),
            first_group_events: self
                .first_group_events
                .iter()
                .map(|(key, time)| (key.clone(), *time))
                .collect(),
            sessions: StoredTable::of(&self.sessions, |_| true),
            behaviours: self.behaviours.iter().map(within).collect(),
        }
    }
}

impl TryFrom<StoredJoinData> for JoinData {
    type Error = InvalidJoinData;

    fn try_from(stored: StoredJoinData) -> Result<Self, InvalidJoinData> {
        let groups = stored.groups.into_iter().map(|(index, table)| Ok((index, table.table()?)));
        let times = stored.first_person_events.into_iter().map(|(persons, times)| {
            let fits = persons.len() == times.len() && persons.is_sorted();
            fits.then(|| PersonTimes { persons: persons.into(), times: times.into() }).ok_or(InvalidJoinData)
        });
        let sets = |lists: Vec<Vec<Uuid>>| lists.into_iter().map(HashSet::from_iter).collect();
        let lists = stored.cohort_lists.into_iter();
        Ok(Self {
            persons: stored.persons.table()?,
            groups: groups.collect::<Result<_, InvalidJoinData>>()?,
            named: HashMap::from_iter(stored.named),
            cohort_lists: lists.map(|(id, persons)| (id, HashSet::from_iter(persons))).collect(),
            imported_creations: stored.imported_creations,
            further: Vec::new(),
            first_person_events: times.collect::<Result<_, InvalidJoinData>>()?,
            first_group_events: HashMap::from_iter(stored.first_group_events),
            sessions: stored.sessions.table()?,
            behaviours: sets(stored.behaviours),
            is_derived: true,
        })
    }
}

impl<Id: Clone + Eq + Hash> StoredTable<Id> {
    fn of(table: &PropertyTable<Id>, keep: impl Fn(&Id) -> bool) -> Self {
        let (ids, rows): (Vec<Id>, Vec<u32>) = table.rows_of(keep).unzip();
        let columns = table.gathered_columns(&rows).map(|(key, column)| {
            let values = Value::Array(column.values.to_vec()).to_string();
            (key.to_owned(), (column.codes.to_vec(), values))
        });
        let columns = columns.collect();
        let whole = table.whole_objects(&rows).map(|objects| Value::Array(objects).to_string());
        Self { ids, columns, whole }
    }

    fn table(self) -> Result<PropertyTable<Id>, InvalidJoinData> {
        let values = |text: &str| serde_json::from_str::<Vec<Value>>(text).map_err(|_| InvalidJoinData);
        let columns = self.columns.into_iter();
        let columns = columns.map(|(key, (codes, text))| Ok((key, (codes, values(&text)?))));
        let columns = columns.collect::<Result<BTreeMap<_, _>, InvalidJoinData>>()?;
        let whole = self.whole.as_deref().map(values).transpose()?;
        PropertyTable::from_rows(self.ids, columns, whole).ok_or(InvalidJoinData)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_has_the_data_of_its_persons_and_no_others() {
        let ids = [1_u128, 1 << 126, 1 << 127, (1 << 127) + 1].map(Uuid::from_u128);
        let mut persons = PropertyTable::whole(&BTreeSet::from(["plan".to_owned(), "none".to_owned()]));
        for (id, plan) in ids.iter().zip([json!("free"), json!(1), json!({"b": 1.0, "a": 2}), json!("free")])
        {
            persons.add(*id, json!({"plan": plan, "x": 1}).as_object().unwrap());
        }
        let mut sessions = PropertyTable::new(&BTreeSet::from(["$session_duration".to_owned()]));
        sessions.add("s".to_owned(), json!({"$session_duration": 2.5}).as_object().unwrap());
        let joined = JoinData {
            persons,
            sessions,
            cohort_lists: BTreeMap::from([(3, HashSet::from(ids))]),
            behaviours: vec![HashSet::from([ids[0]]), HashSet::from([ids[3]])],
            imported_creations: ids.iter().map(|id| (*id, 7)).collect(),
            first_person_events: vec![PersonTimes {
                persons: ids.to_vec().into(),
                times: vec![1, 2, 3, 4].into(),
            }],
            first_group_events: HashMap::from([("acme".to_owned(), 5)]),
            named: HashMap::from([("ada".to_owned(), ids[0])]),
            is_derived: true,
            ..JoinData::default()
        };
        let upper = PersonRange::ALL.split(2)[1];
        let part = JoinData::try_from(joined.stored(upper)).unwrap();
        let plans = ids.map(|id| part.persons.value(&id, "plan").cloned());
        assert_eq!(plans, [None, None, Some(json!({"b": 1.0, "a": 2})), Some(json!("free"))]);
        assert_eq!(part.persons.value(&ids[2], "none"), None);
        let whole = part.persons.objects([Some(&ids[3]), Some(&ids[0])].into_iter());
        assert_eq!((whole.value(0), whole.value(1)), (Some(&json!({"plan": "free", "x": 1})), None));
        assert_eq!(part.sessions.value("s", "$session_duration"), Some(&json!(2.5)));
        assert_eq!(part.cohort_lists[&3], HashSet::from([ids[2], ids[3]]));
        assert_eq!(part.behaviours, [HashSet::new(), HashSet::from([ids[3]])]);
        assert_eq!(part.imported_creations, [(ids[2], 7), (ids[3], 7)]);
        assert_eq!(part.first_person_events[0].times.to_vec(), [3, 4]);
        assert_eq!((part.first_group_events["acme"], part.named["ada"]), (5, ids[0]));
    }

    #[test]
    fn tables_whose_lists_do_not_fit_are_invalid() {
        let mut table = StoredTable::of(&PropertyTable::<String>::default(), |_| true);
        table.columns.insert("plan".to_owned(), (vec![0], "[]".to_owned()));
        assert!(table.table().is_err());
    }
}
