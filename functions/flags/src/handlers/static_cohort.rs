//! `POST P/feature_flags/{id}/create_static_cohort_for_flag/`: stores the persons for whom a flag is on as a static
//! cohort.
//!
//! Must stay true: the cohort becomes visible with all of its members or not at all; the project's version is raised
//! with it.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, created};
use pennon_core::store::keys::{self, Counter, RecordKind};
use pennon_core::store::{Item, VersionBump, Write, WriteCondition};
use pennon_eventstore::cohort_lists::CohortList;
use pennon_filters::CancellationToken;
use pennon_filters::body::timestamp;
use pennon_flag_rules::Flag;
use pennon_flag_rules::conditions::filter_view;
use pennon_flag_rules::evaluate::{DISTINCT_ID, Evaluator, Subject};
use pennon_insights::{CohortRecord, summary_row};
use serde_json::{Map, Value, json as object};

use super::require_edit;
use crate::Flags;
use crate::persons::scan::{PersonScanRequest, scan_persons_with_cohorts};
use crate::persons::{check_records_size, cohorts, event_store_error, timezone};
use crate::store::{ProjectVersion, StoredFlag, flag_record_key, load_flags, load_rows};
use crate::user::user_ref;
use pennon_role_access::permissions::{FlagOwnership, FlagPermissions};

/// Creates the cohort.
pub async fn create_static_cohort_for_flag(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let id = call.id("id");
    let keys_to_read = |project| {
        let flag = id.map(|id| flag_record_key(project, id));
        [keys::project_version(project)].into_iter().chain(flag).collect()
    };
    let (access, items) = flags.app.authorize_project_with(&call, crate::WRITE_SCOPE, keys_to_read).await?;
    let mut items = items.into_iter();
    let version = ProjectVersion::from_item(items.next().flatten().as_ref());
    let item = items.next().flatten().ok_or_else(ApiError::not_found)?;
    let stored = StoredFlag::from_item(&item)?;
    let permissions =
        FlagPermissions::load(&flags.app, &access, std::iter::once(FlagOwnership::from(&stored.flag)))
            .await?;
    require_edit(&permissions, &stored.flag)?;
    let flag = &stored.flag;
    let has_no_members =
        !flag.active || flag.deleted || filter_view::aggregation_index(&flag.filters).is_some();
    let members = if has_no_members {
        Vec::new()
    } else {
        matching_distinct_ids(&flags, &call, &access, version, &stored).await?
    };
    let cohort = store_cohort(&flags, &access, flag, members, access.write_time(call.now)).await?;
    Ok(created(object!({"cohort": cohort})))
}

/// The first distinct id of each person for whom the flag is on.
async fn matching_distinct_ids(
    flags: &Flags,
    call: &Call,
    access: &Access,
    version: ProjectVersion,
    stored: &StoredFlag,
) -> ApiResult<Vec<String>> {
    let project = access.project.id;
    let flag_and_dependencies = with_dependencies(flags, project, version, stored).await?;
    let cohort_ids: BTreeSet<i64> =
        flag_and_dependencies.iter().flat_map(|stored| stored.flag.cohort_ids()).collect();
    let cohorts = cohorts::load_at_version(flags, project, version, cohort_ids).await?;
    let (timezone, now) = (timezone(access)?, call.now);
    let evaluator = Evaluator::new(
        flag_and_dependencies.iter().map(|stored| &stored.flag),
        cohorts.by_id.values().cloned(),
        timezone,
    );
    let Some(plan) = evaluator.plan(stored.flag.id) else { return Ok(Vec::new()) };
    let cohort_lists = cohorts.cohort_lists_for(&plan.static_cohorts());
    let keys = plan.person_properties();
    let reads_distinct_id = keys.contains(DISTINCT_ID);
    let id = stored.flag.id;
    let cancellation = CancellationToken::default();
    scan_persons_with_cohorts(
        flags,
        PersonScanRequest { project, keys, cohort_lists },
        cancellation.clone(),
        move |scan| {
            let plan = evaluator.plan(id)?;
            let mut members = Vec::new();
            let is_complete = scan.for_each(|person| {
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
            is_complete.then_some(members)
        },
    )
    .await
}

/// The flag and its transitive dependencies.
async fn with_dependencies(
    flags: &Flags,
    project: u64,
    version: ProjectVersion,
    stored: &StoredFlag,
) -> ApiResult<Vec<Arc<StoredFlag>>> {
    let own = Arc::new(stored.clone());
    let first = pennon_flag_rules::conditions::record_ids::flag_ids(&stored.flag.filters);
    if first.is_empty() {
        return Ok(vec![own]);
    }
    let rows = load_rows(flags, project, version, None).await?;
    let mut visited = BTreeSet::from([stored.flag.id]);
    let mut pending = VecDeque::from(first);
    let mut keys_to_read = Vec::new();
    while let Some(id) = pending.pop_front() {
        if let Some(row) = rows.get(id).filter(|_| visited.insert(id)) {
            keys_to_read.push((row.id, row.item_version));
            pending.extend(row.depends_on.iter().copied());
        }
    }
    check_records_size(keys_to_read.iter().filter_map(|(id, _)| rows.get(*id)))?;
    let mut flag_and_dependencies = load_flags(flags, project, &keys_to_read).await?;
    flag_and_dependencies.push(own);
    Ok(flag_and_dependencies)
}

/// Stores the cohort and returns the record of the response.
async fn store_cohort(
    flags: &Flags,
    access: &Access,
    flag: &Flag,
    members: Vec<String>,
    now: DateTime<Utc>,
) -> ApiResult<Value> {
    let (project, records) = (access.project.id, &flags.app.store.records);
    let id = records.increment(&keys::counter(Counter::Cohort), 1).await?;
    let cohort_json = cohort_json(id, flag, members.len(), access, now);
    let list =
        CohortList::store(records, project, id.unsigned_abs(), &members).await.map_err(event_store_error)?;
    let mut record: Map<String, Value> = cohort_json.as_object().cloned().unwrap_or_default();
    record.extend(list);
    let key = keys::record(project, RecordKind::Cohort, id.unsigned_abs());
    let item = Item::new(key, &record)?;
    let row = summary_row(project, &item.body::<CohortRecord>()?)?;
    let writes = vec![
        Write::Put(item, WriteCondition::Absent),
        row,
        Write::BumpVersion(keys::project_version(project), VersionBump::default()),
    ];
    records.transact(writes).await?;
    Ok(cohort_json)
}

fn cohort_json(id: i64, flag: &Flag, count: usize, access: &Access, now: DateTime<Utc>) -> Value {
    let at = timestamp::format(now);
    let name = format!("Users with feature flag {} enabled at {}", flag.key, now.format("%Y-%m-%d %H:%M:%S"));
    object!({
        "id": id, "name": name, "description": "", "groups": [], "deleted": false, "filters": {"properties": {}},
        "query": null, "is_calculating": false, "created_by": user_ref(access.caller.user()), "created_at": at,
        "last_calculation": at, "errors_calculating": 0, "count": count, "is_static": true, "experiment_set": [],
    })
}
