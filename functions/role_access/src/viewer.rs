//! The caller in front of a flag: may it be edited, and how is it shown.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::app::App;
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::store::Key;
use pennon_core::store::keys::{self, Kind};
use pennon_engine::flag::Flag;
use pennon_engine::flag::edit_right::{Caller, Decision, Membership};
use serde_json::Value;

/// What is known of the caller and of the cohorts that flags name.
pub struct Viewers {
    role_levels: Vec<u8>,
    membership: Membership,
    organization_level: u8,
    user: i64,
    opened: BTreeSet<i64>,
    cohort_names: BTreeMap<i64, String>,
}

impl Viewers {
    /// Looks up what the answers for `flags` need; no round trip when the levels decide and no flag names a cohort.
    pub async fn load(app: &App, access: &Access, flags: &[&Flag]) -> ApiResult<Viewers> {
        let mut viewers = Viewers {
            role_levels: access.roles().map(|role| role.level.into()).collect(),
            membership: Membership::from_level(access.level().number()),
            organization_level: access.project.feature_flags_access_level.into(),
            user: i64::try_from(access.caller.user().id).unwrap_or(i64::MAX),
            opened: BTreeSet::new(),
            cohort_names: BTreeMap::new(),
        };
        let project = access.project.id;
        let undecided = flags.iter().filter(|flag| viewers.decide(flag) == Decision::DependsOnRoleAccess);
        let mut wanted: Vec<(i64, Key)> = Vec::new();
        for flag in undecided {
            let rows = access
                .roles()
                .map(|role| keys::role_access_of_role(project, flag.id.unsigned_abs(), role.role));
            wanted.extend(rows.map(|row| (flag.id, row)));
        }
        let cohorts: BTreeSet<i64> = flags.iter().flat_map(|flag| flag.cohort_ids()).collect();
        let mut batch: Vec<Key> = wanted.iter().map(|(_, key)| key.clone()).collect();
        batch.extend(cohorts.iter().map(|id| keys::record(project, Kind::Cohort, id.unsigned_abs())));
        let mut found = app.store.records.batch_get(&batch).await?.into_iter();
        for (id, _) in &wanted {
            if found.next().flatten().is_some() {
                viewers.opened.insert(*id);
            }
        }
        for (id, item) in cohorts.into_iter().zip(found) {
            let Some(item) = item else { continue };
            if let Some(name) = cohort_name(&item.body()?) {
                viewers.cohort_names.insert(id, name);
            }
        }
        Ok(viewers)
    }

    /// Whether the caller may edit `flag`.
    pub fn can_edit(&self, flag: &Flag) -> bool {
        match self.decide(flag) {
            Decision::Yes => true,
            Decision::No => false,
            Decision::DependsOnRoleAccess => self.opened.contains(&flag.id),
        }
    }

    /// The record as the caller sees it.
    pub fn show(&self, flag: &Flag, now: DateTime<Utc>) -> Value {
        let viewer = self.caller(flag).viewer(self.can_edit(flag));
        flag.response(viewer, &self.cohort_names, now)
    }

    fn decide(&self, flag: &Flag) -> Decision {
        self.caller(flag).can_edit()
    }

    /// Whether the caller may change which roles have access to `flag`.
    pub fn can_change_role_access(&self, flag: &Flag) -> bool {
        self.caller(flag).can_change_role_access()
    }

    fn caller(&self, flag: &Flag) -> Caller<'_> {
        Caller {
            is_creator: flag.created_by.as_ref().is_some_and(|creator| creator.id == self.user),
            membership: self.membership,
            organization_level: Some(self.organization_level),
            role_levels: &self.role_levels,
        }
    }
}

fn cohort_name(cohort: &Value) -> Option<String> {
    (cohort["deleted"] != true).then(|| cohort["name"].as_str().map(str::to_owned)).flatten()
}
