//! The key grammar of the records table: the only place that knows which item lies where.
//!
//! | what | pk | sk |
//! |---|---|---|
//! | everything a workspace file declares | `INSTALLATION` | `ORG#{id}`, `USER#{id}`, `PROJECT#{id}`, `KEY#{hash}`, `ROLE#{id}`, and `ACTION`, `COHORT`, `DASHBOARD`, `FLAG`, `INSIGHT` with `#{project}/{id}` |
//! | organization, its projects and roles | `ORG#{org}` | `ORG`, `PROJECT#{id}`, `ROLE#{uuid}` |
//! | user | `USER#{id}` | `USER` |
//! | project settings; that it has received an event; its version; that of its insights; how often events of it were erased | `PROJECT#{id}` | `PROJECT`, `INGESTED`, `VERSION`, `INSIGHTS`, `ERASURES` |
//! | API key, and when it was last used (as its counter) | `KEY#{hash}` | `KEY` |
//! | project token | `TOKEN#{token}` | `TOKEN` |
//! | flag | `PROJECT#{id}#FLAG` | padded id |
//! | summary row of a flag while it is not deleted | `PROJECT#{id}#FLAGROW#{id modulo 8}` | padded id |
//! | what a live flag depends on, where it depends on others | `PROJECT#{id}#DEPENDENT` | padded id |
//! | the live flag that has a key (as its counter) | `PROJECT#{id}#FLAGKEY` | `{key}#LIVE` |
//! | when the flags of a project were last called | `PROJECT#{id}#FLAGCALLS` | `LATEST` |
//! | definitions feed of the flags: its head, the parts of its documents | `PROJECT#{id}#FEED` | `HEAD`, `{form}#{part}` |
//! | that a role has access to a flag | `PROJECT#{id}#FLAG#{flag}` | `ROLE#{uuid}` |
//! | role access of a flag | `PROJECT#{id}#FLAG#{flag}#ROLE_ACCESS#{part}` | padded id |
//! | insight; its summary row while it is not deleted; its short id | `PROJECT#{id}#INSIGHT`, `#INSIGHTROW#{id modulo 8}`, `#SHORT` | padded id, padded id, short id |
//! | how an insight is shared; the insight that a sharing token opens, while it does | `PROJECT#{id}#SHARING`, `SHARE#{hash}` | padded id, `SHARE` |
//! | what sharing tokens are made of where no secret key is configured | `SECRET` | `SHARING` |
//! | when a user, and when anybody, viewed an insight last (as the counter) | `PROJECT#{id}#VIEWED#{user}`, `PROJECT#{id}#VIEWS#{id modulo 8}` | padded id |
//! | activity entry; pointer from an item's own log | `PROJECT#{id}#ACTIVITY#{scope}#{month}`, `...#ACTIVITY#{scope}#ITEM#{item}` | time and uuid |
//! | number of a log's entries on a day | `PROJECT#{id}#ACTIVITY#{scope}#DAYS` | day |
//! | calculation result | `PROJECT#{id}#RESULT` | cache key |
//! | what is known of a question's calculation in the background; what a caller's name for calculations stands for | `PROJECT#{id}#QUERY` | `KEY#{cache key}`, `ID#{name}` |
//! | calculation that waits for a worker | `JOB#{its number modulo 8}` | uuid |
//! | action, cohort, dashboard | `PROJECT#{id}#ACTION`, `#COHORT`, `#DASHBOARD` | padded id |
//! | summary row of one that is not deleted; that every one of the kind has its row | `PROJECT#{id}#ACTIONROW`, `#COHORTROW`, `#DASHBOARDROW` | padded id; `WHOLE` |
//! | which live action has a name (as its version) | `PROJECT#{id}#ACTIONNAME#{name}` | `NAME` |
//! | what is to be done from when on: tiles or insights of a deleted dashboard go, parts of a cohort's list go | `DUE` | `{instant}#DASHBOARD#{project}#{id}`, `{instant}#INSIGHTS#{project}#{id}`, `{instant}#MEMBERS#{project}#{id}#{generation}` |
//! | an insight's tile on a dashboard | `PROJECT#{id}#DASHBOARD#{dashboard}` | `TILE#{padded id of the insight}` |
//! | calls of an API key in a window of time | `CALLS#{hash}` | limit and number of the window |
//! | what was created under an `Idempotency-Key` | `ONCE#{hash}` | `ONCE` |
//! | counters of ids | `COUNTER` | kind |
//!
//! Ids are padded so that text order is number order.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Key;

