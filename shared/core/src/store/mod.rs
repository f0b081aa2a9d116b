//! The DynamoDB tables. Callers use [`Key`], [`Item`], [`PartitionQuery`] and [`Write`]; only this module uses the AWS SDK.

mod access;
mod batch_write;
mod byte_limited_read;
mod capacity_meter;
mod change;
mod connect;
mod error;
mod fresh_connections;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod item;
mod item_parts;
mod key_range;
pub mod keys;
pub mod local_backend;
mod query;
pub mod round_trips;
pub mod schema;
mod single_write;
pub mod summary_rows;
mod table;
mod table_status;
mod tls_roots;

pub use access::{AwsAccess, AwsCredentials};
pub use byte_limited_read::ByteLimitedRead;
pub use capacity_meter::CapacityMeter;
pub use change::{ItemAction, ItemChange, ItemCondition};
pub use connect::ConnectError;
pub use error::StoreError;
pub(crate) use error::causes;
pub(crate) use fresh_connections::FreshConnections;
pub use fresh_connections::IDLE_TIME_MAX;
pub use item::{Attributes, BODY_BYTES_MAX, EXPIRES_AT, ITEM_FORMAT, Item, ItemParts, Key, RowChecksums};
pub use item_parts::PARTED_BYTES_MAX;
pub use key_range::{KeyRange, RangeEnd};
pub use query::{PageStart, PartitionQuery, QueryPage};
pub use table::{
    Precondition, TRANSACTION_WRITES_MAX, Table, VersionBump, Write, WriteCondition, back_off_after_conflict,
};
pub use table_status::TableStatus;
pub use tls_roots::{AMAZON_ROOTS, TlsRoots};

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::timeout::TimeoutConfig;

use crate::config::StoreConfig;
use local_backend::LocalBackend;
use round_trips::RoundTrips;

/// Timeout of one attempt, and of a call with all retries. After it the caller gets a 503, long before API Gateway times out.
const ATTEMPT_TIME: Duration = Duration::from_secs(3);
const OPERATION_TIME: Duration = Duration::from_secs(10);

/// The two tables: records, and freshly captured events.
#[derive(Debug, Clone)]
pub struct Store {
    /// Everything but freshly captured events.
    pub records: Table,
    /// Freshly captured events, waiting for compaction.
    pub blocks: Table,
    /// The root certificates that its connections trust.
    pub roots: TlsRoots,
    /// The region and the credentials of a CLI command, for the bucket too; `None` in functions, which use their environment.
    pub access: Option<AwsAccess>,
}

impl Store {
    /// The tables of `config`, with an existing client.
    pub fn new(client: &aws_sdk_dynamodb::Client, config: &StoreConfig) -> Store {
        Store {
            records: Table::new(client.clone(), &config.records_table),
            blocks: Table::new(client.clone(), &config.blocks_table),
            roots: TlsRoots::default(),
            access: None,
        }
    }

    /// The same tables, with a backend in this process that is tried before the SDK.
    #[must_use]
    pub fn with_local_backend(self, local_backend: &Arc<dyn LocalBackend>) -> Store {
        Store {
            records: self.records.with_local_backend(local_backend.clone()),
            blocks: self.blocks.with_local_backend(local_backend.clone()),
            roots: self.roots,
            access: self.access,
        }
    }

    /// The tables of `config`, with region, credentials and endpoint from the environment.
    pub async fn from_env(config: &StoreConfig) -> Store {
        let connections = FreshConnections::new(TlsRoots::Machine);
        let shared = aws_config::from_env().http_client(connections).load().await;
        Store::new(&client(&shared, None), config)
    }
}

/// A client with the timeouts of this module. `round_trips` records its calls.
pub fn client(shared: &aws_config::SdkConfig, round_trips: Option<RoundTrips>) -> aws_sdk_dynamodb::Client {
    let mut config = client_config(shared, ATTEMPT_TIME, OPERATION_TIME);
    if let Some(counter) = round_trips {
        config = config.interceptor(counter);
    }
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

/// The settings of a client with these timeouts of an attempt, and of a call with all retries.
fn client_config(
    shared: &aws_config::SdkConfig,
    attempt: Duration,
    operation: Duration,
) -> aws_sdk_dynamodb::config::Builder {
    let timeouts =
        TimeoutConfig::builder().operation_attempt_timeout(attempt).operation_timeout(operation).build();
    let config = aws_sdk_dynamodb::config::Builder::from(shared);
    config.timeout_config(timeouts).interceptor(CapacityMeter)
}
