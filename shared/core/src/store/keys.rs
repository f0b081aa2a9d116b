//! The key schema of the records table. Only this module builds keys.
//!
//! | what | pk | sk |
//! |---|---|---|
//! | everything a workspace file declares | `INSTALLATION` | `ORG#{id}`, `USER#{id}`, `PROJECT#{id}`, `KEY#{hash}`, `ROLE#{id}`, and `ACTION`, `COHORT`, `DASHBOARD`, `FLAG`, `INSIGHT` with `#{project}/{id}`; `KEYS`, the version of the list of keys |
//! | organization, its projects and roles | `ORG#{org}` | `ORG`, `PROJECT#{id}`, `ROLE#{uuid}` |
//! | user | `USER#{id}` | `USER` |
//! | project settings; marker that it has received an event; version counter; version counter of its insights; number of erasures | `PROJECT#{id}` | `PROJECT`, `INGESTED`, `VERSION`, `INSIGHTS`, `ERASURES` |
//! | API key; its counter is the time of last use | `KEY#{hash}` | `KEY` |
//! | project token | `TOKEN#{token}` | `TOKEN` |
//! | flag | `PROJECT#{id}#FLAG` | padded id |
//! | summary row of a flag while it is not deleted | `PROJECT#{id}#FLAGROW#{id modulo 8}` | padded id |
//! | dependencies of a live flag, if it has any | `PROJECT#{id}#DEPENDENT` | padded id |
//! | live flag by key; its counter is the flag's id | `PROJECT#{id}#FLAGKEY` | `{key}#LIVE` |
//! | last calls of a project's flags | `PROJECT#{id}#FLAGCALLS` | `LATEST` |
//! | definitions feed: head, parts of the documents | `PROJECT#{id}#FEED` | `HEAD`, `{form}#{part}` |
//! | marker that a role has access to a flag | `PROJECT#{id}#FLAG#{flag}` | `ROLE#{uuid}` |
//! | role access of a flag | `PROJECT#{id}#FLAG#{flag}#ROLE_ACCESS#{part}` | padded id |
//! | insight; its summary row while it is not deleted; its short id | `PROJECT#{id}#INSIGHT`, `#INSIGHTROW#{id modulo 8}`, `#SHORT` | padded id, padded id, short id |
//! | sharing settings of an insight, of a dashboard; either by hash of an active sharing token | `PROJECT#{id}#SHARING`, `SHARE#{hash}` | padded id, `DASHBOARD#{padded id}`; `SHARE` |
//! | secret for sharing tokens if no payload key is configured | `SECRET` | `SHARING` |
//! | last view of an insight by a user, and by any user (as the counter) | `PROJECT#{id}#VIEWED#{user}`, `PROJECT#{id}#VIEWS#{id modulo 8}` | padded id |
//! | activity entry; pointer from an item's own log | `PROJECT#{id}#ACTIVITY#{scope}#{month}`, `...#ACTIVITY#{scope}#ITEM#{item}` | time and uuid |
//! | number of a log's entries per day | `PROJECT#{id}#ACTIVITY#{scope}#DAYS` | day |
//! | calculation result | `PROJECT#{id}#RESULT` | cache key |
//! | state of a background calculation; calculations by a caller's name | `PROJECT#{id}#QUERY` | `KEY#{cache key}`, `ID#{name}` |
//! | queued calculation | `JOB#{its number modulo 8}` | uuid |
//! | action, cohort, dashboard | `PROJECT#{id}#ACTION`, `#COHORT`, `#DASHBOARD` | padded id |
//! | summary row of one that is not deleted; marker that all rows of the kind exist | `PROJECT#{id}#ACTIONROW`, `#COHORTROW`, `#DASHBOARDROW` | padded id; `WHOLE` |
//! | live action by name (as its version) | `PROJECT#{id}#ACTIONNAME#{name}` | `NAME` |
//! | scheduled task: delete tiles or insights of a deleted dashboard, or parts of a cohort's member list | `DUE` | `{instant}#DASHBOARD#{project}#{id}`, `{instant}#INSIGHTS#{project}#{id}`, `{instant}#MEMBERS#{project}#{id}#{generation}` |
//! | an insight's tile on a dashboard | `PROJECT#{id}#DASHBOARD#{dashboard}` | `TILE#{padded id of the insight}` |
//! | calls of an API key in a rate limit window | `CALLS#{hash}` | limit and number of the window |
//! | record that was created with an `Idempotency-Key` | `ONCE#{hash}` | `ONCE` |
//! | how far an incomplete import of a file has come | `IMPORT#{digest of file and options}` | `CHECKPOINT` |
//! | counters of ids | `COUNTER` | kind |
//!
//! Ids are zero-padded so that their string order is their numeric order.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Key;

