//! The request handlers.

use axum::extract::State;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::auth::Caller;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, json};
use pennon_core::model::{Organization, Project};
use pennon_core::store::keys::{self, ProjectId};
use serde_json::Value;
use uuid::Uuid;

use crate::responses;

const READ_PROJECT: &str = "project:read";
pub const READ_ORGANIZATION: &str = "organization:read";
const READ_USER: &str = "user:read";

/// `GET /api/projects/`
pub async fn list_projects(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = app.caller(&call, |caller| require_unbound_scope(caller, READ_PROJECT)).await?;
    let ids = app.reachable_projects(&caller).await?;
    project_page(&app, &call, &caller, &ids).await
}

/// `GET /api/projects/{project_id}/`
pub async fn retrieve_project(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, [ingested]) = app.project(&call, READ_PROJECT, |id| [keys::project_ingested(id)]).await?;
    Ok(json(responses::project(&access.project, ingested.is_some(), access.level())))
}

/// `GET /api/users/@me/`. Also for keys that are limited to projects: the response only names the key's owner.
pub async fn retrieve_user(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = app.caller(&call, |caller| caller.require(READ_USER)).await?;
    let (organizations, projects) =
        tokio::try_join!(fetch_organizations(&app, &caller), app.reachable_projects(&caller))?;
    let team = match projects.first() {
        Some(id) => project_summaries(&app, &caller, &[*id]).await?.pop(),
        None => None,
    };
    let organizations = organization_responses(&caller, &organizations);
    Ok(json(responses::user(&caller, &organizations, team)))
}

/// `GET /api/organizations/`
pub async fn list_organizations(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = app.caller(&call, |caller| require_unbound_scope(caller, READ_ORGANIZATION)).await?;
    let all = organization_responses(&caller, &fetch_organizations(&app, &caller).await?);
    let page = Page::of(&call);
    let results = page.slice(&all).to_vec();
    Ok(json(page.envelope(&call, all.len(), results)))
}

/// `GET /api/organizations/{organization_id}/`, also `@current`
pub async fn retrieve_organization(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (caller, organization) = organization_of(&app, &call, READ_ORGANIZATION).await?;
    organization_responses(&caller, &[organization]).pop().map(json).ok_or_else(ApiError::not_found)
}

/// `GET /api/organizations/{organization_id}/projects/`
pub async fn list_organization_projects(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (caller, ids) = accessible_projects_of_organization(&app, &call).await?;
    project_page(&app, &call, &caller, &ids).await
}

/// `GET /api/organizations/{organization_id}/projects/{id}/`
pub async fn retrieve_organization_project(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (caller, ids) = accessible_projects_of_organization(&app, &call).await?;
    let id = call.id("id").filter(|id| ids.contains(id)).ok_or_else(ApiError::not_found)?;
    let (project, ingested) = load_projects(&app, &[id]).await?.pop().ok_or_else(ApiError::not_found)?;
    let level = caller.key().level_in(project.organization).ok_or_else(ApiError::not_found)?;
    Ok(json(responses::project(&project, ingested, level)))
}

async fn accessible_projects_of_organization(app: &App, call: &Call) -> ApiResult<(Caller, Vec<ProjectId>)> {
    let (caller, organization) = organization_of(app, call, READ_PROJECT).await?;
    let ids = app.reachable_projects(&caller).await?;
    let projects = load_projects(app, &ids).await?;
    let in_organization = projects.into_iter().filter(|(project, _)| project.organization == organization.id);
    Ok((caller, in_organization.map(|(project, _)| project.id).collect()))
}

/// 403 for a key that is limited to projects or lacks `scope`.
fn require_unbound_scope(caller: &Caller, scope: &'static str) -> ApiResult<()> {
    caller.require_unbound()?;
    caller.require(scope)
}

/// Resolves the organization in a path: an id, or `@current` for the first one that the caller may access.
fn resolve_organization(caller: &Caller, segment: &str) -> Option<Uuid> {
    if segment != "@current" {
        return segment.parse().ok();
    }
    let organizations = caller.key().memberships.iter().map(|membership| membership.organization);
    organizations.into_iter().find(|id| caller.reaches_organization(*id))
}

/// The caller and the organization in the path: 403 without `scope`, 404 for a caller who is not a member of it.
pub async fn organization_of(
    app: &App,
    call: &Call,
    scope: &'static str,
) -> ApiResult<(Caller, Organization)> {
    let mut resolved = None;
    let caller = app
        .caller(call, |caller| {
            caller.require_unbound()?;
            let id = resolve_organization(caller, call.param("organization_id"));
            resolved = id;
            let limits = &caller.key().organizations;
            if let Some(id) = id.filter(|id| !limits.is_empty() && !limits.contains(id)) {
                let detail = format!("API key does not have access to the requested organization: ID {id}.");
                return Err(ApiError::forbidden(detail));
            }
            caller.require(scope)
        })
        .await?;
    let id = resolved.ok_or_else(ApiError::not_found)?;
    // The same 404 as for an id that does not exist, so that ids of other organizations cannot be probed.
    caller.key().level_in(id).ok_or_else(ApiError::not_found)?;
    let item = app.store.records.get(&keys::organization(id)).await?.ok_or_else(ApiError::not_found)?;
    Ok((caller, item.body()?))
}

async fn fetch_organizations(app: &App, caller: &Caller) -> ApiResult<Vec<Organization>> {
    let ids = caller.key().memberships.iter().map(|membership| membership.organization);
    let keys: Vec<_> = ids.filter(|id| caller.reaches_organization(*id)).map(keys::organization).collect();
    let items = app.store.records.batch_get(&keys).await?;
    Ok(items.into_iter().flatten().map(|item| item.body()).collect::<Result<_, _>>()?)
}

fn organization_responses(caller: &Caller, organizations: &[Organization]) -> Vec<Value> {
    let level = |organization: &Organization| caller.key().level_in(organization.id);
    organizations.iter().filter_map(|it| Some(responses::organization(it, level(it)?))).collect()
}

/// Fetches projects, each with whether it has received an event.
async fn load_projects(app: &App, ids: &[ProjectId]) -> ApiResult<Vec<(Project, bool)>> {
    let keys: Vec<_> = ids.iter().flat_map(|id| [keys::project(*id), keys::project_ingested(*id)]).collect();
    let items = app.store.records.batch_get(&keys).await?;
    let pairs = items.chunks(2).filter_map(|pair| Some((pair[0].as_ref()?, pair[1].is_some())));
    pairs.map(|(item, ingested)| Ok((item.body()?, ingested))).collect()
}

/// Fetches projects in the form of lists, without those of organizations that `caller` is not a member of.
async fn project_summaries(app: &App, caller: &Caller, ids: &[ProjectId]) -> ApiResult<Vec<Value>> {
    let projects = load_projects(app, ids).await?;
    let summaries = projects.iter().filter_map(|(project, ingested)| {
        let level = caller.key().level_in(project.organization)?;
        Some(responses::project_summary(project, *ingested, level))
    });
    Ok(summaries.collect())
}

async fn project_page(app: &App, call: &Call, caller: &Caller, ids: &[ProjectId]) -> ApiResult<Response> {
    let page = Page::of(call);
    let results = project_summaries(app, caller, page.slice(ids)).await?;
    Ok(json(page.envelope(call, ids.len(), results)))
}
