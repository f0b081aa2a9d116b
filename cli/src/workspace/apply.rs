//! Makes an installation match a workspace file.
//!
//! A change that fits into one transaction is atomic. In a larger change, the rows derived from the declarations are written
//! before the declarations: an interrupted run leaves the old declarations, so the next run of the same file writes the
//! missing rows.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::store::keys::{self, Counter, ProjectId, RecordKind};
use pennon_core::store::{
    Item, Key, StoreError, TRANSACTION_WRITES_MAX, Table, VersionBump, Write, WriteCondition,
};
use pennon_eventstore::BlockPartitions;
use pennon_insights::{CohortRecord, declaration, declaration_writes, require_feed_fits};
use serde::Deserialize;
use serde_json::Value;

use super::declarations::{Declarations, NewKey};
use super::file::Workspace;
use super::rows::derive_rows;
use super::validate::validate;

/// Most bytes of text in a transaction: DynamoDB's limit is 4 MB, keys and names included.
const TRANSACTION_BYTES_MAX: usize = 3_000_000;
/// Attempts to apply a file when concurrent changes conflict.
const ATTEMPTS_MAX: usize = 10;

/// Options of applying a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Remove what the file does not declare.
    pub prune: bool,
    /// Write nothing.
    pub dry_run: bool,
}

/// The changes that were made, or would be in a dry run.
pub struct ApplyResult {
    /// One line per changed record: `+` created, `~` changed, `-` removed.
    pub plan: Vec<String>,
    /// The created keys, in the order of the file; empty in a dry run.
    pub new_keys: Vec<NewKey>,
}

/// Why a file was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The file contradicts itself or the installation.
    #[error("{0}")]
    Invalid(String),
    /// The store failed. Partial writes are harmless, and the next run completes them.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<serde_json::Error> for ApplyError {
    fn from(error: serde_json::Error) -> Self {
        ApplyError::Store(StoreError::Corrupt(error.to_string()))
    }
}

/// Makes the installation in `records` match `file`.
pub async fn apply(
    records: &Table,
    file: &Workspace,
    options: ApplyOptions,
    now: DateTime<Utc>,
) -> Result<ApplyResult, ApplyError> {
    for _ in 1..ATTEMPTS_MAX {
        match apply_once(records, file, options, now).await {
            // A conflict with a concurrent change over HTTP: retry.
            Err(ApplyError::Store(StoreError::Condition { .. })) => {}
            result => return result,
        }
    }
    apply_once(records, file, options, now).await
}

async fn apply_once(
    records: &Table,
    file: &Workspace,
    options: ApplyOptions,
    now: DateTime<Utc>,
) -> Result<ApplyResult, ApplyError> {
    let before = Declarations::load(records).await?;
    let (after, new_keys) = before.apply_file(file, options.prune, now);
    validate(file, &after.workspace()).map_err(ApplyError::Invalid)?;
    let plan = plan_lines(&before.declaration_rows()?, &after.declaration_rows()?);
    if options.dry_run {
        return Ok(ApplyResult { plan, new_keys: Vec::new() });
    }
    let (rows_before, rows_after) = (derive_rows(&before)?, derive_rows(&after)?);
    check_feed_sizes(records, &after, &rows_before, &rows_after).await?;
    check_block_partitions(records, &after).await?;
    raise_counters(records, &after).await?;
    let mut writes = diff_rows(&rows_before, &rows_after)?;
    writes.extend(diff_rows(&before.declaration_rows()?, &after.declaration_rows()?)?);
    preserve_last_use(records, &mut writes).await?;
    let writes = merge_http_edits(records, writes, now).await?;
    write_in_transactions(records, writes).await?;
    Ok(ApplyResult { plan, new_keys })
}

