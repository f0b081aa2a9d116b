#![allow(clippy::unwrap_used)]
use super::super::{Embedded, FILE};
use super::*;
use pennon_core::config::StoreConfig;
use pennon_core::store::{Guard, Item, Table, Write, keys};

fn table_name() -> String {
    StoreConfig::local().records_table
}

fn item(pk: &str, sk: &str) -> Item {
    Item::empty(Key::new(pk, sk))
}

/// A record as it lies in the file: name, keys, images, number, shard, second, identity, and whether it has an id.
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
    let put = |sk: &str| Write::Put(item("P\"ü", sk), Guard::None);
    vec![
        vec![put("a")],
        vec![put("a"), put("b"), Write::Check(key("c"), Guard::Absent)],
        vec![Write::Add(key("n"), 1), Write::Delete(key("a"), Guard::Present)],
        vec![Write::Add(key("n"), 1), Write::Delete(key("a"), Guard::None), put("a")],
        vec![Write::Delete(key("never"), Guard::None)],
        vec![Write::BumpVersion(key("r"), Default::default()), Write::Delete(key("b"), Guard::None)],
    ]
}

#[tokio::test]
async fn transactions_leave_the_records_that_the_database_would_leave() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let direct = Embedded::open(ours.path()).await.unwrap().store(None).records;
    let database = Embedded::open(theirs.path()).await.unwrap();
    let database = Embedded::store_through(database.connector(), None).records;
    for writes in transactions() {
        // The fourth changes one item twice, which both refuse.
        let outcome = direct.transact(writes.clone()).await.is_ok();
        assert_eq!(outcome, database.transact(writes).await.is_ok());
    }
    let begun = now_micros();
    let (ours, theirs) = (records(ours.path()), records(theirs.path()));
    assert_eq!(ours.len(), theirs.len());
    let names = ours.iter().map(|record| record.0.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["INSERT", "MODIFY", "INSERT", "INSERT", "REMOVE", "INSERT", "REMOVE"]);
    for (one, other) in ours.iter().zip(&theirs) {
        // But for numbers and times, which come from the clock.
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
    for records in [ours, theirs] {
        assert!(records.windows(2).all(|two| two[0].4 < two[1].4));
    }
}

#[tokio::test]
async fn both_writers_count_on_from_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let direct = embedded.store(None).records;
    let database = Embedded::store_through(embedded.connector(), None).records;
    // A number from a clock that was ahead.
    direct.put(item("P", "first"), Guard::None).await.unwrap();
    let ahead = now_micros() + 3_600_000_000;
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    connection.execute("UPDATE _stream_records SET sequence_number = ?1", [ahead.to_string()]).unwrap();
    for round in 0..3 {
        direct.put(item("P", &format!("direct {round}")), Guard::None).await.unwrap();
        database.put(item("P", &format!("database {round}")), Guard::None).await.unwrap();
    }
    let numbers = records(directory.path()).iter().map(|record| record.4).collect::<Vec<_>>();
    assert_eq!(numbers, (ahead..ahead + 7).collect::<Vec<_>>());
}

#[tokio::test]
async fn numbers_and_records_are_found_by_the_index() {
    let directory = tempfile::tempdir().unwrap();
    Embedded::open(directory.path()).await.unwrap();
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    let database_asks = [
        "SELECT COALESCE(MAX(CAST(sequence_number AS INTEGER)), 0) + 1 FROM _stream_records WHERE table_name = ?1",
        "SELECT event_name FROM _stream_records
             WHERE table_name = ?1 AND shard_id = ?2 AND CAST(sequence_number AS INTEGER) > ?3
             ORDER BY CAST(sequence_number AS INTEGER) ASC LIMIT ?4",
    ];
    for sql in database_asks.iter().chain(&[LAST, FIRST, INSERTED]) {
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = plan.parameter_count();
        let steps = plan.query_map(rusqlite::params_from_iter(vec![1; parameters]), |row| row.get(3));
        let steps: Vec<String> = steps.unwrap().collect::<Result<_, _>>().unwrap();
        // One search, and nothing that sorts.
        assert_eq!(steps.len(), 1, "{sql}: {steps:?}");
        assert!(steps[0].contains(" INDEX pennon_stream_numbers (table_name=?"), "{sql}: {steps:?}");
    }
}

/// Adds `count` records of `seconds` beside the database.
fn add(directory: &Path, count: i64, seconds: i64) {
    let mut connection = Connection::open(directory.join(FILE)).unwrap();
    let transaction = connection.transaction().unwrap();
    let name = table_name();
    for _ in 0..count {
        let mut recorder = Recorder::begin(&transaction, &name).unwrap();
        recorder.at = seconds * 1_000_000;
        recorder.record(Event::Insert, &Key::new("Q", "S")).unwrap();
    }
    transaction.commit().unwrap();
}

