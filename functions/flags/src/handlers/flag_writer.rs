//! The steps that a create and an update of a flag share.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, json_text};
use pennon_core::store::Write;
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::{CallTimes, Flag};
use pennon_role_access::payloads::encrypt_payloads;
use pennon_role_access::permissions::{FlagOwnership, FlagPermissions};

use crate::Flags;
use crate::local_evaluation::FeedSizeCheck;
use crate::store::{self, FlagPreconditions, FlagWrite, FlagWriteOutcome, StoredFlag, flag_template};

/// An authorized request that writes one flag, and what its attempts have learned.
pub struct FlagWriter<'a> {
    pub state: &'a Flags,
    pub call: &'a Call,
    pub access: &'a Access,
    pub project: ProjectId,
    feed_size: FeedSizeCheck,
}

/// A validated change of a flag. Flags have their payloads in clear.
pub struct FlagChange<'a> {
    /// The flag before the change, as stored and in clear; `None` on create.
    pub before: Option<(&'a StoredFlag, &'a Flag)>,
    pub after: &'a Flag,
    pub preconditions: FlagPreconditions,
    pub extra_writes: Vec<Write>,
}

impl<'a> FlagWriter<'a> {
    pub fn new(state: &'a Flags, call: &'a Call, access: &'a Access) -> FlagWriter<'a> {
        FlagWriter { state, call, access, project: access.project.id, feed_size: FeedSizeCheck::default() }
    }

    /// Loads the caller's permissions on `flag`.
    pub async fn permissions(&self, flag: &Flag) -> ApiResult<FlagPermissions> {
        let ownership = FlagOwnership::from(flag);
        FlagPermissions::load(&self.state.app, self.access, std::iter::once(ownership)).await
    }

    /// Commits a change, with encrypted payloads. Returns false if a concurrent write was committed first.
    pub async fn commit(&mut self, change: FlagChange<'_>) -> ApiResult<bool> {
        let FlagChange { before, after, mut preconditions, extra_writes } = change;
        let (app, project) = (&self.state.app, self.project);
        let stored_and_clear = before.map(|(stored, clear)| (&stored.flag, clear));
        let record = encrypt_payloads(&app.payload_keys, project, after, stored_and_clear)?;
        let before = before.map(|(stored, _)| stored);
        preconditions.feed_growth = self
            .feed_size
            .growth(self.state, &self.access.project, before, &record, preconditions.feed_growth)
            .await?;
        let user = self.access.caller.user();
        let write = FlagWrite { before, after: &record, user, preconditions, extra_writes };
        let outcome = store::write(&app.store.records, project, write).await?;
        self.feed_size.note_outcome(&outcome);
        if outcome != FlagWriteOutcome::Written {
            return Ok(false);
        }
        self.state.compiled.invalidate(project);
        Ok(true)
    }

    /// The response with the written flag.
    pub fn response(
        &self,
        status: StatusCode,
        written: &StoredFlag,
        permissions: &FlagPermissions,
        cohort_names: &BTreeMap<i64, String>,
        calls: &CallTimes,
    ) -> Response {
        let template = flag_template(self.state, self.project, written, cohort_names);
        json_text(status, template.render(permissions.viewer(&written.flag), self.call.now, calls))
    }
}