mod calculations;
mod flag_keys;
mod scheduled_tasks;

pub use calculations::{
    JOB_PREFIX, JOB_SHARDS, QUERY_NAME_BYTES_MAX, job, jobs_pk, jobs_pks, part_lease, part_spending,
    query_name, query_state, result,
};
pub use flag_keys::{flag_calls, flag_key_live, flag_keys_pk, live_flag_key};
pub use scheduled_tasks::{
    SCHEDULED_TASKS, ScheduledTask, cohort_members_task, dashboard_insights_task, dashboard_tiles_task,
    is_due, parse_scheduled_task,
};

/// Id of a project.
pub type ProjectId = u64;

/// The kinds of id counters. An id is assigned only once per installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Flags.
    Flag,
    /// Role accesses.
    RoleAccess,
    /// Insights.
    Insight,
    /// Actions.
    Action,
    /// Cohorts.
    Cohort,
    /// Dashboards.
    Dashboard,
    /// Tiles of dashboards.
    Tile,
    /// Users.
    User,
}

/// The kinds of records of a project that have a numeric id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A flag.
    Flag,
    /// An insight.
    Insight,
    /// An action.
    Action,
    /// A cohort.
    Cohort,
    /// A dashboard.
    Dashboard,
    /// The summary row of an action that is not deleted.
    ActionRow,
    /// The summary row of a cohort that is not deleted.
    CohortRow,
    /// The summary row of a dashboard that is not deleted.
    DashboardRow,
}

impl RecordKind {
    fn key_segment(self) -> &'static str {
        match self {
            RecordKind::Flag => "FLAG",
            RecordKind::Insight => "INSIGHT",
            RecordKind::Action => "ACTION",
            RecordKind::Cohort => "COHORT",
            RecordKind::Dashboard => "DASHBOARD",
            RecordKind::ActionRow => "ACTIONROW",
            RecordKind::CohortRow => "COHORTROW",
            RecordKind::DashboardRow => "DASHBOARDROW",
        }
    }
}

/// A zero-padded number, whose string order is the numeric order.
pub fn padded(id: u64) -> String {
    format!("{id:020}")
}

/// Partition of the list of everything that a workspace file declares.
pub const INSTALLATION: &str = "INSTALLATION";

/// Partition of an organization.
pub fn organization_pk(id: Uuid) -> String {
    format!("ORG#{id}")
}

/// The organization itself.
pub fn organization(id: Uuid) -> Key {
    Key::new(organization_pk(id), "ORG")
}

/// The entry of a project in its organization.
pub fn organization_project(id: Uuid, project: ProjectId) -> Key {
    Key::new(organization_pk(id), format!("PROJECT#{}", padded(project)))
}

/// Prefix of the entries of an organization's projects.
pub const ORGANIZATION_PROJECTS: &str = "PROJECT#";
/// Prefix of an organization's roles.
pub const ORGANIZATION_ROLES: &str = "ROLE#";

/// A role.
pub fn role(organization: Uuid, id: Uuid) -> Key {
    Key::new(organization_pk(organization), format!("{ORGANIZATION_ROLES}{id}"))
}

/// A user.
pub fn user(id: u64) -> Key {
    Key::new(format!("USER#{id}"), "USER")
}

/// Prefix of the entries of users in the installation's list.
pub const DECLARED_USERS: &str = "USER#";

/// Prefix of the entries of API keys in the installation's list, and of [`declared_keys_version`].
pub const DECLARED_KEYS: &str = "KEY";

/// The version of the list of API keys: every change over HTTP that depends on the list increments it.
pub fn declared_keys_version() -> Key {
    Key::new(INSTALLATION, "KEYS")
}

/// The entry of a declared record in the installation's list.
pub fn declared(kind: &str, id: &str) -> Key {
    Key::new(INSTALLATION, format!("{kind}#{id}"))
}

