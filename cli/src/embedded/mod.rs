//! The embedded DynamoDB: a database in a file or in memory, spoken to through the ordinary SDK.
//!
//! The SDK's requests go to the database without a socket; most reads and transactions of the product go to its file
//! without the SDK. The same database is offered on a loopback port, so that functions under `cargo lambda watch`, other
//! commands and any AWS tool reach it while the server runs.

mod connector;
mod expiry;
mod file;
mod open_files;
mod port;
pub mod preflight;
mod reads;
mod stream;
mod wal;
pub mod write_mark;
mod writes;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, HttpClient, Region};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{StreamSpecification, StreamViewType};
use aws_sdk_dynamodb::{Client, Config};
use dynoxide::Database;
use open_files::OpenFiles;
use pennon_core::config::StoreConfig;
use pennon_core::store::local_backend::LocalBackend;
use pennon_core::store::round_trips::RoundTrips;
use pennon_core::store::schema::TableSchema;
use pennon_core::store::{Meter, Store, StoreError, schema};
use writes::Turn;

pub use connector::Connector;
pub use stream::{Follower, Inserted};

/// The file that holds the database, inside the data directory.
pub const FILE: &str = "dynamodb.sqlite";
/// In memory the records table has no stream: nobody follows it, and the database would look through all that it ever held
/// for the number of the next entry, which a file has an index for.
const IN_MEMORY: TableSchema = TableSchema { stream: None, ..schema::RECORDS };
/// The first SQLite in which a checkpoint by one connection cannot corrupt the write-ahead log of another.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// Region that local clients name; the embedded database has none.
pub const REGION: &str = "us-east-1";
/// What local clients sign with. SDKs require one; the port compares the access key id only (`port.rs` has the reason).
pub const SECRET_ACCESS_KEY: &str = "not-checked";
/// How long a server may take to show that it is there.
const REACH_TIME: Duration = Duration::from_secs(5);
/// How long a running server may take to begin to answer one call: a write waits for a disk, and for others' writes.
const REMOTE_READ_TIME: Duration = Duration::from_secs(60);

/// An embedded DynamoDB with Pennon's tables.
#[derive(Clone)]
pub struct Embedded {
    database: Database,
    turn: Turn,
    file: Option<InFile>,
}

/// The file of a database, and what reads and writes it without the SDK.
#[derive(Clone)]
struct InFile {
    path: PathBuf,
    direct: Arc<dyn LocalBackend>,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Embedded")
    }
}

impl Embedded {
    /// The database in `directory`, made if it is not there.
    pub async fn open(directory: &Path) -> Result<Embedded, StoreError> {
        validate_sqlite_version(rusqlite::version_number()).map_err(StoreError::Failed)?;
        let file = directory.join(FILE);
        let database = Database::new(&file.to_string_lossy())
            .map_err(|e| StoreError::Failed(format!("{} cannot be opened: {e}", file.display())))?;
        let names = StoreConfig::local();
        let turn = Turn::of(OpenFiles::of(&file));
        let unusable = |e| StoreError::Failed(format!("{} cannot be used: {e}", file.display()));
        stream::prepare(&file).map_err(unusable)?;
        let tables = [names.records_table, names.blocks_table];
        let direct = Arc::new(file::File::new(&file, tables, turn.clone()));
        let in_file = InFile { path: file, direct };
        Embedded { database, turn, file: Some(in_file) }.with_tables(&schema::RECORDS).await
    }

    /// A database that ends with the process, for tests.
    pub async fn in_memory() -> Result<Embedded, StoreError> {
        let database = Database::memory().map_err(|e| StoreError::Failed(e.to_string()))?;
        Embedded { database, turn: Turn::default(), file: None }.with_tables(&IN_MEMORY).await
    }

    /// Counts writes in a mark beside the database, which lies in `directory`, from now on.
    pub fn count_writes(&self, directory: &Path) -> Result<(), String> {
        let mark = write_mark::WriteMark::start(directory)?;
        self.turn.count_in(mark);
        Ok(())
    }

    async fn with_tables(self, records: &TableSchema) -> Result<Embedded, StoreError> {
        let client = self.client(None);
        let names = StoreConfig::local();
        schema::create(&client, &names.records_table, records).await?;
        schema::create(&client, &names.blocks_table, &schema::BLOCKS).await?;
        set_stream(&client, &names.records_table, records).await?;
        Ok(self)
    }

    /// Follows what is inserted into those partitions of the records table whose keys begin with `prefix`, from now on;
    /// none for a database in memory.
    pub fn follow(&self, prefix: &str) -> Result<Option<Follower>, StoreError> {
        let names = StoreConfig::local();
        let follower = |file: &InFile| Follower::of(&file.path, &self.turn, &names.records_table, prefix);
        self.file.as_ref().map(follower).transpose()
    }

