//! Evaluates all flags of a project for one stored person.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::store::keys;
use pennon_eventstore::cohort_lists::cohorts_with;
use pennon_eventstore::continuity::Overrides;
use pennon_eventstore::{GroupType, WaitingBlocks};
use pennon_filters::CancellationToken;
use pennon_flag_rules::Flag;
use pennon_flag_rules::evaluate::{DISTINCT_ID, Evaluation, Evaluator, GroupSubject, Subject};
use serde_json::Value;

use super::scan::REQUEST_TIMEOUT;
use super::{check_records_size, cohorts, event_store_error, timezone};
use crate::Flags;
use crate::store::{
    FlagRows, PrefetchedRows, ProjectVersion, StoredFlag, load_flags, load_rows, prefetch_rows,
};

/// A project that the caller may read, with the data that was prefetched in parallel with authorization.
pub struct AuthorizedProject {
    /// The project.
    pub access: Access,
    version: ProjectVersion,
    prefetched: Option<PrefetchedRows>,
    waiting_blocks: Option<WaitingBlocks>,
}

/// Authorizes a request that evaluates flags for one person.
///
/// When the path has the numeric project id, the summary rows and the events that are not compacted yet are read in
/// parallel with the API key; they are not used unless the key has access to the project.
pub async fn authorize(flags: &Flags, call: &Call) -> ApiResult<AuthorizedProject> {
    let path_project = call.id("project_id").filter(|_| call.credential().is_some());
    let prefetched = async {
        match path_project {
            Some(project) => prefetch_rows(flags, project).await,
            None => Ok(None),
        }
    };
    let waiting_blocks = async {
        match path_project {
            Some(project) => flags.events.waiting_blocks_if_few(project).await,
            None => Ok(None),
        }
    };
    let version = |project| [keys::project_version(project)];
    let (access, prefetched, waiting_blocks) =
        tokio::join!(flags.app.project(call, crate::READ_SCOPE, version), prefetched, waiting_blocks);
    let (access, [version]) = access?;
    let is_path_project = path_project == Some(access.project.id);
    let waiting_blocks = waiting_blocks.map_err(event_store_error)?.filter(|_| is_path_project);
    Ok(AuthorizedProject {
        access,
        version: ProjectVersion::from_item(version.as_ref()),
        prefetched: prefetched?,
        waiting_blocks,
    })
}

/// The live flags of a project by id, each with its evaluation.
pub type FlagValues = Vec<(Arc<StoredFlag>, Evaluation)>;

/// The values of all flags for the person of `distinct_id`, including its stored overrides (experience continuity).
/// `groups` maps group type names to group keys.
pub async fn evaluate_flags(
    flags: &Flags,
    call: &Call,
    authorized: AuthorizedProject,
    distinct_id: &str,
    groups: &BTreeMap<String, String>,
) -> ApiResult<FlagValues> {
    let AuthorizedProject { access, version, prefetched, waiting_blocks } = authorized;
    let project = access.project.id;
    let groups = project_groups(&access, groups);
    let subject = async {
        flags.events.subject(project, distinct_id, &groups, waiting_blocks).await.map_err(event_store_error)
    };
    let definitions = async {
        let rows = load_rows(flags, project, version, prefetched).await?;
        check_records_size(rows.all())?;
        let ids: Vec<(i64, u64)> = rows.all().iter().map(|row| (row.id, row.item_version)).collect();
        let cohort_ids = cohort_ids(&rows);
        let cohorts = cohorts::load_at_version(flags, project, rows.version, cohort_ids);
        let found = tokio::try_join!(load_flags(flags, project, &ids), cohorts)?;
        Ok::<_, ApiError>(found)
    };
    let (mut subject, (stored, cohorts)) = tokio::try_join!(subject, definitions)?;
    // SDKs expose the distinct id as a person property.
    subject.person.properties.insert(DISTINCT_ID.to_owned(), distinct_id.into());
    let (timezone, now) = (timezone(&access)?, call.now);
    // Compiling thousands of flags would block other requests of this process.
    let compiled = tokio::task::spawn_blocking(move || {
        let all = stored.iter().map(|stored| &stored.flag);
        let evaluator = Evaluator::new(all, cohorts.by_id.values().cloned(), timezone);
        (evaluator, stored, cohorts)
    });
    let (evaluator, stored, cohorts) = compiled.await.map_err(|e| ApiError::internal(&e))?;
    let cohort_lists = cohorts.cohort_lists_for(&evaluator.static_cohorts());
    let records = &flags.app.store.records;
    let ids = &subject.person.ids;
    let overrides = async {
        match evaluator.needs_overrides() {
            true => Ok(Overrides::read(records, project, ids).await?.by_flag()?),
            false => Ok(BTreeMap::new()),
        }
    };
    let static_cohorts =
        async { cohorts_with(records, project, &cohort_lists, ids).await.map_err(event_store_error) };
    let (static_cohorts, overrides) = tokio::try_join!(static_cohorts, overrides)?;
    let distinct_id = distinct_id.to_owned();
    let cancellation = CancellationToken::default();
    let _cancel_on_drop = cancellation.cancel_on_drop();
    let values = tokio::task::spawn_blocking(move || {
        let of = groups
            .iter()
            .zip(&subject.groups)
            .map(|((of, key), properties)| (of.index, GroupSubject { key: key.as_str(), properties }));
        let request = Subject {
            overrides: Some(&overrides),
            ..Subject::person(&distinct_id, &subject.person.properties, &static_cohorts, now)
        }
        .with_groups(of.collect())
        .until_cancelled(&cancellation);
        let mut values = evaluator.evaluate_all(&request);
        let with_value =
            |stored: Arc<StoredFlag>| values.remove(&stored.flag.id).map(|value| (stored, value));
        stored.into_iter().filter_map(with_value).collect()
    });
    let values = tokio::time::timeout(REQUEST_TIMEOUT, values).await.map_err(|_| ApiError::busy(1))?;
    values.map_err(|e| ApiError::internal(&e))
}

fn cohort_ids(rows: &FlagRows) -> BTreeSet<i64> {
    rows.all().iter().flat_map(|row| row.cohort_ids.iter().copied()).collect()
}

/// The given groups whose types exist in the project, one per type.
fn project_groups(access: &Access, groups: &BTreeMap<String, String>) -> Vec<(GroupType, String)> {
    let types = (0..).zip(&access.project.group_types).filter(|(_, name)| !name.is_empty());
    let found = types.filter_map(|(index, name)| {
        let key = groups.get(name)?;
        Some((GroupType { index, name: name.clone() }, key.clone()))
    });
    found.collect()
}

/// Parses the query parameter `groups`: a JSON object of group keys by group type name.
pub fn parse_groups_parameter(call: &Call) -> ApiResult<BTreeMap<String, String>> {
    let invalid = |detail: &str| Err(ApiError::invalid("invalid_input", detail, Some("groups")));
    let text = call.query_value("groups").unwrap_or("");
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    let groups = match serde_json::from_str(text) {
        Ok(Value::Object(groups)) => groups,
        Ok(_) => return invalid("groups must be a JSON object"),
        Err(_) => return invalid("Invalid JSON in groups parameter"),
    };
    let key = |(name, key): (String, Value)| match key {
        Value::Null => None,
        Value::String(key) => Some((name, key)),
        other => Some((name, other.to_string())),
    };
    Ok(groups.into_iter().filter_map(key).collect())
}

/// The flag of an entry of [`FlagValues`].
pub fn flag_of(value: &(Arc<StoredFlag>, Evaluation)) -> &Flag {
    &value.0.flag
}