mod calculations;
mod flag_keys;
mod scheduled_tasks;

pub use calculations::{
    JOB_PREFIX, JOB_SHARDS, QUERY_NAME_BYTES_MAX, job, jobs_pk, jobs_pks, query_name, query_state, result,
};
pub use flag_keys::{flag_calls, flag_key_live, flag_keys_pk, live_flag_key};
pub use scheduled_tasks::{
    SCHEDULED_TASKS, ScheduledTask, cohort_members_task, dashboard_insights_task, dashboard_tiles_task,
    is_due, parse_scheduled_task,
};

/// Number of a project.
pub type ProjectId = u64;

/// What an id counter counts. An id is never given twice in an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Flags.
    Flag,
    /// Role accesses.
    RoleAccess,
    /// Insights.
    Insight,
    /// Actions, cohorts, dashboards and tiles each.
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

/// A record of a project that is addressed by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Flag => "FLAG",
            Kind::Insight => "INSIGHT",
            Kind::Action => "ACTION",
            Kind::Cohort => "COHORT",
            Kind::Dashboard => "DASHBOARD",
            Kind::ActionRow => "ACTIONROW",
            Kind::CohortRow => "COHORTROW",
            Kind::DashboardRow => "DASHBOARDROW",
        }
    }
}

/// The text form of a number that sorts like the number.
pub fn padded(id: u64) -> String {
    format!("{id:020}")
}

/// The partition of everything that a workspace file declares for the installation.
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

/// The entry of a declared thing in the installation's list.
pub fn declared(kind: &str, id: &str) -> Key {
    Key::new(INSTALLATION, format!("{kind}#{id}"))
}

/// An API key, by the hash of its secret. Its item's counter is the time of its last use, in seconds since the epoch.
pub fn api_key(hash: &str) -> Key {
    Key::new(format!("KEY#{hash}"), "KEY")
}

/// Longest text that can be a token; the store takes no longer keys.
pub const TOKEN_BYTES_MAX: usize = 1000;

/// The project that a token names.
pub fn token(token: &str) -> Key {
    Key::new(format!("TOKEN#{token}"), "TOKEN")
}

/// A project's settings.
pub fn project(id: ProjectId) -> Key {
    Key::new(format!("PROJECT#{id}"), "PROJECT")
}

/// There once an event of the project has arrived.
pub fn project_ingested(id: ProjectId) -> Key {
    Key::new(format!("PROJECT#{id}"), "INGESTED")
}

/// A counter that every write of a flag, cohort or group type of the project raises. Beside it stand sums over the rows
/// of its flags ([`super::RowChecksums`]).
pub fn project_version(id: ProjectId) -> Key {
    Key::new(format!("PROJECT#{id}"), "VERSION")
}

/// The project whose version has to be raised when the item at `key` is written by an administrator: that of a cohort,
/// and the project itself.
pub fn raises_version_of(key: &Key) -> Option<ProjectId> {
    let rest = key.pk.strip_prefix("PROJECT#")?;
    let id = match rest.split_once('#') {
        Some((id, kind)) if kind == Kind::Cohort.word() => id,
        None if key.sk == "PROJECT" => rest,
        _ => return None,
    };
    id.parse().ok()
}

/// Partition of a project's records of one kind.
pub fn records_pk(project: ProjectId, kind: Kind) -> String {
    format!("PROJECT#{project}#{}", kind.word())
}

/// A record of a project.
pub fn record(project: ProjectId, kind: Kind, id: u64) -> Key {
    Key::new(records_pk(project, kind), padded(id))
}

/// There once every record of a kind has its summary row; it comes after these rows. Records that were written before
/// there were any have none until a list is asked for.
pub fn rows_are_whole(project: ProjectId, rows: Kind) -> Key {
    Key::new(records_pk(project, rows), "WHOLE")
}

