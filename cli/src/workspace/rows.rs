//! Derives all rows from the declarations. Pure: the same state has the same rows.

use std::collections::BTreeMap;

use pennon_core::auth::KeyRecord;
use pennon_core::model::{
    AccessLevel, Declared, Membership, Organization, Project, Role, RoleMember, RoleMembership, TokenRow,
    User, UserRecord,
};
use pennon_core::store::Key;
use pennon_core::store::keys::{self, RecordKind};
use pennon_eventstore::BlockPartitions;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::declarations::Declarations;
use super::file::UserSpec;

/// Namespace of uuids that are derived from other ids.
const NAMESPACE: Uuid = Uuid::from_u128(0x7a0c_61f2_52b4_4b0e_9d0b_3f3b_1c5e_a901);

/// All rows of `state` except the declarations themselves.
pub fn derive_rows(state: &Declarations) -> Result<BTreeMap<Key, Value>, serde_json::Error> {
    let mut rows = Rows::default();
    for org in state.organizations.values() {
        let record = Organization {
            id: org.spec.id,
            name: org.spec.name.clone(),
            feature_flags_access_level: org.spec.feature_flags_access_level,
            created_at: org.created_at,
        };
        rows.add(keys::organization(org.spec.id), &record)?;
    }
    for user in state.users.values() {
        let record = UserRecord {
            user: user_snapshot(&user.spec),
            is_active: user.spec.is_active,
            memberships: memberships(&user.spec),
            created_at: user.created_at,
        };
        rows.add(keys::user(user.spec.id), &record)?;
    }
    add_projects(state, &mut rows)?;
    for role in state.roles.values() {
        let members = role.spec.members.iter().filter_map(|email| {
            let member = find_user(state, email)?;
            let level =
                member.spec.memberships.iter().find(|it| it.organization == role.spec.organization)?.level;
            Some(RoleMember { user: user_snapshot(&member.spec), level, joined_at: role.created_at })
        });
        let record = Role {
            id: role.spec.id,
            organization: role.spec.organization,
            name: role.spec.name.clone(),
            feature_flags_access_level: role.spec.feature_flags_access_level,
            created_at: role.created_at,
            members: members.collect(),
        };
        rows.add(keys::role(role.spec.organization, role.spec.id), &record)?;
    }
    add_api_keys(state, &mut rows)?;
    add_project_records(state, &mut rows)?;
    Ok(rows.0)
}

#[derive(Default)]
struct Rows(BTreeMap<Key, Value>);

impl Rows {
    fn add<T: Serialize>(&mut self, key: Key, record: &T) -> Result<(), serde_json::Error> {
        self.0.insert(key, serde_json::to_value(record)?);
        Ok(())
    }
}

fn add_projects(state: &Declarations, rows: &mut Rows) -> Result<(), serde_json::Error> {
    for project in state.projects.values() {
        let spec = &project.spec;
        let organization = state.organizations.get(&spec.organization.to_string());
        let record = Project {
            id: spec.id,
            uuid: derive_uuid("project", &spec.id.to_string()),
            organization: spec.organization,
            name: spec.name.clone(),
            token: spec.token.clone(),
            timezone: spec.timezone.clone(),
            week_start_day: spec.week_start_day,
            test_account_filters: spec.test_account_filters.clone(),
            path_cleaning_filters: spec.path_cleaning_filters.clone(),
            group_types: spec.group_types.clone(),
            aggregate_users_by_distinct_id: spec.aggregate_users_by_distinct_id,
            feature_flags_access_level: organization
                .map_or(AccessLevel::Edit, |org| org.spec.feature_flags_access_level),
            feature_flag_quota_exhausted: spec.feature_flag_quota_exhausted,
            created_at: project.created_at,
            updated_at: project.updated_at,
        };
        rows.add(keys::project(spec.id), &record)?;
        rows.add(keys::token(&spec.token), &TokenRow { project: spec.id })?;
        rows.add(keys::organization_project(spec.organization, spec.id), &json!({}))?;
        if let Some(partitions) = spec.block_partitions.and_then(BlockPartitions::new) {
            let (key, body) = partitions.row(spec.id);
            rows.add(key, &body)?;
        }
    }
    Ok(())
}

