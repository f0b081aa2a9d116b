//! The handlers of the flag API: one file per endpoint.

mod activity;
mod blast_radius;
mod create;
mod dashboard;
mod destroy;
mod evaluation_reasons;
mod flag_writer;
mod list;
mod local_evaluation;
mod my_flags;
mod remote_config;
mod retrieve;
mod static_cohort;
mod status;
mod update;

pub use activity::{activity, all_activity};
pub use blast_radius::user_blast_radius;
pub use create::create;
pub use dashboard::{dashboard, enrich_usage_dashboard};
pub use destroy::destroy;
pub use evaluation_reasons::evaluation_reasons;
pub use list::list;
pub use local_evaluation::{flag_definitions, local_evaluation};
pub use my_flags::my_flags;
pub use remote_config::remote_config;
pub use retrieve::retrieve;
pub use static_cohort::create_static_cohort_for_flag;
pub use status::status;
pub use update::{replace, update};

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields};
use pennon_flag_rules::Flag;
use pennon_role_access::permissions::FlagPermissions;

/// How many times a write is attempted (1 + 11 retries) before the caller gets 503.
const WRITE_ATTEMPTS_MAX: u32 = 12;

/// Parses the body of a request with a credential, before it is authorized: the fields decide what is prefetched. An
/// error is returned after those of the authorization.
fn parse_authenticated(call: &Call) -> ApiResult<Fields> {
    call.credential().ok_or_else(ApiError::not_authenticated)?;
    call.fields()
}

/// 403 unless the caller may edit `flag`.
fn require_edit(permissions: &FlagPermissions, flag: &Flag) -> ApiResult<()> {
    if permissions.can_edit(flag) {
        return Ok(());
    }
    Err(ApiError::forbidden("You don't have edit permissions for this feature flag."))
}