    /// Removes the items whose time is over, which DynamoDB does by itself, and records of the stream that are too many or
    /// too old. Returns how many items.
    pub async fn tidy(&self) -> Result<usize, StoreError> {
        let (Some(file), turn) = (self.file.clone(), self.turn.clone()) else { return Ok(0) };
        let names = StoreConfig::local();
        // SQLite blocks its thread.
        turn.files().check().map_err(StoreError::Unavailable)?;
        let tidied = tokio::task::spawn_blocking(move || {
            let records = expiry::expire(&file.path, &turn, &names.records_table, true)?;
            let blocks = expiry::expire(&file.path, &turn, &names.blocks_table, false)?;
            let _turn = turn.take();
            stream::prepare(&file.path)?;
            Ok(records + blocks)
        });
        let tidied = tidied.await.map_err(|e| StoreError::Failed(e.to_string()))?;
        tidied.map_err(|e: rusqlite::Error| StoreError::Busy(format!("expired items cannot be removed: {e}")))
    }

    /// What is wrong, if the database's files were removed or replaced since they were opened.
    pub fn check_files(&self) -> Result<(), String> {
        self.turn.files().check()
    }

    /// Whether the database lies in a file, which is read and written without the SDK.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// What carries an SDK client's requests to the database.
    pub fn connector(&self) -> Connector {
        Connector::new(self.database.clone(), self.turn.clone())
    }

    /// An SDK client without a socket. `round_trips` counts its calls.
    pub fn client(&self, round_trips: Option<RoundTrips>) -> Client {
        Embedded::client_through(self.connector(), round_trips)
    }

    fn client_through(connector: impl HttpClient + 'static, round_trips: Option<RoundTrips>) -> Client {
        let mut config = local_config().http_client(connector).interceptor(Meter);
        if let Some(counter) = round_trips {
            config = config.interceptor(counter);
        }
        Client::from_conf(config.build())
    }

    /// The two tables: straight from the file, if there is one, and through [`Embedded::client`]. Where `round_trips`
    /// are counted, every call goes through the client.
    pub fn store(&self, round_trips: Option<RoundTrips>) -> Store {
        let is_counted = round_trips.is_some();
        let store = Store::new(&self.client(round_trips), &StoreConfig::local());
        match &self.file {
            Some(file) if !is_counted => store.with_local_backend(&file.direct),
            _ => store,
        }
    }

    /// The two tables, through something that stands before [`Embedded::connector`].
    pub fn store_through(connector: impl HttpClient + 'static, round_trips: Option<RoundTrips>) -> Store {
        Store::new(&Embedded::client_through(connector, round_trips), &StoreConfig::local())
    }

    /// What offers the database on a port, to clients with this access key id.
    pub fn port(&self, access_key_id: &str) -> axum::Router {
        port::router(self.database.clone(), self.turn.clone(), access_key_id)
    }
}

/// Refuses an SQLite that is too old for several connections to one file. One can be linked only where the build was told
/// to use the system's.
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

/// The tables of a database that another process offers at `endpoint` to clients with this access key id.
pub fn remote_store(endpoint: &str, access_key_id: &str) -> Store {
    Store::new(&remote_client(endpoint, access_key_id, REMOTE_READ_TIME), &StoreConfig::local())
}

/// Whether a database with the product's tables answers at `endpoint`, within seconds; else why not.
pub async fn reach(endpoint: &str, access_key_id: &str) -> Result<(), String> {
    // The time of the whole call ends first.
    let client = remote_client(endpoint, access_key_id, 2 * REACH_TIME);
    let once = Config::builder().retry_config(RetryConfig::disabled());
    let call = client.list_tables().customize().config_override(once).send();
    let tables = match tokio::time::timeout(REACH_TIME, call).await {
        Err(_) => return Err(format!("no answer within {} seconds", REACH_TIME.as_secs())),
        Ok(Err(SdkError::DispatchFailure(_))) => return Err("no connection".to_owned()),
        Ok(Err(_)) => return Err("another program answers there".to_owned()),
        Ok(Ok(answer)) => answer.table_names.unwrap_or_default(),
    };
    let names = StoreConfig::local();
    let is_ours = tables.contains(&names.records_table) && tables.contains(&names.blocks_table);
    if is_ours { Ok(()) } else { Err("another database answers there".to_owned()) }
}

fn remote_client(endpoint: &str, access_key_id: &str, read_time: Duration) -> Client {
    let timeouts = TimeoutConfig::builder().connect_timeout(REACH_TIME).read_timeout(read_time).build();
    let credentials = Credentials::new(access_key_id, SECRET_ACCESS_KEY, None, None, "server.json");
    let config = local_config().endpoint_url(endpoint).credentials_provider(credentials);
    Client::from_conf(config.timeout_config(timeouts).build())
}

