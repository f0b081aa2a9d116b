//! The caller in front of a flag: may it be edited, and how is it shown.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::app::App;
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::store::Key;
use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_engine::flag::edit_right::{Caller, Decision, Membership};
use pennon_engine::flag::{CallTimes, Flag, FlagRow, Prepared, Viewer};
use serde::Deserialize;

/// What is known of the caller and of the cohorts that flags name.
pub struct Viewers {
    role_levels: Vec<u8>,
    membership: Membership,
    organization_level: u8,
    user: i64,
    opened: BTreeSet<i64>,
    cohort_names: BTreeMap<i64, String>,
}

/// What of a flag its caller's rights depend on.
#[derive(Debug, Clone, Copy)]
pub struct Owned {
    /// The flag.
    pub id: i64,
    /// Who made it.
    pub creator: Option<i64>,
}

impl From<&Flag> for Owned {
    fn from(flag: &Flag) -> Owned {
        Owned { id: flag.id, creator: flag.created_by.as_ref().map(|creator| creator.id) }
    }
}

impl From<&FlagRow> for Owned {
    fn from(row: &FlagRow) -> Owned {
        Owned { id: row.id, creator: row.created_by_id }
    }
}

impl Viewers {
    /// What is known without looking anything up: enough to tell who may change role accesses.
    pub fn of(access: &Access) -> Viewers {
        Viewers {
            role_levels: access.roles().map(|role| role.level.into()).collect(),
            membership: Membership::from_level(access.level().number()),
            organization_level: access.project.feature_flags_access_level.into(),
            user: i64::try_from(access.caller.user().id).unwrap_or(i64::MAX),
            opened: BTreeSet::new(),
            cohort_names: BTreeMap::new(),
        }
    }

    /// Looks up what the answers for `flags` need; no round trip when the levels decide and no flag names a cohort.
    pub async fn load(app: &App, access: &Access, flags: &[&Flag]) -> ApiResult<Viewers> {
        let cohorts: BTreeSet<i64> = flags.iter().flat_map(|flag| flag.cohort_ids()).collect();
        let owned = flags.iter().map(|flag| Owned::from(*flag));
        let rights = Viewers::rights(app, access, owned);
        let (viewers, names) = tokio::try_join!(rights, cohort_names(app, access.project.id, &cohorts))?;
        Ok(viewers.with_names(names))
    }

    /// Looks up what the caller may do with `flags`; no round trip when the levels decide.
    pub async fn rights(
        app: &App,
        access: &Access,
        flags: impl Iterator<Item = Owned>,
    ) -> ApiResult<Viewers> {
        let mut viewers = Viewers::of(access);
        let project = access.project.id;
        let mut wanted: Vec<(i64, Key)> = Vec::new();
        for flag in flags.filter(|flag| viewers.decide(*flag) == Decision::DependsOnRoleAccess) {
            let rows = access
                .roles()
                .map(|role| keys::role_access_of_role(project, flag.id.unsigned_abs(), role.role));
            wanted.extend(rows.map(|row| (flag.id, row)));
        }
        if wanted.is_empty() {
            return Ok(viewers);
        }
        let batch: Vec<Key> = wanted.iter().map(|(_, key)| key.clone()).collect();
        let found = app.store.records.batch_get(&batch).await?;
        let opened = wanted.iter().zip(found).filter(|(_, item)| item.is_some());
        viewers.opened.extend(opened.map(|((id, _), _)| *id));
        Ok(viewers)
    }

    /// The same, with the names of cohorts.
    #[must_use]
    pub fn with_names(mut self, names: BTreeMap<i64, String>) -> Viewers {
        self.cohort_names = names;
        self
    }

    /// Whether the caller may edit `flag`.
    pub fn can_edit(&self, flag: impl Into<Owned>) -> bool {
        let flag = flag.into();
        match self.decide(flag) {
            Decision::Yes => true,
            Decision::No => false,
            Decision::DependsOnRoleAccess => self.opened.contains(&flag.id),
        }
    }

    /// The record as the caller sees it, as JSON text.
    pub fn text(&self, flag: &Flag, now: DateTime<Utc>, calls: &CallTimes) -> String {
        Prepared::new(flag, &self.cohort_names).text(self.viewer(flag), now, calls)
    }

    /// The caller in front of `flag`.
    pub fn viewer(&self, flag: impl Into<Owned>) -> Viewer {
        let flag = flag.into();
        self.caller(flag).viewer(self.can_edit(flag))
    }

    /// The names of cohorts that were looked up.
    pub fn cohort_names(&self) -> &BTreeMap<i64, String> {
        &self.cohort_names
    }

    /// Whether the caller may change which roles have access to `flag`.
    pub fn can_change_role_access(&self, flag: &Flag) -> bool {
        self.caller(flag.into()).can_change_role_access()
    }

    fn decide(&self, flag: Owned) -> Decision {
        self.caller(flag).can_edit()
    }

    fn caller(&self, flag: Owned) -> Caller<'_> {
        Caller {
            is_creator: flag.creator == Some(self.user),
            membership: self.membership,
            organization_level: Some(self.organization_level),
            role_levels: &self.role_levels,
        }
    }
}

/// The names of those of the cohorts `ids` that are live; no round trip when there are none.
pub async fn cohort_names(
    app: &App,
    project: ProjectId,
    ids: &BTreeSet<i64>,
) -> ApiResult<BTreeMap<i64, String>> {
    let ids: Vec<i64> = ids.iter().copied().filter(|id| *id > 0).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let wanted: Vec<Key> =
        ids.iter().map(|id| keys::record(project, Kind::Cohort, id.unsigned_abs())).collect();
    let mut names = BTreeMap::new();
    for (id, item) in ids.into_iter().zip(app.store.records.batch_get(&wanted).await?) {
        let Some(item) = item else { continue };
        let cohort: Named = item.body()?;
        if !cohort.deleted {
            names.insert(id, cohort.name);
        }
    }
    Ok(names)
}

/// What of a cohort is shown; its criteria and members may be long.
#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    deleted: bool,
}
