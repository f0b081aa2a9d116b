//! The people behind a number: found like the number is counted, shown a page at a time.
//!
//! Must stay true: whoever follows the pages sees everybody who counts once, as long as no event comes; memory for
//! those who are found grows with the page and not with their number.

use pennon_core::clock::timestamp;
use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use pennon_engine::people::{Matched, Selector, union};
use pennon_engine::scan::Partition;
use pennon_engine::{ActorKind, Plan};
use pennon_eventstore::{GroupType, PersonInFull, derived, memory_in_use};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::run::{self, Stop};
use super::{Calculator, Company, Question, Used, in_time};
use crate::errors::unreadable;

/// A page of the people behind a number.
#[derive(Debug, Default)]
pub struct Page {
    /// How many there are on all pages.
    pub total: usize,
    /// Those of this page, as answers show them.
    pub people: Vec<Person>,
}

/// One of them, as answers show it.
pub type Person = Value;

/// The first so many of those who were found so far, by their ids.
#[derive(Debug, Default)]
struct First {
    total: usize,
    people: Vec<Matched>,
}

impl First {
    /// Takes in who was found in a partition. Where partitions share those who count, all have to be kept.
    fn take(mut self, found: Vec<Matched>, most: Option<usize>) -> First {
        self.total += found.len();
        self.people.extend(found);
        if let Some(most) = most {
            self.people.sort_by_key(|one| one.actor);
            self.people.truncate(most);
        }
        self
    }

    /// Everybody once.
    fn merged(self) -> First {
        let people = union(self.people);
        First { total: people.len(), people }
    }
}

impl Calculator {
    /// The people behind the number that `selector` chooses: `limit` of them after the first `offset`.
    pub async fn people(
        &self,
        question: &Question<'_>,
        selector: Selector,
        limit: usize,
        offset: usize,
    ) -> ApiResult<Page> {
        let Question { project, asked, known, deadline, .. } = *question;
        let used = known.of(project.id, &super::named_by(&asked.query, Some(project)))?;
        let stop = Stop::at(deadline);
        let work = Box::pin(async {
            let at = (offset, limit);
            let attempt = |company| self.people_beside(question, &used, &selector, at, &stop, company);
            match attempt(Company::Others).await {
                Err(error) if error == memory_in_use() => attempt(Company::Nobody).await,
                done => done,
            }
        });
        in_time(project, deadline, work).await
    }

    async fn people_beside(
        &self,
        question: &Question<'_>,
        used: &Used,
        selector: &Selector,
        (offset, limit): (usize, usize),
        stop: &Stop,
        company: Company,
    ) -> ApiResult<Page> {
        let Question { project, asked, now, .. } = *question;
        let (_, plan, turn) = self.plan(project, &asked.query, used, now, company).await?;
        let gathered = self.gather(project, &plan, used).await?;
        let kind = selector.counts(&asked.query, &plan);
        // Groups of a plan of persons are in several partitions.
        let is_shared = kind != plan.actors(selector);
        let most = (!is_shared).then(|| offset.saturating_add(limit));
        let selector = selector.clone();
        let add = move |first: First, plan: &Plan, partition: &Partition, is_due: &dyn Fn() -> bool| {
            Ok(first.take(plan.people(partition, &selector, is_due)?, most))
        };
        let parts = run::over(plan.clone(), gathered, stop, turn, add).await?;
        let mut first = First::default();
        for part in parts {
            let total = first.total + part.total;
            first = First { total, ..first.take(part.people, most) };
        }
        if is_shared {
            first = first.merged();
        }
        let total = first.total;
        let page: Vec<Matched> = first.people.into_iter().skip(offset).take(limit).collect();
        let people = self.shown(project, kind, page).await?;
        Ok(Page { total, people })
    }

