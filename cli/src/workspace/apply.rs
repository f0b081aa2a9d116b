//! Making an installation match a file.
//!
//! A change that fits into one transaction is written at once or not at all. Of a larger one the rows that follow from the
//! declarations are written before the declarations themselves: a run that is cut off leaves old declarations, and the
//! next run of the same file writes the missing rows again.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::store::keys::{self, Counter, Kind, ProjectId};
use pennon_core::store::{Guard, Item, Key, StoreError, TRANSACTION_WRITES_MAX, Table, VersionBump, Write};
use pennon_insights::{CohortRecord, declaration, declaration_writes, require_feed_room as feed_room};
use serde::Deserialize;
use serde_json::Value;

use super::check::check;
use super::file::Workspace;
use super::rows::rows;
use super::state::{NewKey, State};

/// Text of a transaction: DynamoDB takes 4 MB, keys and names included.
const TRANSACTION_BYTES: usize = 3_000_000;
/// How often a file is applied anew because of changes that others make meanwhile.
const TRIES: usize = 10;

/// How to apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Remove what the file does not declare.
    pub prune: bool,
    /// Write nothing.
    pub dry_run: bool,
}

/// What was done, or would be.
pub struct Applied {
    /// One line per thing that changes: `+` made, `~` changed, `-` removed.
    pub plan: Vec<String>,
    /// Keys that were made, in the order of the file; empty on a dry run.
    pub new_keys: Vec<NewKey>,
}

/// Why a file was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The file contradicts itself or the installation.
    #[error("{0}")]
    Invalid(String),
    /// The store failed; what was written so far is harmless, and the next run goes on.
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
    options: Options,
    now: DateTime<Utc>,
) -> Result<Applied, ApplyError> {
    for _ in 1..TRIES {
        match apply_once(records, file, options, now).await {
            // Something that the file declares was changed over HTTP at the same time.
            Err(ApplyError::Store(StoreError::Condition { .. })) => {}
            done => return done,
        }
    }
    apply_once(records, file, options, now).await
}

async fn apply_once(
    records: &Table,
    file: &Workspace,
    options: Options,
    now: DateTime<Utc>,
) -> Result<Applied, ApplyError> {
    let before = State::load(records).await?;
    let (after, new_keys) = before.merged(file, options.prune, now);
    check(file, &after.workspace()).map_err(ApplyError::Invalid)?;
    let plan = plan(&before.declaration_rows()?, &after.declaration_rows()?);
    if options.dry_run {
        return Ok(Applied { plan, new_keys: Vec::new() });
    }
    let (rows_before, rows_after) = (rows(&before)?, rows(&after)?);
    require_feed_room(records, &after, &rows_before, &rows_after).await?;
    raise_counters(records, &after).await?;
    let mut writes = difference(&rows_before, &rows_after)?;
    writes.extend(difference(&before.declaration_rows()?, &after.declaration_rows()?)?);
    keep_uses(records, &mut writes).await?;
    let writes = keep_edits(records, writes, now).await?;
    write(records, writes).await?;
    Ok(Applied { plan, new_keys })
}

/// Refuses cohorts whose new rules would make the definitions of their project's flags too large.
async fn require_feed_room(
    records: &Table,
    state: &State,
    before: &BTreeMap<Key, Value>,
    after: &BTreeMap<Key, Value>,
) -> Result<(), ApplyError> {
    let specs = state.cohorts.values().map(|cohort| &cohort.spec);
    let keyed = specs.map(|spec| (spec.project, keys::record(spec.project, Kind::Cohort, spec.id)));
    let changed: Vec<(ProjectId, Key)> =
        keyed.filter(|(_, key)| before.contains_key(key) && before.get(key) != after.get(key)).collect();
    let stored: Vec<Key> = changed.iter().map(|(_, key)| key.clone()).collect();
    for ((project, key), stored) in changed.iter().zip(records.batch_get(&stored).await?) {
        let (Some(stored), Some(after)) = (stored, after.get(key)) else { continue };
        let (before, after): (CohortRecord, CohortRecord) =
            (stored.body()?, CohortRecord::deserialize(after)?);
        if let Err(error) = feed_room(records, *project, &before, &after).await {
            let place = format!("cohort {} of project {project}: {}", after.id, error.detail());
            return Err(ApplyError::Invalid(place));
        }
    }
    Ok(())
}

