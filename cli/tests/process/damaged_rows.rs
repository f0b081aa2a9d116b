//! Stored rows whose bytes have changed: a response is unchanged or an error, never a different number.

use std::collections::BTreeSet;
use std::path::Path;

use pennon_analytics::scan::{EventSelection, ScanRequest};
use pennon_core::store::Store;
use pennon_eventstore::EventStore;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::{done, pennon, purchase, served, text};

/// The stored text of a row, by its position in the file.
struct Row {
    table: String,
    rowid: i64,
    text: String,
}

fn tables() -> [String; 2] {
    let names = pennon_core::config::StoreConfig::local();
    [names.blocks_table, names.records_table]
}

/// The rows of the event store in project 1 that have a partition like `pk`.
fn stored(connection: &Connection, table: &str, pk: &str) -> Vec<Row> {
    let sql = format!("SELECT rowid, item_json FROM \"{table}\" WHERE pk LIKE ?1 ORDER BY rowid");
    let mut statement = connection.prepare(&sql).unwrap();
    let rows = statement.query_map([pk], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let row = |(rowid, text)| Row { table: table.to_owned(), rowid, text };
    rows.map(|found| row(found.unwrap())).collect()
}

fn write(connection: &Connection, row: &Row, text: &str) {
    let sql = format!("UPDATE \"{}\" SET item_json = ?1 WHERE rowid = ?2", row.table);
    assert_eq!(connection.execute(&sql, rusqlite::params![text, row.rowid]).unwrap(), 1);
}

/// Opens the database while the server writes to it.
fn opened(data: &Path) -> Connection {
    let connection = Connection::open(data.join("dynamodb.sqlite")).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    connection
}

/// Flips a bit of the stored bytes of a block: of the text between the quotes that stands for them.
fn flip_stored_byte(text: &str) -> String {
    let start = text.find(r#""B":""#).unwrap() + 5 + 60;
    let mut text = text.to_owned().into_bytes();
    text[start] = if text[start] == b'A' { b'B' } else { b'A' };
    String::from_utf8(text).unwrap()
}

#[test]
fn a_damaged_block_is_named_by_responses_and_check_and_is_repaired_or_dropped() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    for (uuid, day) in
        [("01900000-0000-7000-8000-0000000000e1", 3), ("01900000-0000-7000-8000-0000000000e2", 4)]
    {
        let sent = json!({"api_key": "phc_process", "batch": [purchase(uuid, day)]});
        assert_eq!(server.post("/batch/", &sent).0, 200);
    }
    let [blocks, _] = tables();
    let connection = opened(&data);
    let rows = stored(&connection, &blocks, "S:PROJECT#1#SHARD%");
    assert_eq!((rows.len(), server.purchases()), (2, json!(2.0)));
    write(&connection, &rows[0], &flip_stored_byte(&rows[0].text));
    let item: Value = serde_json::from_str(&rows[0].text).unwrap();
    let id = item["sk"]["S"].as_str().unwrap().rsplit_once('-').unwrap().0.to_owned();

    let send_request = || {
        let body =
            json!({"events": [{"id": "purchase"}], "date_from": "2024-01-01", "date_to": "2024-01-31"});
        server.post("/api/projects/1/insights/trend/?refresh=true", &body)
    };
    let (status, refused) = send_request();
    assert_eq!((status, &refused["code"]), (503, &json!("damaged_data")), "{refused}");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("`pennon check --project 1 --drop {id}`")), "{detail}");

    let compacted = pennon(&["compact"], &data);
    assert!(text(&compacted.stdout).contains("1 blocks with 1 events"), "{}", text(&compacted.stdout));
    assert!(text(&compacted.stderr).contains("1 blocks of captured events are damaged"));
    let checked = pennon(&["check"], &data);
    assert!(!checked.status.success() && text(&checked.stdout).contains(&format!("--drop {id}")));
    assert!(
        !pennon(&["backup", "--out", &directory.path().join("b").to_string_lossy()], &data).status.success()
    );
    assert_eq!(send_request().0, 503);

    write(&connection, &rows[0], &rows[0].text);
    assert_eq!(server.purchases(), json!(2.0));
    assert!(done(&["check", "--lift"], &data).contains(&format!("{id} is intact again")));
    let refused = pennon(&["check", "--project", "1", "--drop", &id], &data);
    assert!(!refused.status.success() && text(&refused.stderr).contains("no damaged block"));

    write(&connection, &rows[0], &flip_stored_byte(&rows[0].text));
    assert!(done(&["check", "--project", "1", "--drop", &id], &data).contains(&format!("{id} was dropped")));
    assert_eq!(server.purchases(), json!(1.0));
    done(&["compact"], &data);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_flipped_bit_of_an_event_store_row_never_changes_a_response() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let identify = |day: u32| {
        json!({"event": "$identify", "distinct_id": format!("known {day}"), "timestamp": format!("2024-01-{day:02}T11:00:00Z"),
            "uuid": format!("01900000-0000-7000-8000-0000000001{day:02}"), "properties": {"$anon_distinct_id": "d"}})
    };
    for day in 3..9 {
        let uuid = format!("01900000-0000-7000-8000-0000000000{day:02}");
        let sent = json!({"api_key": "phc_process", "batch": [purchase(&uuid, day), identify(day)]});
        assert_eq!(server.post("/batch/", &sent).0, 200);
        if day == 5 {
            done(&["compact"], &data);
        }
    }
    assert_eq!(server.stop(), 0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let connection = opened(&data);
    let store = runtime.block_on(pennon::embedded::Embedded::open(&data)).unwrap().store(None);
    // A process with cold caches each time.
    let send_request = || runtime.block_on(counted(&store, &data));
    let before = send_request().unwrap();
    assert_eq!(before.len(), 12, "{before:?}");
    let [blocks, records] = tables();
    let mut noise = 0x9E37_79B9_7F4A_7C15_u64;
    for (table, pk) in [
        (&blocks, "S:PROJECT#1#SHARD%"),
        (&records, "S:PROJECT#1#SEGMENT"),
        (&records, "S:PROJECT#1#OVERRIDE"),
    ] {
        let rows = stored(&connection, table, pk);
        assert!(!rows.is_empty(), "{pk}");
        let mut refused = 0;
        for _ in 0..300 {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let row = &rows[(noise >> 33) as usize % rows.len()];
            let bit = (noise >> 11) as usize % (row.text.len() * 8);
            let mut flipped = row.text.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // SQLite itself rejects bytes that are not a text.
            let Ok(flipped) = String::from_utf8(flipped) else { continue };
            write(&connection, row, &flipped);
            match send_request() {
                Ok(after) => assert_eq!(after, before, "{pk}: {flipped}\nfor {}", row.text),
                Err(_) => refused += 1,
            }
            write(&connection, row, &row.text);
        }
        assert_eq!(send_request().unwrap(), before, "{pk}");
        assert!(refused > 10, "{pk}: {refused} of 300");
    }
}

/// All events of project 1: name, person, time.
async fn counted(
    store: &Store,
    data: &Path,
) -> Result<Vec<(String, String, i64)>, pennon_eventstore::EventStoreError> {
    let events = EventStore::open(store.clone(), &format!("file://{}/events", data.display()))?;
    let request = ScanRequest {
        events: EventSelection::All,
        from: i64::MIN,
        to: i64::MAX,
        columns: BTreeSet::new(),
        arrivals: false,
    };
    let scan = events.scan(1, &[], &request).await?;
    let mut found = Vec::new();
    for partition in &scan.partitions {
        for run in &partition.runs {
            let rows = run.actors.iter().zip(run.times.iter());
            let row = |(actor, time): (&u32, &i64)| {
                (run.event.clone(), partition.actors[*actor as usize].to_string(), *time)
            };
            found.extend(rows.map(row));
        }
    }
    found.sort();
    Ok(found)
}
