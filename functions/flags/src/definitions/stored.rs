//! A feed in the table: a head that names its version and its documents, and their compressed texts in parts.
//!
//! Must stay true: all lie at fixed places and are written in any order, so a part says which document it is of, and a
//! reader takes parts only if all of them are those that the head names. A feed that is not written anew expires.

use axum::body::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use pennon_core::model::{FeedForm, FeedHead, FeedPlace};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{BODY_BYTES_MAX, Item, Key, StoreError};
use pennon_engine::flag::definitions::CohortForm;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::memory::{Body, Feed, Form};

/// Days after which a stored feed may go; it is made again when it is needed.
const KEPT_DAYS: i64 = 30;
const PART_BYTES: usize = BODY_BYTES_MAX;

#[derive(Serialize, Deserialize)]
struct Mark {
    mark: String,
}

/// What a form is called in the table.
pub fn word(form: CohortForm) -> &'static str {
    match form {
        CohortForm::Sent => "SENT",
        CohortForm::Flattened => "FLATTENED",
    }
}

/// The feed that `item` is the head of, its documents still in the table.
pub fn head(item: &Item) -> Result<Feed, StoreError> {
    let head: FeedHead = item.body()?;
    let form = |stored: FeedForm| Form {
        tag: stored.tag,
        length: stored.length,
        body: stored.place.map_or(Body::TooLarge, Body::Stored),
    };
    Ok(Feed {
        number: item.count,
        group_types: head.group_types,
        sent: form(head.sent),
        flattened: form(head.flattened),
    })
}

/// Where the parts of a document lie that is in the table.
pub fn parts(project: ProjectId, form: &Form) -> Vec<Key> {
    match &form.body {
        Body::Stored(place) => keys_of(place, project),
        _ => Vec::new(),
    }
}

fn keys_of(place: &FeedPlace, project: ProjectId) -> Vec<Key> {
    (0..place.parts).map(|part| keys::feed_part(project, &place.form, part)).collect()
}

/// The body of a document, put together if all its parts are among `items`.
pub fn joined(form: &Form, items: &[&Item]) -> Body {
    let Body::Stored(place) = &form.body else { return form.body.clone() };
    let mut whole = Vec::new();
    for part in 0..place.parts {
        let sk = keys::feed_part_sk(&place.form, part);
        let fits = |item: &&&Item| item.key.sk == sk && is_marked(item, &place.mark);
        match items.iter().find(fits) {
            Some(item) => whole.extend_from_slice(&item.bytes),
            None => return form.body.clone(),
        }
    }
    Body::Here(Bytes::from(whole))
}

fn is_marked(item: &Item, mark: &str) -> bool {
    item.body::<Mark>().is_ok_and(|found| found.mark == mark)
}

/// The items of `feed`, and what of `before`, the feed that was stored, is in no item's place.
pub fn items(
    project: ProjectId,
    feed: &Feed,
    before: Option<&Feed>,
    now: DateTime<Utc>,
) -> Result<(Vec<Item>, Vec<Key>), StoreError> {
    let expiry = (now + TimeDelta::days(KEPT_DAYS)).timestamp();
    let mut items = Vec::new();
    let sent = store(project, &feed.sent, CohortForm::Sent, &mut items)?;
    let flattened = if feed.flattened.tag == feed.sent.tag {
        FeedForm { packed: sent.packed, place: sent.place.clone(), ..without_place(&feed.flattened) }
    } else {
        store(project, &feed.flattened, CohortForm::Flattened, &mut items)?
    };
    let head = FeedHead { group_types: feed.group_types.clone(), sent, flattened };
    items.push(Item { count: feed.number, ..Item::new(keys::feed_head(project), &head)? });
    let items: Vec<Item> = items.into_iter().map(|item| item.expiring(expiry)).collect();
    let had = before.into_iter().flat_map(|before| {
        [(&before.sent, CohortForm::Sent), (&before.flattened, CohortForm::Flattened)]
            .into_iter()
            .flat_map(|(form, kind)| occupied(project, form, kind))
    });
    let mut gone: Vec<Key> = had.filter(|key| items.iter().all(|item| item.key != *key)).collect();
    gone.sort();
    gone.dedup();
    Ok((items, gone))
}

