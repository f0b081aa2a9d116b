//! Builds a feed: the flags, the cohorts that they name, both documents and their compressed forms.
//!
//! Must stay true: no two flags of a feed have the same key, although a key may move from one flag to another while
//! records are read.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use flate2::{Compression, GzBuilder};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::{FEED_BYTES_LIMIT, FEED_BYTES_MAX};
use pennon_core::store::StoreError;
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::definitions::{CohortForm, FlagDefinitions, etag};
use pennon_flag_rules::relations::cohort::FlagCohort;
use pennon_flag_rules::{Flag, FlagRow};

use super::cache::{DocumentBody, Feed, FeedDocument};
use super::responses::TEXT_BYTES_MAX;
use crate::Flags;
use crate::persons::cohorts::{self as cohort_store, LoadedCohorts};
use crate::store::{FlagRows, ProjectVersion, RECORDS_KIB_MAX, StoredFlag, load_flags, total_kib};

/// How many times records are read before the caller gets 503.
const MAX_ATTEMPTS: u32 = 5;

/// A feed and its size.
pub struct FeedBuild {
    /// The feed.
    pub feed: Feed,
    /// Used bytes of the size limit; above the limit when the feed is too large.
    pub used_bytes: i64,
}

/// Builds the feed of the flags in `rows`. `before` is the version that was read before the rows.
pub async fn build(
    flags: &Flags,
    project: ProjectId,
    rows: &FlagRows,
    before: ProjectVersion,
    group_types: Vec<String>,
) -> ApiResult<FeedBuild> {
    let inputs = FeedInputs { number: rows.min_version(before), group_types, kib: total_kib(rows.all()) };
    if inputs.kib > RECORDS_KIB_MAX {
        return Ok(inputs.too_large());
    }
    let rows: Vec<&FlagRow> = rows.all().iter().collect();
    let (records, cohorts) = tokio::try_join!(
        load_records(flags, project, &rows),
        load_cohorts(flags, project, &rows, BTreeSet::new())
    )?;
    inputs.build(project, records, cohorts).await
}

/// As [`build`], with `changed` (a record of `length` bytes) in place of the flag with its id.
pub async fn build_with_change(
    flags: &Flags,
    project: ProjectId,
    rows: &FlagRows,
    changed: StoredFlag,
    length: usize,
    group_types: Vec<String>,
) -> ApiResult<FeedBuild> {
    let others: Vec<&FlagRow> = rows.all().iter().filter(|row| row.id != changed.flag.id).collect();
    let kib = total_kib(others.iter().copied()) + length.div_ceil(1024);
    let inputs = FeedInputs { number: rows.version.number, group_types, kib };
    if inputs.kib > RECORDS_KIB_MAX {
        return Ok(inputs.too_large());
    }
    let (mut records, cohorts) = tokio::try_join!(
        load_records(flags, project, &others),
        load_cohorts(flags, project, &others, changed.flag.cohort_ids().into_iter().collect()),
    )?;
    records.push(Arc::new(changed));
    inputs.build(project, records, cohorts).await
}

/// The current records of these rows.
async fn load_records(
    flags: &Flags,
    project: ProjectId,
    rows: &[&FlagRow],
) -> ApiResult<Vec<Arc<StoredFlag>>> {
    let ids: Vec<(i64, u64)> = rows.iter().map(|row| (row.id, row.item_version)).collect();
    for _ in 0..MAX_ATTEMPTS {
        let records = load_flags(flags, project, &ids).await?;
        let mut keys = HashSet::new();
        if records.iter().all(|stored| keys.insert(stored.flag.key.as_str())) {
            return Ok(records);
        }
    }
    Err(StoreError::Conflict.into())
}

/// The cohorts that these rows name, and those in `extra_ids`.
async fn load_cohorts(
    flags: &Flags,
    project: ProjectId,
    rows: &[&FlagRow],
    mut extra_ids: BTreeSet<i64>,
) -> ApiResult<LoadedCohorts> {
    extra_ids.extend(rows.iter().flat_map(|row| row.cohort_ids.iter().copied()));
    Ok(cohort_store::load(flags, project, extra_ids).await?)
}

/// The inputs of a feed besides its records.
struct FeedInputs {
    number: i64,
    group_types: Vec<String>,
    kib: usize,
}

