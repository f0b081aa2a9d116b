//! What is wanted of a cohort beside its fields, and the write that makes it so.

use chrono::{DateTime, Utc};
use pennon_calculation::calculator::{Reached, context};
use pennon_calculation::refusal;
use pennon_core::activity::Entry;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::ids;
use pennon_core::model::FEED_ROOM;
use pennon_core::store::keys;
use pennon_core::store::{Guard, Item, Raise, StoreError, Unchanged, Write};
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use super::csv::{self, By};
use super::input::{CohortInput, not_static};
use super::members;
use super::record::CohortRecord;
use super::room::{Room, Taken};
use super::uses::Uses;
use crate::resource::{Judged, Resource};
use crate::{Insights, limits};

/// What becomes of the list of a cohort.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Who comes onto it, by distinct ids.
    pub distinct_ids: Vec<String>,
    /// Who comes onto it.
    pub persons: Vec<Uuid>,
    /// Who goes.
    pub gone: Option<Uuid>,
    /// What the log calls a change of the list alone.
    pub word: Option<&'static str>,
    /// Whether a table of members was sent.
    pub is_table: bool,
    /// The note that a create was done.
    pub noted: Option<Write>,
}

impl Wanted {
    /// What a body says, and a table that comes with it.
    pub async fn read(
        state: &Insights,
        call: &Call,
        access: &Access,
        input: &CohortInput,
    ) -> ApiResult<Wanted> {
        let project = access.project.id;
        let mut wanted = Wanted { distinct_ids: input.distinct_ids.clone(), ..Wanted::default() };
        let mut persons = input.person_ids.clone();
        if let Some(bytes) = call.file("csv")? {
            wanted.is_table = true;
            let (by, ids) = csv::read(bytes)?;
            match by {
                By::DistinctId => {
                    if ids.iter().any(|id| id.len() > limits::DISTINCT_ID_BYTES) {
                        let detail = format!("A distinct id has 1 to {} bytes.", limits::DISTINCT_ID_BYTES);
                        return Err(csv::refused(&detail));
                    }
                    wanted.distinct_ids.extend(ids);
                }
                By::PersonId => {
                    for id in ids {
                        let wrong = |_| csv::refused(&format!("\u{201c}{id}\u{201d} is not a valid UUID."));
                        persons.insert(id.parse().map_err(wrong)?);
                    }
                }
                By::Email => {
                    wanted.persons = members::with_emails(state, project, ids.into_iter().collect()).await?;
                }
            }
        }
        if !persons.is_empty() {
            wanted.persons.extend(members::known(state, project, &persons).await?);
        }
        Ok(wanted)
    }

    fn changes_list(&self) -> bool {
        !self.distinct_ids.is_empty() || !self.persons.is_empty() || self.gone.is_some()
    }

