//! Items whose time is over go, as they do in DynamoDB: not at once, and by themselves.
//!
//! Must stay true: an item goes only if it has expired when it goes, not when it was found; the stream tells of it as the
//! database would; nobody waits for long to write.

use std::path::Path;

use pennon_core::store::{EXPIRES_AT, Key};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::reads::text_of;
use super::stream::{Event, Recorder, now_micros, open};
use super::writes::Turn;

/// Most items that one run removes.
const REMOVED_MAX: usize = 10_000;
/// Items that go in one commit.
const AT_ONCE: usize = 100;

/// Removes items of `table` that have expired; `streamed` where it has a stream. Returns how many.
pub fn expire(file: &Path, turn: &Turn, table: &str, streamed: bool) -> rusqlite::Result<usize> {
    let now = now_micros() / 1_000_000;
    let found = expired(&open(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?, table, now)?;
    if found.is_empty() {
        return Ok(0);
    }
    let mut connection = open(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let mut removed = 0;
    for some in found.chunks(AT_ONCE) {
        let _turn = turn.take();
        removed += remove(&mut connection, table, some, now, streamed)?;
        turn.committed();
    }
    Ok(removed)
}

/// What of an item says that it has expired. Looking for the name first spares taking all items apart.
fn condition() -> String {
    format!(
        r#"instr(item_json, '"{EXPIRES_AT}"') > 0
        AND CAST(json_extract(item_json, '$.{EXPIRES_AT}.N') AS INTEGER) < ?1"#
    )
}

/// The keys of items that have expired, as the file has them.
fn expired(connection: &Connection, table: &str, now: i64) -> rusqlite::Result<Vec<(String, String)>> {
    let sql = format!(r#"SELECT pk, sk FROM "{table}" WHERE {} LIMIT {REMOVED_MAX}"#, condition());
    let mut statement = connection.prepare(&sql)?;
    let found = statement.query_map([now], |row| Ok((row.get(0)?, row.get(1)?)))?;
    found.collect()
}

fn remove(
    connection: &mut Connection,
    table: &str,
    found: &[(String, String)],
    now: i64,
    streamed: bool,
) -> rusqlite::Result<usize> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut removed = 0;
    {
        let mut recorder = if streamed { Some(Recorder::begin(&transaction, table)?) } else { None };
        let sql = format!(r#"DELETE FROM "{table}" WHERE {} AND pk = ?2 AND sk = ?3"#, condition());
        let mut delete = transaction.prepare_cached(&sql)?;
        for (pk, sk) in found {
            if delete.execute(params![now, pk, sk])? == 0 {
                continue;
            }
            removed += 1;
            if let (Some(recorder), Some(pk), Some(sk)) = (&mut recorder, text_of(pk), text_of(sk)) {
                recorder.record(Event::Expire, &Key::new(pk, sk))?;
            }
        }
    }
    transaction.commit()?;
    Ok(removed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Embedded, FILE};
    use super::*;
    use pennon_core::config::StoreConfig;
    use pennon_core::store::{Guard, Item, Query};

    fn item(sk: &str, expires_at: Option<i64>) -> Item {
        // A body that looks as if it had expired.
        let body = serde_json::json!({"expires_at": {"N": "1"}});
        let item = Item::new(Key::new("P", sk), &body).unwrap();
        Item { expires_at, ..item }
    }

    #[tokio::test]
    async fn what_has_expired_goes_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path()).await.unwrap();
        let store = embedded.store(None);
        let now = now_micros() / 1_000_000;
        for table in [&store.records, &store.blocks] {
            for number in 0..250 {
                table.put(item(&format!("old {number:03}"), Some(now - 1)), Guard::None).await.unwrap();
            }
            table.put(item("never", None), Guard::None).await.unwrap();
            table.put(item("later", Some(now + 3600)), Guard::None).await.unwrap();
        }
        assert_eq!(embedded.tidy().await.unwrap(), 500);
        for table in [&store.records, &store.blocks] {
            let left = table.query(Query::partition("P")).await.unwrap();
            let left = left.into_iter().map(|item| item.key.sk).collect::<Vec<_>>();
            assert_eq!(left, ["later", "never"]);
        }
        assert_eq!(embedded.tidy().await.unwrap(), 0);
        let connection = Connection::open(directory.path().join(FILE)).unwrap();
        let told = "SELECT COUNT(*) FROM _stream_records WHERE event_name = 'REMOVE'
            AND json_extract(user_identity, '$.principalId') = 'dynamodb.amazonaws.com'";
        assert_eq!(connection.query_row::<i64, _, _>(told, [], |row| row.get(0)).unwrap(), 250);
    }

    #[tokio::test]
    async fn an_item_that_was_given_more_time_since_stays() {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path()).await.unwrap();
        let records = embedded.store(None).records;
        let (name, file) = (StoreConfig::local().records_table, directory.path().join(FILE));
        let now = now_micros() / 1_000_000;
        records.put(item("a", Some(now - 1)), Guard::None).await.unwrap();
        let mut connection = Connection::open(&file).unwrap();
        let found = expired(&connection, &name, now).unwrap();
        assert_eq!(found.len(), 1);
        records.put(item("a", Some(now + 60)), Guard::None).await.unwrap();
        assert_eq!(remove(&mut connection, &name, &found, now, true).unwrap(), 0);
        assert!(records.get(&Key::new("P", "a")).await.unwrap().is_some());
    }
}
