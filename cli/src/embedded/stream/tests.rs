#![allow(clippy::unwrap_used)]
use super::super::{Embedded, FILE};
use super::*;
use pennon_core::config::StoreConfig;
use pennon_core::store::{Item, Table, Write, WriteCondition, keys};

fn table_name() -> String {
    StoreConfig::local().records_table
}

fn item(pk: &str, sk: &str) -> Item {
    Item::empty(Key::new(pk, sk))
}

/// A record in the file: name, keys, images, number, shard, second, identity, and whether it has an id.
type Record = (String, Value, Option<String>, Option<String>, i64, String, i64, Option<String>, bool);

fn records(directory: &Path) -> Vec<Record> {
    let connection = Connection::open(directory.join(FILE)).unwrap();
    let sql =
        "SELECT event_name, keys_json, new_image, old_image, CAST(sequence_number AS INTEGER), shard_id,
        created_at, user_identity, length(event_id) = 32 AND event_id NOT GLOB '*[^0-9a-f]*', table_name
        FROM _stream_records ORDER BY id";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| {
        assert_eq!(row.get::<_, String>(9)?, table_name());
        let keys: String = row.get(1)?;
        Ok((
            row.get(0)?,
            serde_json::from_str(&keys).unwrap(),
            row.get(2)?,
            row.get(3)?,
            row.get(4)?,
            row.get(5)?,
            row.get(6)?,
            row.get(7)?,
            row.get(8)?,
        ))
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// Transactions of every kind, each of which changes something.
fn transactions() -> Vec<Vec<Write>> {
    let key = |sk: &str| Key::new("P\"ü", sk);
    let put = |sk: &str| Write::Put(item("P\"ü", sk), WriteCondition::None);
    vec![
        vec![put("a")],
        vec![put("a"), put("b"), Write::Check(key("c"), WriteCondition::Absent)],
        vec![Write::Add(key("n"), 1), Write::Delete(key("a"), WriteCondition::Present)],
        vec![Write::Add(key("n"), 1), Write::Delete(key("a"), WriteCondition::None), put("a")],
        vec![Write::Delete(key("never"), WriteCondition::None)],
        vec![Write::BumpVersion(key("r"), Default::default()), Write::Delete(key("b"), WriteCondition::None)],
    ]
}

#[tokio::test]
async fn transactions_write_the_stream_records_of_the_database() {
    let (direct_directory, sdk_directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let direct = Embedded::open(direct_directory.path()).await.unwrap().store(None).records;
    let database = Embedded::open(sdk_directory.path()).await.unwrap();
    let database = Embedded::store_through(database.connector(), None).records;
    for writes in transactions() {
        // The fourth changes one item twice, which both refuse.
        let outcome = direct.transact(writes.clone()).await.is_ok();
        assert_eq!(outcome, database.transact(writes).await.is_ok());
    }
    let begun = now_micros();
    let (direct_records, sdk_records) = (records(direct_directory.path()), records(sdk_directory.path()));
    assert_eq!(direct_records.len(), sdk_records.len());
    let names = direct_records.iter().map(|record| record.0.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["INSERT", "MODIFY", "INSERT", "INSERT", "REMOVE", "INSERT", "REMOVE"]);
    for (one, other) in direct_records.iter().zip(&sdk_records) {
        // All but numbers and times, which come from the clock.
        let of = |record: &Record| {
            let record = record.clone();
            (record.0, record.1, record.2, record.3, record.5, record.7, record.8)
        };
        assert_eq!(of(one), of(other));
        for record in [one, other] {
            let (micros, seconds) = (record.4, record.6);
            assert!((begun - 60_000_000..=begun).contains(&micros), "{micros} {begun}");
            assert!((begun / 1_000_000 - 60..=begun / 1_000_000).contains(&seconds));
        }
    }
    for records in [direct_records, sdk_records] {
        assert!(records.windows(2).all(|two| two[0].4 < two[1].4));
    }
}

#[tokio::test]
async fn both_writers_continue_each_others_sequence_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let direct = embedded.store(None).records;
    let database = Embedded::store_through(embedded.connector(), None).records;
    // A number from a clock that was ahead.
    direct.put(item("P", "first"), WriteCondition::None).await.unwrap();
    let ahead = now_micros() + 3_600_000_000;
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    connection.execute("UPDATE _stream_records SET sequence_number = ?1", [ahead.to_string()]).unwrap();
    for round in 0..3 {
        direct.put(item("P", &format!("direct {round}")), WriteCondition::None).await.unwrap();
        database.put(item("P", &format!("database {round}")), WriteCondition::None).await.unwrap();
    }
    let numbers = records(directory.path()).iter().map(|record| record.4).collect::<Vec<_>>();
    assert_eq!(numbers, (ahead..ahead + 7).collect::<Vec<_>>());
}

#[tokio::test]
async fn queries_of_the_stream_use_the_index() {
    let directory = tempfile::tempdir().unwrap();
    Embedded::open(directory.path()).await.unwrap();
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    let database_queries = [
        "SELECT COALESCE(MAX(CAST(sequence_number AS INTEGER)), 0) + 1 FROM _stream_records WHERE table_name = ?1",
        "SELECT event_name FROM _stream_records
             WHERE table_name = ?1 AND shard_id = ?2 AND CAST(sequence_number AS INTEGER) > ?3
             ORDER BY CAST(sequence_number AS INTEGER) ASC LIMIT ?4",
    ];
    for sql in database_queries.iter().chain(&[LAST_NUMBER, FIRST_NUMBER, SELECT_INSERTS]) {
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = plan.parameter_count();
        let steps = plan.query_map(rusqlite::params_from_iter(vec![1; parameters]), |row| row.get(3));
        let steps: Vec<String> = steps.unwrap().collect::<Result<_, _>>().unwrap();
        // One search by the index, and no sort.
        assert_eq!(steps.len(), 1, "{sql}: {steps:?}");
        assert!(steps[0].contains(" INDEX pennon_stream_numbers (table_name=?"), "{sql}: {steps:?}");
    }
}

/// Adds `count` records with the time `seconds`, without the database.
fn add(directory: &Path, count: i64, seconds: i64) {
    let mut connection = Connection::open(directory.join(FILE)).unwrap();
    let transaction = connection.transaction().unwrap();
    let name = table_name();
    for _ in 0..count {
        let mut stream = StreamWriter::begin(&transaction, &name).unwrap();
        stream.now = seconds * 1_000_000;
        stream.append(StreamEvent::Insert, &Key::new("Q", "S")).unwrap();
    }
    transaction.commit().unwrap();
}

#[tokio::test]
async fn records_are_trimmed_by_age_and_by_count() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let table = embedded.store(None).records;
    let now = now_micros() / 1_000_000;
    add(directory.path(), 3, now - 24 * 3600 - 1);
    add(directory.path(), 2, now - 24 * 3600 + 600);
    embedded.clean_up().await.unwrap();
    assert_eq!(records(directory.path()).len(), 2);
    add(directory.path(), RECORDS_MAX - 2, now);
    embedded.clean_up().await.unwrap();
    assert_eq!(records(directory.path()).len(), 50_000);
    // Writers trim the stream.
    for number in 0..TRIM_INTERVAL {
        table.put(item("P", &number.to_string()), WriteCondition::None).await.unwrap();
    }
    let left = records(directory.path());
    assert_eq!(left.len(), 50_000);
    assert_eq!(left.last().unwrap().1["sk"]["S"], "255");
    // All old records are deleted, also if there is no younger one.
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    connection.execute("UPDATE _stream_records SET created_at = 0", []).unwrap();
    drop(Embedded::open(directory.path()).await.unwrap());
    assert_eq!(records(directory.path()).len(), 0);
}

