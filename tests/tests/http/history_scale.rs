//! Flags with ten thousand role accesses: reading them, deleting the flag, and using its key again.

use pennon_core::model::Role;
use pennon_core::store::{Item, TRANSACTION_WRITES_MAX, Write, WriteCondition, keys};
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};
use uuid::Uuid;

const MANY: u64 = 10_000;
const ORG: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
/// Ids of role accesses in steps that any counter shared with other flags could give.
const STEP: u64 = 4;

fn role_id(number: u64) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_1000_0000_0000 + u128::from(number))
}

/// Whether the role with that number and the row of its access are stored.
fn is_looked_at(number: u64) -> bool {
    number <= 1000 || (4990..5010).contains(&number) || number > 9490
}

/// Stores `count` role accesses of the flag `flag` of project 1.
async fn give_accesses(app: &TestApp, flag: u64, count: u64) {
    let at = pennon_tests::NOW.parse().unwrap();
    let put = |key, body: Value| Write::Put(Item::new(key, &body).unwrap(), WriteCondition::Absent);
    let rows = (1..=count).flat_map(|number| {
        let (role, id) = (role_id(number), number * STEP);
        let stored = Role {
            id: role,
            organization: ORG,
            name: format!("Role {number}"),
            feature_flags_access_level: serde_json::from_value(json!(37)).unwrap(),
            created_at: at,
            members: Vec::new(),
        };
        let access = json!({"id": id, "role": role, "added_at": at});
        let mut rows = vec![put(keys::role_access(1, flag, id), access)];
        if is_looked_at(number) {
            rows.push(Write::Put(Item::new(keys::role(ORG, role), &stored).unwrap(), WriteCondition::None));
            rows.push(put(keys::role_access_of_role(1, flag, role), json!(id)));
        }
        rows
    });
    let rows: Vec<Write> = rows.collect();
    for part in rows.chunks(TRANSACTION_WRITES_MAX - 1) {
        app.services.app.store.records.transact(part.to_vec()).await.unwrap();
    }
    let counter = keys::counter(keys::Counter::RoleAccess);
    let least = i64::try_from(count * STEP).unwrap();
    app.services.app.store.records.raise(&counter, least).await.unwrap();
}

/// Status and sequential round trips of a call with a cold key.
async fn waits(app: &TestApp, method: &str, path: &str, body: Value) -> (u16, usize, Value) {
    app.services.app.keys.clear();
    app.round_trips.reset();
    let response = app.call(Keys::OWNER, method, path, body).await;
    (response.status.as_u16(), app.round_trips.sequential(), response.json())
}

fn ids(page: &Value) -> Vec<u64> {
    page["results"].as_array().unwrap().iter().map(|access| access["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn ten_thousand_role_accesses_are_listed_in_two_round_trips_and_stay_with_their_flag() {
    let app = TestApp::new().await;
    let flag = app.flag("crowded").await;
    give_accesses(&app, flag, MANY).await;
    let path = format!("/api/projects/1/feature_flags/{flag}/");
    let accesses = format!("{path}role_access/");

    for (query, first, count) in [
        ("", 1, 100),
        ("?limit=1000", 1, 1000),
        ("?limit=1000&offset=9500", 9501, 500),
        ("?limit=7&offset=4998", 4999, 7),
    ] {
        let (status, trips, page) = waits(&app, "GET", &format!("{accesses}{query}"), Value::Null).await;
        assert_eq!((status, trips, &page["count"]), (200, 2, &json!(MANY)), "{query}");
        let expected: Vec<u64> = (first..first + count).map(|number| number * STEP).collect();
        assert_eq!(ids(&page), expected, "{query}");
        assert_eq!(page["results"][0]["role"]["name"], format!("Role {first}"), "{query}");
        assert_eq!(page["results"][0]["feature_flag"]["id"], flag, "{query}");
    }

    // The last of the list, added over the API, is found, shown and removed like any other.
    let (status, trips, made) = waits(&app, "POST", &accesses, json!({"role_id": role_id(MANY)})).await;
    assert_eq!((status, made["code"].as_str(), trips), (400, Some("unique"), 4));
    let one = format!("{accesses}{}/", MANY * STEP);
    let (status, trips, shown) = waits(&app, "GET", &one, Value::Null).await;
    assert_eq!((status, trips, &shown["role"]["id"]), (200, 2, &json!(role_id(MANY))));
    let (status, trips, _) = waits(&app, "DELETE", &one, Value::Null).await;
    assert_eq!((status, trips), (204, 2));
    let (status, _, made) = waits(&app, "POST", &accesses, json!({"role_id": role_id(MANY)})).await;
    assert_eq!(status, 201);
    assert!(made["id"].as_u64().unwrap() > MANY * STEP, "a number is never given twice");

    // Deleting the flag and using its key again cost what they cost a flag without role accesses.
    let (status, trips, _) = waits(&app, "PATCH", &path, json!({"deleted": true})).await;
    assert_eq!((status, trips), (200, 2));
    let (status, trips, again) =
        waits(&app, "POST", "/api/projects/1/feature_flags/", json!({"key": "crowded"})).await;
    assert_eq!((status, trips), (201, 3));
    let (status, _, page) = waits(&app, "GET", &accesses, Value::Null).await;
    assert_eq!((status, &page["count"]), (200, &json!(MANY)), "a deleted flag keeps its role accesses");
    let new = format!("/api/projects/1/feature_flags/{}/role_access/", again["id"]);
    assert_eq!(app.get(&new).await.expect(200)["count"], 0);
}
