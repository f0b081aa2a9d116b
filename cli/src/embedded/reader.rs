//! The read path that bypasses the embedded database: whole items, read from its SQLite file.
//!
//! The database runs one operation at a time, so a read waits behind a write that waits for the disk. It prepares each
//! statement again, decodes and encodes every item, and fetches a whole partition to return its first megabyte. The
//! product's reads need none of that: the file holds each item as DynamoDB's JSON text, so they read it over a pool of
//! read-only connections.
//!
//! Must stay true: the results are those of the database, and all else is left to it by `None` (an unknown table, an invalid
//! request, an error of the file). A row whose text is damaged is an error, because the database would leave the row out of a
//! batch. A read sees every write that was acknowledged before it, because each statement, and each
//! batch, starts on the last commit.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pennon_core::store::local_backend::{PartitionPage, PartitionRange, from_json};
use pennon_core::store::{Attributes, Key, StoreError};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::de::IgnoredAny;

use super::connection::{Mode, lock, open};
use super::open_files::OpenFiles;

/// DynamoDB's limit on the bytes of a page of a query.
const PAGE_BYTES_MAX: i64 = 1 << 20;
/// The database's prefix of a key attribute of type text.
const TEXT_PREFIX: &str = "S:";
/// Items that one statement reads.
const KEYS_PER_STATEMENT: usize = 8;
/// Connections that are kept for further reads. Each caches up to 2 MB of the file; a burst of reads opens as many as read at once.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// Reads items from one SQLite file.
pub struct FileReader {
    file: PathBuf,
    files: OpenFiles,
    idle: Mutex<Vec<Connection>>,
}

impl FileReader {
    /// A reader of `file`, which is one of `files`, for tables whose keys are the texts `pk` and `sk`.
    pub fn new(file: &Path, files: OpenFiles) -> FileReader {
        FileReader { file: file.to_owned(), files, idle: Mutex::default() }
    }

    /// The existing items of `table` at `keys`; `None` leaves the request to the database.
    pub fn get_items(&self, table: &str, keys: &[&Key]) -> Option<Result<Vec<Attributes>, StoreError>> {
        if keys.iter().any(|key| key.pk.is_empty() || key.sk.is_empty()) {
            return None;
        }
        let items = self.with_connection(|connection| {
            let mut items = Vec::with_capacity(keys.len());
            if keys.len() <= KEYS_PER_STATEMENT {
                select_items(connection, table, keys, &mut items)?;
                return Ok(items);
            }
            // A transaction, so that all statements read one snapshot.
            let snapshot = connection.unchecked_transaction()?;
            for keys in keys.chunks(KEYS_PER_STATEMENT) {
                select_items(&snapshot, table, keys, &mut items)?;
            }
            snapshot.commit()?;
            Ok(items)
        })?;
        collect(items)
    }

    /// The first page of `range` in `table`, at most 1 MiB; `None` leaves the request to the database.
    pub fn query_page(
        &self,
        table: &str,
        range: &PartitionRange,
    ) -> Option<Result<PartitionPage, StoreError>> {
        let query = RangeQuery::new(range)?;
        self.with_connection(|connection| select_page(connection, table, &query))?
    }

    /// The result of `read` over an idle connection or a new one. After an error, `None` leaves the request to the database.
    fn with_connection<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        let idle = lock(&self.idle).pop();
        // If the file was replaced, a new connection would read other data; the database still has the right file open.
        let connection = match idle {
            Some(connection) => connection,
            None => self.files.run_checked(|| open(&self.file, Mode::ReadOnly)).ok()?.ok()?,
        };
        let result = read(&connection).ok()?;
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(connection);
        }
        Some(result)
    }
}

/// A row as it was read.
enum StoredRow {
    Item(Attributes),
    /// Valid, but of types that are left to the database.
    Other,
    /// The text is not what was written; has the row's keys.
    Damaged(String),
}

impl StoredRow {
    /// Reads columns `item_json`, `pk` and `sk`, from column `first` on.
    fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<StoredRow> {
        let text = match row.get_ref(first)? {
            ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        };
        if let Some(item) = text.and_then(from_json) {
            return Ok(StoredRow::Item(item));
        }
        if text.is_some_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok()) {
            return Ok(StoredRow::Other);
        }
        let key = |column: usize| -> rusqlite::Result<String> {
            let bytes = row.get_ref(column)?.as_bytes()?.to_vec();
            let encoded = String::from_utf8_lossy(&bytes).into_owned();
            Ok(decode_key(&encoded).unwrap_or(&encoded).to_owned())
        };
        Ok(StoredRow::Damaged(format!("{}/{}", key(first + 1)?, key(first + 2)?)))
    }
}