    /// Judges and writes the change that leaves `after`; none when something that the judgement rests on has changed
    /// since it was read. Gives the cohort as it is then.
    pub async fn write(
        &self,
        state: &Insights,
        access: &Access,
        before: Option<(&CohortRecord, &Item)>,
        mut after: CohortRecord,
        now: DateTime<Utc>,
    ) -> ApiResult<Option<CohortRecord>> {
        let (records, project) = (&state.app.store.records, access.project.id);
        if self.is_table && !after.is_static {
            return Err(not_static("csv"));
        }
        let judged =
            Box::pin(judge(state, access, before.map(|(before, _)| before), &mut after, now)).await?;
        let mut more = judged.writes;
        if self.changes_list() {
            more.extend(Box::pin(members::change(state, project, &mut after, self, now)).await?);
        } else if before.is_none() && after.is_static {
            (after.count, after.last_calculation) = (Some(0), Some(now));
        }
        let change = Judged { access, now, before, after: &after };
        let mut writes = change.writes()?;
        // One entry a change: that of the fields, where some have changed too.
        let added = (self.changes_list() && !change.is_logged()).then_some("persons_added_manually");
        if let Some(word) = self.word.or(added) {
            writes.extend(entry(access, &after, word, now)?);
        }
        writes.extend(more);
        writes.extend(self.noted.clone());
        let room = Room::of(before.map(|(before, _)| before), &after);
        let mut raise = Raise { when: judged.when, ..Raise::default() };
        let taken = room.take(&mut raise);
        let (at, version) = (writes.len(), keys::project_version(project));
        writes.push(Write::Raise(version.clone(), raise));
        let mut sent = match taken {
            Taken::TooMuch => Err(StoreError::Condition { index: at }),
            _ => records.transact(writes.clone()).await,
        };
        if let Err(StoreError::Condition { index }) = sent
            && taken != Taken::Nothing
            && index == at
        {
            room.require(records, project, after.id).await?;
            // How much is used is not known then: the next write of a flag measures it.
            let raise = Raise { when: judged.when, used: Some(FEED_ROOM), ..Raise::default() };
            writes[at] = Write::Raise(version, raise);
            sent = records.transact(writes).await;
        }
        match sent {
            Ok(()) => Ok(Some(after)),
            Err(StoreError::Condition { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The entry about a change of the list, which the log calls `activity`.
fn entry(
    access: &Access,
    after: &CohortRecord,
    activity: &str,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let scope = CohortRecord::SCOPE;
    let change = json!({"type": scope, "action": "changed", "field": null, "before": null, "after": null});
    let detail = json!({
        "id": null, "name": after.name, "short_id": null, "type": null, "trigger": null, "changes": [change],
    });
    let user = access.caller.user();
    Entry { scope, item: after.id, activity, user, at: now, detail }
        .writes(access.project.id, ids::new_uuid())
}

/// What a judgement rests on.
#[derive(Default)]
struct Rests {
    when: Unchanged,
    writes: Vec<Write>,
}

/// Judges rules that are new, and a deletion.
async fn judge(
    state: &Insights,
    access: &Access,
    before: Option<&CohortRecord>,
    after: &mut CohortRecord,
    now: DateTime<Utc>,
) -> ApiResult<Rests> {
    let (records, project) = (&state.app.store.records, access.project.id);
    if before.is_some_and(|before| !before.deleted && after.deleted) {
        let uses = Uses::of(records, project, after.id).await?;
        uses.require_none()?;
        return Ok(Rests { when: uses.when, writes: Vec::new() });
    }
    let is_new = before.is_none_or(|before| {
        before.deleted != after.deleted || before.filters != after.filters || before.groups != after.groups
    });
    if !is_new || after.deleted || after.is_static {
        return Ok(Rests::default());
    }
    let definition = after.definition();
    let mut reached = Reached::from(records, project, &definition.mentions()).await?;
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
    let dependency = definitions.cohorts.iter().find(|(_, cohort)| looks_at_events(cohort));
    let dependency = dependency.map(|(_, cohort)| cohort.name.clone());
    definitions.cohorts.insert(after.id, definition);
    let (context, id) = (context(&access.project, definitions.clone())?, after.id);
    // Compiling many patterns takes a while.
    let checked = tokio::task::spawn_blocking(move || context.check_cohort(id, now)).await;
    checked.map_err(|error| ApiError::internal(&error))?.map_err(refusal)?;
    count(state, access, &reached, after, now).await;
    let mut rests = Rests::default();
    let checks =
        reached.versions.into_iter().map(|(key, version)| Write::Check(key, Guard::Version(version)));
    rests.writes.extend(checks);
    let own = after.reference().has_event_criterion;
    if before.is_some() && (own || dependency.is_some()) {
        let uses = Uses::of(records, project, after.id).await?;
        require_no_events(&uses, own, dependency.as_deref())?;
        rests.when = uses.when;
    }
    Ok(rests)
}

/// Finds out how many members the cohort has, if that does not take long.
async fn count(
    state: &Insights,
    access: &Access,
    reached: &Reached,
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
            // What was found out before is about other rules.
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

/// 400 where a flag uses a cohort that would look at events.
fn require_no_events(uses: &Uses, own: bool, dependency: Option<&str>) -> ApiResult<()> {
    if uses.flags.is_empty() {
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

fn looks_at_events(cohort: &pennon_engine::Cohort) -> bool {
    let criteria = pennon_engine::flag::cohort::Cohort::read(&json!({
        "id": 0, "is_static": cohort.is_static, "filters": cohort.filters, "groups": cohort.groups,
    }));
    criteria.is_some_and(|criteria| pennon_engine::flag::CohortReference::from(&criteria).has_event_criterion)
}
