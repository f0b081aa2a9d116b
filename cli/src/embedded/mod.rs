//! The embedded DynamoDB: a database in a file or in memory, spoken to through the ordinary SDK.
//!
//! The SDK's requests go to the database without a socket; most reads and transactions of the product go to its file
//! without the SDK. The same database is offered on a loopback port, so that functions under `cargo lambda watch`, other
//! commands and any AWS tool reach it while the server runs.

mod connector;
mod file;
mod port;
mod reads;
mod writes;

use std::path::Path;
use std::sync::Arc;

use aws_sdk_dynamodb::config::{BehaviorVersion, HttpClient, Region};
use aws_sdk_dynamodb::types::StreamSpecification;
use aws_sdk_dynamodb::{Client, Config};
use dynoxide::Database;
use pennon_core::config::StoreConfig;
use pennon_core::store::direct::Direct;
use pennon_core::store::round_trips::RoundTrips;
use pennon_core::store::schema::TableSchema;
use pennon_core::store::{Store, StoreError, schema};
use writes::Turn;

pub use connector::Connector;

/// The file that holds the database, inside the data directory.
pub const FILE: &str = "dynamodb.sqlite";
/// The records table here has no stream: nobody follows it, and the database looks through all that it ever held for the
/// number of the next entry, so that each write would cost more than the one before.
const RECORDS: TableSchema = TableSchema { stream: None, ..schema::RECORDS };
/// Region that local clients name; the embedded database has none.
const REGION: &str = "us-east-1";

/// An embedded DynamoDB with Pennon's tables.
#[derive(Clone)]
pub struct Embedded {
    database: Database,
    turn: Turn,
    file: Option<Arc<dyn Direct>>,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Embedded")
    }
}

impl Embedded {
    /// The database in `directory`, made if it is not there.
    pub async fn open(directory: &Path) -> Result<Embedded, StoreError> {
        let file = directory.join(FILE);
        let database = Database::new(&file.to_string_lossy())
            .map_err(|e| StoreError::Failed(format!("{} cannot be opened: {e}", file.display())))?;
        let names = StoreConfig::local();
        let turn = Turn::default();
        let direct = file::File::new(&file, vec![names.records_table, names.blocks_table], turn.clone());
        Embedded::with_tables(Embedded { database, turn, file: Some(Arc::new(direct)) }).await
    }

    /// A database that ends with the process, for tests.
    pub async fn in_memory() -> Result<Embedded, StoreError> {
        let database = Database::memory().map_err(|e| StoreError::Failed(e.to_string()))?;
        Embedded::with_tables(Embedded { database, turn: Turn::default(), file: None }).await
    }

    async fn with_tables(embedded: Embedded) -> Result<Embedded, StoreError> {
        let client = embedded.client(None);
        let names = StoreConfig::local();
        schema::create(&client, &names.records_table, &RECORDS).await?;
        schema::create(&client, &names.blocks_table, &schema::BLOCKS).await?;
        end_stream(&client, &names.records_table).await?;
        Ok(embedded)
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
        let mut config = local_config().http_client(connector);
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
            Some(file) if !is_counted => store.with_direct(file),
            _ => store,
        }
    }

    /// The two tables, through something that stands before [`Embedded::connector`].
    pub fn store_through(connector: impl HttpClient + 'static, round_trips: Option<RoundTrips>) -> Store {
        Store::new(&Embedded::client_through(connector, round_trips), &StoreConfig::local())
    }

    /// What offers the database on a port.
    pub fn port(&self) -> axum::Router {
        port::router(self.database.clone(), self.turn.clone())
    }
}

/// The tables of a database that another process offers at `endpoint`.
pub fn remote_store(endpoint: &str) -> Store {
    let client = Client::from_conf(local_config().endpoint_url(endpoint).build());
    Store::new(&client, &StoreConfig::local())
}

/// Ends the stream that earlier releases gave the table.
async fn end_stream(client: &Client, table: &str) -> Result<(), StoreError> {
    let table_now = client.describe_table().table_name(table).send().await?.table;
    let streams = table_now.and_then(|table| table.stream_specification).is_some_and(|it| it.stream_enabled);
    if streams {
        let ended = StreamSpecification::builder().stream_enabled(false).build();
        let ended = ended.map_err(|e| StoreError::Failed(e.to_string()))?;
        client.update_table().table_name(table).stream_specification(ended).send().await?;
    }
    Ok(())
}

/// Requests stay on this machine, where nobody checks a signature: they carry none.
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

    #[tokio::test]
    async fn a_table_with_a_stream_loses_it_when_it_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        let database = Database::new(&file.to_string_lossy()).unwrap();
        let before = Embedded { database, turn: Turn::default(), file: None };
        let name = StoreConfig::local().records_table;
        schema::create(&before.client(None), &name, &schema::RECORDS).await.unwrap();
        let item = Item::empty(Key::new("P", "S"));
        before.store(None).records.put(item.clone(), Guard::None).await.unwrap();
        drop(before);
        for _ in 0..2 {
            let embedded = Embedded::open(directory.path()).await.unwrap();
            let table = embedded.client(None).describe_table().table_name(&name).send().await.unwrap();
            let stream = table.table.unwrap().stream_specification;
            assert!(stream.is_none_or(|stream| !stream.stream_enabled));
            assert_eq!(embedded.store(None).records.get(&item.key).await.unwrap(), Some(item.clone()));
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
