//! The list of a project's persons, and the lookup of one person.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use pennon_analytics::filter::PersonFilter;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Page;
use pennon_core::model::Project;
use pennon_eventstore::{PeoplePage, PersonDetails, derive_person_id};
use pennon_filters::{CalcError, CalcResult, ComparisonBudget};
use serde_json::{Map, Value};
use tokio::time::Instant;
use uuid::Uuid;

use super::execution::CancellationGuard;
use super::{Calculator, with_deadline};
use crate::errors::{engine_error, event_store_error};

/// The conditions of a list of persons; all have to match.
#[derive(Debug, Clone, Default)]
pub struct PersonListFilter {
    /// The person has this distinct id.
    pub distinct_id: Option<String>,
    /// The property `email` equals this.
    pub email: Option<String>,
    /// Email or name contains this (case-insensitive), or it is the person's id or one of its distinct ids.
    pub search: Option<String>,
    /// Conditions on the properties.
    pub properties: Option<PersonFilter>,
}

impl PersonListFilter {
    /// The properties to read.
    fn property_keys(&self) -> BTreeSet<String> {
        let of_email = self.email.iter().chain(&self.search).map(|_| "email");
        let of_texts = of_email.chain(self.search.iter().map(|_| "name")).map(str::to_owned);
        of_texts.chain(self.properties.iter().flat_map(PersonFilter::keys)).collect()
    }

    /// Whether a person matches. `found_by_id` are the persons whose id or distinct id equals the search text.
    fn matches(
        &self,
        id: Uuid,
        properties: &Map<String, Value>,
        found_by_id: &[Uuid],
        comparisons: &mut ComparisonBudget,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<bool> {
        let text = |key: &str| properties.get(key).and_then(Value::as_str);
        let has_email = |email: &String| text("email") == Some(email);
        let matches_search = |search: &String| {
            let search = search.to_lowercase();
            let contains = |key: &str| text(key).is_some_and(|text| text.to_lowercase().contains(&search));
            found_by_id.contains(&id) || contains("email") || contains("name")
        };
        let is_match =
            self.email.as_ref().is_none_or(has_email) && self.search.as_ref().is_none_or(matches_search);
        match &self.properties {
            Some(filter) if is_match => filter.fits(properties, comparisons, is_cancelled),
            _ => Ok(is_match),
        }
    }
}

impl Calculator {
    /// A page of the persons of a project, the newest first.
    pub async fn list_persons(
        &self,
        project: &Project,
        filter: PersonListFilter,
        page: Page,
        deadline: Instant,
    ) -> ApiResult<PeoplePage> {
        let cancellation = CancellationGuard::until(deadline);
        let work = Box::pin(async {
            let mut found_by_id: Vec<Uuid> = Vec::new();
            if let Some(search) = &filter.search {
                let finals = self.events.canonical_persons(project.id).await.map_err(event_store_error)?;
                found_by_id.push(finals.of(derive_person_id(project.id, search)));
                found_by_id.extend(search.parse().ok().map(|id| finals.of(id)));
            }
            if let Some(distinct_id) = &filter.distinct_id {
                // A lookup by key: the other persons are not scanned.
                let id = derive_person_id(project.id, distinct_id);
                let Some(person) = self.get_known_person(project, id).await? else {
                    return Ok(PeoplePage { total: 0, persons: Vec::new() });
                };
                let person = self.filter_person(person, filter, found_by_id, &cancellation).await?;
                let persons = person.into_iter().collect::<Vec<_>>();
                return Ok(PeoplePage { total: persons.len(), persons: page.slice(&persons).to_vec() });
            }
            let permit = self.acquire_shared_permit().await?;
            let (keys, at) = (filter.property_keys(), (page.offset, page.limit));
            // The first error of a filter ends the scan.
            let filter_error: Arc<OnceLock<CalcError>> = Arc::default();
            let (is_cancelled, filter_is_due, first_error) =
                (cancellation.cancellation_check(), cancellation.cancellation_check(), filter_error.clone());
            let mut comparisons = ComparisonBudget::default();
            let matches = move |id, properties: &Map<String, Value>| {
                let _permit = &permit;
                filter.matches(id, properties, &found_by_id, &mut comparisons, &filter_is_due).unwrap_or_else(
                    |error| {
                        _ = first_error.set(error);
                        false
                    },
                )
            };
            let error = filter_error.clone();
            let is_cancelled = move || is_cancelled() || error.get().is_some();
            let listed = self.events.list_people(project.id, &keys, matches, at, is_cancelled).await;
            match filter_error.get() {
                Some(error) => Err(engine_error(error.clone())),
                None => listed.map_err(event_store_error),
            }
        });
        with_deadline(project, deadline, work).await
    }

    /// The person, if it matches. Conditions on properties may take long: they are tested on a blocking thread.
    async fn filter_person(
        &self,
        person: PersonDetails,
        filter: PersonListFilter,
        found_by_id: Vec<Uuid>,
        cancellation: &CancellationGuard,
    ) -> ApiResult<Option<PersonDetails>> {
        let permit = match &filter.properties {
            Some(_) => Some(self.acquire_shared_permit().await?),
            None => None,
        };
        let is_cancelled = cancellation.cancellation_check();
        let filtered = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let comparisons = &mut ComparisonBudget::default();
            let is_match =
                filter.matches(person.id, &person.properties, &found_by_id, comparisons, &is_cancelled)?;
            Ok(is_match.then_some(person))
        });
        filtered.await.map_err(|error| ApiError::internal(&error))?.map_err(engine_error)
    }

    /// The person with this id, merges applied; `None` where nothing is known of it.
    pub async fn get_person(
        &self,
        project: &Project,
        id: Uuid,
        deadline: Instant,
    ) -> ApiResult<Option<PersonDetails>> {
        with_deadline(project, deadline, Box::pin(self.get_known_person(project, id))).await
    }

    /// The person that `id` belongs to, unless it has no distinct ids.
    async fn get_known_person(&self, project: &Project, id: Uuid) -> ApiResult<Option<PersonDetails>> {
        let found = self.events.current_person(project.id, id).await.map_err(event_store_error)?;
        Ok(Some(found).filter(|person| !person.distinct_ids.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn all_conditions_have_to_match() {
        let ann = json!({"email": "Ann@Example.com", "name": "Ann Other", "age": "example"});
        let ann = ann.as_object().unwrap();
        let (own, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let matches = |email: Option<&str>, search: Option<&str>, found_by_id: &[Uuid]| {
            let (email, search) = (email.map(str::to_owned), search.map(str::to_owned));
            PersonListFilter { email, search, ..PersonListFilter::default() }
                .matches(own, ann, found_by_id, &mut ComparisonBudget::default(), &|| false)
                .unwrap()
        };
        assert!(matches(None, None, &[]));
        assert!(matches(Some("Ann@Example.com"), None, &[]));
        assert!(!matches(Some("ann@example.com"), None, &[]), "the whole address as it is");
        assert!(matches(None, Some("EXAMPLE.c"), &[]) && matches(None, Some("other"), &[]));
        assert!(!matches(None, Some("bob"), &[]) && !matches(None, Some("bob"), &[other]));
        assert!(matches(None, Some("bob"), &[other, own]), "by its distinct id");
        assert!(!matches(Some("bob@example.com"), Some("other"), &[]));
    }
}