/// An API key, by the hash of its secret. Its item's counter is the time of its last use, in seconds since the epoch.
pub fn api_key(hash: &str) -> Key {
    Key::new(format!("KEY#{hash}"), "KEY")
}

/// Maximum length of a token, by DynamoDB's limit for keys.
pub const TOKEN_BYTES_MAX: usize = 1000;

/// The project of a token.
pub fn token(token: &str) -> Key {
    Key::new(format!("TOKEN#{token}"), "TOKEN")
}

/// A project's settings.
pub fn project(id: ProjectId) -> Key {
    Key::new(format!("PROJECT#{id}"), "PROJECT")
}

/// A marker that exists once the project has received an event.
pub fn project_ingested(id: ProjectId) -> Key {
    Key::new(format!("PROJECT#{id}"), "INGESTED")
}

/// A counter that every write of a flag, cohort or group type of the project increments. Stored with checksums of the rows of
/// its flags ([`super::RowChecksums`]).
pub fn project_version(id: ProjectId) -> Key {
    Key::new(format!("PROJECT#{id}"), "VERSION")
}

/// The project whose version must be incremented if an administrator writes the item at `key`: a cohort's project, or the
/// project itself; `None` for other items.
pub fn project_of_version_bump(key: &Key) -> Option<ProjectId> {
    let rest = key.pk.strip_prefix("PROJECT#")?;
    let id = match rest.split_once('#') {
        Some((id, kind)) if kind == RecordKind::Cohort.key_segment() => id,
        None if key.sk == "PROJECT" => rest,
        _ => return None,
    };
    id.parse().ok()
}

/// Partition of a project's records of one kind.
pub fn records_pk(project: ProjectId, kind: RecordKind) -> String {
    format!("PROJECT#{project}#{}", kind.key_segment())
}

/// A record of a project.
pub fn record(project: ProjectId, kind: RecordKind, id: u64) -> Key {
    Key::new(records_pk(project, kind), padded(id))
}

/// A marker that exists once every record of a kind has its summary row; sorted after these rows. Records of releases without
/// summary rows get theirs with the first list request.
pub fn summary_rows_complete_marker(project: ProjectId, rows: RecordKind) -> Key {
    Key::new(records_pk(project, rows), "WHOLE")
}

/// The live action with this name; its id is the item's version.
pub fn action_name(project: ProjectId, name: &str) -> Key {
    Key::new(format!("PROJECT#{project}#ACTIONNAME#{name}"), "NAME")
}

/// Number of partitions of the summary rows of a project's flags: a query returns at most 1 MB per page, and the pages of one
/// partition can only be read sequentially.
pub const FLAG_ROW_SHARDS: u64 = 8;

/// Partition of the summary rows of the flags whose id modulo [`FLAG_ROW_SHARDS`] is `shard`.
pub fn flag_rows_pk(project: ProjectId, shard: u64) -> String {
    format!("PROJECT#{project}#FLAGROW#{shard}")
}

/// The summary row of a flag that is not deleted.
pub fn flag_row(project: ProjectId, id: u64) -> Key {
    Key::new(flag_rows_pk(project, id % FLAG_ROW_SHARDS), padded(id))
}

/// Number of partitions of the summary rows of a project's insights, as for flags.
pub const INSIGHT_ROW_SHARDS: u64 = 8;

/// Partition of the summary rows of the insights whose id modulo [`INSIGHT_ROW_SHARDS`] is `shard`.
pub fn insight_rows_pk(project: ProjectId, shard: u64) -> String {
    format!("PROJECT#{project}#INSIGHTROW#{shard}")
}

/// The summary row of an insight that is not deleted.
pub fn insight_row(project: ProjectId, id: u64) -> Key {
    Key::new(insight_rows_pk(project, id % INSIGHT_ROW_SHARDS), padded(id))
}

/// A counter that every write of an insight of the project increments. Stored with the checksum of the rows of its insights.
pub fn insights_version(project: ProjectId) -> Key {
    Key::new(format!("PROJECT#{project}"), "INSIGHTS")
}

/// Partition of the dependencies of live flags.
pub fn dependents_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#DEPENDENT")
}

/// The dependencies of a live flag.
pub fn dependent(project: ProjectId, id: u64) -> Key {
    Key::new(dependents_pk(project), padded(id))
}

