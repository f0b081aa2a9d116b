//! Lists the members and the roles of an organization.
//!
//! Users and roles come from the workspace file. There are few of them, so a list fetches all and then slices the page.

use axum::extract::State;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, Page};
use pennon_core::model::{Role, UserRecord, organization_member};
use pennon_core::store::{PartitionQuery, keys};
use uuid::Uuid;

use crate::handlers::{READ_ORGANIZATION, organization_of};

const READ_MEMBERS: &str = "organization_member:read";

/// `GET /api/organizations/{organization_id}/members/`: active users, sorted by id; `email` filters.
pub async fn list_members(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (_, organization) = organization_of(&app, &call, READ_MEMBERS).await?;
    let email = call.query_value("email").map(str::trim).filter(|email| !email.is_empty());
    let users = fetch_active_users(&app, organization.id).await?;
    let matching: Vec<&UserRecord> = users
        .iter()
        .filter(|record| email.is_none_or(|email| record.user.email.eq_ignore_ascii_case(email)))
        .collect();
    let page = Page::of(&call);
    let to_response = |record: &&UserRecord| {
        let level = record.level_in(organization.id)?;
        Some(organization_member(organization.id, &record.user, level, record.created_at).to_string())
    };
    let results: Vec<String> = page.slice(&matching).iter().filter_map(to_response).collect();
    page.reply(&call, matching.len(), &results)
}

/// `GET /api/organizations/{organization_id}/roles/`: sorted by name; `name` filters.
pub async fn list_roles(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (_, organization) = organization_of(&app, &call, READ_ORGANIZATION).await?;
    let name = call.query_value("name").filter(|name| !name.is_empty());
    let query =
        PartitionQuery::partition(keys::organization_pk(organization.id)).prefix(keys::ORGANIZATION_ROLES);
    let items = app.store.records.query(query).await?;
    let mut roles = items.iter().map(|item| item.body::<Role>()).collect::<Result<Vec<_>, _>>()?;
    roles.retain(|role| name.is_none_or(|name| role.name == name));
    roles.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    let page = Page::of(&call);
    let results: Vec<String> = page.slice(&roles).iter().map(|role| role.to_response().to_string()).collect();
    page.reply(&call, roles.len(), &results)
}

/// Fetches the active members of `organization`, sorted by id.
async fn fetch_active_users(app: &App, organization: Uuid) -> ApiResult<Vec<UserRecord>> {
    let records = &app.store.records;
    let declared =
        records.query(PartitionQuery::partition(keys::INSTALLATION).prefix(keys::DECLARED_USERS)).await?;
    let parse_id = |sk: &str| sk.strip_prefix(keys::DECLARED_USERS).and_then(|id| id.parse().ok());
    let keys: Vec<_> = declared.iter().filter_map(|item| parse_id(&item.key.sk)).map(keys::user).collect();
    let items = records.batch_get(&keys).await?;
    let users =
        items.into_iter().flatten().map(|item| item.body()).collect::<Result<Vec<UserRecord>, _>>()?;
    let mut users: Vec<UserRecord> =
        users.into_iter().filter(|user| user.is_active && user.level_in(organization).is_some()).collect();
    users.sort_by_key(|user| user.user.id);
    Ok(users)
}
