//! Making a feed: the flags, the cohorts that they name, both documents and their compressed forms.
//!
//! Must stay true: no two flags of a feed have one key, although keys may pass from flag to flag while records are read.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use flate2::{Compression, GzBuilder};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::{FEED_BYTES_MAX, FEED_ROOM};
use pennon_core::store::StoreError;
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::cohort::Cohort;
use pennon_engine::flag::definitions::{CohortForm, Definitions, etag};
use pennon_engine::flag::{Flag, FlagRow};

use super::answer::TEXT_BYTES_MAX;
use super::memory::{Body, Feed, Form};
use crate::Flags;
use crate::persons::cohorts::{Cohorts, load};
use crate::store::{RECORDS_KIB_MAX, Rows, Stored, Version, flags_of, kib};

/// How often records are read before whoever asks is told to come again.
const TRIES: u32 = 5;

/// A feed, and what of its room it takes; more than the room when it is too large.
pub struct Built {
    /// The feed.
    pub feed: Feed,
    /// The bytes that it takes of the room.
    pub used: i64,
}

/// The feed of the flags that `rows` are of, for the version `before` that was read before the rows.
pub async fn build(
    flags: &Flags,
    project: ProjectId,
    rows: &Rows,
    before: Version,
    group_types: Vec<String>,
) -> ApiResult<Built> {
    let source = Source { number: rows.not_older_than(before), group_types, kib: kib(rows.all()) };
    if source.kib > RECORDS_KIB_MAX {
        return Ok(source.too_large());
    }
    let rows: Vec<&FlagRow> = rows.all().iter().collect();
    let (records, cohorts) =
        tokio::try_join!(records(flags, project, &rows), cohorts(flags, project, &rows, BTreeSet::new()))?;
    source.built(project, records, cohorts).await
}

/// As [`build`], with `changed`, a record of `length` bytes, in the place of the flag with its number.
pub async fn with_change(
    flags: &Flags,
    project: ProjectId,
    rows: &Rows,
    changed: Stored,
    length: usize,
    group_types: Vec<String>,
) -> ApiResult<Built> {
    let others: Vec<&FlagRow> = rows.all().iter().filter(|row| row.id != changed.flag.id).collect();
    let kib = kib(others.iter().copied()) + length.div_ceil(1024);
    let source = Source { number: rows.version.number, group_types, kib };
    if source.kib > RECORDS_KIB_MAX {
        return Ok(source.too_large());
    }
    let (mut records, cohorts) = tokio::try_join!(
        records(flags, project, &others),
        cohorts(flags, project, &others, changed.flag.cohort_ids().into_iter().collect()),
    )?;
    records.push(Arc::new(changed));
    source.built(project, records, cohorts).await
}

/// The records of these rows as they are now.
async fn records(flags: &Flags, project: ProjectId, rows: &[&FlagRow]) -> ApiResult<Vec<Arc<Stored>>> {
    let wanted: Vec<(i64, u64)> = rows.iter().map(|row| (row.id, row.item_version)).collect();
    for _ in 0..TRIES {
        let records = flags_of(flags, project, &wanted).await?;
        let mut keys = HashSet::new();
        if records.iter().all(|stored| keys.insert(stored.flag.key.as_str())) {
            return Ok(records);
        }
    }
    Err(StoreError::Conflict.into())
}

/// The cohorts that these rows name, and those `named`.
async fn cohorts(
    flags: &Flags,
    project: ProjectId,
    rows: &[&FlagRow],
    mut named: BTreeSet<i64>,
) -> ApiResult<Cohorts> {
    named.extend(rows.iter().flat_map(|row| row.cohort_ids.iter().copied()));
    Ok(load(flags, project, named).await?)
}

/// What a feed is made from, beside its records.
struct Source {
    number: i64,
    group_types: Vec<String>,
    kib: usize,
}

impl Source {
    fn too_large(self) -> Built {
        let (sent, flattened) = (Form::too_large(), Form::too_large());
        let feed = Feed { number: self.number, group_types: self.group_types, sent, flattened };
        Built { feed, used: FEED_ROOM + 1 }
    }

    async fn built(
        self,
        project: ProjectId,
        records: Vec<Arc<Stored>>,
        cohorts: Cohorts,
    ) -> ApiResult<Built> {
        // Thousands of flags take a while, in which other requests of this process go on.
        let made = tokio::task::spawn_blocking(move || {
            let (sent, flattened) = documents(project, &records, &cohorts.by_id, &self.group_types)?;
            let used = sent.used.max(flattened.used).max(used(self.kib * 1024, RECORDS_KIB_MAX * 1024));
            let (sent, flattened) = (sent.form, flattened.form);
            let feed = Feed { number: self.number, group_types: self.group_types, sent, flattened };
            Ok::<_, std::io::Error>(Built { feed, used })
        });
        made.await.map_err(|e| ApiError::internal(&e))?.map_err(|e| ApiError::internal(&e))
    }
}

/// What is used of the room where `bytes` of at most `most` are there.
fn used(bytes: usize, most: usize) -> i64 {
    let left = i64::try_from(most).unwrap_or(i64::MAX) - i64::try_from(bytes).unwrap_or(i64::MAX);
    FEED_ROOM - left.min(FEED_ROOM)
}

/// One document, and what of the room it takes.
#[derive(Clone)]
struct Document {
    form: Form,
    used: i64,
}

/// Both forms.
fn documents(
    project: ProjectId,
    records: &[Arc<Stored>],
    cohorts: &BTreeMap<i64, Cohort>,
    group_types: &[String],
) -> std::io::Result<(Document, Document)> {
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
fn document(text: Option<String>) -> std::io::Result<Document> {
    let Some(text) = text else { return Ok(Document { form: Form::too_large(), used: FEED_ROOM + 1 }) };
    // Without a time, so that the same text has the same bytes.
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes())?;
    let gzip = gzip.finish()?;
    let used = used(gzip.len(), FEED_BYTES_MAX).max(used(text.len(), TEXT_BYTES_MAX));
    let body = if gzip.len() > FEED_BYTES_MAX { Body::TooLarge } else { Body::Here(Bytes::from(gzip)) };
    Ok(Document { form: Form { tag: etag(&text), length: text.len(), body }, used })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_says_what_is_left_in_any_measure() {
        assert_eq!(used(FEED_BYTES_MAX, FEED_BYTES_MAX), FEED_ROOM);
        assert_eq!(used(FEED_BYTES_MAX + 1, FEED_BYTES_MAX), FEED_ROOM + 1);
        assert_eq!(used(1, FEED_BYTES_MAX), 1);
        assert_eq!(used(0, TEXT_BYTES_MAX), 0, "of a larger measure, only what comes near its end");
        assert_eq!(used(TEXT_BYTES_MAX - 10, TEXT_BYTES_MAX), FEED_ROOM - 10);
        assert_eq!(used(TEXT_BYTES_MAX + 10, TEXT_BYTES_MAX), FEED_ROOM + 10);
    }
}
