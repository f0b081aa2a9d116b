//! What a plan has to know beside events, gathered from the event store.
//!
//! Must stay true: nothing that a plan names is left out, because a missing fact is a wrong number; reads that do not
//! depend on each other run side by side.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_engine::{Facts, Needs, Properties};
use pennon_eventstore::{EventStore, GroupType};
use uuid::Uuid;

use crate::errors::unreadable;

/// Gathers what `needs` names.
pub(super) async fn gather(events: &EventStore, project: &Project, needs: &Needs) -> ApiResult<Facts> {
    let persons = persons(events, project, &needs.persons);
    let groups = futures::future::try_join_all(
        needs.groups.iter().map(|(index, keys)| groups(events, project, *index, keys)),
    );
    let (persons, groups) = futures::try_join!(persons, groups)?;
    Ok(Facts { persons, groups: groups.into_iter().collect(), ..Facts::default() })
}

async fn persons(
    events: &EventStore,
    project: &Project,
    keys: &BTreeSet<String>,
) -> ApiResult<Properties<Uuid>> {
    if keys.is_empty() {
        return Ok(Properties::default());
    }
    let people = events.people(project.id, keys).await.map_err(unreadable)?;
    let mut persons = Properties::new(keys);
    let gathered = tokio::task::spawn_blocking(move || {
        people.each(|id, _, properties| {
            persons.add(id, properties);
            ControlFlow::Continue(())
        });
        persons
    });
    gathered.await.map_err(|error| ApiError::internal(&error))
}

/// The groups of one type. A type that the project does not have has none.
async fn groups(
    events: &EventStore,
    project: &Project,
    index: u8,
    keys: &BTreeSet<String>,
) -> ApiResult<(u8, Properties<String>)> {
    let mut groups = Properties::new(keys);
    if let Some(name) = project.group_types.get(usize::from(index)) {
        let of = GroupType { index: u32::from(index), name: name.clone() };
        for group in events.groups_of(project.id, &of, keys).await.map_err(unreadable)? {
            groups.add(group.key, &group.properties);
        }
    }
    Ok((index, groups))
}
