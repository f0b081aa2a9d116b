//! Requests to the API's routes in this process, over an installation that the command opens.

use std::sync::Arc;

use chrono::Utc;
use pennon_core::auth::KeyRecord;
use pennon_core::model::UserRecord;
use pennon_core::store::keys::{self, ProjectId};
use serde_json::Value;

use super::{Access, ApiFailure};
use crate::api::{InProcessApi, in_process_key};
use crate::args::ApiTarget;
use crate::installation::{Installation, open_existing, open_for_reading};
use crate::workspace::Declarations;

/// The label of the key in the activity log and in logs.
const LABEL: &str = "command line";

/// The API of an opened installation.
pub(super) struct LocalTransport {
    api: InProcessApi,
    key: Arc<KeyRecord>,
    /// Holds the lock of the data directory.
    installation: Installation,
}

impl LocalTransport {
    /// Opens the installation of `target`; returns its API and the project.
    pub(super) async fn open(
        target: &ApiTarget,
        access: Access<'_>,
    ) -> Result<(LocalTransport, ProjectId), String> {
        let installation = match access {
            Access::Read => open_for_reading(&target.target).await?,
            Access::Change(_) => open_existing(&target.target).await?,
        };
        let records = &installation.store.records;
        let state = Declarations::load(records).await.map_err(|e| e.to_string())?;
        let project = state.resolve_project(target.project)?;
        if !state.has_project(project) {
            return Err(format!("there is no project {project}; `pennon apply` declares projects"));
        }
        let id = find_user(&state, access)?;
        let item = records.get(&keys::user(id)).await.map_err(|e| e.to_string())?;
        let item = item.ok_or_else(|| format!("user {id} has no record; run `pennon apply` again"))?;
        let UserRecord { user, .. } = item.body().map_err(|e| e.to_string())?;
        let organizations = state.organizations.values().map(|it| it.spec.id);
        let key = Arc::new(in_process_key(user, organizations, LABEL, Utc::now()));
        let api = InProcessApi::new(&installation.services()?);
        Ok((LocalTransport { api, key, installation }, project))
    }

    /// Whether another process has the tables open, so that events arrive.
    pub(super) fn is_live(&self) -> bool {
        self.installation.local.as_ref().is_none_or(|local| local.server.is_some())
    }

    pub(super) async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, ApiFailure> {
        let sent = self.api.send(&self.key, (method, path, body), None).await;
        let (status, bytes) = sent.map_err(ApiFailure::without_response)?;
        if !status.is_success() {
            return Err(ApiFailure::of_response(status.as_u16(), &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|e| ApiFailure::without_response(e.to_string()))
    }
}

/// The id of the user as whom requests are sent. Reading is the same for all users; a change is logged with its user.
fn find_user(state: &Declarations, access: Access<'_>) -> Result<u64, String> {
    let mut users = state.users.values().map(|user| &user.spec);
    match access {
        Access::Change(Some(email)) => {
            users.find(|user| user.email == email).map(|user| user.id).ok_or_else(|| {
                format!("there is no user {email}; --user takes the mail address of a declared user")
            })
        }
        Access::Change(None) => match (users.next(), users.next()) {
            (Some(only), None) => Ok(only.id),
            (None, _) => Err("there is no user yet; declare one with `pennon apply`".to_owned()),
            _ => {
                Err("there are several users; name the one who makes the change with --user EMAIL".to_owned())
            }
        },
        Access::Read => users
            .next()
            .map(|user| user.id)
            .ok_or_else(|| "there is no user yet; declare one with `pennon apply`".to_owned()),
    }
}
