//! The persons of a project as a list, or one by one.

use std::collections::BTreeSet;

use pennon_core::error::ApiResult;
use pennon_core::http::Page;
use pennon_core::model::Project;
use pennon_engine::filter::PersonFilter;
use pennon_eventstore::{PeoplePage, PersonInFull, derived};
use serde_json::{Map, Value};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Calculator, in_time};
use crate::errors::unreadable;

/// Which persons a list shows; all conditions have to hold.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Who has this distinct id.
    pub distinct_id: Option<String>,
    /// Whose property `email` is this.
    pub email: Option<String>,
    /// Whose email or name contains this, whatever the case, or whose distinct id or id it is.
    pub search: Option<String>,
    /// What their properties have to be.
    pub properties: Option<PersonFilter>,
}

impl Wanted {
    /// The properties that have to be looked at.
    fn keys(&self) -> BTreeSet<String> {
        let of_email = self.email.iter().chain(&self.search).map(|_| "email");
        let of_texts = of_email.chain(self.search.iter().map(|_| "name")).map(str::to_owned);
        of_texts.chain(self.properties.iter().flat_map(PersonFilter::keys)).collect()
    }

    /// Whether a person fits. `named` is who has the distinct id, and who has the id, that is searched for.
    fn fits(&self, id: Uuid, properties: &Map<String, Value>, named: &[Uuid]) -> bool {
        let text = |key: &str| properties.get(key).and_then(Value::as_str);
        let has_email = |email: &String| text("email") == Some(email);
        let found = |search: &String| {
            let search = search.to_lowercase();
            let contains = |key: &str| text(key).is_some_and(|text| text.to_lowercase().contains(&search));
            named.contains(&id) || contains("email") || contains("name")
        };
        let passes = |filter: &PersonFilter| filter.fits(properties);
        self.email.as_ref().is_none_or(has_email)
            && self.search.as_ref().is_none_or(found)
            && self.properties.as_ref().is_none_or(passes)
    }
}

impl Calculator {
    /// A page of the persons of a project, the newest first.
    pub async fn list_persons(
        &self,
        project: &Project,
        wanted: Wanted,
        page: Page,
        deadline: Instant,
    ) -> ApiResult<PeoplePage> {
        let work = Box::pin(async {
            let finals = self.events.final_persons(project.id).await.map_err(unreadable)?;
            let mut named: Vec<Uuid> = Vec::new();
            if let Some(search) = &wanted.search {
                named.push(finals.of(derived(project.id, search)));
                named.extend(search.parse().ok().map(|id| finals.of(id)));
            }
            if let Some(distinct_id) = &wanted.distinct_id {
                // One person, found without going through the others.
                let id = finals.of(derived(project.id, distinct_id));
                let known = self.known_person(project, id).await?;
                let fits = known.filter(|person| wanted.fits(id, &person.properties, &named));
                let persons: Vec<PersonInFull> = fits.into_iter().collect();
                let total = persons.len();
                return Ok(PeoplePage { total, persons: page.slice(&persons).to_vec() });
            }
            let turn = self.turn().await?;
            let (keys, at) = (wanted.keys(), (page.offset, page.limit));
            let fits = move |id, properties: &Map<String, Value>| {
                let _turn = &turn;
                wanted.fits(id, properties, &named)
            };
            let is_due = move || Instant::now() >= deadline;
            self.events.list_people(project.id, &keys, fits, at, is_due).await.map_err(unreadable)
        });
        in_time(project, deadline, work).await
    }

    /// The person that `id` is by now, if anything is known of it.
    pub async fn person(
        &self,
        project: &Project,
        id: Uuid,
        deadline: Instant,
    ) -> ApiResult<Option<PersonInFull>> {
        let work = Box::pin(async {
            let finals = self.events.final_persons(project.id).await.map_err(unreadable)?;
            self.known_person(project, finals.of(id)).await
        });
        in_time(project, deadline, work).await
    }

    async fn known_person(&self, project: &Project, id: Uuid) -> ApiResult<Option<PersonInFull>> {
        let found = self.events.persons(project.id, &[id]).await.map_err(unreadable)?;
        Ok(found.into_iter().find(|person| !person.distinct_ids.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn all_conditions_have_to_hold() {
        let ann = json!({"email": "Ann@Example.com", "name": "Ann Other", "age": "example"});
        let ann = ann.as_object().unwrap();
        let (own, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let fits = |email: Option<&str>, search: Option<&str>, named: &[Uuid]| {
            let (email, search) = (email.map(str::to_owned), search.map(str::to_owned));
            Wanted { email, search, ..Wanted::default() }.fits(own, ann, named)
        };
        assert!(fits(None, None, &[]));
        assert!(fits(Some("Ann@Example.com"), None, &[]));
        assert!(!fits(Some("ann@example.com"), None, &[]), "the whole address as it is");
        assert!(fits(None, Some("EXAMPLE.c"), &[]) && fits(None, Some("other"), &[]));
        assert!(!fits(None, Some("bob"), &[]) && !fits(None, Some("bob"), &[other]));
        assert!(fits(None, Some("bob"), &[other, own]), "by its distinct id");
        assert!(!fits(Some("bob@example.com"), Some("other"), &[]));
    }
}
