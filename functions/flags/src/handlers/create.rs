//! `POST P/feature_flags/`: creates a flag.

use super::retrieve::retrieve;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json_text};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::store::keys::{self, Counter, ProjectId};
use pennon_core::store::{Item, Key};
use pennon_flag_rules::relations::body_references::{self, BodyReferences};
use pennon_flag_rules::{CallTimes, Flag, FlagInput, ValidationContext, WriteKind, is_possible_key};

use super::MAX_ATTEMPTS;
use crate::Flags;
use crate::local_evaluation::check_feed_size;
use crate::referenced_records::{ReferenceIds, ResolvedReferences, resolve_references};
use crate::store::{FlagWriteOutcome, ProjectVersion, StoredFlag, flag_template};
use crate::usage_dashboard::ReservedDashboardIds;
use crate::user::user_ref;
use pennon_role_access::payloads::encrypt_payloads;
use pennon_role_access::permissions::{FlagOwnership, FlagPermissions};
use pennon_role_access::validation_error;

/// Creates a flag. Deleted flags that had its key stay as they are.
pub async fn create(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let retrieve_again = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| create_flag(state.clone(), call), retrieve_again).await
}

async fn create_flag(state: Flags, call: Call) -> ApiResult<Response> {
    let app = &state.app;
    let early_body = call.credential().and_then(|_| call.fields().ok());
    let mentioned =
        early_body.as_ref().map_or_else(BodyReferences::default, |body| body_references::collect(body, None));
    let plan = ReadPlan { reference_ids: ReferenceIds::of(&mentioned), mentioned };
    let (access, items) =
        app.authorize_project_with(&call, crate::WRITE_SCOPE, |project| plan.keys(project)).await?;
    let project = access.project.id;
    let mut prefetched = Some(plan.decode(&items)?);
    let body = match early_body {
        Some(body) => body,
        None => call.fields()?,
    };
    let restored = call.restored.clone();
    let mut id = restored.as_ref().and_then(|it| i64::try_from(it.id).ok());
    let mut reserved: Option<ReservedDashboardIds> = None;
    let mut needs_size_check = false;
    for _ in 0..MAX_ATTEMPTS {
        let inputs = match prefetched.take() {
            Some(inputs) => inputs,
            None => plan.fetch(app, project).await?,
        };
        let (input, resolved) = validate(&state, project, &body, &plan, inputs).await?;
        let id = match id {
            Some(id) => id,
            None => *id.insert(app.store.records.increment(&keys::counter(Counter::Flag), 1).await?),
        };
        let user = access.caller.user();
        let at = access.write_time(call.now);
        let mut flag = Flag::create(id, &input, at, &user_ref(user)).map_err(validation_error)?;
        if let Some(restored) = &restored {
            flag.usage_dashboard = restored.usage_dashboard;
            // A restored flag that was enabled before is not enabled anew.
            flag.performed_rollback = input.values.performed_rollback;
        }
        let records = &app.store.records;
        if input.should_create_usage_dashboard && reserved.is_none() {
            reserved = Some(ReservedDashboardIds::reserve(records).await?);
        }
        let (flag, mut extra_writes) = match &reserved {
            Some(reserved) => reserved.build(project, &flag, user, at)?,
            None => (flag, Vec::new()),
        };
        extra_writes.extend(idempotency_write(&call, id)?);
        // The creator may edit the flag, and its cohorts are loaded: no round trip here.
        let permissions =
            FlagPermissions::load(app, &access, std::iter::once(FlagOwnership::from(&flag))).await?;
        let record = encrypt_payloads(&app.payload_keys, project, &flag, None)?;
        let mut preconditions = resolved.preconditions(project, flag.id);
        preconditions.feed_growth = resolved.feed_growth(&flag);
        if needs_size_check || preconditions.feed_growth.exceeds_limit() {
            let changed = StoredFlag { flag: record.clone().into_owned(), version: 1 };
            let types = &access.project.group_types;
            preconditions.feed_growth =
                check_feed_size(&state, project, types, None, &changed, preconditions.feed_growth).await?;
        }
        let outcome =
            crate::store::create(records, project, &record, user, preconditions, extra_writes).await?;
        if outcome == FlagWriteOutcome::Written {
            state.compiled.invalidate(project);
            let viewer = permissions.viewer(&flag);
            let template = flag_template(
                &state,
                project,
                &StoredFlag { flag, version: 1 },
                &resolved.references.cohort_names(),
            );
            return Ok(json_text(StatusCode::CREATED, template.render(viewer, call.now, &CallTimes::none())));
        }
        needs_size_check = outcome == FlagWriteOutcome::VersionConflict;
    }
    Err(ApiError::busy(1))
}

/// The reads of a create, planned from the request body.
struct ReadPlan {
    mentioned: BodyReferences,
    reference_ids: ReferenceIds,
}

/// The result of those reads.
struct CreateInputs {
    /// Id of the live flag that holds the key.
    key_holder: Option<i64>,
    version: ProjectVersion,
    references: ResolvedReferences,
}

impl ReadPlan {
    /// The requested key, if it is a valid flag key.
    fn key(&self) -> Option<&String> {
        self.mentioned.key.as_ref().filter(|key| is_possible_key(key))
    }

    /// Table keys of the claim on the key, of the project's version when the body refers to flags, and of the
    /// referenced records.
    fn keys(&self, project: ProjectId) -> Vec<Key> {
        let key_claim = self.key().map(|key| keys::flag_key_live(project, key));
        let version = self.reference_ids.has_flags().then(|| keys::project_version(project));
        key_claim.into_iter().chain(version).chain(self.reference_ids.keys(project)).collect()
    }

    /// Decodes the items that were read for the keys.
    fn decode(&self, items: &[Option<Item>]) -> ApiResult<CreateInputs> {
        let mut items = items.iter();
        let key_claim = self.key().and_then(|_| items.next()).and_then(Option::as_ref);
        let version =
            if self.reference_ids.has_flags() { items.next().and_then(Option::as_ref) } else { None };
        Ok(CreateInputs {
            key_holder: key_claim.map(|key_claim| key_claim.count),
            version: ProjectVersion::from_item(version),
            references: ResolvedReferences::from_items(&self.reference_ids, items.as_slice())?,
        })
    }

    async fn fetch(&self, app: &App, project: ProjectId) -> ApiResult<CreateInputs> {
        let keys = self.keys(project);
        match keys.is_empty() {
            true => self.decode(&[]),
            false => self.decode(&app.store.records.batch_get(&keys).await?),
        }
    }
}

/// Validates the body and loads the records that it refers to.
async fn validate(
    state: &Flags,
    project: ProjectId,
    body: &Fields,
    plan: &ReadPlan,
    inputs: CreateInputs,
) -> ApiResult<(FlagInput, ResolvedReferences)> {
    let CreateInputs { key_holder, version, references } = inputs;
    let resolved = resolve_references(state, project, version, &plan.mentioned, references).await?;
    let context = ValidationContext {
        stored: None,
        key_holder,
        references: &resolved.references,
        dashboards: &resolved.dashboards,
        linked_to_early_access: false,
    };
    let input = FlagInput::parse(body, WriteKind::Create, &context).map_err(validation_error)?;
    Ok((input, resolved))
}
