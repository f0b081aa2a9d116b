//! Validates a workspace file as a whole, before anything is written.

use std::collections::HashSet;
use std::hash::Hash;

use pennon_analytics::kinds::paths::validate_cleaning_filters;
use pennon_core::auth::{TOKEN_BYTES_MAX, is_scope};
use pennon_core::limits::api_keys;
use pennon_eventstore::BlockPartitions;
use pennon_flag_rules::flag::field_table::workspace_fields;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::file::Workspace;
use super::flag_insight_specs::is_insight_field;

/// Most group types of a project.
const GROUP_TYPES_MAX: usize = 5;
/// Most members of a cohort that a file lists.
pub(super) const COHORT_MEMBERS_MAX: usize = 10_000;
/// Most bytes of a layout; the limit of the HTTP API.
const LAYOUT_BYTES_MAX: usize = 4096;
/// Most characters of a short id, which has only letters and digits.
const SHORT_ID_CHARS_MAX: usize = 12;
/// Insights have no ids of eight digits, because clients treat these as short ids.
const RESERVED_IDS: std::ops::Range<u64> = 10_000_000..100_000_000;

/// Validates `workspace`; the error names the first problem and its place in the file. `merged` has all declarations after the
/// file is applied, which the file may reference and must not contradict.
pub fn validate(workspace: &Workspace, merged: &Workspace) -> Result<(), String> {
    let organizations: HashSet<Uuid> = merged.organizations.iter().map(|org| org.id).collect();
    let users: HashSet<&str> = merged.users.iter().map(|user| user.email.as_str()).collect();
    let projects: HashSet<u64> = merged.projects.iter().map(|project| project.id).collect();
    check_unique(workspace)?;
    check_unique(merged).map_err(|problem| format!("together with what is declared already: {problem}"))?;
    check_entries(workspace, &organizations, &users, &projects)
}

fn check_unique(workspace: &Workspace) -> Result<(), String> {
    require_unique("organizations", "id", workspace.organizations.iter().map(|org| org.id))?;
    require_unique("users", "id", workspace.users.iter().map(|user| user.id))?;
    require_unique("users", "email", workspace.users.iter().map(|user| &user.email))?;
    require_unique("projects", "id", workspace.projects.iter().map(|project| project.id))?;
    require_unique("projects", "token", workspace.projects.iter().map(|project| &project.token))?;
    require_unique("roles", "id", workspace.roles.iter().map(|role| role.id))?;
    require_unique("keys", "label and user", workspace.keys.iter().map(|key| (&key.label, &key.user)))?;
    require_unique("actions", "id", workspace.actions.iter().map(|action| (action.project, action.id)))?;
    require_unique("cohorts", "id", workspace.cohorts.iter().map(|cohort| (cohort.project, cohort.id)))?;
    require_unique(
        "dashboards",
        "id",
        workspace.dashboards.iter().map(|dashboard| (dashboard.project, dashboard.id)),
    )?;
    // Ids of flags and insights are unique in an installation, not only in a project.
    require_unique("flags", "id", workspace.flags.iter().map(|flag| flag.id))?;
    require_unique("insights", "id", workspace.insights.iter().map(|insight| insight.id))
}

fn check_entries(
    workspace: &Workspace,
    organizations: &HashSet<Uuid>,
    users: &HashSet<&str>,
    projects: &HashSet<u64>,
) -> Result<(), String> {
    for (at, user) in workspace.users.iter().enumerate() {
        require(!user.email.trim().is_empty(), || format!("users[{at}].email: may not be empty"))?;
        for membership in &user.memberships {
            require_declared(organizations, &membership.organization, || format!("users[{at}].memberships"))?;
        }
    }
    for (at, cohort) in workspace.cohorts.iter().enumerate() {
        require(cohort.distinct_ids.len() + cohort.person_ids.len() <= COHORT_MEMBERS_MAX, || {
            format!("cohorts[{at}].distinct_ids: more than {COHORT_MEMBERS_MAX}")
        })?;
    }
    for (at, project) in workspace.projects.iter().enumerate() {
        require_declared(organizations, &project.organization, || format!("projects[{at}].organization"))?;
        require(project.token.len() >= 3, || format!("projects[{at}].token: at least 3 characters"))?;
        require(project.token.len() <= TOKEN_BYTES_MAX, || {
            format!("projects[{at}].token: at most {TOKEN_BYTES_MAX} bytes")
        })?;
        require(project.timezone.parse::<chrono_tz::Tz>().is_ok(), || {
            format!("projects[{at}].timezone: \"{}\" is not an IANA time zone", project.timezone)
        })?;
        require(project.week_start_day.is_none_or(|day| day <= 1), || {
            format!("projects[{at}].week_start_day: 0 for Sunday or 1 for Monday")
        })?;
        validate_cleaning_filters(&project.path_cleaning_filters)
            .map_err(|error| format!("projects[{at}].path_cleaning_filters: {}", error.detail))?;
        require(project.block_partitions.is_none_or(|count| BlockPartitions::new(count).is_some()), || {
            format!("projects[{at}].block_partitions: 4, 8, 16, 32 or 64")
        })?;
        require(project.group_types.len() <= GROUP_TYPES_MAX, || {
            format!("projects[{at}].group_types: at most {GROUP_TYPES_MAX}")
        })?;
    }
    for (at, role) in workspace.roles.iter().enumerate() {
        require_declared(organizations, &role.organization, || format!("roles[{at}].organization"))?;
        for member in &role.members {
            require_declared(users, &member.as_str(), || format!("roles[{at}].members"))?;
        }
    }
    check_keys(workspace, organizations, users, projects)?;
    check_records(workspace, users, projects)
}

