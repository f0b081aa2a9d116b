//! `POST P/feature_flags/user_blast_radius/`: how many persons or groups match a release condition.

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::store::keys;
use pennon_eventstore::GroupType;
use pennon_flag_rules::blast_radius::{Actors, BlastRadius, Conditions};
use serde_json::json as object;

use crate::Flags;
use crate::persons::scan::{
    PersonScanRequest, REQUEST_TIMEOUT, cohort_criteria, property_keys, scan_persons_with_cohorts,
};
use crate::persons::{cohorts, event_store_error, timezone};
use crate::store::ProjectVersion;
use pennon_role_access::validation_error;

/// Matching persons or groups, and the total.
struct ReachCounts {
    affected: u64,
    total: u64,
}

/// Counts the matching persons or groups.
pub async fn user_blast_radius(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let version = |project| [keys::project_version(project)];
    let (access, [version]) = flags.app.project(&call, crate::READ_SCOPE, version).await?;
    let body = call.fields()?;
    let conditions = Conditions::parse(&body).map_err(validation_error)?;
    let project = access.project.id;
    let version = ProjectVersion::from_item(version.as_ref());
    let cohorts = cohorts::load_at_version(&flags, project, version, conditions.cohort_ids()).await?;
    let blast_radius = conditions.compile(cohorts.by_id.values().cloned(), timezone(&access)?, call.now);
    let counts = match blast_radius.actors() {
        Actors::Groups(index) => count_groups(&flags, &access, index, blast_radius, &conditions).await?,
        Actors::Persons if blast_radius.matches_all() => {
            let total = flags.events.count_people(project).await.map_err(event_store_error)?;
            ReachCounts { affected: total, total }
        }
        Actors::Persons => {
            let filters = conditions.properties().chain(cohort_criteria(cohorts.by_id.values()));
            let cohort_lists = cohorts.cohort_lists_for(blast_radius.static_cohorts());
            let mut keys = property_keys(filters);
            keys.extend(conditions.enrollment_property().map(str::to_owned));
            let request = PersonScanRequest { project, keys, cohort_lists };
            let cancellation = blast_radius.cancellation();
            scan_persons_with_cohorts(&flags, request, cancellation, move |scan| {
                let (mut affected, total) = (0, scan.count());
                let is_complete = scan.for_each(|person| {
                    let (id, properties) = (person.distinct_id, person.properties);
                    affected += u64::from(blast_radius.matches_person(id, properties, person.static_cohorts));
                });
                is_complete.then_some(ReachCounts { affected, total })
            })
            .await?
        }
    };
    let ReachCounts { affected, total } = counts;
    Ok(json(object!({
        "users_affected": affected, "total_users": total, "affected": affected, "total": total,
    })))
}

async fn count_groups(
    flags: &Flags,
    access: &Access,
    index: u32,
    blast_radius: BlastRadius,
    conditions: &Conditions,
) -> ApiResult<ReachCounts> {
    let names = &access.project.group_types;
    let Some(name) = usize::try_from(index).ok().and_then(|index| names.get(index)) else {
        return Ok(ReachCounts { affected: 0, total: 0 });
    };
    let group_type = GroupType { index, name: name.clone() };
    let keys = property_keys(conditions.properties());
    let groups =
        flags.events.groups_of(access.project.id, &group_type, &keys).await.map_err(event_store_error)?;
    let cancellation = blast_radius.cancellation();
    let _cancel_on_drop = cancellation.cancel_on_drop();
    let counted = tokio::task::spawn_blocking(move || {
        let total = groups.len() as u64;
        let reached = |group: &&pennon_eventstore::Group| {
            blast_radius.matches_all() || blast_radius.matches_group(&group.key, &group.properties)
        };
        let groups = groups.iter().take_while(|_| !cancellation.is_cancelled());
        ReachCounts { affected: groups.filter(reached).count() as u64, total }
    });
    // On cancellation the incomplete count is dropped here and never sent.
    let counted = tokio::time::timeout(REQUEST_TIMEOUT, counted).await.map_err(|_| ApiError::busy(1))?;
    counted.map_err(|e| ApiError::internal(&e))
}