/// Partition of a project's stored definitions feed.
pub fn feed_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#FEED")
}

/// The head row of the definitions feed; its counter is the project version from which it was built.
pub fn feed_head(project: ProjectId) -> Key {
    Key::new(feed_pk(project), "HEAD")
}

/// A part of a feed document in this form.
pub fn feed_part(project: ProjectId, form: &str, part: u32) -> Key {
    Key::new(feed_pk(project), feed_part_sk(form, part))
}

/// The sort key of [`feed_part`].
pub fn feed_part_sk(form: &str, part: u32) -> String {
    format!("{form}#{part:03}")
}

/// Partition of the markers of the roles that have access to a flag.
pub fn flag_children_pk(project: ProjectId, flag: u64) -> String {
    format!("PROJECT#{project}#FLAG#{flag}")
}

/// A marker that exists while a role has access to a flag.
pub fn role_access_of_role(project: ProjectId, flag: u64, role: Uuid) -> Key {
    Key::new(flag_children_pk(project, flag), format!("{FLAG_ROLES}{role}"))
}

/// Sort key prefix of the roles of a flag.
pub const FLAG_ROLES: &str = "ROLE#";

/// Number of partitions of the role accesses of a flag, which are read concurrently: a query returns at most 1 MB per page.
pub const ROLE_ACCESS_PARTS: u64 = 4;

/// One of the partitions of a flag's role accesses.
pub fn role_accesses_pk(project: ProjectId, flag: u64, part: u64) -> String {
    format!("PROJECT#{project}#FLAG#{flag}#ROLE_ACCESS#{part}")
}

/// A role access of a flag.
pub fn role_access(project: ProjectId, flag: u64, id: u64) -> Key {
    // Ids of one flag may be any arithmetic sequence; multiplicative hashing spreads them evenly.
    let part = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % ROLE_ACCESS_PARTS;
    Key::new(role_accesses_pk(project, flag, part), padded(id))
}

/// Partition of the tiles of a dashboard.
pub fn dashboard_children_pk(project: ProjectId, dashboard: u64) -> String {
    format!("PROJECT#{project}#DASHBOARD#{dashboard}")
}

/// Prefix of a dashboard's tiles.
pub const DASHBOARD_TILES: &str = "TILE#";

/// A marker that exists while an insight is on a dashboard; the tile itself is stored in the insight.
pub fn dashboard_tile(project: ProjectId, dashboard: u64, insight: u64) -> Key {
    Key::new(dashboard_children_pk(project, dashboard), format!("{DASHBOARD_TILES}{}", padded(insight)))
}

/// The insight with a short id.
pub fn short_id(project: ProjectId, short_id: &str) -> Key {
    Key::new(format!("PROJECT#{project}#SHORT"), short_id)
}

/// The sharing settings of an insight.
pub fn sharing(project: ProjectId, insight: u64) -> Key {
    Key::new(format!("PROJECT#{project}#SHARING"), padded(insight))
}

/// The sharing settings of a dashboard.
pub fn dashboard_sharing(project: ProjectId, dashboard: u64) -> Key {
    Key::new(format!("PROJECT#{project}#SHARING"), format!("DASHBOARD#{}", padded(dashboard)))
}

/// The record of a sharing token, by the token's hash; exists while the token is active.
pub fn share(hash: &str) -> Key {
    Key::new(format!("SHARE#{hash}"), "SHARE")
}

/// The record that was created with an `Idempotency-Key`.
pub fn once(hash: &str) -> Key {
    Key::new(format!("ONCE#{hash}"), "ONCE")
}

/// The generated secret of an installation without a payload key.
pub fn sharing_secret() -> Key {
    Key::new("SECRET", "SHARING")
}

/// Partition of the last views of a user.
pub fn viewed_pk(project: ProjectId, user: u64) -> String {
    format!("PROJECT#{project}#VIEWED#{user}")
}

/// The last view of an insight by a user; the item's counter is the time, in microseconds since the epoch.
pub fn viewed(project: ProjectId, user: u64, insight: u64) -> Key {
    Key::new(viewed_pk(project, user), padded(insight))
}

/// Number of partitions of the last views of a project, as for summary rows.
pub const VIEW_SHARDS: u64 = 8;

