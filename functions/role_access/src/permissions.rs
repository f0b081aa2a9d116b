//! The permissions of the caller on flags: whether a flag may be edited, and how it is rendered.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::app::App;
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::store::Key;
use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_flag_rules::flag::edit_permission::{CallerPermissions, EditDecision, MembershipLevel};
use pennon_flag_rules::{CallTimes, Flag, FlagRow, FlagTemplate, FlagViewer};
use serde::Deserialize;

/// The permissions of the caller, with the names of the cohorts that flags refer to.
pub struct FlagPermissions {
    role_levels: Vec<u8>,
    membership: MembershipLevel,
    organization_level: u8,
    user_id: i64,
    /// Flags to which a role of the caller has access.
    granted_flags: BTreeSet<i64>,
    cohort_names: BTreeMap<i64, String>,
}

/// The parts of a flag that decide the caller's permissions.
#[derive(Debug, Clone, Copy)]
pub struct FlagOwnership {
    /// The flag id.
    pub id: i64,
    /// User id of the creator.
    pub creator_id: Option<i64>,
}

impl From<&Flag> for FlagOwnership {
    fn from(flag: &Flag) -> FlagOwnership {
        FlagOwnership { id: flag.id, creator_id: flag.created_by.as_ref().map(|creator| creator.id) }
    }
}

impl From<&FlagRow> for FlagOwnership {
    fn from(row: &FlagRow) -> FlagOwnership {
        FlagOwnership { id: row.id, creator_id: row.created_by_id }
    }
}

impl FlagPermissions {
    /// The permissions without any look-up: enough to decide who may change role accesses.
    pub fn from_access(access: &Access) -> FlagPermissions {
        FlagPermissions {
            role_levels: access.roles().map(|role| role.level.into()).collect(),
            membership: MembershipLevel::from_level(access.level().number()),
            organization_level: access.project.feature_flags_access_level.into(),
            user_id: i64::try_from(access.caller.user().id).unwrap_or(i64::MAX),
            granted_flags: BTreeSet::new(),
            cohort_names: BTreeMap::new(),
        }
    }

    /// Loads the permissions and cohort names for rendering `flags`; no round trip when the access levels decide and no
    /// flag refers to a cohort.
    pub async fn load_with_cohort_names(
        app: &App,
        access: &Access,
        flags: &[&Flag],
    ) -> ApiResult<FlagPermissions> {
        let cohorts: BTreeSet<i64> = flags.iter().flat_map(|flag| flag.cohort_ids()).collect();
        let ownerships = flags.iter().map(|flag| FlagOwnership::from(*flag));
        let permissions = FlagPermissions::load(app, access, ownerships);
        let (permissions, names) =
            tokio::try_join!(permissions, fetch_cohort_names(app, access.project.id, &cohorts))?;
        Ok(permissions.with_names(names))
    }

    /// Loads the permissions on `flags`; no round trip when the access levels decide.
    pub async fn load(
        app: &App,
        access: &Access,
        flags: impl Iterator<Item = FlagOwnership>,
    ) -> ApiResult<FlagPermissions> {
        let mut permissions = FlagPermissions::from_access(access);
        let project = access.project.id;
        let mut grant_keys: Vec<(i64, Key)> = Vec::new();
        for flag in flags.filter(|flag| permissions.decide(*flag) == EditDecision::DependsOnRoleAccess) {
            let rows = access
                .roles()
                .map(|role| keys::role_access_of_role(project, flag.id.unsigned_abs(), role.role));
            grant_keys.extend(rows.map(|row| (flag.id, row)));
        }
        if grant_keys.is_empty() {
            return Ok(permissions);
        }
        let keys: Vec<Key> = grant_keys.iter().map(|(_, key)| key.clone()).collect();
        let items = app.store.records.batch_get(&keys).await?;
        let granted = grant_keys.iter().zip(items).filter(|(_, item)| item.is_some());
        permissions.granted_flags.extend(granted.map(|((id, _), _)| *id));
        Ok(permissions)
    }

    /// Sets the cohort names.
    #[must_use]
    pub fn with_names(mut self, names: BTreeMap<i64, String>) -> FlagPermissions {
        self.cohort_names = names;
        self
    }

    /// Whether the caller may edit `flag`.
    pub fn can_edit(&self, flag: impl Into<FlagOwnership>) -> bool {
        let flag = flag.into();
        match self.decide(flag) {
            EditDecision::Allowed => true,
            EditDecision::Denied => false,
            EditDecision::DependsOnRoleAccess => self.granted_flags.contains(&flag.id),
        }
    }

    /// Renders the flag for the caller, as JSON text.
    pub fn render(&self, flag: &Flag, now: DateTime<Utc>, calls: &CallTimes) -> String {
        FlagTemplate::new(flag, &self.cohort_names).render(self.viewer(flag), now, calls)
    }

    /// The viewer for rendering `flag`.
    pub fn viewer(&self, flag: impl Into<FlagOwnership>) -> FlagViewer {
        let flag = flag.into();
        self.caller_permissions(flag).viewer(self.can_edit(flag))
    }

    /// The loaded cohort names.
    pub fn cohort_names(&self) -> &BTreeMap<i64, String> {
        &self.cohort_names
    }

    /// Whether the caller may change which roles have access to `flag`.
    pub fn can_change_role_access(&self, flag: &Flag) -> bool {
        self.caller_permissions(flag.into()).can_change_role_access()
    }

    fn decide(&self, flag: FlagOwnership) -> EditDecision {
        self.caller_permissions(flag).can_edit()
    }

    fn caller_permissions(&self, flag: FlagOwnership) -> CallerPermissions<'_> {
        CallerPermissions {
            is_creator: flag.creator_id == Some(self.user_id),
            membership: self.membership,
            organization_level: Some(self.organization_level),
            role_levels: &self.role_levels,
        }
    }
}

/// Fetches the names of the live cohorts among `ids`; no round trip when it is empty.
pub async fn fetch_cohort_names(
    app: &App,
    project: ProjectId,
    ids: &BTreeSet<i64>,
) -> ApiResult<BTreeMap<i64, String>> {
    let ids: Vec<i64> = ids.iter().copied().filter(|id| *id > 0).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let keys: Vec<Key> =
        ids.iter().map(|id| keys::record(project, RecordKind::Cohort, id.unsigned_abs())).collect();
    let mut names = BTreeMap::new();
    for (id, item) in ids.into_iter().zip(app.store.records.batch_get(&keys).await?) {
        let Some(item) = item else { continue };
        let cohort: CohortNameRecord = item.body()?;
        if !cohort.deleted {
            names.insert(id, cohort.name);
        }
    }
    Ok(names)
}

/// The part of a cohort record that is needed; criteria and members may be large.
#[derive(Deserialize)]
struct CohortNameRecord {
    name: String,
    #[serde(default)]
    deleted: bool,
}
