//! Flags and conditions put to the persons and groups of a project.
//!
//! Must stay true: a person is asked about with everything that was acknowledged before the request; going through all
//! persons takes bounded memory and time, and what is above a limit is refused and never half done.

pub mod all;
pub mod cohorts;
pub mod one;

use chrono_tz::Tz;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_engine::flag::FlagRow;
use pennon_eventstore::EventStoreError;

use crate::store::{RECORDS_KIB_MAX, kib};

/// The answer to a request that the event store failed or refused.
pub fn refused(error: EventStoreError) -> ApiError {
    error.into()
}

/// 400 when the records of the flags of `rows` are larger than what one request reads.
pub fn require_readable<'a>(rows: impl IntoIterator<Item = &'a FlagRow>) -> ApiResult<()> {
    if kib(rows) <= RECORDS_KIB_MAX {
        return Ok(());
    }
    let detail = format!(
        "The records of the project's flags are larger than what is read for one answer: at most {RECORDS_KIB_MAX} \
         KiB together, each rounded up. Long lists of values and payloads take most of it."
    );
    Err(ApiError::invalid("invalid_input", detail, None))
}

/// The time zone of naive dates.
pub fn zone(access: &Access) -> ApiResult<Tz> {
    access.project.timezone.parse().map_err(|error| ApiError::internal(&error))
}