#[tokio::test]
async fn records_stay_for_a_day_and_no_more_than_so_many_do() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let table = embedded.store(None).records;
    let now = now_micros() / 1_000_000;
    add(directory.path(), 3, now - 24 * 3600 - 1);
    add(directory.path(), 2, now - 24 * 3600 + 600);
    embedded.tidy().await.unwrap();
    assert_eq!(records(directory.path()).len(), 2);
    add(directory.path(), KEPT_MAX - 2, now);
    embedded.tidy().await.unwrap();
    assert_eq!(records(directory.path()).len(), 50_000);
    // Writers make room as they go.
    for number in 0..TRIMMED_EVERY {
        table.put(item("P", &number.to_string()), Guard::None).await.unwrap();
    }
    let left = records(directory.path());
    assert_eq!(left.len(), 50_000);
    assert_eq!(left.last().unwrap().1["sk"]["S"], "255");
    // All that is too old goes, also where nothing younger is there.
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    connection.execute("UPDATE _stream_records SET created_at = 0", []).unwrap();
    drop(Embedded::open(directory.path()).await.unwrap());
    assert_eq!(records(directory.path()).len(), 0);
}

fn jobs(sks: &[&str]) -> Vec<Key> {
    sks.iter().map(|sk| Key::new("JOB#1", *sk)).collect()
}

async fn put(table: &Table, pk: &str, sk: &str) {
    table.put(item(pk, sk), Guard::None).await.unwrap();
}

#[tokio::test]
async fn who_follows_learns_of_inserts_in_its_partitions_and_of_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let direct = embedded.store(None).records;
    let database = Embedded::store_through(embedded.connector(), None).records;
    put(&direct, "JOB#1", "before").await;
    let mut follower = embedded.follow(keys::JOB_PREFIX).unwrap().unwrap();
    assert_eq!(follower.look().await.unwrap(), Inserted::default());
    put(&direct, "JOB#1", "a").await;
    put(&direct, "JOB#1", "a").await;
    put(&direct, "JOB", "no").await;
    put(&direct, "P", "JOB#1").await;
    put(&database, "JOB#1", "b").await;
    direct.transact(vec![Write::Delete(Key::new("JOB#1", "before"), Guard::None)]).await.unwrap();
    let found = follower.look().await.unwrap();
    assert_eq!(found, Inserted { keys: jobs(&["a", "b"]), missed: false });
    assert_eq!(follower.look().await.unwrap(), Inserted::default());
    // What went can come again.
    put(&direct, "JOB#1", "before").await;
    assert_eq!(follower.look().await.unwrap().keys, jobs(&["before"]));
}

#[tokio::test]
async fn whoever_waits_is_told_at_once_by_either_writer() {
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
async fn a_transaction_without_a_job_wakes_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let follower = embedded.follow(keys::JOB_PREFIX).unwrap().unwrap();
    put(&embedded.store(None).records, "P", "S").await;
    assert!(!follower.changes.has_changed().unwrap());
}

#[tokio::test]
async fn who_follows_is_told_that_records_are_gone_which_it_did_not_see() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    let table = embedded.store(None).records;
    put(&table, "P", "S").await;
    let mut follower = embedded.follow(keys::JOB_PREFIX).unwrap().unwrap();
    put(&table, "JOB#1", "lost").await;
    let connection = Connection::open(directory.path().join(FILE)).unwrap();
    connection.execute("DELETE FROM _stream_records", []).unwrap();
    put(&table, "JOB#1", "a").await;
    assert_eq!(follower.look().await.unwrap(), Inserted { keys: jobs(&["a"]), missed: true });
    put(&table, "JOB#1", "b").await;
    assert_eq!(follower.look().await.unwrap(), Inserted { keys: jobs(&["b"]), missed: false });
}

#[tokio::test]
async fn the_port_tells_the_same_stream() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path()).await.unwrap();
    put(&embedded.store(None).records, "JOB#1", "a").await;
    let call = |operation: &str, body: Value| {
        let answer = super::super::connector::dispatch(
            &embedded.database,
            &embedded.turn,
            operation,
            &body.to_string(),
        );
        serde_json::from_str::<Value>(&answer.unwrap()).unwrap()
    };
    let stream = call("ListStreams", json!({"TableName": table_name()}))["Streams"][0]["StreamArn"].clone();
    let described = call("DescribeStream", json!({"StreamArn": stream}));
    let shard = described["StreamDescription"]["Shards"][0]["ShardId"].clone();
    let asked = json!({"StreamArn": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"});
    let at = call("GetShardIterator", asked)["ShardIterator"].clone();
    let records = call("GetRecords", json!({"ShardIterator": at}))["Records"].clone();
    assert_eq!(records.as_array().unwrap().len(), 1);
    assert_eq!(records[0]["eventName"], "INSERT");
    let told = &records[0]["dynamodb"];
    assert_eq!(told["Keys"], json!({"pk": {"S": "JOB#1"}, "sk": {"S": "a"}}));
    assert_eq!(told["StreamViewType"], "KEYS_ONLY");
    assert!(told.get("NewImage").is_none());
}