/// Puts what was set over HTTP beside what the file says, in place of the writes of dashboards, cohorts and actions.
async fn keep_edits(
    records: &Table,
    writes: Vec<Write>,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, ApplyError> {
    let (mut declarations, mut others) = (Vec::new(), Vec::new());
    for write in writes {
        let said = match &write {
            Write::Put(item, _) => declaration(&item.key, Some(item))?,
            Write::Delete(key, _) => declaration(key, None)?,
            _ => None,
        };
        match said {
            Some(said) => declarations.push(said),
            None => others.push(write),
        }
    }
    let mut writes = declaration_writes(records, declarations, now).await?;
    writes.extend(others);
    Ok(writes)
}

/// Ids that the service gives out later must not meet declared ones.
async fn raise_counters(records: &Table, state: &State) -> Result<(), StoreError> {
    let most = |ids: &mut dyn Iterator<Item = u64>| ids.max().and_then(|id| i64::try_from(id).ok());
    let highest = [
        (Counter::User, most(&mut state.users.values().map(|it| it.spec.id))),
        (Counter::Action, most(&mut state.actions.values().map(|it| it.spec.id))),
        (Counter::Cohort, most(&mut state.cohorts.values().map(|it| it.spec.id))),
        (Counter::Dashboard, most(&mut state.dashboards.values().map(|it| it.spec.id))),
    ];
    for (counter, id) in highest {
        if let Some(id) = id {
            records.raise(&keys::counter(counter), id).await?;
        }
    }
    Ok(())
}

/// The writes that make one set of rows the other.
fn difference(before: &BTreeMap<Key, Value>, after: &BTreeMap<Key, Value>) -> Result<Vec<Write>, StoreError> {
    let mut writes = Vec::new();
    for (key, body) in after {
        if before.get(key) != Some(body) {
            writes.push(Write::Put(Item::new(key.clone(), body)?, Guard::None));
        }
    }
    let gone = before.keys().filter(|key| !after.contains_key(key));
    writes.extend(gone.map(|key| Write::Delete(key.clone(), Guard::None)));
    Ok(writes)
}

/// A key that is written anew keeps the time of its last use.
async fn keep_uses(records: &Table, writes: &mut [Write]) -> Result<(), StoreError> {
    let is_key = |key: &Key| *key == keys::api_key(key.pk.strip_prefix("KEY#").unwrap_or_default());
    let mut put: Vec<&mut Item> = writes
        .iter_mut()
        .filter_map(|write| match write {
            Write::Put(item, _) if is_key(&item.key) => Some(item),
            _ => None,
        })
        .collect();
    let wanted: Vec<Key> = put.iter().map(|item| item.key.clone()).collect();
    for (item, stored) in put.iter_mut().zip(records.batch_get(&wanted).await?) {
        item.count = stored.map_or(0, |stored| stored.count);
    }
    Ok(())
}

/// Writes in order, in as few transactions as their limits allow. A transaction that changes a cohort or the settings of
/// a project raises the project's version, by which processes know what they remember of it.
async fn write(records: &Table, writes: Vec<Write>) -> Result<(), StoreError> {
    let mut part = Vec::new();
    let mut raised = BTreeSet::new();
    let mut bytes = 0;
    for write in writes {
        let (key, size) = match &write {
            Write::Put(item, _) => (Some(&item.key), item.text.len()),
            Write::Delete(key, _) => (Some(key), 0),
            _ => (None, 0),
        };
        let project = key.and_then(keys::raises_version_of);
        // Room for the write and a version.
        if part.len() + raised.len() + 2 > TRANSACTION_WRITES_MAX || bytes + size > TRANSACTION_BYTES {
            send(records, std::mem::take(&mut part), std::mem::take(&mut raised)).await?;
            bytes = 0;
        }
        bytes += size;
        raised.extend(project);
        part.push(write);
    }
    send(records, part, raised).await
}

async fn send(records: &Table, mut part: Vec<Write>, raised: BTreeSet<ProjectId>) -> Result<(), StoreError> {
    if part.is_empty() {
        return Ok(());
    }
    let raise = |project| Write::BumpVersion(keys::project_version(project), VersionBump::default());
    part.extend(raised.into_iter().map(raise));
    records.transact(part).await
}

/// The lines that say what changes.
fn plan(before: &BTreeMap<Key, Value>, after: &BTreeMap<Key, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, body) in after {
        match before.get(key) {
            None => lines.push(format!("+ {}", name(key, body))),
            Some(old) if old != body => lines.push(format!("~ {}", name(key, body))),
            Some(_) => {}
        }
    }
    let gone = before.iter().filter(|(key, _)| !after.contains_key(key));
    lines.extend(gone.map(|(key, body)| format!("- {}", name(key, body))));
    lines
}

/// How a plan calls a declared thing. A key is named by its label, never by its hash.
fn name(key: &Key, declared: &Value) -> String {
    let (kind, id) = key.sk.split_once('#').unwrap_or((&key.sk, ""));
    let spec = &declared["spec"];
    let label = ["label", "email", "name"].iter().find_map(|field| spec[field].as_str()).unwrap_or("");
    match kind {
        "KEY" => format!("key \"{label}\" of {}", spec["user"].as_str().unwrap_or("")),
        "ORG" => format!("organization {id} \"{label}\""),
        other => format!("{} {id} \"{label}\"", other.to_lowercase()),
    }
}

/// Removes the key of this hash and its declaration, both or neither.
pub async fn revoke(records: &Table, hash: &str) -> Result<(), StoreError> {
    let writes = vec![
        Write::Delete(keys::api_key(hash), Guard::None),
        Write::Delete(keys::declared("KEY", hash), Guard::None),
    ];
    records.transact(writes).await
}
