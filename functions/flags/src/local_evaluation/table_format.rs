//! The stored form of a feed: a head item with the version and its documents, and the compressed documents split into
//! parts.
//!
//! Must stay true: all items have fixed keys and are written in any order, so each part has the mark (checksum) of its
//! document, and a reader accepts parts only if all of them have the mark in the head. Items of a feed that is not
//! rewritten expire.

use axum::body::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use pennon_core::model::{FeedForm, FeedHead, FeedPlace};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{BODY_BYTES_MAX, Item, Key, StoreError};
use pennon_flag_rules::definitions::CohortForm;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::cache::{DocumentBody, Feed, FeedDocument};

/// Days after which a stored feed expires; it is rebuilt when needed.
const TTL_DAYS: i64 = 30;
const PART_BYTES: usize = BODY_BYTES_MAX;

#[derive(Serialize, Deserialize)]
struct PartMark {
    mark: String,
}

/// The name of a form in the table.
pub fn form_name(form: CohortForm) -> &'static str {
    match form {
        CohortForm::Sent => "SENT",
        CohortForm::Flattened => "FLATTENED",
    }
}

/// Decodes the feed head in `item`; the documents stay in the table.
pub fn decode_head(item: &Item) -> Result<Feed, StoreError> {
    let head: FeedHead = item.body()?;
    let document = |stored: FeedForm| FeedDocument {
        etag: stored.tag,
        text_bytes: stored.length,
        body: stored.place.map_or(DocumentBody::TooLarge, DocumentBody::Stored),
    };
    Ok(Feed {
        number: item.count,
        group_types: head.group_types,
        sent: document(head.sent),
        flattened: document(head.flattened),
    })
}

/// The keys of the parts of a stored document.
pub fn part_keys(project: ProjectId, document: &FeedDocument) -> Vec<Key> {
    match &document.body {
        DocumentBody::Stored(place) => place_keys(place, project),
        _ => Vec::new(),
    }
}

fn place_keys(place: &FeedPlace, project: ProjectId) -> Vec<Key> {
    (0..place.parts).map(|part| keys::feed_part(project, &place.form, part)).collect()
}

/// Joins the parts of a document; unchanged if a part is missing among `items`.
pub fn assemble(document: &FeedDocument, items: &[&Item]) -> DocumentBody {
    let DocumentBody::Stored(place) = &document.body else { return document.body.clone() };
    let mut whole = Vec::new();
    for part in 0..place.parts {
        let sk = keys::feed_part_sk(&place.form, part);
        let fits = |item: &&&Item| item.key.sk == sk && is_marked(item, &place.mark);
        match items.iter().find(fits) {
            Some(item) => whole.extend_from_slice(&item.bytes),
            None => return document.body.clone(),
        }
    }
    DocumentBody::Loaded(Bytes::from(whole))
}

fn is_marked(item: &Item, mark: &str) -> bool {
    item.body::<PartMark>().is_ok_and(|found| found.mark == mark)
}

/// Encodes `feed` as items, and lists the keys of `before` (the previously stored feed) that the new items do not
/// overwrite.
pub fn encode(
    project: ProjectId,
    feed: &Feed,
    before: Option<&Feed>,
    now: DateTime<Utc>,
) -> Result<(Vec<Item>, Vec<Key>), StoreError> {
    let expiry = (now + TimeDelta::days(TTL_DAYS)).timestamp();
    let mut items = Vec::new();
    let sent = encode_document(project, &feed.sent, CohortForm::Sent, &mut items)?;
    let flattened = if feed.flattened.etag == feed.sent.etag {
        FeedForm { packed: sent.packed, place: sent.place.clone(), ..without_place(&feed.flattened) }
    } else {
        encode_document(project, &feed.flattened, CohortForm::Flattened, &mut items)?
    };
    let head = FeedHead { group_types: feed.group_types.clone(), sent, flattened };
    items.push(Item { count: feed.number, ..Item::new(keys::feed_head(project), &head)? });
    let items: Vec<Item> = items.into_iter().map(|item| item.expiring(expiry)).collect();
    let previous_keys = before.into_iter().flat_map(|before| {
        [(&before.sent, CohortForm::Sent), (&before.flattened, CohortForm::Flattened)]
            .into_iter()
            .flat_map(|(document, form)| occupied_keys(project, document, form))
    });
    let mut obsolete: Vec<Key> =
        previous_keys.filter(|key| items.iter().all(|item| item.key != *key)).collect();
    obsolete.sort();
    obsolete.dedup();
    Ok((items, obsolete))
}

