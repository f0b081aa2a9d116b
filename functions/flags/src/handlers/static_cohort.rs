//! `POST P/feature_flags/{id}/create_static_cohort_for_flag/`: the persons for whom a flag is on, as a cohort.
//!
//! Must stay true: the cohort is seen with all its members or not at all; its project's version is raised with it.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, created};
use pennon_core::store::keys::{self, Counter, Kind};
use pennon_core::store::{Guard, Item, VersionBump, Write};
use pennon_engine::CancellationToken;
use pennon_engine::flag::evaluate::{DISTINCT_ID, Evaluator, Subject};
use pennon_engine::flag::{Flag, filter_view, timestamp};
use pennon_eventstore::members::Roster;
use pennon_insights::{CohortRecord, summary_row};
use serde_json::{Map, Value, json as object};

use super::require_edit;
use crate::Flags;
use crate::persons::all::{Question, through};
use crate::persons::{cohorts, refused, require_readable, zone};
use crate::store::{Stored, Version, flag_at, flags_of, load};
use crate::user::user_ref;
use pennon_role_access::viewer::{Owned, Viewers};

/// Makes the cohort.
pub async fn create_static_cohort_for_flag(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let id = call.id("id");
    let wanted = |project| {
        let flag = id.map(|id| flag_at(project, id));
        [keys::project_version(project)].into_iter().chain(flag).collect()
    };
    let (access, items) = flags.app.project_with(&call, crate::WRITE, wanted).await?;
    let mut items = items.into_iter();
    let version = Version::of(items.next().flatten().as_ref());
    let item = items.next().flatten().ok_or_else(ApiError::not_found)?;
    let stored = Stored::read(&item)?;
    let viewers = Viewers::rights(&flags.app, &access, std::iter::once(Owned::from(&stored.flag))).await?;
    require_edit(&viewers, &stored.flag)?;
    let flag = &stored.flag;
    let nobody = !flag.active || flag.deleted || filter_view::aggregation_index(&flag.filters).is_some();
    let members = if nobody { Vec::new() } else { on_for(&flags, &call, &access, version, &stored).await? };
    let cohort = store(&flags, &access, flag, members, access.write_time(call.now)).await?;
    Ok(created(object!({"cohort": cohort})))
}

/// The first distinct ids of all persons for whom the flag is on.
async fn on_for(
    flags: &Flags,
    call: &Call,
    access: &Access,
    version: Version,
    stored: &Stored,
) -> ApiResult<Vec<String>> {
    let project = access.project.id;
    let all = with_dependencies(flags, project, version, stored).await?;
    let named: BTreeSet<i64> = all.iter().flat_map(|stored| stored.flag.cohort_ids()).collect();
    let cohorts = cohorts::at_version(flags, project, version, named).await?;
    let (zone, now) = (zone(access)?, call.now);
    let evaluator =
        Evaluator::new(all.iter().map(|stored| &stored.flag), cohorts.by_id.values().cloned(), zone);
    let Some(plan) = evaluator.plan(stored.flag.id) else { return Ok(Vec::new()) };
    let rosters = cohorts.rosters_of(&plan.static_cohorts());
    let keys = plan.person_properties();
    let reads_distinct_id = keys.contains(DISTINCT_ID);
    let id = stored.flag.id;
    let cancellation = CancellationToken::default();
    through(flags, Question { project, keys, rosters }, cancellation.clone(), move |everybody| {
        let plan = evaluator.plan(id)?;
        let mut members = Vec::new();
        let in_time = everybody.each(|person| {
            let mut properties = Cow::Borrowed(person.properties);
            if reads_distinct_id {
                properties.to_mut().insert(DISTINCT_ID.to_owned(), person.distinct_id.into());
            }
            let subject = Subject::person(person.distinct_id, &properties, person.static_cohorts, now)
                .until_cancelled(&cancellation);
            if plan.evaluate(&subject).is_some_and(|evaluation| evaluation.value.is_on()) {
                members.push(person.distinct_id.to_owned());
            }
        });
        in_time.then_some(members)
    })
    .await
}

/// The flag and all that it depends on.
async fn with_dependencies(
    flags: &Flags,
    project: u64,
    version: Version,
    stored: &Stored,
) -> ApiResult<Vec<Arc<Stored>>> {
    let own = Arc::new(stored.clone());
    let first = pennon_engine::flag::references::flag_ids(&stored.flag.filters);
    if first.is_empty() {
        return Ok(vec![own]);
    }
    let rows = load(flags, project, version, None).await?;
    let mut met = BTreeSet::from([stored.flag.id]);
    let mut open = VecDeque::from(first);
    let mut wanted = Vec::new();
    while let Some(id) = open.pop_front() {
        if let Some(row) = rows.find(id).filter(|_| met.insert(id)) {
            wanted.push((row.id, row.item_version));
            open.extend(row.depends_on.iter().copied());
        }
    }
    require_readable(wanted.iter().filter_map(|(id, _)| rows.find(*id)))?;
    let mut all = flags_of(flags, project, &wanted).await?;
    all.push(own);
    Ok(all)
}

/// Stores the cohort and returns its record as answers show it.
async fn store(
    flags: &Flags,
    access: &Access,
    flag: &Flag,
    members: Vec<String>,
    now: DateTime<Utc>,
) -> ApiResult<Value> {
    let (project, records) = (access.project.id, &flags.app.store.records);
    let id = records.increment(&keys::counter(Counter::Cohort), 1).await?;
    let shown = shown(id, flag, members.len(), access, now);
    let list = Roster::store(records, project, id.unsigned_abs(), &members).await.map_err(refused)?;
    let mut record: Map<String, Value> = shown.as_object().cloned().unwrap_or_default();
    record.extend(list);
    let key = keys::record(project, Kind::Cohort, id.unsigned_abs());
    let item = Item::new(key, &record)?;
    let row = summary_row(project, &item.body::<CohortRecord>()?)?;
    let writes = vec![
        Write::Put(item, Guard::Absent),
        row,
        Write::BumpVersion(keys::project_version(project), VersionBump::default()),
    ];
    records.transact(writes).await?;
    Ok(shown)
}

fn shown(id: i64, flag: &Flag, count: usize, access: &Access, now: DateTime<Utc>) -> Value {
    let at = timestamp::format(now);
    let name = format!("Users with feature flag {} enabled at {}", flag.key, now.format("%Y-%m-%d %H:%M:%S"));
    object!({
        "id": id, "name": name, "description": "", "groups": [], "deleted": false, "filters": {"properties": {}},
        "query": null, "is_calculating": false, "created_by": user_ref(access.caller.user()), "created_at": at,
        "last_calculation": at, "errors_calculating": 0, "count": count, "is_static": true, "experiment_set": [],
    })
}
