//! The database's file, read and written without the SDK and the database between.

use std::path::Path;
use std::sync::Arc;

use pennon_core::store::local_backend::{BackendFuture, LocalBackend, PartitionPage, PartitionRange};
use pennon_core::store::{Attributes, Change, Key, StoreError};

use super::reads::Reads;
use super::writes::{Turn, Writes};

/// The tables in one file.
pub struct File {
    tables: [String; 2],
    reads: Arc<Reads>,
    writes: Writes,
}

impl std::fmt::Debug for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("File")
    }
}

impl File {
    /// `tables`, whose keys are the texts `pk` and `sk`, in `file`; written to when it is its `turn`. The first has a
    /// stream.
    pub fn new(file: &Path, tables: [String; 2], turn: Turn) -> File {
        let reads = Arc::new(Reads::new(file, turn.files().clone()));
        let writes = Writes::new(file, turn, tables[0].clone());
        File { tables, reads, writes }
    }

    fn has(&self, table: &str) -> bool {
        self.tables.iter().any(|name| name == table)
    }
}

impl LocalBackend for File {
    fn items(&self, table: &str, keys: &[&Key]) -> Option<Vec<Attributes>> {
        self.has(table).then(|| self.reads.items(table, keys)).flatten()
    }

    fn page(&self, table: &str, range: PartitionRange) -> BackendFuture<'_, PartitionPage> {
        if !self.has(table) {
            return Box::pin(std::future::ready(None));
        }
        let (reads, table) = (self.reads.clone(), table.to_owned());
        // A page may take milliseconds, and other requests must go on meanwhile.
        Box::pin(async move {
            tokio::task::spawn_blocking(move || reads.page(&table, &range)).await.ok().flatten()
        })
    }

    fn transact(&self, table: &str, changes: Arc<Vec<Change>>) -> BackendFuture<'_, Result<i64, StoreError>> {
        let table = self.has(table).then(|| table.to_owned());
        Box::pin(async move { self.writes.transact(&table?, changes).await })
    }
}
