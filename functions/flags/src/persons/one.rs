//! All flags of a project for one person.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::store::keys;
use pennon_engine::CancellationToken;
use pennon_engine::flag::Flag;
use pennon_engine::flag::evaluate::{DISTINCT_ID, Evaluation, Evaluator, GroupSubject, Subject};
use pennon_eventstore::continuity::Overrides;
use pennon_eventstore::members::cohorts_with;
use pennon_eventstore::{GroupType, Hot};
use serde_json::Value;

use super::all::TIME;
use super::{cohorts, refused, require_readable, zone};
use crate::Flags;
use crate::store::{Early, Rows, Stored, Version, early, flags_of, load};

/// A project that the caller may read, with what was read beside its key.
pub struct Opened {
    /// The project.
    pub access: Access,
    version: Version,
    early: Option<Early>,
    hot: Option<Hot>,
}

/// Opens the project of a request that asks about one person.
///
/// Where the path names the project by its number, the summary rows and the events that wait for compaction are read
/// beside the key and not after it; nothing of them is used unless the key opens the project.
pub async fn open(flags: &Flags, call: &Call) -> ApiResult<Opened> {
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let early = async {
        match named {
            Some(project) => early(flags, project).await,
            None => Ok(None),
        }
    };
    let hot = async {
        match named {
            Some(project) => flags.events.hot_if_few(project).await,
            None => Ok(None),
        }
    };
    let version = |project| [keys::project_version(project)];
    let (access, early, hot) = tokio::join!(flags.app.project(call, crate::READ, version), early, hot);
    let (access, [version]) = access?;
    let is_it = named == Some(access.project.id);
    let hot = hot.map_err(refused)?.filter(|_| is_it);
    Ok(Opened { access, version: Version::of(version.as_ref()), early: early?, hot })
}

/// The flags of a project that are not deleted, by id, each with its value.
pub type Values = Vec<(Arc<Stored>, Evaluation)>;

/// The values of all flags for the person of `distinct_id`, whose stored overrides of experience continuity count, with the groups `groups` by names of their types.
pub async fn values(
    flags: &Flags,
    call: &Call,
    opened: Opened,
    distinct_id: &str,
    groups: &BTreeMap<String, String>,
) -> ApiResult<Values> {
    let Opened { access, version, early, hot } = opened;
    let project = access.project.id;
    let groups = groups_of(&access, groups);
    let subject = async { flags.events.subject(project, distinct_id, &groups, hot).await.map_err(refused) };
    let definitions = async {
        let rows = load(flags, project, version, early).await?;
        require_readable(rows.all())?;
        let wanted: Vec<(i64, u64)> = rows.all().iter().map(|row| (row.id, row.item_version)).collect();
        let named = named_cohorts(&rows);
        let cohorts = cohorts::at_version(flags, project, rows.version, named);
        let found = tokio::try_join!(flags_of(flags, project, &wanted), cohorts)?;
        Ok::<_, ApiError>(found)
    };
    let (mut subject, (stored, cohorts)) = tokio::try_join!(subject, definitions)?;
    // SDKs know the id of the person as a property of it.
    subject.person.properties.insert(DISTINCT_ID.to_owned(), distinct_id.into());
    let (zone, now) = (zone(&access)?, call.now);
    // Thousands of flags take a while, in which other requests of this process go on.
    let compiled = tokio::task::spawn_blocking(move || {
        let all = stored.iter().map(|stored| &stored.flag);
        let evaluator = Evaluator::new(all, cohorts.by_id.values().cloned(), zone);
        (evaluator, stored, cohorts)
    });
    let (evaluator, stored, cohorts) = compiled.await.map_err(|e| ApiError::internal(&e))?;
    let rosters = cohorts.rosters_of(&evaluator.static_cohorts());
    let records = &flags.app.store.records;
    let ids = &subject.person.ids;
    let overrides = async {
        match evaluator.needs_overrides() {
            true => Ok(Overrides::read(records, project, ids).await?.by_flag()?),
            false => Ok(BTreeMap::new()),
        }
    };
    let member_of = async { cohorts_with(records, project, &rosters, ids).await.map_err(refused) };
    let (member_of, overrides) = tokio::try_join!(member_of, overrides)?;
    let distinct_id = distinct_id.to_owned();
    let cancellation = CancellationToken::default();
    let _cancel_on_drop = cancellation.cancel_on_drop();
    let evaluated = tokio::task::spawn_blocking(move || {
        let of = groups
            .iter()
            .zip(&subject.groups)
            .map(|((of, key), properties)| (of.index, GroupSubject { key: key.as_str(), properties }));
        let request = Subject {
            overrides: Some(&overrides),
            ..Subject::person(&distinct_id, &subject.person.properties, &member_of, now)
        }
        .with_groups(of.collect())
        .until_cancelled(&cancellation);
        let mut values = evaluator.evaluate_all(&request);
        let with_value = |stored: Arc<Stored>| values.remove(&stored.flag.id).map(|value| (stored, value));
        stored.into_iter().filter_map(with_value).collect()
    });
    let evaluated = tokio::time::timeout(TIME, evaluated).await.map_err(|_| ApiError::busy(1))?;
    evaluated.map_err(|e| ApiError::internal(&e))
}

fn named_cohorts(rows: &Rows) -> BTreeSet<i64> {
    rows.all().iter().flat_map(|row| row.cohort_ids.iter().copied()).collect()
}

/// The named groups whose types the project has, one of each type.
fn groups_of(access: &Access, groups: &BTreeMap<String, String>) -> Vec<(GroupType, String)> {
    let types = (0..).zip(&access.project.group_types).filter(|(_, name)| !name.is_empty());
    let found = types.filter_map(|(index, name)| {
        let key = groups.get(name)?;
        Some((GroupType { index, name: name.clone() }, key.clone()))
    });
    found.collect()
}

/// The parameter `groups`: a JSON object of keys by names of types.
pub fn groups_parameter(call: &Call) -> ApiResult<BTreeMap<String, String>> {
    let refuse = |detail: &str| Err(ApiError::invalid("invalid_input", detail, Some("groups")));
    let text = call.query_value("groups").unwrap_or("");
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    let groups = match serde_json::from_str(text) {
        Ok(Value::Object(groups)) => groups,
        Ok(_) => return refuse("groups must be a JSON object"),
        Err(_) => return refuse("Invalid JSON in groups parameter"),
    };
    let key = |(name, key): (String, Value)| match key {
        Value::Null => None,
        Value::String(key) => Some((name, key)),
        other => Some((name, other.to_string())),
    };
    Ok(groups.into_iter().filter_map(key).collect())
}

/// A flag of some values.
pub fn flag_of(value: &(Arc<Stored>, Evaluation)) -> &Flag {
    &value.0.flag
}
