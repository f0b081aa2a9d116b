//! Files of published tables, which other engines read: metadata, lists of files, and the data that only tables have.
//!
//! They lie below `iceberg`, apart from the objects that a manifest names, and have no checksum file: everything in them can be
//! written again. Must stay true: a file is created once, so of two writers of one name only one succeeds; the only
//! file that changes is the one with the number of the newest version.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt};
use pennon_analytics::scan::Micros;

use super::{Objects, Shared, put_once};
use crate::error::EventStoreError;

/// The folder of all tables.
const FOLDER: &str = "iceberg";

/// The files of published tables. Their names begin below the folder of all tables.
#[derive(Debug, Clone)]
pub struct TableFiles {
    objects: Objects,
}

impl TableFiles {
    pub(crate) fn new(objects: Objects) -> TableFiles {
        TableFiles { objects }
    }

    fn path(&self, name: &str) -> Path {
        self.objects.path(&format!("{FOLDER}/{name}"))
    }

    /// The location of a file for other engines, as a URL.
    pub fn location(&self, name: &str) -> String {
        self.location_of_object(&format!("{FOLDER}/{name}"))
    }

    /// The location of any other object, as a URL.
    pub fn location_of_object(&self, object: &str) -> String {
        format!("{}/{object}", self.objects.location)
    }

    /// Creates a file. Returns false if there is another one with this name.
    pub async fn create(&self, name: &str, bytes: Bytes) -> Result<bool, EventStoreError> {
        let path = self.path(name);
        let put = || put_once(self.objects.store.clone(), path.clone(), bytes.clone());
        match self.objects.whole.for_bytes(bytes.len() as u64).with(put).await {
            Ok(()) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates or replaces a file.
    pub async fn replace(&self, name: &str, bytes: Bytes) -> Result<(), EventStoreError> {
        let path = self.path(name);
        let put = || put_always(self.objects.store.clone(), path.clone(), bytes.clone());
        Ok(self.objects.brief.with(put).await?)
    }

    /// Reads a file, if it exists.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>, EventStoreError> {
        self.objects.get_standalone(&format!("{FOLDER}/{name}")).await
    }

    /// Lists the files below a folder, each with its last modified time.
    pub async fn list(&self, folder: &str) -> Result<Vec<(String, Micros)>, EventStoreError> {
        let listed = self.objects.list(&format!("{FOLDER}/{folder}")).await?;
        let named = listed.into_iter().filter_map(|object| {
            let name = object.name.strip_prefix(FOLDER)?.strip_prefix('/')?;
            Some((name.to_owned(), object.at))
        });
        Ok(named.collect())
    }

    /// Deletes files; missing ones are no error.
    pub async fn remove(&self, names: &[String]) -> Result<(), EventStoreError> {
        let names = names.iter().map(|name| format!("{FOLDER}/{name}")).collect::<Vec<_>>();
        self.objects.remove_standalone(&names).await
    }
}

async fn put_always(store: Shared, path: Path, bytes: Bytes) -> Result<(), Error> {
    store.put(&path, bytes.into()).await.map(drop)
}
