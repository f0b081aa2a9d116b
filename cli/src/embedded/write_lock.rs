//! The lock of the database's SQLite file: one writer at a time, and a notification of the stream's followers.
//!
//! Must stay true: while a transaction holds the lock, the database does not commit.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tokio::sync::watch;

use super::connection::lock;
use super::open_files::OpenFiles;
use super::write_mark::WriteMark;

/// Allows one writer of the file at a time, and notifies the stream's followers of writes.
#[derive(Debug, Clone, Default)]
pub struct WriteLock {
    shared: Arc<(Mutex<()>, watch::Sender<()>)>,
    files: OpenFiles,
    mark: Arc<OnceLock<WriteMark>>,
}

impl WriteLock {
    /// The lock of the database in `files`.
    pub fn new(files: OpenFiles) -> WriteLock {
        WriteLock { shared: Arc::default(), files, mark: Arc::default() }
    }

    /// The files of the database.
    pub fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// Waits for the lock.
    pub fn acquire(&self) -> MutexGuard<'_, ()> {
        lock(&self.shared.0)
    }

    /// From now on [`WriteLock::record_commit`] updates `mark`.
    pub fn set_write_mark(&self, mark: WriteMark) {
        // A second mark would have the same number.
        let _ = self.mark.set(mark);
    }

    /// Updates the write mark after a commit. Called while the lock is held and before the write is acknowledged.
    pub fn record_commit(&self) {
        if let Some(mark) = self.mark.get() {
            mark.record_commit();
        }
    }

    /// Wakes the followers of the stream.
    pub fn notify_followers(&self) {
        self.shared.1.send_replace(());
    }

    /// A receiver of notifications.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.shared.1.subscribe()
    }
}
