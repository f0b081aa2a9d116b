//! The embedded DynamoDB: a SQLite database in a file or in memory, behind the AWS SDK's client.
//!
//! SDK requests reach the database without a socket ([`Connector`]). Most reads and transactions of the product bypass the
//! SDK and use the SQLite file directly (`sqlite_backend.rs`). The same database is served on a loopback port (`port.rs`), so that
//! functions under `cargo lambda watch`, other commands and AWS tools can use it while the server runs.
//!
//! [`Embedded`] is the entry point.

mod connection;
mod connector;
mod expiry;
mod open_files;
mod port;
pub mod preflight;
mod reader;
mod sqlite_backend;
mod stream;
mod wal;
mod write_lock;
pub mod write_mark;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, HttpClient, Region};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::{Client, Config};
use dynoxide::Database;
use open_files::OpenFiles;
use pennon_core::config::StoreConfig;
use pennon_core::store::local_backend::LocalBackend;
use pennon_core::store::round_trips::RoundTrips;
use pennon_core::store::schema::TableSchema;
use pennon_core::store::{CapacityMeter, Store, StoreError, schema};
use write_lock::WriteLock;

pub use connector::Connector;
pub use stream::{StreamFollower, StreamInserts};

/// The file that holds the database, inside the data directory.
pub const FILE: &str = "dynamodb.sqlite";
/// The records table of an in-memory database, without a stream: it has no follower, and without the index that a file has
/// the database would scan all stream records for the next sequence number on each write.
const IN_MEMORY_RECORDS: TableSchema = TableSchema { stream: None, ..schema::RECORDS };
/// The first SQLite in which a checkpoint by one connection cannot corrupt the write-ahead log of another.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// The region of local clients. The embedded database has none, but SDKs require one.
pub const REGION: &str = "us-east-1";
/// The secret of local clients. SDKs require one; the port compares only the access key id (`port.rs` has the reason).
pub const SECRET_ACCESS_KEY: &str = "not-checked";
/// Timeout of the connectivity check.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Read timeout of a call to a running server: a write waits for the disk and for other writers.
const REMOTE_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// An embedded DynamoDB with Pennon's tables.
#[derive(Clone)]
pub struct Embedded {
    database: Database,
    write_lock: WriteLock,
    file: Option<DatabaseFile>,
}

/// The SQLite file of a database, and the backend that reads and writes it without the SDK.
#[derive(Clone)]
struct DatabaseFile {
    path: PathBuf,
    backend: Arc<dyn LocalBackend>,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Embedded")
    }
}

impl Embedded {
    /// Opens the database in `directory`; creates it if it does not exist.
    pub async fn open(directory: &Path) -> Result<Embedded, StoreError> {
        validate_sqlite_version(rusqlite::version_number()).map_err(StoreError::Failed)?;
        let file = directory.join(FILE);
        let database = Database::new(&file.to_string_lossy())
            .map_err(|e| StoreError::Failed(format!("{} cannot be opened: {e}", file.display())))?;
        let names = StoreConfig::local();
        let write_lock = WriteLock::new(OpenFiles::new(&file));
        let unusable = |e| StoreError::Failed(format!("{} cannot be used: {e}", file.display()));
        stream::prepare(&file).map_err(unusable)?;
        let tables = [names.records_table, names.blocks_table];
        let backend = Arc::new(sqlite_backend::SqliteBackend::new(&file, tables, write_lock.clone()));
        let database_file = DatabaseFile { path: file, backend };
        let embedded = Embedded { database, write_lock, file: Some(database_file) };
        embedded.create_tables(&schema::RECORDS).await
    }

    /// A database in memory, for tests.
    pub async fn in_memory() -> Result<Embedded, StoreError> {
        let database = Database::memory().map_err(|e| StoreError::Failed(e.to_string()))?;
        let embedded = Embedded { database, write_lock: WriteLock::default(), file: None };
        embedded.create_tables(&IN_MEMORY_RECORDS).await
    }

