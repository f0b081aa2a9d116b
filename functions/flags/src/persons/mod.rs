//! Evaluates flags and conditions for the stored persons and groups of a project.
//!
//! Must stay true: an evaluation includes every event that was acknowledged before the request; a scan over all persons
//! takes bounded memory and time; a request above a limit is rejected, never processed in part.

pub mod cohorts;
pub mod flag_values;
pub mod scan;

use chrono_tz::Tz;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_eventstore::EventStoreError;
use pennon_flag_rules::FlagRow;

use crate::store::{RECORDS_KIB_MAX, total_kib};

/// The response to an event store error.
pub fn event_store_error(error: EventStoreError) -> ApiError {
    error.into()
}

/// 400 when the records of the flags of `rows` are larger than one request may read.
pub fn check_records_size<'a>(rows: impl IntoIterator<Item = &'a FlagRow>) -> ApiResult<()> {
    if total_kib(rows) <= RECORDS_KIB_MAX {
        return Ok(());
    }
    let detail = format!(
        "The records of the project's flags are larger than one request may read: at most {RECORDS_KIB_MAX} KiB \
         together, each rounded up. Shorten lists of values and payloads, which take most of it."
    );
    Err(ApiError::invalid("invalid_input", detail, None))
}

/// The project's time zone, for dates without an offset.
pub fn timezone(access: &Access) -> ApiResult<Tz> {
    access.project.timezone.parse().map_err(|error| ApiError::internal(&error))
}
