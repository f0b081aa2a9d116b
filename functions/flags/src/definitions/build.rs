//! Making a feed: the flags, the cohorts that they name, both documents and their compressed forms.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use flate2::{Compression, GzBuilder};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::Flag;
use pennon_engine::flag::cohort::Cohort;
use pennon_engine::flag::definitions::{CohortForm, Definitions, etag};

use super::answer::{GZIP_BYTES_MAX, TEXT_BYTES_MAX};
use super::memory::{Body, Feed, Form};
use crate::Flags;
use crate::persons::cohorts::load;
use crate::store::{RECORDS_KIB_MAX, Rows, Stored, Version, flags_of, kib};

/// The feed of the flags that `rows` are of, for the version `before` that was read before the rows.
pub async fn build(
    flags: &Flags,
    project: ProjectId,
    rows: &Rows,
    before: Version,
    group_types: Vec<String>,
) -> ApiResult<Feed> {
    let number = rows.not_older_than(before);
    if kib(rows.all()) > RECORDS_KIB_MAX {
        return Ok(Feed { number, group_types, sent: Form::too_large(), flattened: Form::too_large() });
    }
    let wanted: Vec<(i64, u64)> = rows.all().iter().map(|row| (row.id, row.item_version)).collect();
    let named: BTreeSet<i64> = rows.all().iter().flat_map(|row| row.cohort_ids.iter().copied()).collect();
    let (records, cohorts) =
        tokio::try_join!(flags_of(flags, project, &wanted), load(flags, project, named))?;
    // Thousands of flags take a while, in which other requests of this process go on.
    let made = tokio::task::spawn_blocking(move || {
        documents(project, &records, &cohorts.by_id, &group_types).map(|(sent, flattened)| Feed {
            number,
            group_types,
            sent,
            flattened,
        })
    });
    made.await.map_err(|e| ApiError::internal(&e))?.map_err(|e| ApiError::internal(&e))
}

/// Both forms.
fn documents(
    project: ProjectId,
    records: &[Arc<Stored>],
    cohorts: &BTreeMap<i64, Cohort>,
    group_types: &[String],
) -> std::io::Result<(Form, Form)> {
    let flags: Vec<&Flag> = records.iter().map(|stored| &stored.flag).collect();
    let definitions = Definitions::new(project, flags.iter().copied());
    let text = |form| definitions.document(cohorts, group_types, form, TEXT_BYTES_MAX).ok();
    let sent = document(text(CohortForm::Sent))?;
    if cohorts.is_empty() {
        return Ok((sent.clone(), sent));
    }
    let flattened = document(text(CohortForm::Flattened))?;
    Ok((sent, flattened))
}

/// The document of this text; without one it was too large to be made.
fn document(text: Option<String>) -> std::io::Result<Form> {
    let Some(text) = text else { return Ok(Form::too_large()) };
    // Without a time, so that the same text has the same bytes.
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes())?;
    let gzip = gzip.finish()?;
    let body = if gzip.len() > GZIP_BYTES_MAX { Body::TooLarge } else { Body::Here(Bytes::from(gzip)) };
    Ok(Form { tag: etag(&text), length: text.len(), body })
}
