//! Direct access to the SQLite file, without the SDK and without the embedded database's request handling.

use std::path::Path;
use std::sync::Arc;

use pennon_core::store::local_backend::{BackendFuture, LocalBackend, PartitionPage, PartitionRange};
use pennon_core::store::{Attributes, ItemChange, Key, StoreError};

use super::reader::FileReader;
use super::write_lock::WriteLock;
use super::writer::FileWriter;

/// The tables in one SQLite file.
pub struct SqliteBackend {
    tables: [String; 2],
    reader: Arc<FileReader>,
    writer: FileWriter,
}

impl std::fmt::Debug for SqliteBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SqliteBackend")
    }
}

impl SqliteBackend {
    /// A backend for `tables` in `file`, whose keys are the texts `pk` and `sk`. Writes hold `write_lock`. The first table has
    /// a stream.
    pub fn new(file: &Path, tables: [String; 2], write_lock: WriteLock) -> SqliteBackend {
        let reader = Arc::new(FileReader::new(file, write_lock.files().clone()));
        let writer = FileWriter::new(file, write_lock, tables[0].clone());
        SqliteBackend { tables, reader, writer }
    }

    fn has_table(&self, table: &str) -> bool {
        self.tables.iter().any(|name| name == table)
    }
}

impl LocalBackend for SqliteBackend {
    fn items(&self, table: &str, keys: &[&Key]) -> Option<Result<Vec<Attributes>, StoreError>> {
        self.has_table(table).then(|| self.reader.get_items(table, keys)).flatten()
    }

    fn page(
        &self,
        table: &str,
        range: PartitionRange,
    ) -> BackendFuture<'_, Result<PartitionPage, StoreError>> {
        if !self.has_table(table) {
            return Box::pin(std::future::ready(None));
        }
        let (reader, table) = (self.reader.clone(), table.to_owned());
        // A page may take milliseconds, and other requests must go on meanwhile.
        Box::pin(async move {
            tokio::task::spawn_blocking(move || reader.query_page(&table, &range)).await.ok().flatten()
        })
    }

    fn transact(
        &self,
        table: &str,
        changes: Arc<Vec<ItemChange>>,
    ) -> BackendFuture<'_, Result<i64, StoreError>> {
        let table = self.has_table(table).then(|| table.to_owned());
        Box::pin(async move { self.writer.transact(&table?, changes).await })
    }
}