    /// From now on records the number of committed writes in the write mark file in `directory`, which is the database's.
    pub fn count_writes(&self, directory: &Path) -> Result<(), String> {
        let mark = write_mark::WriteMark::start(directory)?;
        self.write_lock.set_write_mark(mark);
        Ok(())
    }

    async fn create_tables(self, records: &TableSchema) -> Result<Embedded, StoreError> {
        let client = self.client(None);
        let names = StoreConfig::local();
        schema::create(&client, &names.records_table, records).await?;
        schema::create(&client, &names.blocks_table, &schema::BLOCKS).await?;
        Ok(self)
    }

    /// Follows, from now on, inserts into the partitions of the records table whose keys start with `prefix`. `None` for a
    /// database in memory.
    pub fn follow(&self, prefix: &str) -> Result<Option<StreamFollower>, StoreError> {
        let names = StoreConfig::local();
        let follower = |file: &DatabaseFile| {
            StreamFollower::new(&file.path, &self.write_lock, &names.records_table, prefix)
        };
        self.file.as_ref().map(follower).transpose()
    }

    /// Deletes items whose time to live is over, as DynamoDB does, and trims the stream by count and age. Returns the number
    /// of deleted items.
    pub async fn clean_up(&self) -> Result<usize, StoreError> {
        let (Some(file), write_lock) = (self.file.clone(), self.write_lock.clone()) else { return Ok(0) };
        let names = StoreConfig::local();
        write_lock.files().check().map_err(StoreError::Unavailable)?;
        // SQLite blocks its thread.
        let deleted = tokio::task::spawn_blocking(move || {
            let records = expiry::delete_expired(&file.path, &write_lock, &names.records_table, true)?;
            let blocks = expiry::delete_expired(&file.path, &write_lock, &names.blocks_table, false)?;
            let _guard = write_lock.acquire();
            stream::prepare(&file.path)?;
            Ok(records + blocks)
        });
        let deleted = deleted.await.map_err(|e| StoreError::Failed(e.to_string()))?;
        deleted
            .map_err(|e: rusqlite::Error| StoreError::Busy(format!("expired items cannot be removed: {e}")))
    }

    /// An error if a file of the database was removed or replaced since it was opened.
    pub fn check_files(&self) -> Result<(), String> {
        self.write_lock.files().check()
    }

    /// Whether the database is in a file, which is read and written without the SDK.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// The HTTP client that passes an SDK client's requests to the database.
    pub fn connector(&self) -> Connector {
        Connector::new(self.database.clone(), self.write_lock.clone())
    }

    /// An SDK client without a socket. `round_trips` counts its calls.
    pub fn client(&self, round_trips: Option<RoundTrips>) -> Client {
        Embedded::client_through(self.connector(), round_trips)
    }

    fn client_through(connector: impl HttpClient + 'static, round_trips: Option<RoundTrips>) -> Client {
        let mut config = local_config().http_client(connector).interceptor(CapacityMeter);
        if let Some(counter) = round_trips {
            config = config.interceptor(counter);
        }
        Client::from_conf(config.build())
    }

    /// The two tables. They read and write the file directly if there is one, and use [`Embedded::client`] for all else. With
    /// `round_trips`, every call goes through the client, so that it is counted.
    pub fn store(&self, round_trips: Option<RoundTrips>) -> Store {
        let is_counted = round_trips.is_some();
        let store = Store::new(&self.client(round_trips), &StoreConfig::local());
        match &self.file {
            Some(file) if !is_counted => store.with_local_backend(&file.backend),
            _ => store,
        }
    }

    /// The two tables through `connector`, which wraps [`Embedded::connector`].
    pub fn store_through(connector: impl HttpClient + 'static, round_trips: Option<RoundTrips>) -> Store {
        Store::new(&Embedded::client_through(connector, round_trips), &StoreConfig::local())
    }

    /// A router that serves the database to clients with this access key id.
    pub fn port(&self, access_key_id: &str) -> axum::Router {
        port::router(self.database.clone(), self.write_lock.clone(), access_key_id)
    }
}