/// The live action that has a name: its number is the item's version.
pub fn action_name(project: ProjectId, name: &str) -> Key {
    Key::new(format!("PROJECT#{project}#ACTIONNAME#{name}"), "NAME")
}

/// Over how many partitions the summary rows of a project's flags are spread: a page of a query is 1 MB, and the pages
/// of a partition come one after the other.
pub const FLAG_ROW_SHARDS: u64 = 8;

/// Partition of the summary rows of those flags whose number has this remainder.
pub fn flag_rows_pk(project: ProjectId, shard: u64) -> String {
    format!("PROJECT#{project}#FLAGROW#{shard}")
}

/// The summary row of a flag that is not deleted.
pub fn flag_row(project: ProjectId, id: u64) -> Key {
    Key::new(flag_rows_pk(project, id % FLAG_ROW_SHARDS), padded(id))
}

/// Over how many partitions the summary rows of a project's insights are spread, as those of flags are.
pub const INSIGHT_ROW_SHARDS: u64 = 8;

/// Partition of the summary rows of those insights whose number has this remainder.
pub fn insight_rows_pk(project: ProjectId, shard: u64) -> String {
    format!("PROJECT#{project}#INSIGHTROW#{shard}")
}

/// The summary row of an insight that is not deleted.
pub fn insight_row(project: ProjectId, id: u64) -> Key {
    Key::new(insight_rows_pk(project, id % INSIGHT_ROW_SHARDS), padded(id))
}

/// A counter that every write of an insight of the project raises. Beside it stands the sum over the rows of its insights.
pub fn insights_version(project: ProjectId) -> Key {
    Key::new(format!("PROJECT#{project}"), "INSIGHTS")
}

/// Partition of the live flags that depend on others.
pub fn dependents_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#DEPENDENT")
}

/// What a live flag depends on.
pub fn dependent(project: ProjectId, id: u64) -> Key {
    Key::new(dependents_pk(project), padded(id))
}

/// Partition of a project's stored definitions feed.
pub fn feed_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#FEED")
}

/// What the definitions feed is made of; its counter is the number of the version that it was made of.
pub fn feed_head(project: ProjectId) -> Key {
    Key::new(feed_pk(project), "HEAD")
}

/// A part of the document of this form.
pub fn feed_part(project: ProjectId, form: &str, part: u32) -> Key {
    Key::new(feed_pk(project), feed_part_sk(form, part))
}

/// The sort key of a part.
pub fn feed_part_sk(form: &str, part: u32) -> String {
    format!("{form}#{part:03}")
}

/// Partition of the rows that say which roles have access to a flag.
pub fn flag_children_pk(project: ProjectId, flag: u64) -> String {
    format!("PROJECT#{project}#FLAG#{flag}")
}

/// There when a role has access to a flag.
pub fn role_access_of_role(project: ProjectId, flag: u64, role: Uuid) -> Key {
    Key::new(flag_children_pk(project, flag), format!("{FLAG_ROLES}{role}"))
}

/// What the rows of the roles of a flag begin with.
pub const FLAG_ROLES: &str = "ROLE#";

/// Partitions over which the role accesses of one flag are spread, so that many are read side by side: the store
/// answers a query with at most 1 MB at a time.
pub const ROLE_ACCESS_PARTS: u64 = 4;

/// One of the partitions of a flag's role accesses.
pub fn role_accesses_pk(project: ProjectId, flag: u64, part: u64) -> String {
    format!("PROJECT#{project}#FLAG#{flag}#ROLE_ACCESS#{part}")
}

/// A role access of a flag.
pub fn role_access(project: ProjectId, flag: u64, id: u64) -> Key {
    // Ids of one flag may come in steps of any width; multiplying by an odd number with mixed bits evens them out.
    let part = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % ROLE_ACCESS_PARTS;
    Key::new(role_accesses_pk(project, flag, part), padded(id))
}

/// Partition of what belongs to one dashboard.
pub fn dashboard_children_pk(project: ProjectId, dashboard: u64) -> String {
    format!("PROJECT#{project}#DASHBOARD#{dashboard}")
}

