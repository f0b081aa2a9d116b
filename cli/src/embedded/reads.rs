//! Reads of whole items, straight from the database's file.
//!
//! The database answers one operation at a time, a read behind a write that waits for the disk. It prepares each
//! statement anew, takes every item apart and puts it together again, and fetches all of a partition to answer with its
//! first megabyte. The reads that the product makes need none of that: the file holds each item as the JSON text that
//! DynamoDB answers with, so they take it from there, over connections of their own.
//!
//! Must stay true: what is answered here is what the database would answer, and anything else is left to it (a table that
//! is not ours, a request to be refused, an error of the file). A read sees every write that was acknowledged before it,
//! because each statement, and each batch, starts on the last commit.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pennon_core::store::local_backend::{PartitionPage, PartitionRange, from_json};
use pennon_core::store::{Attributes, Key};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::open_files::OpenFiles;

/// DynamoDB's limit on the bytes of a page of a query.
const PAGE_BYTES_MAX: i64 = 1 << 20;
/// A read waits for nobody but a process that recovers the file.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the file has before a key that is a text.
const TEXT: &str = "S:";
/// Kept statements of a connection: for each table a few shapes of query.
pub(super) const STATEMENTS: usize = 32;
/// Items that one statement reads.
const AT_ONCE: usize = 8;

/// Reads from one file.
pub struct Reads {
    file: PathBuf,
    files: OpenFiles,
    idle: Mutex<Vec<Connection>>,
}

impl Reads {
    /// Reads from `file`, of tables whose keys are the texts `pk` and `sk`; it is one of `files`.
    pub fn new(file: &Path, files: OpenFiles) -> Reads {
        Reads { file: file.to_owned(), files, idle: Mutex::default() }
    }

    /// The items at `keys` in `table` that are there; `None` leaves it to the database.
    pub fn items(&self, table: &str, keys: &[&Key]) -> Option<Vec<Attributes>> {
        if keys.iter().any(|key| key.pk.is_empty() || key.sk.is_empty()) {
            return None;
        }
        let items = self.reading(|connection| {
            let mut items = Vec::with_capacity(keys.len());
            if keys.len() <= AT_ONCE {
                few(connection, table, keys, &mut items)?;
                return Ok(items);
            }
            // All of one state.
            let snapshot = connection.unchecked_transaction()?;
            for keys in keys.chunks(AT_ONCE) {
                few(&snapshot, table, keys, &mut items)?;
            }
            snapshot.commit()?;
            Ok(items)
        })?;
        items.into_iter().collect()
    }

    /// The page of `table` that `range` starts with, up to a megabyte; `None` leaves it to the database.
    pub fn page(&self, table: &str, range: &PartitionRange) -> Option<PartitionPage> {
        let rows = Rows::of(range)?;
        self.reading(|connection| page(connection, table, &rows))?
    }

    /// What `read` finds, over an idle connection or a new one. After an error the database has its say.
    fn reading<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // A new connection to another file of that name would read other data; the database has the right one.
        let connection = match idle {
            Some(connection) => connection,
            None => self.files.guarding(|| self.open()).ok()?.ok()?,
        };
        let answer = read(&connection).ok()?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Some(answer)
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    }
}

/// The items at a few `keys`, by one statement; none for one that is not of ours.
fn few(
    connection: &Connection,
    table: &str,
    keys: &[&Key],
    items: &mut Vec<Option<Attributes>>,
) -> rusqlite::Result<()> {
    let one = |at: usize| {
        format!(r#"SELECT item_json FROM "{table}" WHERE pk = ?{} AND sk = ?{}"#, 2 * at + 1, 2 * at + 2)
    };
    let sql = (0..keys.len()).map(one).collect::<Vec<_>>().join(" UNION ALL ");
    let mut statement = connection.prepare_cached(&sql)?;
    let values = keys.iter().flat_map(|key| [stored(&key.pk), stored(&key.sk)]);
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        items.push(from_json(row.get_ref(0)?.as_str()?));
    }
    Ok(())
}

