#![allow(clippy::unwrap_used)]
use super::super::{Embedded, FILE};
use pennon_core::config::StoreConfig;
use pennon_core::store::{
    Item, Key, Precondition, RowChecksums, StoreError, Table, VersionBump, Write, WriteCondition,
};
use serde_json::{Value, json};
use std::path::Path;

/// A deterministic pseudorandom generator, so that a failure can be reproduced.
struct Generator(u64);

impl Generator {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn guard(&mut self) -> WriteCondition {
        match self.below(5) {
            0 => WriteCondition::Absent,
            1 => WriteCondition::Present,
            2 => WriteCondition::Version(self.below(3)),
            3 => WriteCondition::CountAtMost(i64::try_from(self.below(6)).unwrap()),
            _ => WriteCondition::None,
        }
    }

    fn write(&mut self, key: Key) -> Write {
        match self.below(7) {
            6 => Write::SetFeedBytes(key, i64::try_from(self.below(4)).unwrap(), 7),
            0 => Write::Delete(key, self.guard()),
            1 => Write::Check(key, self.guard()),
            2 => Write::Add(key, 1 + i64::try_from(self.below(5)).unwrap()),
            3 => Write::BumpVersion(key, self.raise()),
            _ => {
                let text = "ü\"".repeat(usize::try_from(self.below(3)).unwrap() * 1500);
                let item = Item::new(key, &json!({"n": [50.0, 1], "text": text})).unwrap();
                let bytes = vec![255; usize::try_from(self.below(9)).unwrap()];
                Write::Put(Item { bytes, ..item }.with_version(self.below(3)), self.guard())
            }
        }
    }

    fn raise(&mut self) -> VersionBump {
        let mut number = || i64::try_from(self.below(4)).unwrap() - 1;
        let by = RowChecksums { rows: number(), edges: number(), last: number(), used: number() };
        let seen = |number: i64| (number > 0).then_some(number - 1);
        let used = seen(number());
        let when = Precondition {
            rows: seen(number()),
            edges: seen(number()),
            number: seen(number()),
            used_at_most: seen(number()),
        };
        VersionBump { by, used, when }
    }

    fn transaction(&mut self) -> Vec<Write> {
        let first = self.below(6);
        let many = 1 + self.below(4);
        (0..many).map(|at| self.write(Key::new("P", format!("{}", (first + at) % 6)))).collect()
    }
}

