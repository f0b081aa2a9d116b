//! The handlers: parse, read, answer.

use axum::extract::State;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::auth::Caller;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, json};
use pennon_core::model::{Organization, Project};
use pennon_core::store::keys::{self, ProjectId};
use serde_json::{Value, json as object};
use uuid::Uuid;

use crate::answers;

const READ_PROJECT: &str = "project:read";
pub const READ_ORGANIZATION: &str = "organization:read";
const READ_USER: &str = "user:read";

/// `GET /api/projects/`
pub async fn list_projects(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = app.caller(&call, |caller| unbound(caller, READ_PROJECT)).await?;
    let ids = app.reachable_projects(&caller).await?;
    page_of_projects(&app, &call, &caller, &ids).await
}

/// `GET /api/projects/{project_id}/`
pub async fn retrieve_project(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, [ingested]) = app.project(&call, READ_PROJECT, |id| [keys::project_ingested(id)]).await?;
    Ok(json(answers::project(&access.project, ingested.is_some(), access.level())))
}

/// `GET /api/users/@me/`. A limited key may ask it too: it tells nothing but whose key it is.
pub async fn retrieve_user(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = app.caller(&call, |caller| caller.require(READ_USER)).await?;
    let (organizations, projects) =
        tokio::try_join!(organizations(&app, &caller), app.reachable_projects(&caller))?;
    let team = match projects.first() {
        Some(id) => summaries(&app, &caller, &[*id]).await?.pop(),
        None => None,
    };
    let organizations = shown(&caller, &organizations);
    Ok(json(answers::user(&caller, &organizations, team)))
}

/// `GET /api/personal_api_keys/@current/`. Any live key may read itself.
pub async fn retrieve_key(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = app.caller(&call, |_| Ok(())).await?;
    let key = caller.key();
    Ok(json(object!({
        "label": key.label,
        "mask_value": key.mask,
        "scopes": key.scopes,
        "scoped_teams": key.projects,
        "scoped_organizations": key.organizations,
        "created_at": timestamp(key.created_at),
        "last_used_at": key.last_used_at.map(timestamp),
        "expires_at": key.expires_at.map(timestamp),
        "user": key.user.id,
    })))
}

/// `GET /api/organizations/`
pub async fn list_organizations(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = app.caller(&call, |caller| unbound(caller, READ_ORGANIZATION)).await?;
    let all = shown(&caller, &organizations(&app, &caller).await?);
    let page = Page::of(&call);
    let results = page.slice(&all).to_vec();
    Ok(json(page.envelope(&call, all.len(), results)))
}

/// `GET /api/organizations/{organization_id}/`, also `@current`
pub async fn retrieve_organization(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (caller, organization) = organization_of(&app, &call, READ_ORGANIZATION).await?;
    shown(&caller, &[organization]).pop().map(json).ok_or_else(ApiError::not_found)
}

/// `GET /api/organizations/{organization_id}/projects/`
pub async fn list_organization_projects(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (caller, ids) = organization_projects(&app, &call).await?;
    page_of_projects(&app, &call, &caller, &ids).await
}

/// `GET /api/organizations/{organization_id}/projects/{id}/`
pub async fn retrieve_organization_project(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (caller, ids) = organization_projects(&app, &call).await?;
    let id = call.id("id").filter(|id| ids.contains(id)).ok_or_else(ApiError::not_found)?;
    let (project, ingested) = load_projects(&app, &[id]).await?.pop().ok_or_else(ApiError::not_found)?;
    let level = caller.key().level_in(project.organization).ok_or_else(ApiError::not_found)?;
    Ok(json(answers::project(&project, ingested, level)))
}

async fn organization_projects(app: &App, call: &Call) -> ApiResult<(Caller, Vec<ProjectId>)> {
    let (caller, organization) = organization_of(app, call, READ_PROJECT).await?;
    let ids = app.reachable_projects(&caller).await?;
    let projects = load_projects(app, &ids).await?;
    let own = projects.into_iter().filter(|(project, _)| project.organization == organization.id);
    Ok((caller, own.map(|(project, _)| project.id).collect()))
}

