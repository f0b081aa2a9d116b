//! The write of a cohort, with the change of its member list.

use chrono::{DateTime, Utc};
use pennon_calculation::calculator::{TransitiveDefinitions, context};
use pennon_calculation::engine_error;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::ids;
use pennon_core::model::FEED_BYTES_LIMIT;
use pennon_core::store::keys;
use pennon_core::store::{Item, Precondition, StoreError, VersionBump, Write, WriteCondition};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::csv::{self, IdKind};
use super::feed_size::{FeedReservation, FeedSizeEstimate};
use super::flag_references::FlagReferences;
use super::input::{CohortInput, not_static};
use super::member_change::MemberChange;
use super::members;
use super::record::CohortRecord;
use crate::resource::activity_entry::{self, change_json};
use crate::resource::{RecordWrite, Resource};
use crate::{Insights, limits};

impl MemberChange {
    /// Parses the members of a body and of its CSV file.
    pub async fn parse(
        state: &Insights,
        call: &Call,
        access: &Access,
        input: &CohortInput,
    ) -> ApiResult<MemberChange> {
        let project = access.project.id;
        let mut change =
            MemberChange { added_distinct_ids: input.distinct_ids.clone(), ..MemberChange::default() };
        let mut persons = input.person_ids.clone();
        if let Some(bytes) = call.file("csv")? {
            change.has_csv = true;
            let (id_kind, ids) = csv::parse(&bytes)?;
            match id_kind {
                IdKind::DistinctId => {
                    if ids.iter().any(|id| id.len() > limits::DISTINCT_ID_BYTES) {
                        let detail = format!("A distinct id has 1 to {} bytes.", limits::DISTINCT_ID_BYTES);
                        return Err(csv::invalid_csv(&detail));
                    }
                    change.added_distinct_ids.extend(ids);
                }
                IdKind::PersonId => {
                    for id in ids {
                        let wrong =
                            |_| csv::invalid_csv(&format!("\u{201c}{id}\u{201d} is not a valid UUID."));
                        persons.insert(id.parse().map_err(wrong)?);
                    }
                }
                IdKind::Email => {
                    change.added_persons =
                        members::with_emails(state, project, ids.into_iter().collect()).await?;
                }
            }
        }
        if !persons.is_empty() {
            change.added_persons.extend(members::existing_persons(state, project, &persons).await?);
        }
        Ok(change)
    }