fn jobs(sks: &[&str]) -> Vec<Key> {
    sks.iter().map(|sk| Key::new("JOB#1", *sk)).collect()
}

async fn put(table: &Table, pk: &str, sk: &str) {
    table.put(item(pk, sk), WriteCondition::None).await.unwrap();
}

#[tokio::test]
async fn a_follower_gets_only_inserts_into_its_partitions() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let direct = embedded.store(None).records;
    let database = Embedded::store_through(embedded.connector(), None).records;
    put(&direct, "JOB#1", "before").await;
    let mut follower = embedded.follow(keys::JOB_PREFIX).unwrap().unwrap();
    assert_eq!(follower.poll().await.unwrap(), StreamInserts::default());
    put(&direct, "JOB#1", "a").await;
    put(&direct, "JOB#1", "a").await;
    put(&direct, "JOB", "no").await;
    put(&direct, "P", "JOB#1").await;
    put(&database, "JOB#1", "b").await;
    direct.transact(vec![Write::Delete(Key::new("JOB#1", "before"), WriteCondition::None)]).await.unwrap();
    let inserts = follower.poll().await.unwrap();
    assert_eq!(inserts, StreamInserts { keys: jobs(&["a", "b"]), has_gap: false });
    assert_eq!(follower.poll().await.unwrap(), StreamInserts::default());
    // A deleted item can be inserted again.
    put(&direct, "JOB#1", "before").await;
    assert_eq!(follower.poll().await.unwrap().keys, jobs(&["before"]));
}

