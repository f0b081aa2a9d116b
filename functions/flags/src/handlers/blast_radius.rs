//! `POST P/feature_flags/user_blast_radius/`: how many persons or groups a condition reaches.

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::store::keys;
use pennon_engine::flag::blast::{Actors, Blast, Conditions};
use pennon_eventstore::GroupType;
use serde_json::json as object;

use crate::Flags;
use crate::persons::all::{Question, TIME, criteria, property_keys, through};
use crate::persons::{cohorts, refused, zone};
use crate::store::Version;
use pennon_role_access::refused as refused_field;

/// How many are reached, and of how many.
struct Radius {
    affected: u64,
    total: u64,
}

/// Counts.
pub async fn user_blast_radius(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let version = |project| [keys::project_version(project)];
    let (access, [version]) = flags.app.project(&call, crate::READ, version).await?;
    let body = call.fields()?;
    let conditions = Conditions::parse(&body).map_err(refused_field)?;
    let project = access.project.id;
    let version = Version::of(version.as_ref());
    let cohorts = cohorts::at_version(&flags, project, version, conditions.cohort_ids()).await?;
    let blast = conditions.compile(cohorts.by_id.values().cloned(), zone(&access)?, call.now);
    let radius = match blast.actors() {
        Actors::Groups(index) => of_groups(&flags, &access, index, blast, &conditions).await?,
        Actors::Persons if blast.reaches_all() => {
            let total = flags.events.count_people(project).await.map_err(refused)?;
            Radius { affected: total, total }
        }
        Actors::Persons => {
            let filters = conditions.properties().chain(criteria(cohorts.by_id.values()));
            let rosters = cohorts.rosters_of(blast.static_cohorts());
            let question = Question { project, keys: property_keys(filters), rosters };
            let cancellation = blast.cancellation();
            through(&flags, question, cancellation, move |everybody| {
                let (mut affected, total) = (0, everybody.count());
                let in_time = everybody.each(|person| {
                    affected += u64::from(blast.matches_person(person.properties, person.static_cohorts));
                });
                in_time.then_some(Radius { affected, total })
            })
            .await?
        }
    };
    let Radius { affected, total } = radius;
    Ok(json(object!({
        "users_affected": affected, "total_users": total, "affected": affected, "total": total,
    })))
}

async fn of_groups(
    flags: &Flags,
    access: &Access,
    index: u32,
    blast: Blast,
    conditions: &Conditions,
) -> ApiResult<Radius> {
    let names = &access.project.group_types;
    let Some(name) = usize::try_from(index).ok().and_then(|index| names.get(index)) else {
        return Ok(Radius { affected: 0, total: 0 });
    };
    let of = GroupType { index, name: name.clone() };
    let keys = property_keys(conditions.properties());
    let groups = flags.events.groups_of(access.project.id, &of, &keys).await.map_err(refused)?;
    let cancellation = blast.cancellation();
    let _cancel_on_drop = cancellation.cancel_on_drop();
    let counted = tokio::task::spawn_blocking(move || {
        let total = groups.len() as u64;
        let reached = |group: &&pennon_eventstore::Group| {
            blast.reaches_all() || blast.matches_group(&group.key, &group.properties)
        };
        let groups = groups.iter().take_while(|_| !cancellation.is_cancelled());
        Radius { affected: groups.filter(reached).count() as u64, total }
    });
    // What was cancelled is dropped here, and its count is never sent.
    let counted = tokio::time::timeout(TIME, counted).await.map_err(|_| ApiError::busy(1))?;
    counted.map_err(|e| ApiError::internal(&e))
}