impl FeedInputs {
    fn too_large(self) -> FeedBuild {
        let (sent, flattened) = (FeedDocument::too_large(), FeedDocument::too_large());
        let feed = Feed { number: self.number, group_types: self.group_types, sent, flattened };
        FeedBuild { feed, used_bytes: FEED_BYTES_LIMIT + 1 }
    }

    async fn build(
        self,
        project: ProjectId,
        records: Vec<Arc<StoredFlag>>,
        cohorts: LoadedCohorts,
    ) -> ApiResult<FeedBuild> {
        // Building thousands of flags would block other requests of this process.
        let build = tokio::task::spawn_blocking(move || {
            let (sent, flattened) = build_documents(project, &records, &cohorts.by_id, &self.group_types)?;
            let used_bytes = sent
                .used_bytes
                .max(flattened.used_bytes)
                .max(used_bytes(self.kib * 1024, RECORDS_KIB_MAX * 1024));
            let (sent, flattened) = (sent.document, flattened.document);
            let feed = Feed { number: self.number, group_types: self.group_types, sent, flattened };
            Ok::<_, std::io::Error>(FeedBuild { feed, used_bytes })
        });
        build.await.map_err(|e| ApiError::internal(&e))?.map_err(|e| ApiError::internal(&e))
    }
}

/// Used bytes of the size limit when `bytes` of at most `most` are taken.
fn used_bytes(bytes: usize, most: usize) -> i64 {
    let left = i64::try_from(most).unwrap_or(i64::MAX) - i64::try_from(bytes).unwrap_or(i64::MAX);
    FEED_BYTES_LIMIT - left.min(FEED_BYTES_LIMIT)
}

/// A document and its used bytes of the size limit.
#[derive(Clone)]
struct SizedDocument {
    document: FeedDocument,
    used_bytes: i64,
}

/// Both documents.
fn build_documents(
    project: ProjectId,
    records: &[Arc<StoredFlag>],
    cohorts: &BTreeMap<i64, FlagCohort>,
    group_types: &[String],
) -> std::io::Result<(SizedDocument, SizedDocument)> {
    let flags: Vec<&Flag> = records.iter().map(|stored| &stored.flag).collect();
    let definitions = FlagDefinitions::new(project, flags.iter().copied());
    let text = |form| definitions.document(cohorts, group_types, form, TEXT_BYTES_MAX).ok();
    let sent = compress_document(text(CohortForm::Sent))?;
    if cohorts.is_empty() {
        return Ok((sent.clone(), sent));
    }
    let flattened = compress_document(text(CohortForm::Flattened))?;
    Ok((sent, flattened))
}

/// The document with this text; `None` means that the text exceeded its limit.
fn compress_document(text: Option<String>) -> std::io::Result<SizedDocument> {
    let Some(text) = text else {
        return Ok(SizedDocument { document: FeedDocument::too_large(), used_bytes: FEED_BYTES_LIMIT + 1 });
    };
    // No timestamp in the gzip header, so that the same text has the same bytes.
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes())?;
    let gzip = gzip.finish()?;
    let used_bytes = used_bytes(gzip.len(), FEED_BYTES_MAX).max(used_bytes(text.len(), TEXT_BYTES_MAX));
    let body = if gzip.len() > FEED_BYTES_MAX {
        DocumentBody::TooLarge
    } else {
        DocumentBody::Loaded(Bytes::from(gzip))
    };
    Ok(SizedDocument {
        document: FeedDocument { etag: etag(&text), text_bytes: text.len(), body },
        used_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_bytes_follow_the_remaining_bytes() {
        assert_eq!(used_bytes(FEED_BYTES_MAX, FEED_BYTES_MAX), FEED_BYTES_LIMIT);
        assert_eq!(used_bytes(FEED_BYTES_MAX + 1, FEED_BYTES_MAX), FEED_BYTES_LIMIT + 1);
        assert_eq!(used_bytes(1, FEED_BYTES_MAX), 1);
        assert_eq!(used_bytes(0, TEXT_BYTES_MAX), 0, "of a larger measure, only what comes near its end");
        assert_eq!(used_bytes(TEXT_BYTES_MAX - 10, TEXT_BYTES_MAX), FEED_BYTES_LIMIT - 10);
        assert_eq!(used_bytes(TEXT_BYTES_MAX + 10, TEXT_BYTES_MAX), FEED_BYTES_LIMIT + 10);
    }
}