/// Rejects an SQLite that is too old for several connections to one file. Only a build that links the system's SQLite can
/// have one.
fn validate_sqlite_version(version: i32) -> Result<(), String> {
    if version >= SQLITE_VERSION_MIN {
        return Ok(());
    }
    let text = |version: i32| format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000);
    Err(format!(
        "this binary is linked with SQLite {}, which can corrupt its write-ahead log; it needs {} or later: build it \
         again without LIBSQLITE3_SYS_USE_PKG_CONFIG in the environment",
        text(version),
        text(SQLITE_VERSION_MIN)
    ))
}

/// The tables of a database that another process serves at `endpoint` to clients with this access key id.
pub fn remote_store(endpoint: &str, access_key_id: &str) -> Store {
    Store::new(&remote_client(endpoint, access_key_id, REMOTE_READ_TIMEOUT), &StoreConfig::local())
}

/// Checks that a database with the product's tables responds at `endpoint` within 5 seconds; the error has the reason.
pub async fn check_endpoint(endpoint: &str, access_key_id: &str) -> Result<(), String> {
    // Longer than the timeout of the whole call, which ends first.
    let client = remote_client(endpoint, access_key_id, 2 * PROBE_TIMEOUT);
    let no_retries = Config::builder().retry_config(RetryConfig::disabled());
    let call = client.list_tables().customize().config_override(no_retries).send();
    let tables = match tokio::time::timeout(PROBE_TIMEOUT, call).await {
        Err(_) => return Err(format!("no response within {} seconds", PROBE_TIMEOUT.as_secs())),
        Ok(Err(SdkError::DispatchFailure(_))) => return Err("no connection".to_owned()),
        Ok(Err(_)) => return Err("another program responds there".to_owned()),
        Ok(Ok(response)) => response.table_names.unwrap_or_default(),
    };
    let names = StoreConfig::local();
    let is_ours = tables.contains(&names.records_table) && tables.contains(&names.blocks_table);
    if is_ours { Ok(()) } else { Err("another database responds there".to_owned()) }
}

fn remote_client(endpoint: &str, access_key_id: &str, read_timeout: Duration) -> Client {
    let timeouts = TimeoutConfig::builder().connect_timeout(PROBE_TIMEOUT).read_timeout(read_timeout).build();
    let credentials = Credentials::new(access_key_id, SECRET_ACCESS_KEY, None, None, "server.json");
    let config = local_config().endpoint_url(endpoint).credentials_provider(credentials);
    Client::from_conf(config.timeout_config(timeouts).build())
}

