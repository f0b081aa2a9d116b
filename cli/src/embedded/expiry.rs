//! Time to live: deletes expired items in the background, as DynamoDB does.
//!
//! Must stay true: the expiry condition is part of the DELETE, so that an item whose time was extended after it was listed
//! stays; the stream gets the records that the database would write; the write lock is held for at most 100 items at a time.

use std::path::Path;

use pennon_core::store::{EXPIRES_AT, Key};
use rusqlite::{Connection, TransactionBehavior, params};

use super::connection::{Mode, open};
use super::reader::decode_key;
use super::stream::{StreamEvent, StreamWriter, now_micros};
use super::write_lock::WriteLock;

/// Most items that one run deletes.
const DELETED_MAX: usize = 10_000;
/// Items deleted in one commit.
const BATCH_SIZE: usize = 100;

/// Deletes expired items of `table`; `has_stream` adds stream records. Returns the number of deleted items.
pub fn delete_expired(
    file: &Path,
    write_lock: &WriteLock,
    table: &str,
    has_stream: bool,
) -> rusqlite::Result<usize> {
    let now = now_micros() / 1_000_000;
    let keys = list_expired(&open(file, Mode::ReadOnly)?, table, now)?;
    if keys.is_empty() {
        return Ok(0);
    }
    let mut connection = open(file, Mode::ReadWrite)?;
    let mut deleted = 0;
    for batch in keys.chunks(BATCH_SIZE) {
        let _guard = write_lock.acquire();
        deleted += delete_batch(&mut connection, table, batch, now, has_stream)?;
        write_lock.record_commit();
    }
    Ok(deleted)
}

/// The SQL condition of an expired item. The search for the attribute's name avoids parsing the JSON of all other items.
fn expired_condition() -> String {
    format!(
        r#"instr(item_json, '"{EXPIRES_AT}"') > 0
        AND CAST(json_extract(item_json, '$.{EXPIRES_AT}.N') AS INTEGER) < ?1"#
    )
}

/// The keys of expired items, in the file's encoding.
fn list_expired(connection: &Connection, table: &str, now: i64) -> rusqlite::Result<Vec<(String, String)>> {
    let condition = expired_condition();
    let sql = format!(r#"SELECT pk, sk FROM "{table}" WHERE {condition} LIMIT {DELETED_MAX}"#);
    let mut statement = connection.prepare(&sql)?;
    let keys = statement.query_map([now], |row| Ok((row.get(0)?, row.get(1)?)))?;
    keys.collect()
}

fn delete_batch(
    connection: &mut Connection,
    table: &str,
    keys: &[(String, String)],
    now: i64,
    has_stream: bool,
) -> rusqlite::Result<usize> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut deleted = 0;
    {
        let mut stream = if has_stream { Some(StreamWriter::begin(&transaction, table)?) } else { None };
        let sql = format!(r#"DELETE FROM "{table}" WHERE {} AND pk = ?2 AND sk = ?3"#, expired_condition());
        let mut delete = transaction.prepare_cached(&sql)?;
        for (pk, sk) in keys {
            if delete.execute(params![now, pk, sk])? == 0 {
                continue;
            }
            deleted += 1;
            if let (Some(stream), Some(pk), Some(sk)) = (&mut stream, decode_key(pk), decode_key(sk)) {
                stream.append(StreamEvent::Expire, &Key::new(pk, sk))?;
            }
        }
    }
    transaction.commit()?;
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Embedded, FILE};
    use super::*;
    use pennon_core::config::StoreConfig;
    use pennon_core::store::{Item, PartitionQuery, WriteCondition};

    fn item(sk: &str, expires_at: Option<i64>) -> Item {
        // The body has a field of the attribute's name, which must not count.
        let body = serde_json::json!({"expires_at": {"N": "1"}});
        let item = Item::new(Key::new("P", sk), &body).unwrap();
        Item { expires_at, ..item }
    }

    #[tokio::test]
    async fn only_expired_items_are_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path()).await.unwrap();
        let store = embedded.store(None);
        let now = now_micros() / 1_000_000;
        for table in [&store.records, &store.blocks] {
            for number in 0..250 {
                table
                    .put(item(&format!("old {number:03}"), Some(now - 1)), WriteCondition::None)
                    .await
                    .unwrap();
            }
            table.put(item("never", None), WriteCondition::None).await.unwrap();
            table.put(item("later", Some(now + 3600)), WriteCondition::None).await.unwrap();
        }
        assert_eq!(embedded.clean_up().await.unwrap(), 500);
        for table in [&store.records, &store.blocks] {
            let left = table.query(PartitionQuery::partition("P")).await.unwrap();
            let left = left.into_iter().map(|item| item.key.sk).collect::<Vec<_>>();
            assert_eq!(left, ["later", "never"]);
        }
        assert_eq!(embedded.clean_up().await.unwrap(), 0);
        let connection = Connection::open(directory.path().join(FILE)).unwrap();
        let sql = "SELECT COUNT(*) FROM _stream_records WHERE event_name = 'REMOVE'
            AND json_extract(user_identity, '$.principalId') = 'dynamodb.amazonaws.com'";
        assert_eq!(connection.query_row::<i64, _, _>(sql, [], |row| row.get(0)).unwrap(), 250);
    }

    #[tokio::test]
    async fn an_item_whose_time_was_extended_stays() {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path()).await.unwrap();
        let records = embedded.store(None).records;
        let (name, file) = (StoreConfig::local().records_table, directory.path().join(FILE));
        let now = now_micros() / 1_000_000;
        records.put(item("a", Some(now - 1)), WriteCondition::None).await.unwrap();
        let mut connection = Connection::open(&file).unwrap();
        let keys = list_expired(&connection, &name, now).unwrap();
        assert_eq!(keys.len(), 1);
        records.put(item("a", Some(now + 60)), WriteCondition::None).await.unwrap();
        assert_eq!(delete_batch(&mut connection, &name, &keys, now, true).unwrap(), 0);
        assert!(records.get(&Key::new("P", "a")).await.unwrap().is_some());
    }
}