/// The items of all rows; `None` leaves the request to the database.
fn collect(rows: Vec<StoredRow>) -> Option<Result<Vec<Attributes>, StoreError>> {
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        match row {
            StoredRow::Item(item) => items.push(item),
            StoredRow::Other => return None,
            StoredRow::Damaged(key) => return Some(Err(damaged(&key))),
        }
    }
    Some(Ok(items))
}

fn damaged(key: &str) -> StoreError {
    StoreError::Corrupt(format!("the row {key} is damaged"))
}

/// Appends the existing items at `keys`, by one statement.
fn select_items(
    connection: &Connection,
    table: &str,
    keys: &[&Key],
    items: &mut Vec<StoredRow>,
) -> rusqlite::Result<()> {
    let select = |at: usize| {
        let (pk, sk) = (2 * at + 1, 2 * at + 2);
        format!(r#"SELECT item_json, pk, sk FROM "{table}" WHERE pk = ?{pk} AND sk = ?{sk}"#)
    };
    let sql = (0..keys.len()).map(select).collect::<Vec<_>>().join(" UNION ALL ");
    let mut statement = connection.prepare_cached(&sql)?;
    let values = keys.iter().flat_map(|key| [encode_key(&key.pk), encode_key(&key.sk)]);
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        items.push(StoredRow::read(row, 0)?);
    }
    Ok(())
}