#[tokio::test]
async fn both_writers_notify_a_waiting_follower() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let direct = embedded.store(None).records;
    let database = Embedded::store_through(embedded.connector(), None).records;
    let mut follower = embedded.follow(keys::JOB_PREFIX).unwrap().unwrap();
    for (round, table) in [direct, database].iter().enumerate() {
        let mut changes = follower.changes.clone();
        changes.mark_unchanged();
        let sk = round.to_string();
        put(table, "JOB#1", &sk).await;
        assert!(changes.has_changed().unwrap(), "{round}");
        assert_eq!(follower.next().await.unwrap().keys, jobs(&[&sk]));
    }
}

#[tokio::test]
async fn a_transaction_without_a_job_notifies_no_follower() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let follower = embedded.follow(keys::JOB_PREFIX).unwrap().unwrap();
    put(&embedded.store(None).records, "P", "S").await;
    assert!(!follower.changes.has_changed().unwrap());
}

#[tokio::test]
async fn a_follower_is_informed_of_a_gap_in_the_stream() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let table = embedded.store(None).records;
    put(&table, "P", "S").await;
    let mut follower = embedded.follow(keys::JOB_PREFIX).unwrap().unwrap();
    put(&table, "JOB#1", "lost").await;
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    connection.execute("DELETE FROM _stream_records", []).unwrap();
    put(&table, "JOB#1", "a").await;
    assert_eq!(follower.poll().await.unwrap(), StreamInserts { keys: jobs(&["a"]), has_gap: true });
    put(&table, "JOB#1", "b").await;
    assert_eq!(follower.poll().await.unwrap(), StreamInserts { keys: jobs(&["b"]), has_gap: false });
}

#[tokio::test]
async fn the_port_serves_the_same_stream() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    put(&embedded.store(None).records, "JOB#1", "a").await;
    let call = |operation: &str, body: Value| {
        let response = super::super::connector::dispatch(
            &embedded.database,
            &embedded.write_lock,
            operation,
            &body.to_string(),
        );
        serde_json::from_str::<Value>(&response.unwrap()).unwrap()
    };
    let stream = call("ListStreams", json!({"TableName": table_name()}))["Streams"][0]["StreamArn"].clone();
    let described = call("DescribeStream", json!({"StreamArn": stream}));
    let shard = described["StreamDescription"]["Shards"][0]["ShardId"].clone();
    let parameters = json!({"StreamArn": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"});
    let iterator = call("GetShardIterator", parameters)["ShardIterator"].clone();
    let records = call("GetRecords", json!({"ShardIterator": iterator}))["Records"].clone();
    assert_eq!(records.as_array().unwrap().len(), 1);
    assert_eq!(records[0]["eventName"], "INSERT");
    let record = &records[0]["dynamodb"];
    assert_eq!(record["Keys"], json!({"pk": {"S": "JOB#1"}, "sk": {"S": "a"}}));
    assert_eq!(record["StreamViewType"], "KEYS_ONLY");
    assert!(record.get("NewImage").is_none());
}