fn check_keys(
    workspace: &Workspace,
    organizations: &HashSet<Uuid>,
    users: &HashSet<&str>,
    projects: &HashSet<u64>,
) -> Result<(), String> {
    for (at, key) in workspace.keys.iter().enumerate() {
        require_declared(users, &key.user.as_str(), || format!("keys[{at}].user"))?;
        require(key.label.chars().count() <= api_keys::LABEL_CHARS, || {
            format!("keys[{at}].label: at most {} characters", api_keys::LABEL_CHARS)
        })?;
        require(key.hash.as_deref().is_none_or(is_hash), || format!("keys[{at}].hash: no hash of a key"))?;
        if let Some(scope) = key.scopes.iter().find(|scope| !is_scope(scope)) {
            return Err(format!(
                "keys[{at}].scopes: \"{scope}\" is not a scope; use object:read, object:write or *"
            ));
        }
        for project in &key.projects {
            require_declared(projects, project, || format!("keys[{at}].projects"))?;
        }
        for organization in &key.organizations {
            require_declared(organizations, organization, || format!("keys[{at}].organizations"))?;
        }
    }
    Ok(())
}

fn check_records(
    workspace: &Workspace,
    users: &HashSet<&str>,
    projects: &HashSet<u64>,
) -> Result<(), String> {
    let of_projects = (workspace.actions.iter().map(|action| ("actions", action.project)))
        .chain(workspace.cohorts.iter().map(|cohort| ("cohorts", cohort.project)))
        .chain(workspace.dashboards.iter().map(|dashboard| ("dashboards", dashboard.project)))
        .chain(workspace.flags.iter().map(|flag| ("flags", flag.project)))
        .chain(workspace.insights.iter().map(|insight| ("insights", insight.project)));
    for (section, project) in of_projects {
        require_declared(projects, &project, || section.to_owned())?;
    }
    for (at, dashboard) in workspace.dashboards.iter().enumerate() {
        require(matches!(dashboard.restriction_level, 21 | 37), || {
            format!("dashboards[{at}].restriction_level: 21 or 37")
        })?;
        if let Some(creator) = &dashboard.created_by {
            require_declared(users, &creator.as_str(), || format!("dashboards[{at}].created_by"))?;
        }
    }
    let creators = (workspace.actions.iter().map(|it| ("actions", &it.created_by)))
        .chain(workspace.cohorts.iter().map(|it| ("cohorts", &it.created_by)))
        .chain(workspace.flags.iter().map(|it| ("flags", &it.created_by)))
        .chain(workspace.insights.iter().map(|it| ("insights", &it.created_by)));
    for (section, creator) in creators {
        if let Some(creator) = creator {
            require_declared(users, &creator.as_str(), || format!("{section}.created_by"))?;
        }
    }
    check_flags_and_insights(workspace)
}

/// Validates the flags and insights of `workspace`, except for the rules of the HTTP API.
fn check_flags_and_insights(workspace: &Workspace) -> Result<(), String> {
    for (at, flag) in workspace.flags.iter().enumerate() {
        let is_known = |name: &str| workspace_fields().iter().any(|field| field.name == name);
        require_known_fields("flags", at, &flag.fields, is_known)?;
        require(flag.id > 0 && i64::try_from(flag.id).is_ok(), || format!("flags[{at}].id: no number"))?;
        let has_key = flag.fields.get("key").is_some_and(Value::is_string);
        require(has_key, || format!("flags[{at}].key: a text is needed"))?;
    }
    for (at, insight) in workspace.insights.iter().enumerate() {
        require_known_fields("insights", at, &insight.fields, is_insight_field)?;
        let is_number =
            insight.id > 0 && !RESERVED_IDS.contains(&insight.id) && i64::try_from(insight.id).is_ok();
        require(is_number, || format!("insights[{at}].id: no number that an insight can have"))?;
        let is_short = |id: &String| {
            (1..=SHORT_ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_alphanumeric())
        };
        require(insight.short_id.as_ref().is_none_or(is_short), || {
            format!("insights[{at}].short_id: one to {SHORT_ID_CHARS_MAX} letters and digits")
        })?;
        for tile in insight.tiles.iter().flatten() {
            let bytes = serde_json::to_vec(&tile.layouts).map_or(0, |text| text.len());
            require(bytes <= LAYOUT_BYTES_MAX, || {
                format!("insights[{at}].tiles: layouts have at most {LAYOUT_BYTES_MAX} bytes")
            })?;
        }
    }
    Ok(())
}

/// Rejects unknown fields: a misspelt field would silently have no effect.
fn require_known_fields(
    section: &str,
    at: usize,
    fields: &Map<String, Value>,
    is_known: impl Fn(&str) -> bool,
) -> Result<(), String> {
    match fields.keys().find(|name| !is_known(name)) {
        Some(name) => Err(format!("{section}[{at}]: unknown field \"{name}\"")),
        None => Ok(()),
    }
}

/// Whether a text is the hash of an API key.
fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix("sha256$");
    digits.is_some_and(|it| {
        it.len() == 64 && it.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
    })
}

fn require(is_valid: bool, error: impl FnOnce() -> String) -> Result<(), String> {
    if is_valid { Ok(()) } else { Err(error()) }
}

fn require_declared<T: Eq + Hash + std::fmt::Display>(
    declared: &HashSet<T>,
    id: &T,
    place: impl FnOnce() -> String,
) -> Result<(), String> {
    require(declared.contains(id), || format!("{}: {id} is not declared", place()))
}

fn require_unique<T: Eq + Hash>(
    section: &str,
    field: &str,
    values: impl Iterator<Item = T>,
) -> Result<(), String> {
    let mut seen = HashSet::new();
    for (at, value) in values.enumerate() {
        require(seen.insert(value), || format!("{section}[{at}]: the {field} is already taken"))?;
    }
    Ok(())
}