/// Partition of the last views of the insights whose id modulo [`VIEW_SHARDS`] is `shard`.
pub fn views_pk(project: ProjectId, shard: u64) -> String {
    format!("PROJECT#{project}#VIEWS#{shard}")
}

/// The last view of an insight by any user; the item's counter is the time, in microseconds since the epoch.
pub fn views(project: ProjectId, insight: u64) -> Key {
    Key::new(views_pk(project, insight % VIEW_SHARDS), padded(insight))
}

/// Partition of the activity entries of a month; `month` may be a day or an instant, of which only `2026-01` is used. One
/// partition per month, so that no partition grows without limit.
pub fn activity_month_pk(project: ProjectId, scope: &str, month: &str) -> String {
    format!("PROJECT#{project}#ACTIVITY#{scope}#{}", month.get(..MONTH_CHARS).unwrap_or(month))
}

/// Length of a month such as `2026-01`.
pub const MONTH_CHARS: usize = 7;

/// An activity entry.
pub fn activity(project: ProjectId, scope: &str, at: DateTime<Utc>, id: Uuid) -> Key {
    let sk = activity_sk(at, id);
    Key::new(activity_month_pk(project, scope, &sk), sk)
}

/// Partition of the pointers to the activity entries of an item.
pub fn activity_of_item_pk(project: ProjectId, scope: &str, item: u64) -> String {
    format!("PROJECT#{project}#ACTIVITY#{scope}#ITEM#{item}")
}

/// The pointer to an activity entry in the log of its item. Its sort key is that of the entry.
pub fn activity_of(project: ProjectId, scope: &str, item: u64, at: DateTime<Utc>, id: Uuid) -> Key {
    Key::new(activity_of_item_pk(project, scope, item), activity_sk(at, id))
}

/// Partition of the numbers of entries per day.
pub fn activity_days_pk(project: ProjectId, scope: &str) -> String {
    format!("PROJECT#{project}#ACTIVITY#{scope}#DAYS")
}

/// The counter of a log's entries on the day of `at`.
pub fn activity_day(project: ProjectId, scope: &str, at: DateTime<Utc>) -> Key {
    Key::new(activity_days_pk(project, scope), at.format("%Y-%m-%d").to_string())
}

fn activity_sk(at: DateTime<Utc>, id: Uuid) -> String {
    format!("{}#{id}", at.format("%Y-%m-%dT%H:%M:%S%.6f"))
}

/// The counter of erasures of a project's events. Calculation results from before the last erasure are not returned.
pub fn erasures(project: ProjectId) -> Key {
    Key::new(format!("PROJECT#{project}"), "ERASURES")
}

/// The number of calls of an API key in a window of the rate limit `limit`.
pub fn calls(hash: &str, limit: &str, window: u64) -> Key {
    Key::new(format!("CALLS#{hash}"), format!("{limit}#{window}"))
}

/// How far an incomplete import has come, by the digest of its file and options.
pub fn import_checkpoint(digest: &str) -> Key {
    Key::new(format!("IMPORT#{digest}"), "CHECKPOINT")
}

/// The counter of the ids of one kind.
pub fn counter(kind: Counter) -> Key {
    let segment = match kind {
        Counter::Flag => "FLAG",
        Counter::RoleAccess => "ROLE_ACCESS",
        Counter::Insight => "INSIGHT",
        Counter::Action => "ACTION",
        Counter::Cohort => "COHORT",
        Counter::Dashboard => "DASHBOARD",
        Counter::Tile => "TILE",
        Counter::User => "USER",
    };
    Key::new("COUNTER", segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_accesses_spread_evenly_for_any_sequence_of_ids() {
        for step in [1, 2, 3, 4, 7, 8, 100, 1024] {
            let mut parts = std::collections::BTreeMap::<String, usize>::new();
            for number in 1..=10_000 {
                *parts.entry(role_access(1, 2, number * step).pk).or_default() += 1;
            }
            assert_eq!(parts.len() as u64, ROLE_ACCESS_PARTS, "step {step}");
            assert!(parts.values().all(|count| (2_250..2_750).contains(count)), "step {step}: {parts:?}");
            let known: Vec<String> =
                (0..ROLE_ACCESS_PARTS).map(|part| role_accesses_pk(1, 2, part)).collect();
            assert!(parts.keys().all(|pk| known.contains(pk)));
        }
    }
}