/// Prefix of a dashboard's tiles.
pub const DASHBOARD_TILES: &str = "TILE#";

/// There while an insight is on a dashboard; the tile itself is part of the insight.
pub fn dashboard_tile(project: ProjectId, dashboard: u64, insight: u64) -> Key {
    Key::new(dashboard_children_pk(project, dashboard), format!("{DASHBOARD_TILES}{}", padded(insight)))
}

/// The insight that has a short id.
pub fn short_id(project: ProjectId, short_id: &str) -> Key {
    Key::new(format!("PROJECT#{project}#SHORT"), short_id)
}

/// How an insight is shared.
pub fn sharing(project: ProjectId, insight: u64) -> Key {
    Key::new(format!("PROJECT#{project}#SHARING"), padded(insight))
}

/// There while the sharing token with this hash opens an insight.
pub fn share(hash: &str) -> Key {
    Key::new(format!("SHARE#{hash}"), "SHARE")
}

/// What was created under an `Idempotency-Key`.
pub fn once(hash: &str) -> Key {
    Key::new(format!("ONCE#{hash}"), "ONCE")
}

/// The secret of an installation that was given none.
pub fn sharing_secret() -> Key {
    Key::new("SECRET", "SHARING")
}

/// Partition of what a user has viewed.
pub fn viewed_pk(project: ProjectId, user: u64) -> String {
    format!("PROJECT#{project}#VIEWED#{user}")
}

/// When a user viewed an insight last; the item's counter is the time, in microseconds since the epoch.
pub fn viewed(project: ProjectId, user: u64, insight: u64) -> Key {
    Key::new(viewed_pk(project, user), padded(insight))
}

/// Over how many partitions the times of latest views are spread, as summary rows are.
pub const VIEW_SHARDS: u64 = 8;

/// Partition of the latest views of those insights whose number has this remainder.
pub fn views_pk(project: ProjectId, shard: u64) -> String {
    format!("PROJECT#{project}#VIEWS#{shard}")
}

/// When anybody viewed an insight last; the item's counter is the time, in microseconds since the epoch.
pub fn views(project: ProjectId, insight: u64) -> Key {
    Key::new(views_pk(project, insight % VIEW_SHARDS), padded(insight))
}

/// Partition of the activity entries of a month, which is the start of a day or of an instant: `2026-01...`. Entries of
/// a month lie together, so that no partition grows without bound.
pub fn activity_month_pk(project: ProjectId, scope: &str, month: &str) -> String {
    format!("PROJECT#{project}#ACTIVITY#{scope}#{}", month.get(..MONTH_CHARS).unwrap_or(month))
}

/// Characters of a month.
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

/// The pointer to an activity entry in the log of its item. It has the sort key of the entry.
pub fn activity_of(project: ProjectId, scope: &str, item: u64, at: DateTime<Utc>, id: Uuid) -> Key {
    Key::new(activity_of_item_pk(project, scope, item), activity_sk(at, id))
}

/// Partition of the numbers of entries by day.
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

/// The counter of erasures of a project's events: results that were calculated before the last one are not shown.
pub fn erasures(project: ProjectId) -> Key {
    Key::new(format!("PROJECT#{project}"), "ERASURES")
}

/// The calls of an API key that count against `limit` in a window of time.
pub fn calls(hash: &str, limit: &str, window: u64) -> Key {
    Key::new(format!("CALLS#{hash}"), format!("{limit}#{window}"))
}

/// The counter of the ids of one kind.
pub fn counter(of: Counter) -> Key {
    let kind = match of {
        Counter::Flag => "FLAG",
        Counter::RoleAccess => "ROLE_ACCESS",
        Counter::Insight => "INSIGHT",
        Counter::Action => "ACTION",
        Counter::Cohort => "COHORT",
        Counter::Dashboard => "DASHBOARD",
        Counter::Tile => "TILE",
        Counter::User => "USER",
    };
    Key::new("COUNTER", kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_accesses_spread_evenly_whatever_the_steps_of_their_ids() {
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