/// Rejects a number of block partitions below the stored one: events may wait in the partitions above it.
async fn check_block_partitions(records: &Table, after: &Declarations) -> Result<(), ApplyError> {
    let specs = after.projects.values().map(|project| &project.spec);
    let requested = specs.filter_map(|spec| Some((spec.id, BlockPartitions::new(spec.block_partitions?)?)));
    let requested = requested.collect::<Vec<_>>();
    let rows = requested.iter().map(|(project, partitions)| partitions.row(*project).0).collect::<Vec<_>>();
    for ((project, partitions), row) in requested.into_iter().zip(records.batch_get(&rows).await?) {
        let Some(row) = row else { continue };
        let stored = BlockPartitions::of_row(&row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        if partitions < stored {
            return Err(ApplyError::Invalid(format!(
                "project {project}: block_partitions is {}, and can only be raised, because events may wait in any of \
                 them; declare {} or more, or leave it out",
                stored.count(),
                stored.count()
            )));
        }
    }
    Ok(())
}

/// Rejects cohorts whose new rules would make the flag definitions of their project too large.
async fn check_feed_sizes(
    records: &Table,
    state: &Declarations,
    before: &BTreeMap<Key, Value>,
    after: &BTreeMap<Key, Value>,
) -> Result<(), ApplyError> {
    let specs = state.cohorts.values().map(|cohort| &cohort.spec);
    let keyed = specs.map(|spec| (spec.project, keys::record(spec.project, RecordKind::Cohort, spec.id)));
    let changed: Vec<(ProjectId, Key)> =
        keyed.filter(|(_, key)| before.contains_key(key) && before.get(key) != after.get(key)).collect();
    let stored: Vec<Key> = changed.iter().map(|(_, key)| key.clone()).collect();
    for ((project, key), stored) in changed.iter().zip(records.batch_get(&stored).await?) {
        let (Some(stored), Some(after)) = (stored, after.get(key)) else { continue };
        let (before, after): (CohortRecord, CohortRecord) =
            (stored.body()?, CohortRecord::deserialize(after)?);
        if let Err(error) = require_feed_fits(records, *project, &before, &after).await {
            let place = format!("cohort {} of project {project}: {}", after.id, error.detail());
            return Err(ApplyError::Invalid(place));
        }
    }
    Ok(())
}

/// Replaces the writes of dashboards, cohorts and actions by writes that preserve the fields that were set over HTTP.
async fn merge_http_edits(
    records: &Table,
    writes: Vec<Write>,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, ApplyError> {
    let (mut declarations, mut others) = (Vec::new(), Vec::new());
    for write in writes {
        let declared = match &write {
            Write::Put(item, _) => declaration(&item.key, Some(item))?,
            Write::Delete(key, _) => declaration(key, None)?,
            _ => None,
        };
        match declared {
            Some(declared) => declarations.push(declared),
            None => others.push(write),
        }
    }
    let mut writes = declaration_writes(records, declarations, now).await?;
    writes.extend(others);
    Ok(writes)
}

/// Raises the id counters above all declared ids, so that the service does not assign these.
async fn raise_counters(records: &Table, state: &Declarations) -> Result<(), StoreError> {
    let max_id = |ids: &mut dyn Iterator<Item = u64>| ids.max().and_then(|id| i64::try_from(id).ok());
    let highest = [
        (Counter::User, max_id(&mut state.users.values().map(|it| it.spec.id))),
        (Counter::Action, max_id(&mut state.actions.values().map(|it| it.spec.id))),
        (Counter::Cohort, max_id(&mut state.cohorts.values().map(|it| it.spec.id))),
        (Counter::Dashboard, max_id(&mut state.dashboards.values().map(|it| it.spec.id))),
    ];
    for (counter, id) in highest {
        if let Some(id) = id {
            records.raise(&keys::counter(counter), id).await?;
        }
    }
    Ok(())
}

/// The writes that change the rows `before` into `after`.
fn diff_rows(before: &BTreeMap<Key, Value>, after: &BTreeMap<Key, Value>) -> Result<Vec<Write>, StoreError> {
    let mut writes = Vec::new();
    for (key, body) in after {
        if before.get(key) != Some(body) {
            writes.push(Write::Put(Item::new(key.clone(), body)?, WriteCondition::None));
        }
    }
    // Events may wait in the partitions of a project that is not declared any more.
    let is_removed = |key: &&Key| !after.contains_key(*key) && !BlockPartitions::is_row(key);
    let removed = before.keys().filter(is_removed);
    writes.extend(removed.map(|key| Write::Delete(key.clone(), WriteCondition::None)));
    Ok(writes)
}

/// Preserves the time of the last use of API keys that are overwritten.
async fn preserve_last_use(records: &Table, writes: &mut [Write]) -> Result<(), StoreError> {
    let is_key = |key: &Key| *key == keys::api_key(key.pk.strip_prefix("KEY#").unwrap_or_default());
    let mut put: Vec<&mut Item> = writes
        .iter_mut()
        .filter_map(|write| match write {
            Write::Put(item, _) if is_key(&item.key) => Some(item),
            _ => None,
        })
        .collect();
    let stored_keys: Vec<Key> = put.iter().map(|item| item.key.clone()).collect();
    for (item, stored) in put.iter_mut().zip(records.batch_get(&stored_keys).await?) {
        item.count = stored.map_or(0, |stored| stored.count);
    }
    Ok(())
}

/// Writes in order, in as few transactions as possible. A transaction that changes a cohort or the settings of a project
/// increments the project's version, which invalidates the caches of other processes.
async fn write_in_transactions(records: &Table, writes: Vec<Write>) -> Result<(), StoreError> {
    let mut batch = Vec::new();
    let mut changed_projects = BTreeSet::new();
    let mut bytes = 0;
    for write in writes {
        let (key, size) = match &write {
            Write::Put(item, _) => (Some(&item.key), item.text.len()),
            Write::Delete(key, _) => (Some(key), 0),
            _ => (None, 0),
        };
        let project = key.and_then(keys::project_of_version_bump);
        // Up to two more writes: this one and a version.
        if batch.len() + changed_projects.len() + 2 > TRANSACTION_WRITES_MAX
            || bytes + size > TRANSACTION_BYTES_MAX
        {
            commit(records, std::mem::take(&mut batch), std::mem::take(&mut changed_projects)).await?;
            bytes = 0;
        }
        bytes += size;
        changed_projects.extend(project);
        batch.push(write);
    }
    commit(records, batch, changed_projects).await
}

async fn commit(
    records: &Table,
    mut batch: Vec<Write>,
    changed_projects: BTreeSet<ProjectId>,
) -> Result<(), StoreError> {
    if batch.is_empty() {
        return Ok(());
    }
    let raise = |project| Write::BumpVersion(keys::project_version(project), VersionBump::default());
    batch.extend(changed_projects.into_iter().map(raise));
    records.transact(batch).await
}

/// The lines of the plan.
fn plan_lines(before: &BTreeMap<Key, Value>, after: &BTreeMap<Key, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, body) in after {
        match before.get(key) {
            None => lines.push(format!("+ {}", record_name(key, body))),
            Some(old) if old != body => lines.push(format!("~ {}", record_name(key, body))),
            Some(_) => {}
        }
    }
    let removed = before.iter().filter(|(key, _)| !after.contains_key(key));
    lines.extend(removed.map(|(key, body)| format!("- {}", record_name(key, body))));
    lines
}

/// The name of a declared record in a plan. A key is named by its label, never by its hash.
fn record_name(key: &Key, declared: &Value) -> String {
    let (kind, id) = key.sk.split_once('#').unwrap_or((&key.sk, ""));
    let spec = &declared["spec"];
    let label = ["label", "email", "name"].iter().find_map(|field| spec[field].as_str()).unwrap_or("");
    match kind {
        "KEY" => format!("key \"{label}\" of {}", spec["user"].as_str().unwrap_or("")),
        "ORG" => format!("organization {id} \"{label}\""),
        other => format!("{} {id} \"{label}\"", other.to_lowercase()),
    }
}