/// Gives the table the stream that it should have: earlier releases had none, or another.
async fn set_stream(client: &Client, table: &str, schema: &TableSchema) -> Result<(), StoreError> {
    let Some(view) = schema.stream.map(StreamViewType::from) else { return Ok(()) };
    let now = client.describe_table().table_name(table).send().await?.table;
    let now = now.and_then(|table| table.stream_specification).filter(|stream| stream.stream_enabled);
    if now.as_ref().is_some_and(|stream| stream.stream_view_type.as_ref() == Some(&view)) {
        return Ok(());
    }
    let failed = |e: aws_sdk_dynamodb::error::BuildError| StoreError::Failed(e.to_string());
    let set = async |stream: StreamSpecification| {
        client.update_table().table_name(table).stream_specification(stream).send().await
    };
    if now.is_some() {
        set(StreamSpecification::builder().stream_enabled(false).build().map_err(failed)?).await?;
    }
    let stream = StreamSpecification::builder().stream_enabled(true).stream_view_type(view);
    set(stream.build().map_err(failed)?).await?;
    Ok(())
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
    use pennon_core::store::{Guard, Item, Key, Query, Write};

    #[test]
    fn the_linked_sqlite_is_new_enough_and_an_older_one_is_refused() {
        assert_eq!(validate_sqlite_version(rusqlite::version_number()), Ok(()));
        assert_eq!(validate_sqlite_version(3_051_003), Ok(()));
        let refused = validate_sqlite_version(3_051_002).unwrap_err();
        assert!(refused.contains("SQLite 3.51.2") && refused.contains("needs 3.51.3"), "{refused}");
    }

    #[tokio::test]
    async fn a_transaction_writes_all_or_nothing() {
        let table = Embedded::in_memory().await.unwrap().store(None).records;
        let item = |sk: &str| Item::new(Key::new("P", sk), &sk).unwrap();
        table.put(item("a"), Guard::Absent).await.unwrap();
        let writes = vec![Write::Put(item("b"), Guard::Absent), Write::Put(item("a"), Guard::Absent)];
        assert!(table.transact(writes).await.unwrap_err().is_condition(1));
        let found = table.query(Query::partition("P")).await.unwrap();
        assert_eq!(found.len(), 1);
    }

    #[tokio::test]
    async fn counters_never_repeat_and_only_rise() {
        let table = Embedded::in_memory().await.unwrap().store(None).records;
        let key = Key::new("COUNTER", "X");
        let calls = (0..20).map(|_| table.increment(&key, 1));
        let mut given: Vec<i64> = futures_join(calls).await;
        given.sort_unstable();
        assert_eq!(given, (1..=20).collect::<Vec<_>>());
        table.raise(&key, 100).await.unwrap();
        table.raise(&key, 50).await.unwrap();
        assert_eq!(table.increment(&key, 1).await.unwrap(), 101);
    }

    async fn futures_join(
        calls: impl Iterator<Item = impl Future<Output = Result<i64, StoreError>>>,
    ) -> Vec<i64> {
        let mut given = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            given.push(call.await.unwrap());
        }
        given
    }

    #[tokio::test]
    async fn what_was_written_is_there_after_opening_again() {
        let directory = std::env::temp_dir().join(format!("pennon-test-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&directory).unwrap();
        let item = Item::new(Key::new("P", "S"), &vec![50.0, 12.5]).unwrap().with_version(3);
        Embedded::open(&directory)
            .await
            .unwrap()
            .store(None)
            .records
            .put(item.clone(), Guard::None)
            .await
            .unwrap();
        let again = Embedded::open(&directory).await.unwrap().store(None).records;
        assert_eq!(again.get(&item.key).await.unwrap(), Some(item));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// What the records table's stream tells of.
    async fn view(embedded: &Embedded) -> Option<StreamViewType> {
        let name = StoreConfig::local().records_table;
        let table = embedded.client(None).describe_table().table_name(name).send().await.unwrap();
        let stream = table.table.unwrap().stream_specification?;
        stream.stream_view_type.filter(|_| stream.stream_enabled)
    }

    #[tokio::test]
    async fn a_table_of_an_earlier_release_gets_the_stream_and_keeps_its_items() {
        let earlier = [IN_MEMORY, TableSchema { stream: Some("NEW_IMAGE"), ..schema::RECORDS }];
        for earlier in earlier {
            let directory = tempfile::tempdir().unwrap();
            let database = Database::new(&directory.path().join(FILE).to_string_lossy()).unwrap();
            let before = Embedded { database, turn: Turn::default(), file: None };
            let name = StoreConfig::local().records_table;
            schema::create(&before.client(None), &name, &earlier).await.unwrap();
            let item = Item::empty(Key::new("P", "S"));
            before.store(None).records.put(item.clone(), Guard::None).await.unwrap();
            drop(before);
            for _ in 0..2 {
                let embedded = Embedded::open(directory.path()).await.unwrap();
                assert_eq!(view(&embedded).await, Some(StreamViewType::KeysOnly));
                assert_eq!(embedded.store(None).records.get(&item.key).await.unwrap(), Some(item.clone()));
            }
        }
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