fn result_text(result: &Result<(), StoreError>) -> String {
    match result {
        Ok(()) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// All rows of the records table: keys, size, prefix, item.
fn rows(directory: &Path) -> Vec<(String, String, i64, String, Value)> {
    let connection = rusqlite::Connection::open(directory.join(FILE)).unwrap();
    let table = StoreConfig::local().records_table;
    let sql = format!(r#"SELECT pk, sk, item_size, hash_prefix, item_json FROM "{table}" ORDER BY pk, sk"#);
    let mut statement = connection.prepare(&sql).unwrap();
    let rows = statement.query_map([], |row| {
        let item: String = row.get(4)?;
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, serde_json::from_str(&item).unwrap()))
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn transactions_have_the_results_and_rows_of_the_database() {
    let (direct_directory, sdk_directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let direct = Embedded::open(direct_directory.path()).await.unwrap().store(None).records;
    let database = Embedded::open(sdk_directory.path()).await.unwrap();
    let database = Embedded::store_through(database.connector(), None).records;
    let (mut generator, mut succeeded, mut failed) = (Generator(7), 0, 0);
    for round in 0..600 {
        let writes = generator.transaction();
        let result = result_text(&direct.transact(writes.clone()).await);
        assert_eq!(result, result_text(&database.transact(writes.clone()).await), "{round}: {writes:?}");
        if result == "done" {
            succeeded += 1
        } else {
            failed += 1
        }
        if round % 25 == 0 {
            assert_eq!(rows(direct_directory.path()), rows(sdk_directory.path()), "{round}");
        }
    }
    assert_eq!(rows(direct_directory.path()), rows(sdk_directory.path()));
    assert!(succeeded > 100 && failed > 100, "{succeeded} {failed}");
}

#[tokio::test]
async fn invalid_transactions_are_left_to_the_database() {
    let directory = tempfile::tempdir().unwrap();
    let table = Embedded::open(directory.path()).await.unwrap().store(None).records;
    let put = |key: Key| Write::Put(Item::empty(key), WriteCondition::None);
    let one = Key::new("P", "S");
    let invalid = [
        vec![put(one.clone()), Write::Check(one.clone(), WriteCondition::Absent)],
        vec![put(Key::new("", "S"))],
        vec![put(Key::new("P", ""))],
        vec![put(Key::new("P", "s".repeat(1025)))],
        vec![put(Key::new("p".repeat(2049), "S"))],
    ];
    for writes in invalid {
        let outcome = table.transact(writes.clone()).await;
        assert!(matches!(outcome, Err(StoreError::Failed(_))), "{writes:?}: {outcome:?}");
    }
    assert_eq!(rows(directory.path()), []);
    table.transact(vec![put(Key::new("p".repeat(2048), "s".repeat(1024)))]).await.unwrap();
    assert_eq!(rows(directory.path()).len(), 1);
    // A counter above `i64::MAX`.
    table.transact(vec![Write::Add(one.clone(), i64::MAX)]).await.unwrap();
    table.transact(vec![Write::Add(one, i64::MAX)]).await.unwrap();
    assert_eq!(rows(directory.path())[0].4["n"]["N"], "18446744073709551614");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_the_writers_with_the_same_expected_version_wins() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let direct = embedded.store(None).records;
    let database = Embedded::store_through(embedded.connector(), None).records;
    let item = |version| Item::empty(Key::new("P", "S")).with_version(version);
    direct.put(item(0), WriteCondition::None).await.unwrap();
    for version in 0..20 {
        let tries = (0..40).map(|number| {
            let table: Table = if number % 8 == 0 { database.clone() } else { direct.clone() };
            tokio::spawn(async move {
                let writes = vec![
                    Write::Add(Key::new("P", "tries won"), 1),
                    Write::Put(item(version + 1), WriteCondition::Version(version)),
                ];
                table.transact(writes).await
            })
        });
        let mut won = 0;
        for tried in tries.collect::<Vec<_>>() {
            match tried.await.unwrap() {
                Ok(()) => won += 1,
                Err(error) => assert!(error.is_condition(1), "{error}"),
            }
        }
        assert_eq!(won, 1);
    }
    let counter = direct.get(&Key::new("P", "tries won")).await.unwrap().unwrap();
    assert_eq!(counter.count, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_counter_returns_no_number_twice() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let (direct, database) =
        (embedded.store(None).records, Embedded::store_through(embedded.connector(), None).records);
    let calls = (0..200).map(|number| {
        let table = if number % 10 == 0 { database.clone() } else { direct.clone() };
        tokio::spawn(async move { table.increment(&Key::new("COUNTER", "X"), 1).await.unwrap() })
    });
    let mut numbers = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        numbers.push(call.await.unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=200).collect::<Vec<_>>());
}

#[tokio::test]
async fn writes_succeed_again_after_an_error_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let table = Embedded::open(directory.path()).await.unwrap().store(None).records;
    let put = |sk: &str| table.put(Item::empty(Key::new("P", sk)), WriteCondition::None);
    put("a").await.unwrap();
    let connection = rusqlite::Connection::open(directory.path().join(FILE)).unwrap();
    let name = StoreConfig::local().records_table;
    let trigger = format!(
        r#"CREATE TRIGGER full BEFORE INSERT ON "{name}" BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"#
    );
    connection.execute_batch(&trigger).unwrap();
    assert!(matches!(put("b").await, Err(StoreError::Busy(text)) if text.contains("full")));
    connection.execute_batch("DROP TRIGGER full").unwrap();
    put("c").await.unwrap();
    let kept: Vec<String> = rows(directory.path()).into_iter().map(|row| row.1).collect();
    assert_eq!(kept, ["S:a", "S:c"]);
}

/// The columns of a table: name, type, and place in the primary key.
fn columns(connection: &rusqlite::Connection, table: &str) -> Vec<String> {
    let mut statement = connection.prepare("SELECT name, type, pk FROM pragma_table_info(?1)").unwrap();
    let columns = statement.query_map([table], |row| {
        let (name, kind, place): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(format!("{name} {kind} {place}"))
    });
    columns.unwrap().map(Result::unwrap).collect()
}

/// Direct reads and writes depend on the table layout: a release of the database that changes it has to fail here.
#[tokio::test]
async fn the_table_layout_is_the_expected_one() {
    let directory = tempfile::tempdir().unwrap();
    let _embedded = Embedded::open(directory.path()).await.unwrap();
    let connection = rusqlite::Connection::open(directory.path().join(FILE)).unwrap();
    let names = StoreConfig::local();
    for table in [names.records_table, names.blocks_table] {
        let expected = [
            "pk TEXT 1",
            "sk TEXT 2",
            "item_json TEXT 0",
            "item_size INTEGER 0",
            "cached_at REAL 0",
            "hash_prefix TEXT 0",
        ];
        assert_eq!(columns(&connection, &table), expected, "{table}");
    }
    let expected = [
        "id INTEGER 1",
        "table_name TEXT 0",
        "event_name TEXT 0",
        "keys_json TEXT 0",
        "new_image TEXT 0",
        "old_image TEXT 0",
        "sequence_number TEXT 0",
        "shard_id TEXT 0",
        "created_at INTEGER 0",
        "user_identity TEXT 0",
        "event_id TEXT 0",
    ];
    assert_eq!(columns(&connection, "_stream_records"), expected);
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}
