//! The list of the installation's API keys, and changes of it over HTTP.
//!
//! Must stay true: a key and its entry in the list change in one transaction; changes that read the list first conflict
//! with each other, so that two concurrent ones cannot create keys with the same label for one user; no secret is stored.

use std::collections::BTreeMap;

use super::KeyRecord;
use super::key_spec::KeySpec;
use crate::model::Declared;
use crate::store::{Item, PartitionQuery, StoreError, Table, Write, WriteCondition, keys};

/// An entry of the list.
pub type DeclaredKey = Declared<KeySpec>;

/// The list, by the hash of the secret, as it was read.
#[derive(Debug)]
pub struct DeclaredKeys {
    keys: BTreeMap<String, DeclaredKey>,
    /// The version of the list; `None` before its first change over HTTP.
    version: Option<u64>,
}

impl DeclaredKeys {
    /// Loads the list.
    pub async fn load(records: &Table) -> Result<DeclaredKeys, StoreError> {
        let mut list = DeclaredKeys { keys: BTreeMap::new(), version: None };
        let query = PartitionQuery::partition(keys::INSTALLATION).prefix(keys::DECLARED_KEYS);
        for item in records.query(query).await? {
            match item.key.sk.split_once('#') {
                Some((_, hash)) => _ = list.keys.insert(hash.to_owned(), item.body()?),
                None => list.version = Some(item.version),
            }
        }
        Ok(list)
    }

    /// The keys of the user with this mail address, by the hash of the secret.
    pub fn of_user(&self, email: &str) -> impl Iterator<Item = (&str, &DeclaredKey)> {
        self.keys
            .iter()
            .filter(move |(_, key)| key.spec.user == email)
            .map(|(hash, key)| (hash.as_str(), key))
    }

    /// Adds a key, unless the list has changed since it was read.
    pub async fn insert(
        &self,
        records: &Table,
        hash: &str,
        declared: &DeclaredKey,
        record: &KeyRecord,
    ) -> Result<(), StoreError> {
        let key = Write::Put(Item::new(keys::api_key(hash), record)?, WriteCondition::Absent);
        self.write(records, hash, declared, key).await
    }

    /// Replaces a key that exists, unless the list has changed since it was read. `item` is the stored key, whose time of the
    /// last use remains.
    pub async fn replace(
        &self,
        records: &Table,
        hash: &str,
        declared: &DeclaredKey,
        (item, record): (&Item, &KeyRecord),
    ) -> Result<(), StoreError> {
        let mut replaced = Item::new(item.key.clone(), record)?;
        replaced.count = item.count;
        self.write(records, hash, declared, Write::Put(replaced, WriteCondition::Present)).await
    }

    async fn write(
        &self,
        records: &Table,
        hash: &str,
        declared: &DeclaredKey,
        key: Write,
    ) -> Result<(), StoreError> {
        let version = Item::empty(keys::declared_keys_version()).with_version(self.version.unwrap_or(0) + 1);
        let unchanged = self.version.map_or(WriteCondition::Absent, WriteCondition::Version);
        let entry = Item::new(keys::declared("KEY", hash), declared)?;
        records
            .transact(vec![key, Write::Put(entry, WriteCondition::None), Write::Put(version, unchanged)])
            .await
    }
}

/// Deletes the key with this hash and its entry in the list.
pub async fn delete_key(records: &Table, hash: &str) -> Result<(), StoreError> {
    let writes = vec![
        Write::Delete(keys::api_key(hash), WriteCondition::None),
        Write::Delete(keys::declared("KEY", hash), WriteCondition::None),
    ];
    records.transact(writes).await
}
