//! The persons of a project as a list, or one by one.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use pennon_core::error::ApiResult;
use pennon_core::http::Page;
use pennon_core::model::Project;
use pennon_engine::filter::PersonFilter;
use pennon_engine::{CalcError, CalcResult};
use pennon_eventstore::{PeoplePage, PersonInFull, derived};
use serde_json::{Map, Value};
use tokio::time::Instant;
use uuid::Uuid;

use super::run::Stop;
use super::{Calculator, in_time};
use crate::errors::{refusal, unreadable};

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
    fn fits(
        &self,
        id: Uuid,
        properties: &Map<String, Value>,
        named: &[Uuid],
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<bool> {
        let text = |key: &str| properties.get(key).and_then(Value::as_str);
        let has_email = |email: &String| text("email") == Some(email);
        let found = |search: &String| {
            let search = search.to_lowercase();
            let contains = |key: &str| text(key).is_some_and(|text| text.to_lowercase().contains(&search));
            named.contains(&id) || contains("email") || contains("name")
        };
        let is_meant = self.email.as_ref().is_none_or(has_email) && self.search.as_ref().is_none_or(found);
        match &self.properties {
            Some(filter) if is_meant => filter.fits(properties, is_cancelled),
            _ => Ok(is_meant),
        }
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
        let stop = Stop::at(deadline);
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
                let is_due = stop.is_due();
                let mut persons: Vec<PersonInFull> = Vec::new();
                if let Some(person) = known
                    && wanted.fits(id, &person.properties, &named, &is_due).map_err(refusal)?
                {
                    persons.push(person);
                }
                let total = persons.len();
                return Ok(PeoplePage { total, persons: page.slice(&persons).to_vec() });
            }
            let turn = self.turn().await?;
            let (keys, at) = (wanted.keys(), (page.offset, page.limit));
            // What a filter was refused for ends the list.
            let refused: Arc<OnceLock<CalcError>> = Arc::default();
            let (is_due, fits_is_due, first_refusal) = (stop.is_due(), stop.is_due(), refused.clone());
            let fits = move |id, properties: &Map<String, Value>| {
                let _turn = &turn;
                wanted.fits(id, properties, &named, &fits_is_due).unwrap_or_else(|error| {
                    _ = first_refusal.set(error);
                    false
                })
            };
            let ends = refused.clone();
            let is_due = move || is_due() || ends.get().is_some();
            let listed = self.events.list_people(project.id, &keys, fits, at, is_due).await;
            match refused.get() {
                Some(error) => Err(refusal(error.clone())),
                None => listed.map_err(unreadable),
            }
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
            Wanted { email, search, ..Wanted::default() }.fits(own, ann, named, &|| false).unwrap()
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
