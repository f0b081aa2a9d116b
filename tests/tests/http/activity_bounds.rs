//! Logs with long entries: reads are bounded by the decompressed size.

use axum::http::header;
use pennon_core::activity::{Entry, writes};
use pennon_core::ids::new_uuid;
use pennon_core::model::User;
use pennon_core::store::{Item, Key, PartitionQuery, WriteCondition};
use pennon_tests::{Keys, NOW, TestApp, TestResponse};
use serde_json::{Value, json};

const ENTRIES: usize = 40;
const BYTES: usize = 500_000;

fn user() -> User {
    User {
        id: 1,
        uuid: uuid::Uuid::nil(),
        distinct_id: "user-1".to_owned(),
        first_name: "Olive".to_owned(),
        last_name: String::new(),
        email: "owner@example.com".to_owned(),
        is_email_verified: None,
        hedgehog_config: None,
        role_at_organization: None,
    }
}

async fn get(app: &TestApp, path: &str, limit: usize, gzip: bool) -> TestResponse {
    let mut request = TestApp::request(Keys::OWNER, "GET", &format!("{path}?limit={limit}"), Value::Null);
    if gzip {
        request.headers_mut().insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
    }
    app.send(request).await
}

/// The limit that an error names.
fn named(response: &TestResponse) -> usize {
    let refusal = response.expect(400);
    let detail = refusal["detail"].as_str().unwrap();
    response.expect_invalid("invalid_input", detail, Some("limit"));
    let number =
        detail.strip_prefix("The response is too large. The largest limit that fits here is ").unwrap();
    number.strip_suffix('.').unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_page_of_long_entries_is_compressed_or_rejected_with_the_largest_limit() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    let (user, at) = (user(), NOW.parse().unwrap());
    let entries: Vec<_> = (0..ENTRIES)
        .map(|_| {
            let name = "x".repeat(BYTES);
            let detail =
                json!({"changes": [], "trigger": null, "type": null, "name": name, "short_id": null});
            (
                Entry { scope: "FeatureFlag", item: id, activity: "updated", user: &user, at, detail },
                new_uuid(),
            )
        })
        .collect();
    for entries in entries.chunks(20) {
        let entries: Vec<_> = entries.iter().map(|(entry, id)| (entry, *id)).collect();
        app.services.app.store.records.transact(writes(1, &entries).unwrap()).await.unwrap();
    }
    for log in ["activity/".to_owned(), format!("{id}/activity/")] {
        let log = format!("/api/projects/1/feature_flags/{log}");
        let mut most = Vec::new();
        for gzip in [false, true] {
            let limit = named(&get(&app, &log, 100, gzip).await);
            let page = get(&app, &log, limit, gzip).await;
            assert_eq!((page.status.as_u16(), page.header("content-encoding") == "gzip"), (200, gzip));
            if !gzip {
                assert_eq!(page.json()["results"].as_array().unwrap().len(), limit);
            }
            assert_eq!(named(&get(&app, &log, limit + 1, gzip).await), limit);
            most.push(limit);
        }
        // 6 MB as the gateway counts them; 16 MB are read, but for the last entry.
        assert_eq!(most, [11, 32], "{log}");
    }
}

#[tokio::test]
async fn bodies_are_read_up_to_the_first_beyond_the_bound() {
    let app = TestApp::new().await;
    let records = &app.services.app.store.records;
    let key = |number: usize| Key::new("TEST", format!("{number:03}"));
    for number in 0..ENTRIES {
        let item = Item::new(key(number), &"x".repeat(BYTES)).unwrap();
        records.put(item, WriteCondition::Absent).await.unwrap();
    }
    let query = PartitionQuery::partition("TEST").limit(1000).bytes(2 * BYTES);
    assert_eq!(records.query(query).await.unwrap().len(), 2, "all of them lie on one page of the store");
    let keys: Vec<Key> = (0..ENTRIES).map(key).collect();
    let read = records.batch_get_within_bytes(&keys, 2 * BYTES).await.unwrap();
    assert_eq!((read.items.len(), read.is_complete), (2, false));
    assert_eq!(read.items[1].key, keys[1], "in their order");
    let all = records.batch_get_within_bytes(&keys, ENTRIES * (BYTES + 2)).await.unwrap();
    assert_eq!((all.items.len(), all.is_complete), (ENTRIES, true));
}