/// Requests that stay in this process carry no signature.
fn local_config() -> aws_sdk_dynamodb::config::Builder {
    Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .endpoint_url("http://embedded.invalid")
        .allow_no_auth()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pennon_core::store::{Item, Key, PartitionQuery, Write, WriteCondition};

    #[test]
    fn the_linked_sqlite_is_new_enough_and_an_older_one_is_rejected() {
        assert_eq!(validate_sqlite_version(rusqlite::version_number()), Ok(()));
        assert_eq!(validate_sqlite_version(3_051_003), Ok(()));
        let error = validate_sqlite_version(3_051_002).unwrap_err();
        assert!(error.contains("SQLite 3.51.2") && error.contains("needs 3.51.3"), "{error}");
    }

    /// If this fails after an update of dynoxide-rs, its private tables have changed: correct the SQL of this folder first.
    #[tokio::test]
    async fn the_layout_of_the_tables_is_the_one_that_is_read_and_written_directly() {
        const ITEMS: &str = "pk TEXT NOT NULL, sk TEXT NOT NULL DEFAULT '', item_json TEXT NOT NULL, \
            item_size INTEGER NOT NULL, cached_at REAL, hash_prefix TEXT NOT NULL DEFAULT '', PRIMARY KEY (pk, sk)";
        const STREAM: &str = "id INTEGER PRIMARY KEY AUTOINCREMENT, table_name TEXT NOT NULL, \
            event_name TEXT NOT NULL, keys_json TEXT NOT NULL, new_image TEXT, old_image TEXT, \
            sequence_number TEXT NOT NULL, shard_id TEXT NOT NULL, created_at INTEGER NOT NULL, user_identity TEXT, \
            event_id TEXT";
        let directory = tempfile::tempdir().unwrap();
        let _embedded = Embedded::open(directory.path()).await.unwrap();
        let connection = rusqlite::Connection::open(directory.path().join(FILE)).unwrap();
        // Indexes without SQL belong to a primary key; nothing here reads `_config` and `_tables`.
        let sql = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
        let in_one_line = |sql: &str| sql.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(");
        let layout =
            rows.unwrap().map(|row| row.map(|(name, sql)| (name, in_one_line(&sql).replace(" )", ")"))));
        let layout = layout.collect::<Result<Vec<_>, _>>().unwrap();
        let names = layout.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        let stream_index = "pennon_stream_numbers";
        let known =
            ["_config", "_stream_records", "_tables", "pennon-blocks", "pennon-records", stream_index];
        assert_eq!(names, [&known[..], &["sqlite_sequence"]].concat());
        let sql_of = |name: &str| layout.iter().find(|(known, _)| known == name).unwrap().1.clone();
        for table in ["pennon-blocks", "pennon-records"] {
            assert_eq!(sql_of(table), format!("CREATE TABLE \"{table}\" ({ITEMS})"));
        }
        assert_eq!(sql_of("_stream_records"), format!("CREATE TABLE _stream_records ({STREAM})"));
    }

    #[tokio::test]
    async fn a_transaction_writes_all_or_nothing() {
        let table = Embedded::in_memory().await.unwrap().store(None).records;
        let item = |sk: &str| Item::new(Key::new("P", sk), &sk).unwrap();
        table.put(item("a"), WriteCondition::Absent).await.unwrap();
        let writes = vec![
            Write::Put(item("b"), WriteCondition::Absent),
            Write::Put(item("a"), WriteCondition::Absent),
        ];
        assert!(table.transact(writes).await.unwrap_err().is_condition(1));
        let items = table.query(PartitionQuery::partition("P")).await.unwrap();
        assert_eq!(items.len(), 1);
    }

    #[tokio::test]
    async fn counters_never_repeat_and_only_rise() {
        let table = Embedded::in_memory().await.unwrap().store(None).records;
        let key = Key::new("COUNTER", "X");
        let calls = (0..20).map(|_| table.increment(&key, 1));
        let mut numbers: Vec<i64> = futures_join(calls).await;
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
        table.raise(&key, 100).await.unwrap();
        table.raise(&key, 50).await.unwrap();
        assert_eq!(table.increment(&key, 1).await.unwrap(), 101);
    }

    async fn futures_join(
        calls: impl Iterator<Item = impl Future<Output = Result<i64, StoreError>>>,
    ) -> Vec<i64> {
        let mut numbers = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            numbers.push(call.await.unwrap());
        }
        numbers
    }

    #[tokio::test]
    async fn written_items_survive_reopening() {
        let directory = std::env::temp_dir().join(format!("pennon-test-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&directory).unwrap();
        let item = Item::new(Key::new("P", "S"), &vec![50.0, 12.5]).unwrap().with_version(3);
        Embedded::open(&directory)
            .await
            .unwrap()
            .store(None)
            .records
            .put(item.clone(), WriteCondition::None)
            .await
            .unwrap();
        let again = Embedded::open(&directory).await.unwrap().store(None).records;
        assert_eq!(again.get(&item.key).await.unwrap(), Some(item));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[tokio::test]
    async fn sequential_waits_are_counted() {
        let counter = RoundTrips::new();
        let embedded = Embedded::in_memory().await.unwrap();
        let table = embedded.store(Some(counter.clone())).records;
        let key = Key::new("P", "S");
        let (a, b) = tokio::join!(table.get(&key), table.get(&key));
        assert!(a.unwrap().is_none() && b.unwrap().is_none());
        table.get(&key).await.unwrap();
        assert_eq!((counter.calls().len(), counter.sequential()), (3, 2));
        assert_eq!(counter.calls()[0].operation, "GetItem");
    }
}