/// The keys that the parts of a document occupy, or would occupy.
fn occupied_keys(project: ProjectId, document: &FeedDocument, form: CohortForm) -> Vec<Key> {
    match &document.body {
        DocumentBody::Stored(place) => place_keys(place, project),
        DocumentBody::Loaded(gzip) => place_keys(&place_for(gzip, form), project),
        DocumentBody::TooLarge => Vec::new(),
    }
}

fn without_place(document: &FeedDocument) -> FeedForm {
    FeedForm { tag: document.etag.clone(), length: document.text_bytes, packed: 0, place: None }
}

fn encode_document(
    project: ProjectId,
    document: &FeedDocument,
    form: CohortForm,
    items: &mut Vec<Item>,
) -> Result<FeedForm, StoreError> {
    let DocumentBody::Loaded(gzip) = &document.body else { return Ok(without_place(document)) };
    let place = place_for(gzip, form);
    for (key, part) in place_keys(&place, project).into_iter().zip(gzip.chunks(PART_BYTES)) {
        let mark = PartMark { mark: place.mark.clone() };
        items.push(Item { bytes: part.to_vec(), ..Item::new(key, &mark)? });
    }
    Ok(FeedForm { packed: gzip.len(), place: Some(place), ..without_place(document) })
}

fn place_for(gzip: &Bytes, form: CohortForm) -> FeedPlace {
    let mark = Sha256::digest(gzip).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    let parts = u32::try_from(gzip.len().div_ceil(PART_BYTES)).unwrap_or(u32::MAX);
    FeedPlace { form: form_name(form).to_owned(), mark, parts }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PROJECT: ProjectId = 7;

    fn form(etag: &str, bytes: usize) -> FeedDocument {
        let body = (0..bytes).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        FeedDocument {
            etag: etag.to_owned(),
            text_bytes: bytes,
            body: DocumentBody::Loaded(Bytes::from(body)),
        }
    }

    fn feed(sent: FeedDocument, flattened: FeedDocument) -> Feed {
        Feed { number: 3, group_types: vec!["company".to_owned()], sent, flattened }
    }

    fn gzip(body: &DocumentBody) -> Option<&Bytes> {
        match body {
            DocumentBody::Loaded(gzip) => Some(gzip),
            _ => None,
        }
    }

    fn now() -> DateTime<Utc> {
        "2026-01-05T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_feed_of_several_parts_round_trips() {
        let feed = feed(form("a", 2 * PART_BYTES + 1), form("b", 10));
        let (items, obsolete) = encode(PROJECT, &feed, None, now()).unwrap();
        assert_eq!((items.len(), obsolete.len()), (5, 0), "three parts, one part, the head");
        assert!(items.iter().all(|item| item.expires_at == Some(now().timestamp() + 30 * 86_400)));
        let read = decode_head(items.last().unwrap()).unwrap();
        assert_eq!((read.number, &read.group_types), (3, &feed.group_types));
        assert_eq!(part_keys(PROJECT, &read.sent).len(), 3);
        let all: Vec<&Item> = items.iter().collect();
        assert_eq!(gzip(&assemble(&read.sent, &all)), gzip(&feed.sent.body));
        assert_eq!(gzip(&assemble(&read.flattened, &all)), gzip(&feed.flattened.body));
    }

    #[test]
    fn parts_of_another_feed_are_ignored() {
        let (old, _) = encode(PROJECT, &feed(form("a", 30), form("a", 30)), None, now()).unwrap();
        let (new, _) = encode(PROJECT, &feed(form("b", 31), form("b", 31)), None, now()).unwrap();
        let read = decode_head(new.last().unwrap()).unwrap();
        assert!(gzip(&assemble(&read.sent, &[&old[0]])).is_none());
        assert!(gzip(&assemble(&read.sent, &[])).is_none());
        assert!(gzip(&assemble(&read.flattened, &[&new[0]])).is_some(), "stored once");
    }

    #[test]
    fn a_smaller_feed_deletes_obsolete_parts() {
        let before = feed(form("a", PART_BYTES + 1), form("b", 5));
        let (items, obsolete) =
            encode(PROJECT, &feed(form("c", 5), form("c", 5)), Some(&before), now()).unwrap();
        assert_eq!(items.len(), 2);
        let obsolete: Vec<&str> = obsolete.iter().map(|key| key.sk.as_str()).collect();
        assert_eq!(obsolete, ["FLATTENED#000", "SENT#001"]);
    }
}