/// Where the parts of a document lie, or would.
fn occupied(project: ProjectId, form: &Form, kind: CohortForm) -> Vec<Key> {
    match &form.body {
        Body::Stored(place) => keys_of(place, project),
        Body::Here(gzip) => keys_of(&place_of(gzip, kind), project),
        Body::TooLarge => Vec::new(),
    }
}

fn without_place(form: &Form) -> FeedForm {
    FeedForm { tag: form.tag.clone(), length: form.length, packed: 0, place: None }
}

fn store(
    project: ProjectId,
    form: &Form,
    kind: CohortForm,
    items: &mut Vec<Item>,
) -> Result<FeedForm, StoreError> {
    let Body::Here(gzip) = &form.body else { return Ok(without_place(form)) };
    let place = place_of(gzip, kind);
    for (key, part) in keys_of(&place, project).into_iter().zip(gzip.chunks(PART_BYTES)) {
        let mark = Mark { mark: place.mark.clone() };
        items.push(Item { bytes: part.to_vec(), ..Item::new(key, &mark)? });
    }
    Ok(FeedForm { packed: gzip.len(), place: Some(place), ..without_place(form) })
}

fn place_of(gzip: &Bytes, kind: CohortForm) -> FeedPlace {
    let mark = Sha256::digest(gzip).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    let parts = u32::try_from(gzip.len().div_ceil(PART_BYTES)).unwrap_or(u32::MAX);
    FeedPlace { form: word(kind).to_owned(), mark, parts }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PROJECT: ProjectId = 7;

    fn form(tag: &str, bytes: usize) -> Form {
        let body = (0..bytes).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        Form { tag: tag.to_owned(), length: bytes, body: Body::Here(Bytes::from(body)) }
    }

    fn feed(sent: Form, flattened: Form) -> Feed {
        Feed { number: 3, group_types: vec!["company".to_owned()], sent, flattened }
    }

    fn gzip(body: &Body) -> Option<&Bytes> {
        match body {
            Body::Here(gzip) => Some(gzip),
            _ => None,
        }
    }

    fn now() -> DateTime<Utc> {
        "2026-01-05T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_feed_of_several_parts_comes_back_as_it_was() {
        let feed = feed(form("a", 2 * PART_BYTES + 1), form("b", 10));
        let (items, gone) = items(PROJECT, &feed, None, now()).unwrap();
        assert_eq!((items.len(), gone.len()), (5, 0), "three parts, one part, the head");
        assert!(items.iter().all(|item| item.expires_at == Some(now().timestamp() + 30 * 86_400)));
        let read = head(items.last().unwrap()).unwrap();
        assert_eq!((read.number, &read.group_types), (3, &feed.group_types));
        assert_eq!(parts(PROJECT, &read.sent).len(), 3);
        let all: Vec<&Item> = items.iter().collect();
        assert_eq!(gzip(&joined(&read.sent, &all)), gzip(&feed.sent.body));
        assert_eq!(gzip(&joined(&read.flattened, &all)), gzip(&feed.flattened.body));
    }

    #[test]
    fn parts_of_another_feed_are_not_taken() {
        let (old, _) = items(PROJECT, &feed(form("a", 30), form("a", 30)), None, now()).unwrap();
        let (new, _) = items(PROJECT, &feed(form("b", 31), form("b", 31)), None, now()).unwrap();
        let read = head(new.last().unwrap()).unwrap();
        assert!(gzip(&joined(&read.sent, &[&old[0]])).is_none());
        assert!(gzip(&joined(&read.sent, &[])).is_none());
        assert!(gzip(&joined(&read.flattened, &[&new[0]])).is_some(), "stored once");
    }

    #[test]
    fn a_smaller_feed_removes_the_parts_that_it_does_not_fill() {
        let before = feed(form("a", PART_BYTES + 1), form("b", 5));
        let (items, gone) = items(PROJECT, &feed(form("c", 5), form("c", 5)), Some(&before), now()).unwrap();
        assert_eq!(items.len(), 2);
        let gone: Vec<&str> = gone.iter().map(|key| key.sk.as_str()).collect();
        assert_eq!(gone, ["FLATTENED#000", "SENT#001"]);
    }
}