    async fn shown(&self, project: &Project, kind: ActorKind, page: Vec<Matched>) -> ApiResult<Vec<Person>> {
        match kind {
            ActorKind::Persons => {
                let ids: Vec<Uuid> = page.iter().map(|one| one.actor).collect();
                let persons = self.events.persons(project.id, &ids).await.map_err(unreadable)?;
                Ok(page.iter().zip(persons).map(|(one, known)| person(known, one)).collect())
            }
            ActorKind::DistinctIds => {
                let finals = self.events.final_persons(project.id).await.map_err(unreadable)?;
                let key = |one: &Matched| one.key.clone().unwrap_or_default();
                let ids: Vec<Uuid> =
                    page.iter().map(|one| finals.of(derived(project.id, &key(one)))).collect();
                let persons = self.events.persons(project.id, &ids).await.map_err(unreadable)?;
                let shown = page
                    .iter()
                    .zip(persons)
                    .map(|(one, known)| person(PersonInFull { distinct_ids: vec![key(one)], ..known }, one));
                Ok(shown.collect())
            }
            ActorKind::Groups(index) => {
                let name = project.group_types.get(usize::from(index)).cloned().unwrap_or_default();
                let of = GroupType { index: u32::from(index), name };
                let keys = page.iter().map(|one| (of.clone(), one.key.clone().unwrap_or_default()));
                let keys: Vec<(GroupType, String)> = keys.collect();
                let known = self.events.groups_named(project.id, &keys).await.map_err(unreadable)?;
                let rows = page.iter().zip(keys.iter().zip(known));
                Ok(rows.map(|(one, ((_, key), known))| group(index, key, known, one)).collect())
            }
        }
    }
}

fn person(known: PersonInFull, matched: &Matched) -> Person {
    let mut person = shown_person(known);
    person["matched_times"] = json!(times(matched));
    person
}

/// A person as answers show it.
pub fn shown_person(known: PersonInFull) -> Person {
    json!({
        "type": "person",
        "id": known.id,
        "uuid": known.id,
        "name": name_of(&known),
        "distinct_ids": known.distinct_ids,
        "properties": known.properties,
        "created_at": known.created_at.and_then(chrono::DateTime::from_timestamp_micros).map(timestamp),
        "is_identified": known.is_identified,
    })
}

fn group(index: u8, key: &str, properties: Map<String, Value>, matched: &Matched) -> Person {
    json!({
        "type": "group",
        "id": key,
        "group_type_index": index,
        "group_key": key,
        "properties": properties,
        "created_at": null,
        "matched_times": times(matched),
    })
}

fn times(matched: &Matched) -> Vec<String> {
    let instants = matched.times.iter().filter_map(|time| chrono::DateTime::from_timestamp_micros(*time));
    instants.map(timestamp).collect()
}

/// What lists call a person: by a property that names it, else by a distinct id.
fn name_of(person: &PersonInFull) -> Option<&str> {
    const NAMING: [&str; 7] = ["email", "Email", "name", "Name", "username", "Username", "UserName"];
    let named = NAMING.iter().filter_map(|key| person.properties.get(*key)?.as_str());
    named.chain(person.distinct_ids.first().map(String::as_str)).find(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ids: &[u128]) -> Vec<Matched> {
        ids.iter().map(|id| Matched { actor: Uuid::from_u128(*id), key: None, times: Vec::new() }).collect()
    }

    #[test]
    fn the_first_ones_are_kept_and_all_are_counted_in_any_order() {
        let most = Some(3);
        let one = First::default().take(found(&[5, 1, 9]), most).take(found(&[4, 2]), most);
        let other = First::default().take(found(&[2, 4]), most).take(found(&[9, 5, 1]), most);
        assert_eq!((one.total, one.people.clone()), (5, found(&[1, 2, 4])));
        assert_eq!(one.people, other.people);
        assert_eq!(First::default().take(found(&[1]), Some(0)).total, 1);
        let shared = First::default().take(found(&[7, 3]), None).take(found(&[3, 1]), None).merged();
        assert_eq!((shared.total, shared.people), (3, found(&[1, 3, 7])));
    }
}