/// 403 for a key that is limited to projects or lacks `scope`.
fn unbound(caller: &Caller, scope: &'static str) -> ApiResult<()> {
    caller.require_unbound()?;
    caller.require(scope)
}

/// The organization that a path's segment means: `@current` is the first that the caller reaches.
fn organization_named(caller: &Caller, segment: &str) -> Option<Uuid> {
    if segment != "@current" {
        return segment.parse().ok();
    }
    let reached = caller.key().memberships.iter().map(|membership| membership.organization);
    reached.into_iter().find(|id| caller.reaches_organization(*id))
}

/// The organization that the path names, for a caller with `scope` who belongs to it.
pub async fn organization_of(
    app: &App,
    call: &Call,
    scope: &'static str,
) -> ApiResult<(Caller, Organization)> {
    let mut named = None;
    let caller = app
        .caller(call, |caller| {
            caller.require_unbound()?;
            let id = organization_named(caller, call.param("organization_id"));
            named = id;
            let limits = &caller.key().organizations;
            if let Some(id) = id.filter(|id| !limits.is_empty() && !limits.contains(id)) {
                let detail = format!("API key does not have access to the requested organization: ID {id}.");
                return Err(ApiError::forbidden(detail));
            }
            caller.require(scope)
        })
        .await?;
    let id = named.ok_or_else(ApiError::not_found)?;
    // Somebody else's organization is as unknown as none.
    caller.key().level_in(id).ok_or_else(ApiError::not_found)?;
    let item = app.store.records.get(&keys::organization(id)).await?.ok_or_else(ApiError::not_found)?;
    Ok((caller, item.body()?))
}

async fn organizations(app: &App, caller: &Caller) -> ApiResult<Vec<Organization>> {
    let ids = caller.key().memberships.iter().map(|membership| membership.organization);
    let wanted: Vec<_> = ids.filter(|id| caller.reaches_organization(*id)).map(keys::organization).collect();
    let items = app.store.records.batch_get(&wanted).await?;
    Ok(items.into_iter().flatten().map(|item| item.body()).collect::<Result<_, _>>()?)
}

fn shown(caller: &Caller, organizations: &[Organization]) -> Vec<Value> {
    let level = |organization: &Organization| caller.key().level_in(organization.id);
    organizations.iter().filter_map(|it| Some(answers::organization(it, level(it)?))).collect()
}

/// The projects, each with whether it has received an event.
async fn load_projects(app: &App, ids: &[ProjectId]) -> ApiResult<Vec<(Project, bool)>> {
    let wanted: Vec<_> =
        ids.iter().flat_map(|id| [keys::project(*id), keys::project_ingested(*id)]).collect();
    let items = app.store.records.batch_get(&wanted).await?;
    let pairs = items.chunks(2).filter_map(|pair| Some((pair[0].as_ref()?, pair[1].is_some())));
    pairs.map(|(item, ingested)| Ok((item.body()?, ingested))).collect()
}

/// The projects as lists show them to `caller`.
async fn summaries(app: &App, caller: &Caller, ids: &[ProjectId]) -> ApiResult<Vec<Value>> {
    let projects = load_projects(app, ids).await?;
    let summaries = projects.iter().filter_map(|(project, ingested)| {
        let level = caller.key().level_in(project.organization)?;
        Some(answers::project_summary(project, *ingested, level))
    });
    Ok(summaries.collect())
}

async fn page_of_projects(app: &App, call: &Call, caller: &Caller, ids: &[ProjectId]) -> ApiResult<Response> {
    let page = Page::of(call);
    let results = summaries(app, caller, page.slice(ids)).await?;
    Ok(json(page.envelope(call, ids.len(), results)))
}