fn add_api_keys(state: &Declarations, rows: &mut Rows) -> Result<(), serde_json::Error> {
    for (hash, key) in &state.keys {
        let Some(owner) = find_user(state, &key.spec.user) else { continue };
        let has_role = state.roles.values().filter(|role| role.spec.members.contains(&key.spec.user));
        let roles = has_role.map(|role| RoleMembership {
            organization: role.spec.organization,
            role: role.spec.id,
            level: role.spec.feature_flags_access_level,
        });
        let record = KeyRecord {
            label: key.spec.label.clone(),
            mask: key.mask.clone(),
            user: user_snapshot(&owner.spec),
            is_active: owner.spec.is_active,
            scopes: key.spec.scopes.clone(),
            projects: key.spec.projects.clone(),
            organizations: key.spec.organizations.clone(),
            memberships: memberships(&owner.spec),
            roles: roles.collect(),
            created_at: key.created_at,
            expires_at: key.spec.expires_at,
            last_used_at: None,
        };
        rows.add(keys::api_key(hash), &record)?;
    }
    Ok(())
}

fn add_project_records(state: &Declarations, rows: &mut Rows) -> Result<(), serde_json::Error> {
    let creator = |email: &Option<String>| {
        let user = email.as_deref().and_then(|email| find_user(state, email));
        user.map(|user| json!(user_snapshot(&user.spec)))
    };
    for action in state.actions.values() {
        let spec = &action.spec;
        let mut record = json!({
            "id": spec.id, "name": spec.name, "steps": spec.steps, "created_at": spec.created_at.unwrap_or(action.created_at), "deleted": false,
        });
        let optional = [
            ("description", spec.description.as_ref().map(|it| json!(it))),
            ("tags", spec.tags.as_ref().map(|it| json!(it))),
            ("pinned_at", spec.pinned_at.map(|it| json!(it))),
            ("post_to_slack", spec.post_to_slack.map(|it| json!(it))),
            ("slack_message_format", spec.slack_message_format.as_ref().map(|it| json!(it))),
            ("created_by", creator(&spec.created_by)),
        ];
        add_optional_fields(&mut record, optional);
        rows.add(keys::record(spec.project, RecordKind::Action, spec.id), &record)?;
    }
    for cohort in state.cohorts.values() {
        let spec = &cohort.spec;
        let mut record = json!({
            "id": spec.id, "name": spec.name, "filters": spec.filters, "groups": spec.groups,
            "is_static": spec.is_static, "distinct_ids": spec.distinct_ids, "created_at": spec.created_at.unwrap_or(cohort.created_at),
            "deleted": false,
        });
        let optional = [
            ("person_ids", (!spec.person_ids.is_empty()).then(|| json!(spec.person_ids))),
            ("description", spec.description.as_ref().map(|it| json!(it))),
            ("created_by", creator(&spec.created_by)),
        ];
        add_optional_fields(&mut record, optional);
        rows.add(keys::record(spec.project, RecordKind::Cohort, spec.id), &record)?;
    }
    for dashboard in state.dashboards.values() {
        let spec = &dashboard.spec;
        let mut record = json!({
            "id": spec.id, "name": spec.name, "filters": spec.filters.clone().unwrap_or(json!({})),
            "restriction_level": spec.restriction_level, "created_by": creator(&spec.created_by),
            "created_at": spec.created_at.unwrap_or(dashboard.created_at), "deleted": spec.deleted,
        });
        let optional = [
            ("description", spec.description.as_ref().map(|it| json!(it))),
            ("pinned", spec.pinned.map(|it| json!(it))),
            ("tags", spec.tags.as_ref().map(|it| json!(it))),
            ("creation_mode", spec.creation_mode.as_ref().map(|it| json!(it))),
            ("generated", spec.generated.clone()),
        ];
        add_optional_fields(&mut record, optional);
        rows.add(keys::record(spec.project, RecordKind::Dashboard, spec.id), &record)?;
    }
    Ok(())
}

/// Adds the fields that the file has. The others stay absent, so that they can be set over HTTP.
fn add_optional_fields(
    record: &mut Value,
    optional: impl IntoIterator<Item = (&'static str, Option<Value>)>,
) {
    for (field, value) in optional {
        if let Some(value) = value {
            record[field] = value;
        }
    }
}

fn find_user<'a>(state: &'a Declarations, email: &str) -> Option<&'a Declared<UserSpec>> {
    state.users.values().find(|user| user.spec.email == email)
}

fn memberships(user: &UserSpec) -> Vec<Membership> {
    let of = |it: &super::file::MembershipSpec| Membership { organization: it.organization, level: it.level };
    user.memberships.iter().map(of).collect()
}

fn user_snapshot(user: &UserSpec) -> User {
    let uuid = derive_uuid("user", &user.id.to_string());
    User {
        id: user.id,
        uuid,
        distinct_id: user.distinct_id.clone().unwrap_or_else(|| uuid.to_string()),
        first_name: user.first_name.clone(),
        last_name: user.last_name.clone(),
        email: user.email.clone(),
        is_email_verified: None,
        hedgehog_config: None,
        role_at_organization: user.role_at_organization.clone(),
    }
}

fn derive_uuid(kind: &str, id: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{kind}/{id}").as_bytes())
}