/// The JSON text of the item at `key`.
pub(super) fn get_item_json(
    connection: &Connection,
    table: &str,
    key: &Key,
) -> rusqlite::Result<Option<String>> {
    let mut statement = connection
        .prepare_cached(&format!(r#"SELECT item_json FROM "{table}" WHERE pk = ?1 AND sk = ?2"#))?;
    statement.query_row([encode_key(&key.pk), encode_key(&key.sk)], |row| row.get(0)).optional()
}

/// A key attribute in the file's encoding.
pub(super) fn encode_key(text: &str) -> String {
    format!("{TEXT_PREFIX}{text}")
}

/// The text of a key attribute in the file's encoding.
pub(super) fn decode_key(encoded: &str) -> Option<&str> {
    encoded.strip_prefix(TEXT_PREFIX)
}

/// One page of a query, with the database's page limits. `None` if an item cannot be decoded here.
fn select_page(
    connection: &Connection,
    table: &str,
    query: &RangeQuery,
) -> rusqlite::Result<Option<Result<PartitionPage, StoreError>>> {
    let mut statement = connection.prepare_cached(&query.sql(table))?;
    let mut rows = statement.query(rusqlite::params_from_iter(&query.values))?;
    let (mut items, mut bytes) = (Vec::new(), 0);
    let more = loop {
        if query.limit == Some(items.len()) {
            break true;
        }
        let Some(row) = rows.next()? else { break false };
        bytes += row.get::<_, i64>(3)?;
        if !items.is_empty() && bytes > PAGE_BYTES_MAX {
            break true;
        }
        match StoredRow::read(row, 0)? {
            StoredRow::Item(item) => items.push(item),
            StoredRow::Other => return Ok(None),
            StoredRow::Damaged(key) => return Ok(Some(Err(damaged(&key)))),
        }
    };
    Ok(Some(Ok(PartitionPage { items, more })))
}

/// A query in SQL terms: conditions on the sort key, and the parameters: the partition key, then those of the conditions.
struct RangeQuery {
    conditions: String,
    values: Vec<String>,
    is_ascending: bool,
    limit: Option<usize>,
}

impl RangeQuery {
    /// The query for `range`. `None` if the database would reject it.
    fn new(range: &PartitionRange) -> Option<RangeQuery> {
        let is_empty = |text: &Option<String>| text.as_ref().is_some_and(String::is_empty);
        if range.pk.is_empty() || is_empty(&range.prefix) || is_empty(&range.after) || range.limit == Some(0)
        {
            return None;
        }
        let mut query = RangeQuery {
            conditions: String::new(),
            values: vec![encode_key(&range.pk)],
            is_ascending: !range.descending,
            limit: range.limit,
        };
        if let Some(prefix) = &range.prefix {
            let prefix = encode_key(prefix);
            query.add_condition("<", prefix_upper_bound(&prefix)?);
            query.add_condition(">=", prefix);
        }
        if let Some(after) = &range.after {
            let in_range = range.prefix.as_ref().is_none_or(|prefix| after.starts_with(prefix));
            if !in_range {
                return None;
            }
            query.add_condition(if range.descending { "<" } else { ">" }, encode_key(after));
        }
        Some(query)
    }

    fn sql(&self, table: &str) -> String {
        let (conditions, order) = (&self.conditions, if self.is_ascending { "ASC" } else { "DESC" });
        format!(
            r#"SELECT item_json, pk, sk, item_size FROM "{table}" WHERE pk = ?1{conditions} ORDER BY sk {order}"#
        )
    }

    fn add_condition(&mut self, comparison: &str, value: String) {
        self.values.push(value);
        self.conditions.push_str(&format!(" AND sk {comparison} ?{}", self.values.len()));
    }
}

/// The exclusive upper bound of all texts that start with `prefix`.
fn prefix_upper_bound(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // A range of `char` skips the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Embedded, FILE};
    use super::*;
    use pennon_core::store::{Item, PartitionQuery, Table, Write, WriteCondition};
    use serde_json::json;

    /// A database in a file, with a partition of several pages and keys at the bounds of prefixes.
    async fn filled_database() -> (tempfile::TempDir, Embedded) {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path()).await.unwrap();
        let body = "ü\"\\\u{0}\u{1F600} ".repeat(90);
        let large =
            (0..900).map(|number| Item::new(Key::new("LARGE", format!("{number:04}")), &vec![&body; 2]));
        let edges = ["a", "a#", "a#1", "a#\u{10FFFF}", "a#\u{10FFFF}b", "a$", "b", "S:a#1", "\"quoted\" ü"];
        let edges = edges.map(|sk| Item::new(Key::new("EDGES", sk), &json!({"of": sk, "n": [50.0, 1]})));
        let items = large.chain(edges).collect::<Result<Vec<_>, _>>().unwrap();
        for some in items.chunks(100) {
            let writes = some
                .iter()
                .map(|item| Write::Put(item.clone().with_version(7), WriteCondition::None))
                .collect();
            direct_table(&embedded).transact(writes).await.unwrap();
        }
        (directory, embedded)
    }

    /// The records table, read directly from the file.
    fn direct_table(embedded: &Embedded) -> Table {
        embedded.store(None).records
    }

    /// The records table, read through the SDK and the database.
    fn sdk_table(embedded: &Embedded) -> Table {
        Embedded::store_through(embedded.connector(), None).records
    }

    fn reader(directory: &tempfile::TempDir) -> FileReader {
        FileReader::new(&directory.path().join(FILE), OpenFiles::default())
    }

    fn name() -> String {
        pennon_core::config::StoreConfig::local().records_table
    }

    #[tokio::test]
    async fn a_burst_of_reads_leaves_a_limited_number_of_connections() {
        let (directory, _embedded) = filled_database().await;
        let reader = reader(&directory);
        fn read_nested(reader: &FileReader, depth: usize) -> usize {
            let deeper = |_: &Connection| Ok(if depth == 0 { 0 } else { 1 + read_nested(reader, depth - 1) });
            reader.with_connection(deeper).unwrap()
        }
        assert_eq!(read_nested(&reader, 40), 40);
        assert_eq!(lock(&reader.idle).len(), IDLE_CONNECTIONS_MAX);
    }

    #[tokio::test]
    async fn items_by_key_are_those_of_the_database() {
        let (directory, embedded) = filled_database().await;
        for sk in ["a", "\"quoted\" ü", "a#\u{10FFFF}", "missing"] {
            let key = Key::new("EDGES", sk);
            assert_eq!(
                direct_table(&embedded).get(&key).await.unwrap(),
                sdk_table(&embedded).get(&key).await.unwrap()
            );
            let items = reader(&directory).get_items(&name(), &[&key]).unwrap().unwrap();
            assert_eq!(items.len(), usize::from(sk != "missing"), "{sk} was read from the file");
        }
        let keys = [("EDGES", "b"), ("NONE", "b"), ("LARGE", "0000"), ("EDGES", "a"), ("EDGES", "b")];
        let few = keys.map(|(pk, sk)| Key::new(pk, sk)).to_vec();
        let many = (850..950).map(|number| Key::new("LARGE", format!("{number:04}"))).collect();
        for (keys, existing) in [(few, 4), (many, 50)] {
            let items = direct_table(&embedded).batch_get(&keys).await.unwrap();
            assert_eq!(items, sdk_table(&embedded).batch_get(&keys).await.unwrap());
            assert_eq!(items.iter().flatten().count(), existing);
        }
    }

    #[tokio::test]
    async fn pages_of_queries_are_those_of_the_database() {
        let (directory, embedded) = filled_database().await;
        let mut pages = 0;
        for (pk, prefix) in [("LARGE", ""), ("LARGE", "00"), ("EDGES", ""), ("EDGES", "a#"), ("EDGES", "zz")]
        {
            for (descending, limit) in [(false, None), (true, None), (false, Some(2)), (true, Some(9))] {
                let mut query = PartitionQuery::partition(pk);
                if !prefix.is_empty() {
                    query = query.prefix(prefix);
                }
                if descending {
                    query = query.descending();
                }
                if let Some(limit) = limit {
                    query = query.limit(limit);
                }
                let (mut start, mut sdk_start) = (None, None);
                // A few pages of each are enough.
                for _ in 0..6 {
                    let page = direct_table(&embedded).page(&query, start).await.unwrap();
                    let sdk_page = sdk_table(&embedded).page(&query, sdk_start).await.unwrap();
                    assert_eq!(page.items, sdk_page.items, "{pk} {prefix} {descending} {limit:?}");
                    assert_eq!(page.next.is_some(), sdk_page.next.is_some(), "{pk} {prefix} {limit:?}");
                    pages += 1;
                    (start, sdk_start) = (page.next, sdk_page.next);
                    if start.is_none() {
                        break;
                    }
                }
            }
        }
        assert!(pages > 40, "{pages}");
        let all =
            PartitionRange { pk: "LARGE".into(), prefix: None, after: None, limit: None, descending: false };
        assert!(
            reader(&directory).query_page(&name(), &all).unwrap().unwrap().more,
            "it was read from the file"
        );
    }

    #[tokio::test]
    async fn unsupported_requests_are_left_to_the_database() {
        let (directory, _embedded) = filled_database().await;
        let reader = reader(&directory);
        for key in [Key::new("", "a"), Key::new("EDGES", "")] {
            assert!(reader.get_items(&name(), &[&key]).is_none());
        }
        assert!(reader.get_items("another", &[&Key::new("EDGES", "a")]).is_none());
        let whole =
            PartitionRange { pk: "EDGES".into(), prefix: None, after: None, limit: None, descending: false };
        let rejected = [
            PartitionRange { pk: String::new(), ..whole.clone() },
            PartitionRange { prefix: Some(String::new()), ..whole.clone() },
            PartitionRange { prefix: Some("a#".into()), after: Some("b".into()), ..whole.clone() },
            PartitionRange { limit: Some(0), ..whole.clone() },
        ];
        for range in rejected {
            assert!(reader.query_page(&name(), &range).is_none(), "{range:?}");
        }
        assert!(reader.query_page(&name(), &whole).is_some());
    }

    #[tokio::test]
    async fn a_read_sees_the_write_that_was_acknowledged_before_it() {
        let (_directory, embedded) = filled_database().await;
        for version in 0..50 {
            let item = Item::new(Key::new("P", "S"), &version).unwrap().with_version(version);
            // Write directly and through the database in turn; read both ways.
            let table = if version % 2 == 0 { direct_table(&embedded) } else { sdk_table(&embedded) };
            table.put(item.clone(), WriteCondition::None).await.unwrap();
            assert_eq!(direct_table(&embedded).get(&item.key).await.unwrap().as_ref(), Some(&item));
            assert_eq!(sdk_table(&embedded).get(&item.key).await.unwrap(), Some(item));
        }
    }

    #[tokio::test]
    async fn a_damaged_row_is_an_error_that_names_it_in_every_read() {
        let (directory, embedded) = filled_database().await;
        let file = Connection::open(directory.path().join(FILE)).unwrap();
        let update = format!(r#"UPDATE "{}" SET item_json = ?1 WHERE sk = 'S:a#'"#, name());
        let damages: [&dyn rusqlite::ToSql; 3] =
            [&"{\"pk\": {\"S\": \"EDGES\"}", &rusqlite::types::Null, &vec![0xff_u8, 0xfe]];
        let key = Key::new("EDGES", "a#");
        for damage in damages {
            let Ok(changed) = file.execute(&update, [damage]) else { continue };
            assert_eq!(changed, 1);
            let table = direct_table(&embedded);
            let errors = [
                table.get(&key).await.map(|_| ()).unwrap_err(),
                table.batch_get(&[Key::new("EDGES", "a"), key.clone()]).await.map(|_| ()).unwrap_err(),
                table.page(&PartitionQuery::partition("EDGES"), None).await.map(|_| ()).unwrap_err(),
            ];
            for error in errors {
                assert!(matches!(&error, StoreError::Corrupt(text) if text.contains("EDGES/a#")), "{error}");
            }
        }
    }
}