/// The item at `key` as the file has it.
pub(super) fn item(connection: &Connection, table: &str, key: &Key) -> rusqlite::Result<Option<String>> {
    let mut statement = connection
        .prepare_cached(&format!(r#"SELECT item_json FROM "{table}" WHERE pk = ?1 AND sk = ?2"#))?;
    statement.query_row([stored(&key.pk), stored(&key.sk)], |row| row.get(0)).optional()
}

/// A text as the file keeps it in a key.
pub(super) fn stored(text: &str) -> String {
    format!("{TEXT}{text}")
}

/// The text that the file keeps so in a key.
pub(super) fn text_of(stored: &str) -> Option<&str> {
    stored.strip_prefix(TEXT)
}

/// One page of a query, as the database would cut it; none where an item is not one of ours.
fn page(connection: &Connection, table: &str, range: &Rows) -> rusqlite::Result<Option<PartitionPage>> {
    let mut statement = connection.prepare_cached(&range.sql(table))?;
    let mut rows = statement.query(rusqlite::params_from_iter(&range.values))?;
    let (mut items, mut bytes) = (Vec::new(), 0);
    let more = loop {
        if range.limit == Some(items.len()) {
            break true;
        }
        let Some(row) = rows.next()? else { break false };
        bytes += row.get::<_, i64>(1)?;
        if !items.is_empty() && bytes > PAGE_BYTES_MAX {
            break true;
        }
        let Some(item) = from_json(row.get_ref(0)?.as_str()?) else { return Ok(None) };
        items.push(item);
    };
    Ok(Some(PartitionPage { items, more }))
}

/// Which rows a query reads: its conditions on the sort key, and their values after the partition's.
struct Rows {
    conditions: String,
    values: Vec<String>,
    forward: bool,
    limit: Option<usize>,
}

impl Rows {
    /// The rows of `range`, unless the database would refuse it.
    fn of(range: &PartitionRange) -> Option<Rows> {
        let is_empty = |text: &Option<String>| text.as_ref().is_some_and(String::is_empty);
        if range.pk.is_empty() || is_empty(&range.prefix) || is_empty(&range.after) || range.limit == Some(0)
        {
            return None;
        }
        let mut rows = Rows {
            conditions: String::new(),
            values: vec![stored(&range.pk)],
            forward: !range.descending,
            limit: range.limit,
        };
        if let Some(prefix) = &range.prefix {
            let prefix = stored(prefix);
            rows.add("<", above(&prefix)?);
            rows.add(">=", prefix);
        }
        if let Some(after) = &range.after {
            let in_range = range.prefix.as_ref().is_none_or(|prefix| after.starts_with(prefix));
            if !in_range {
                return None;
            }
            rows.add(if range.descending { "<" } else { ">" }, stored(after));
        }
        Some(rows)
    }

    fn sql(&self, table: &str) -> String {
        let (conditions, order) = (&self.conditions, if self.forward { "ASC" } else { "DESC" });
        format!(r#"SELECT item_json, item_size FROM "{table}" WHERE pk = ?1{conditions} ORDER BY sk {order}"#)
    }

    fn add(&mut self, comparison: &str, value: String) {
        self.values.push(value);
        self.conditions.push_str(&format!(" AND sk {comparison} ?{}", self.values.len()));
    }
}

/// The least text above all that start with `prefix`.
fn above(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // A range of characters skips the numbers that are none.
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
    use pennon_core::store::{Guard, Item, Query, Table, Write};
    use serde_json::json;

    /// A database in a file, with a partition of several pages and keys that stand at the edges of prefixes.
    async fn filled() -> (tempfile::TempDir, Embedded) {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path()).await.unwrap();
        let body = "ü\"\\\u{0}\u{1F600} ".repeat(90);
        let large =
            (0..900).map(|number| Item::new(Key::new("LARGE", format!("{number:04}")), &vec![&body; 2]));
        let edges = ["a", "a#", "a#1", "a#\u{10FFFF}", "a#\u{10FFFF}b", "a$", "b", "S:a#1", "\"quoted\" ü"];
        let edges = edges.map(|sk| Item::new(Key::new("EDGES", sk), &json!({"of": sk, "n": [50.0, 1]})));
        let items = large.chain(edges).collect::<Result<Vec<_>, _>>().unwrap();
        for some in items.chunks(100) {
            let writes =
                some.iter().map(|item| Write::Put(item.clone().with_version(7), Guard::None)).collect();
            ours(&embedded).transact(writes).await.unwrap();
        }
        (directory, embedded)
    }

    /// The table as the product reads it, and as the database answers through the SDK.
    fn ours(embedded: &Embedded) -> Table {
        embedded.store(None).records
    }

    fn theirs(embedded: &Embedded) -> Table {
        Embedded::store_through(embedded.connector(), None).records
    }

    fn reads(directory: &tempfile::TempDir) -> Reads {
        Reads::new(&directory.path().join(FILE), OpenFiles::default())
    }

    fn name() -> String {
        pennon_core::config::StoreConfig::local().records_table
    }

    #[tokio::test]
    async fn named_items_are_answered_as_by_the_database() {
        let (directory, embedded) = filled().await;
        for sk in ["a", "\"quoted\" ü", "a#\u{10FFFF}", "missing"] {
            let key = Key::new("EDGES", sk);
            assert_eq!(ours(&embedded).get(&key).await.unwrap(), theirs(&embedded).get(&key).await.unwrap());
            let found = reads(&directory).items(&name(), &[&key]).unwrap();
            assert_eq!(found.len(), usize::from(sk != "missing"), "{sk} was read from the file");
        }
        let keys = [("EDGES", "b"), ("NONE", "b"), ("LARGE", "0000"), ("EDGES", "a"), ("EDGES", "b")];
        let few = keys.map(|(pk, sk)| Key::new(pk, sk)).to_vec();
        let many = (850..950).map(|number| Key::new("LARGE", format!("{number:04}"))).collect();
        for (keys, there) in [(few, 4), (many, 50)] {
            let found = ours(&embedded).batch_get(&keys).await.unwrap();
            assert_eq!(found, theirs(&embedded).batch_get(&keys).await.unwrap());
            assert_eq!(found.iter().flatten().count(), there);
        }
    }

    #[tokio::test]
    async fn queries_are_answered_page_by_page_as_by_the_database() {
        let (directory, embedded) = filled().await;
        let mut pages = 0;
        for (pk, prefix) in [("LARGE", ""), ("LARGE", "00"), ("EDGES", ""), ("EDGES", "a#"), ("EDGES", "zz")]
        {
            for (descending, limit) in [(false, None), (true, None), (false, Some(2)), (true, Some(9))] {
                let mut query = Query::partition(pk);
                if !prefix.is_empty() {
                    query = query.prefix(prefix);
                }
                if descending {
                    query = query.descending();
                }
                if let Some(limit) = limit {
                    query = query.limit(limit);
                }
                let (mut start, mut their_start) = (None, None);
                // A few pages of each are enough.
                for _ in 0..6 {
                    let page = ours(&embedded).page(&query, start).await.unwrap();
                    let their_page = theirs(&embedded).page(&query, their_start).await.unwrap();
                    assert_eq!(page.items, their_page.items, "{pk} {prefix} {descending} {limit:?}");
                    assert_eq!(page.next.is_some(), their_page.next.is_some(), "{pk} {prefix} {limit:?}");
                    pages += 1;
                    (start, their_start) = (page.next, their_page.next);
                    if start.is_none() {
                        break;
                    }
                }
            }
        }
        assert!(pages > 40, "{pages}");
        let all =
            PartitionRange { pk: "LARGE".into(), prefix: None, after: None, limit: None, descending: false };
        assert!(reads(&directory).page(&name(), &all).unwrap().more, "it was read from the file");
    }

    #[tokio::test]
    async fn what_is_not_ours_is_left_to_the_database() {
        let (directory, _embedded) = filled().await;
        let reads = reads(&directory);
        for key in [Key::new("", "a"), Key::new("EDGES", "")] {
            assert_eq!(reads.items(&name(), &[&key]), None);
        }
        assert_eq!(reads.items("another", &[&Key::new("EDGES", "a")]), None);
        let whole =
            PartitionRange { pk: "EDGES".into(), prefix: None, after: None, limit: None, descending: false };
        let refused = [
            PartitionRange { pk: String::new(), ..whole.clone() },
            PartitionRange { prefix: Some(String::new()), ..whole.clone() },
            PartitionRange { prefix: Some("a#".into()), after: Some("b".into()), ..whole.clone() },
            PartitionRange { limit: Some(0), ..whole.clone() },
        ];
        for range in refused {
            assert!(reads.page(&name(), &range).is_none(), "{range:?}");
        }
        assert!(reads.page(&name(), &whole).is_some());
    }

    #[tokio::test]
    async fn a_read_sees_the_write_that_was_acknowledged_before_it() {
        let (_directory, embedded) = filled().await;
        for version in 0..50 {
            let item = Item::new(Key::new("P", "S"), &version).unwrap().with_version(version);
            // Either way of writing, either way of reading.
            let table = if version % 2 == 0 { ours(&embedded) } else { theirs(&embedded) };
            table.put(item.clone(), Guard::None).await.unwrap();
            assert_eq!(ours(&embedded).get(&item.key).await.unwrap().as_ref(), Some(&item));
            assert_eq!(theirs(&embedded).get(&item.key).await.unwrap(), Some(item));
        }
    }
}
