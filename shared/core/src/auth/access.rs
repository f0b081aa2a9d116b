//! The authenticated caller, and the caller's access to a project.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::key::KeyRecord;
use super::scope::Scope;
use crate::error::{ApiError, ApiResult};
use crate::model::{Level, Project, RoleMembership, User};
use crate::store::keys::ProjectId;
use crate::write_times::WriteTimes;

/// An authenticated caller: an API key and its user.
#[derive(Debug, Clone)]
pub struct Caller {
    pub(crate) key: Arc<KeyRecord>,
}

impl Caller {
    /// A caller without an API key. No user has the id 0.
    fn anonymous() -> Caller {
        let user = User {
            id: 0,
            uuid: Uuid::nil(),
            distinct_id: String::new(),
            first_name: String::new(),
            last_name: String::new(),
            email: String::new(),
            is_email_verified: None,
            hedgehog_config: None,
            role_at_organization: None,
        };
        let key = KeyRecord {
            label: String::new(),
            mask: String::new(),
            user,
            is_active: false,
            scopes: Vec::new(),
            projects: Vec::new(),
            organizations: Vec::new(),
            memberships: Vec::new(),
            roles: Vec::new(),
            created_at: DateTime::UNIX_EPOCH,
            expires_at: None,
            last_used_at: None,
        };
        Caller { key: Arc::new(key) }
    }

    /// The user who owns the key.
    pub fn user(&self) -> &User {
        &self.key.user
    }

    /// The API key.
    pub fn key(&self) -> &KeyRecord {
        &self.key
    }

    /// 403 if the key lacks `scope`.
    pub fn require(&self, scope: impl Into<Scope>) -> ApiResult<()> {
        let scope = scope.into();
        if scope.is_granted(&self.key.scopes) {
            return Ok(());
        }
        Err(ApiError::forbidden(format!("API key missing required scope '{}'", scope.name)))
    }

    /// 403 if the key is limited to projects, for endpoints without a project.
    pub fn require_unbound(&self) -> ApiResult<()> {
        if self.key.projects.is_empty() {
            return Ok(());
        }
        let detail = "API keys with scoped projects are only supported on project-based endpoints.";
        Err(ApiError::forbidden(detail))
    }

    /// Whether the user is a member of `organization` and the key may access it.
    pub fn reaches_organization(&self, organization: Uuid) -> bool {
        let limits = &self.key.organizations;
        (limits.is_empty() || limits.contains(&organization)) && self.key.level_in(organization).is_some()
    }

    /// Whether the key is unlimited or includes project `id`.
    pub fn reaches_project(&self, id: ProjectId) -> bool {
        self.key.projects.is_empty() || self.key.projects.contains(&id)
    }
}

/// Proof that the caller may access a project. Handlers need it to read or write the project's data.
#[derive(Debug, Clone)]
pub struct Access {
    /// The caller.
    pub caller: Caller,
    /// The project.
    pub project: Project,
    level: Level,
    is_shared_link: bool,
    pub(crate) write_times: WriteTimes,
    /// The activity logs that the request may write to.
    logs: &'static [&'static str],
}

impl Access {
    /// Whether access was granted by a public sharing link instead of an API key.
    pub fn is_shared_link(&self) -> bool {
        self.is_shared_link
    }

    /// Anonymous read access to `project` by a public sharing link.
    pub(crate) fn of_link(project: Project) -> Access {
        Access {
            caller: Caller::anonymous(),
            project,
            level: Level::Member,
            is_shared_link: true,
            write_times: WriteTimes::default(),
            logs: &[],
        }
    }

    /// The instant to store with a change at `now`: never before the newest entry of its activity log.
    pub fn write_time(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        self.write_times.next(self.project.id, self.logs, now)
    }

    /// The caller's level in the project's organization.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The caller's roles in the project's organization.
    pub fn roles(&self) -> impl Iterator<Item = &RoleMembership> {
        let organization = self.project.organization;
        self.caller.key.roles.iter().filter(move |role| role.organization == organization)
    }

    /// Authorizes `caller` for `project` and `scope`; 403 otherwise.
    pub(crate) fn check(caller: Caller, project: Project, scope: Scope) -> ApiResult<Access> {
        let key = &caller.key;
        if !caller.reaches_project(project.id) {
            let detail = format!("API key does not have access to the requested project: ID {}.", project.id);
            return Err(ApiError::forbidden(detail));
        }
        if !key.organizations.is_empty() && !key.organizations.contains(&project.organization) {
            let id = project.organization;
            let detail = format!("API key does not have access to the requested organization: ID {id}.");
            return Err(ApiError::forbidden(detail));
        }
        caller.require(scope)?;
        let level = key
            .level_in(project.organization)
            .ok_or_else(|| ApiError::forbidden("You don't have access to the project."))?;
        let logs = scope.logs();
        Ok(Access { caller, project, level, is_shared_link: false, write_times: WriteTimes::default(), logs })
    }
}