    /// Validates and writes the change to `after`. Returns the written cohort; `None` if the cohort, or something that the
    /// validation depends on, was changed concurrently.
    pub async fn write_cohort(
        &self,
        state: &Insights,
        access: &Access,
        before: Option<(&CohortRecord, &Item)>,
        mut after: CohortRecord,
        now: DateTime<Utc>,
    ) -> ApiResult<Option<CohortRecord>> {
        let (records, project) = (&state.app.store.records, access.project.id);
        if self.has_csv && !after.is_static {
            return Err(not_static("csv"));
        }
        let preconditions =
            Box::pin(validate(state, access, before.map(|(before, _)| before), &mut after, now)).await?;
        let mut more = preconditions.writes;
        if self.is_change() {
            more.extend(Box::pin(members::apply_change(state, project, &mut after, self, now)).await?);
        } else if before.is_none() && after.is_static {
            (after.count, after.last_calculation) = (Some(0), Some(now));
        }
        let change = RecordWrite { access, now, before, after: &after, linked_changes: Vec::new() };
        let mut writes = change.writes()?;
        // One entry for each write: that of the fields, if some have changed too.
        let added = (self.is_change() && !change.is_logged()).then_some("persons_added_manually");
        if let Some(activity) = self.activity.or(added) {
            writes.extend(member_entry(access, &after, activity, now)?);
        }
        writes.extend(more);
        writes.extend(self.idempotency_write.clone());
        let feed_size = FeedSizeEstimate::new(before.map(|(before, _)| before), &after);
        let mut raise = VersionBump { when: preconditions.version, ..VersionBump::default() };
        let reservation = feed_size.reserve(&mut raise);
        let (at, version) = (writes.len(), keys::project_version(project));
        writes.push(Write::BumpVersion(version.clone(), raise));
        let mut written = match reservation {
            FeedReservation::TooLarge => Err(StoreError::Condition { index: at }),
            _ => records.transact(writes.clone()).await,
        };
        if let Err(StoreError::Condition { index }) = written
            && reservation != FeedReservation::NotNeeded
            && index == at
        {
            feed_size.require(records, project, after.id).await?;
            // The exact size is not known: the next write of a flag measures it.
            let raise = VersionBump {
                when: preconditions.version,
                used: Some(FEED_BYTES_LIMIT),
                ..VersionBump::default()
            };
            writes[at] = Write::BumpVersion(version, raise);
            written = records.transact(writes).await;
        }
        match written {
            Ok(()) => Ok(Some(after)),
            Err(StoreError::Condition { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The activity entry of a change of the member list.
fn member_entry(
    access: &Access,
    after: &CohortRecord,
    activity: &str,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let change = change_json(CohortRecord::SCOPE, "changed", None, &Value::Null, &Value::Null);
    let user = access.caller.user();
    match activity_entry::with_changes(after, activity, json!([change]), user, now) {
        Some(entry) => entry.writes(access.project.id, ids::new_uuid()),
        None => Ok(Vec::new()),
    }
}

/// The preconditions that a validation depends on.
#[derive(Default)]
struct Preconditions {
    version: Precondition,
    writes: Vec<Write>,
}

/// Validates new rules, and a deletion.
async fn validate(
    state: &Insights,
    access: &Access,
    before: Option<&CohortRecord>,
    after: &mut CohortRecord,
    now: DateTime<Utc>,
) -> ApiResult<Preconditions> {
    let (records, project) = (&state.app.store.records, access.project.id);
    if before.is_some_and(|before| !before.deleted && after.deleted) {
        let references = FlagReferences::fetch(records, project, after.id).await?;
        references.require_none()?;
        return Ok(Preconditions { version: references.version, writes: Vec::new() });
    }
    let rules_changed = before.is_none_or(|before| {
        before.deleted != after.deleted || before.filters != after.filters || before.groups != after.groups
    });
    if !rules_changed || after.deleted || after.is_static {
        return Ok(Preconditions::default());
    }
    let definition = after.definition();
    let mut reached = TransitiveDefinitions::fetch(records, project, &definition.direct_references()).await?;
    if before.is_some() && reached.definitions.cohorts.contains_key(&after.id) {
        let detail = "Cohorts cannot reference other cohorts in a loop.";
        return Err(ApiError::invalid("invalid_input", detail, Some("filters")));
    }
    if reached.versions.len() > limits::COHORT_REFERENCES {
        let detail = format!(
            "A cohort must not refer to more than {} others and actions, directly and through them.",
            limits::COHORT_REFERENCES
        );
        return Err(ApiError::invalid("invalid_input", detail, Some("filters")));
    }
    let definitions = &mut reached.definitions;
    let dependency = definitions.cohorts.iter().find(|(_, cohort)| has_event_criteria(cohort));
    let dependency = dependency.map(|(_, cohort)| cohort.name.clone());
    definitions.cohorts.insert(after.id, definition);
    let (context, id) = (context(&access.project, definitions.clone())?, after.id);
    // Off the runtime's threads: compiling many patterns takes a while.
    let validated = tokio::task::spawn_blocking(move || context.check_cohort(id, now)).await;
    validated.map_err(|error| ApiError::internal(&error))?.map_err(engine_error)?;
    count_members(state, access, &reached, after, now).await;
    let mut preconditions = Preconditions::default();
    let checks = reached
        .versions
        .into_iter()
        .map(|(key, version)| Write::Check(key, WriteCondition::Version(version)));
    preconditions.writes.extend(checks);
    let own = after.reference().has_event_criterion;
    if before.is_some() && (own || dependency.is_some()) {
        let references = FlagReferences::fetch(records, project, after.id).await?;
        require_no_events(&references, own, dependency.as_deref())?;
        preconditions.version = references.version;
    }
    Ok(preconditions)
}

/// Counts the members of the cohort, within [`limits::COUNTING_TIME`].
async fn count_members(
    state: &Insights,
    access: &Access,
    reached: &TransitiveDefinitions,
    cohort: &mut CohortRecord,
    now: DateTime<Utc>,
) {
    let deadline = Instant::now() + limits::COUNTING_TIME;
    let counted = state.calculator.count_members(&access.project, cohort.id, reached, now, deadline);
    match Box::pin(counted).await {
        Ok(count) => {
            (cohort.count, cohort.last_calculation) = (Some(count), Some(now));
            cohort.errors_calculating = 0;
        }
        Err(error) => {
            // The previous count is of other rules.
            tracing::warn!(
                cohort = cohort.id,
                cause = error.detail(),
                "the members of a cohort were not counted"
            );
            (cohort.count, cohort.last_calculation) = (None, None);
            cohort.errors_calculating += 1;
        }
    }
}

/// 400 where a flag uses a cohort that would have criteria on events.
fn require_no_events(references: &FlagReferences, own: bool, dependency: Option<&str>) -> ApiResult<()> {
    if references.flags.is_empty() {
        return Ok(());
    }
    let detail = match dependency {
        Some(name) if !own => format!(
            "A cohort dependency ({name}) has filters based on events. These cohorts can't be used in feature flags."
        ),
        _ => "Behavioral filters cannot be added to cohorts used in feature flags.".to_owned(),
    };
    Err(ApiError::invalid("behavioral_cohort_found", detail, Some("filters")))
}

fn has_event_criteria(cohort: &pennon_analytics::Cohort) -> bool {
    let criteria = pennon_flag_rules::relations::cohort::FlagCohort::read(&json!({
        "id": 0, "is_static": cohort.is_static, "filters": cohort.filters, "groups": cohort.groups,
    }));
    criteria.is_some_and(|criteria| pennon_flag_rules::CohortReference::from(&criteria).has_event_criterion)
}
