//! Reads of whole items, straight from the database's file.
//!
//! The database answers one operation at a time, a read behind a write that waits for the disk. It prepares each
//! statement anew, takes every item apart and puts it together again, and fetches all of a partition to answer with its
//! first megabyte. The reads that the product makes need none of that: the file holds each item as the JSON text that
//! DynamoDB answers with, so they copy it out, over connections of their own.
//!
//! Must stay true: what is answered here is what the database would answer, and anything else is left to it (an operation,
//! a member or a table that is not ours, a request to be refused, an error of the file). A read sees every write that was
//! acknowledged before it, because each statement, and each batch, starts on the last commit.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};
use serde::Deserialize;
use serde_json::Value;

/// DynamoDB's limits: keys of a batch, bytes of its answer, bytes of a page of a query.
const BATCH_KEYS_MAX: usize = 100;
const BATCH_BYTES_MAX: usize = 16 << 20;
const PAGE_BYTES_MAX: i64 = 1 << 20;
/// A read waits for nobody but a process that recovers the file.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the file has before a key that is a text.
const TEXT: &str = "S:";
/// Kept statements of a connection: for each table a few shapes of query.
const STATEMENTS: usize = 32;

/// Reads from one file.
pub struct Reads {
    file: PathBuf,
    tables: Vec<String>,
    idle: Mutex<Vec<Connection>>,
}

impl Reads {
    /// Reads of `tables`, whose keys are the texts `pk` and `sk`, from `file`.
    pub fn new(file: &Path, tables: Vec<String>) -> Reads {
        Reads { file: file.to_owned(), tables, idle: Mutex::default() }
    }

    /// The answer to a read of named items; `None` leaves it to the database.
    pub fn items(&self, operation: &str, body: &[u8]) -> Option<String> {
        match operation {
            "GetItem" => {
                let get: Get<'_> = serde_json::from_slice(body).ok()?;
                let table = self.table(&get.table_name)?;
                self.reading(|connection| {
                    let item = item(connection, table, &get.key)?;
                    Ok(Some(item.map_or_else(|| "{}".to_owned(), |item| format!(r#"{{"Item":{item}}}"#))))
                })
            }
            "BatchGetItem" => {
                let batch: BatchGet<'_> = serde_json::from_slice(body).ok()?;
                let mut tables = batch.request_items.iter();
                let (Some((name, wanted)), None) = (tables.next(), tables.next()) else { return None };
                self.batch(self.table(name)?, &wanted.keys)
            }
            _ => None,
        }
    }

    /// The answer to a query; `None` leaves it to the database. A page is up to a megabyte.
    pub fn query(&self, operation: &str, body: &[u8]) -> Option<String> {
        if operation != "Query" {
            return None;
        }
        let query: Query<'_> = serde_json::from_slice(body).ok()?;
        let table = self.table(&query.table_name)?;
        let range = query.range()?;
        self.reading(|connection| page(connection, table, &range).map(Some))
    }

    fn table(&self, name: &str) -> Option<&str> {
        self.tables.iter().map(String::as_str).find(|table| *table == name)
    }

    fn batch(&self, table: &str, keys: &[ItemKey<'_>]) -> Option<String> {
        let distinct = keys.iter().map(|key| (&key.pk.text, &key.sk.text)).collect::<BTreeSet<_>>();
        if keys.is_empty() || keys.len() > BATCH_KEYS_MAX || distinct.len() != keys.len() {
            return None;
        }
        self.reading(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let mut items = Vec::with_capacity(keys.len());
            for key in keys {
                items.extend(item(&snapshot, table, key)?);
            }
            snapshot.commit()?;
            let bytes = items.iter().map(String::len).sum::<usize>();
            let fits = bytes <= BATCH_BYTES_MAX;
            let items = items.join(",");
            Ok(fits.then(|| format!(r#"{{"Responses":{{"{table}":[{items}]}},"UnprocessedKeys":{{}}}}"#)))
        })
    }

    /// What `read` finds, over an idle connection or a new one. After an error the database has its say.
    fn reading(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<Option<String>>) -> Option<String> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = idle.map_or_else(|| self.open(), Ok).ok()?;
        let answer = read(&connection).ok()?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        answer
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    }
}

/// The item at `key` as the file has it.
fn item(connection: &Connection, table: &str, key: &ItemKey<'_>) -> rusqlite::Result<Option<String>> {
    let mut statement = connection
        .prepare_cached(&format!(r#"SELECT item_json FROM "{table}" WHERE pk = ?1 AND sk = ?2"#))?;
    statement.query_row([stored(&key.pk.text), stored(&key.sk.text)], |row| row.get(0)).optional()
}

/// A text as the file keeps it in a key.
fn stored(text: &str) -> String {
    format!("{TEXT}{text}")
}

/// One page of a query, as the database would cut it.
fn page(connection: &Connection, table: &str, range: &Range) -> rusqlite::Result<String> {
    let mut statement = connection.prepare_cached(&range.sql(table))?;
    let mut rows = statement.query(rusqlite::params_from_iter(&range.values))?;
    let (mut items, mut last) = (String::new(), String::new());
    let (mut count, mut bytes) = (0, 0);
    let more = loop {
        if range.limit == Some(count) {
            break true;
        }
        let Some(row) = rows.next()? else { break false };
        bytes += row.get::<_, i64>(2)?;
        if count > 0 && bytes > PAGE_BYTES_MAX {
            break true;
        }
        if count > 0 {
            items.push(',');
        }
        items.push_str(row.get_ref(1)?.as_str()?);
        row.get_ref(0)?.as_str()?.clone_into(&mut last);
        count += 1;
    };
    let mut answer = format!(r#"{{"Items":[{items}],"Count":{count},"ScannedCount":{count}"#);
    if more {
        let text = |stored: &str| Value::from(stored.strip_prefix(TEXT).unwrap_or(stored)).to_string();
        let (pk, sk) = (text(&range.values[0]), text(&last));
        answer.push_str(&format!(r#","LastEvaluatedKey":{{"pk":{{"S":{pk}}},"sk":{{"S":{sk}}}}}"#));
    }
    answer.push('}');
    Ok(answer)
}

/// Which rows a query reads: its conditions on the sort key, and their values after the partition's.
struct Range {
    conditions: String,
    values: Vec<String>,
    forward: bool,
    limit: Option<usize>,
}

impl Range {
    fn sql(&self, table: &str) -> String {
        let (conditions, order) = (&self.conditions, if self.forward { "ASC" } else { "DESC" });
        format!(
            r#"SELECT sk, item_json, item_size FROM "{table}" WHERE pk = ?1{conditions} ORDER BY sk {order}"#
        )
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

/// A key as requests carry it, with no attribute but its two texts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemKey<'a> {
    #[serde(borrow)]
    pk: Text<'a>,
    #[serde(borrow)]
    sk: Text<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text<'a> {
    #[serde(rename = "S", borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Get<'a> {
    #[serde(borrow)]
    table_name: Cow<'a, str>,
    #[serde(borrow)]
    key: ItemKey<'a>,
    #[serde(rename = "ConsistentRead")]
    _consistent_read: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct BatchGet<'a> {
    #[serde(borrow)]
    request_items: HashMap<Cow<'a, str>, Wanted<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Wanted<'a> {
    #[serde(borrow)]
    keys: Vec<ItemKey<'a>>,
    #[serde(rename = "ConsistentRead")]
    _consistent_read: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Query<'a> {
    #[serde(borrow)]
    table_name: Cow<'a, str>,
    #[serde(borrow)]
    key_condition_expression: Cow<'a, str>,
    expression_attribute_names: HashMap<String, String>,
    #[serde(borrow)]
    expression_attribute_values: HashMap<String, Text<'a>>,
    #[serde(rename = "ConsistentRead")]
    _consistent_read: Option<bool>,
    scan_index_forward: Option<bool>,
    limit: Option<usize>,
    exclusive_start_key: Option<ItemKey<'a>>,
}

impl Query<'_> {
    /// The rows that it names, if it is put as the store puts its queries.
    fn range(&self) -> Option<Range> {
        let name = |name: &str| self.expression_attribute_names.get(name).map(String::as_str);
        let value = |name: &str| {
            self.expression_attribute_values
                .get(name)
                .map(|value| &*value.text)
                .filter(|text| !text.is_empty())
        };
        let prefix = match &*self.key_condition_expression {
            "#p = :p" => None,
            "#p = :p AND begins_with(#s, :s)" => Some(value(":s")?),
            _ => return None,
        };
        let used = 1 + usize::from(prefix.is_some());
        let all_used = self.expression_attribute_names.len() == used
            && self.expression_attribute_values.len() == used
            && name("#p") == Some("pk")
            && (prefix.is_none() || name("#s") == Some("sk"));
        let partition = value(":p").filter(|_| all_used && self.limit != Some(0))?;
        let forward = self.scan_index_forward.unwrap_or(true);
        let mut range =
            Range { conditions: String::new(), values: vec![stored(partition)], forward, limit: self.limit };
        if let Some(prefix) = prefix {
            let prefix = stored(prefix);
            range.add("<", above(&prefix)?);
            range.add(">=", prefix);
        }
        if let Some(start) = &self.exclusive_start_key {
            let in_range =
                start.pk.text == partition && prefix.is_none_or(|prefix| start.sk.text.starts_with(prefix));
            if !in_range || start.sk.text.is_empty() {
                return None;
            }
            range.add(if forward { ">" } else { "<" }, stored(&start.sk.text));
        }
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::connector::dispatch;
    use super::super::{Embedded, FILE};
    use super::*;
    use pennon_core::config::StoreConfig;
    use pennon_core::store::{Guard, Item, Key, Write};
    use serde_json::json;

    /// A database in a file, with a partition of several pages and keys that stand at the edges of prefixes.
    async fn filled() -> (tempfile::TempDir, Embedded, Reads) {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path()).await.unwrap();
        let table = embedded.store(None).records;
        let body = "ü\"\\\u{0}\u{1F600} ".repeat(90);
        let large =
            (0..900).map(|number| Item::new(Key::new("LARGE", format!("{number:04}")), &vec![&body; 4]));
        let edges = ["a", "a#", "a#1", "a#\u{10FFFF}", "a#\u{10FFFF}b", "a$", "b", "S:a#1", "\"quoted\" ü"];
        let edges = edges.map(|sk| Item::new(Key::new("EDGES", sk), &json!({"of": sk, "n": [50.0, 1]})));
        let items = large.chain(edges).collect::<Result<Vec<_>, _>>().unwrap();
        for some in items.chunks(100) {
            let writes =
                some.iter().map(|item| Write::Put(item.clone().with_version(7), Guard::None)).collect();
            table.transact(writes).await.unwrap();
        }
        let names = StoreConfig::local();
        let reads = Reads::new(&directory.path().join(FILE), vec![names.records_table, names.blocks_table]);
        (directory, embedded, reads)
    }

    /// Both answers to a request: ours, if there is one, and the database's.
    fn both(embedded: &Embedded, reads: &Reads, operation: &str, request: &Value) -> (Option<Value>, Value) {
        let text = request.to_string();
        let bytes = text.as_bytes();
        let ours = reads.items(operation, bytes).or_else(|| reads.query(operation, bytes));
        let ours = ours.map(|text| serde_json::from_str(&text).unwrap());
        let theirs = match dispatch(&embedded.database, operation, &text) {
            Ok(text) => text,
            Err(error) => error.to_json(),
        };
        (ours, serde_json::from_str(&theirs).unwrap())
    }

    fn key(pk: &str, sk: &str) -> Value {
        json!({"pk": {"S": pk}, "sk": {"S": sk}})
    }

    fn table() -> String {
        StoreConfig::local().records_table
    }

    #[tokio::test]
    async fn named_items_are_answered_as_by_the_database() {
        let (_directory, embedded, reads) = filled().await;
        for sk in ["a", "\"quoted\" ü", "a#\u{10FFFF}", "missing"] {
            let request = json!({"TableName": table(), "Key": key("EDGES", sk), "ConsistentRead": true});
            let (ours, theirs) = both(&embedded, &reads, "GetItem", &request);
            assert_eq!(ours, Some(theirs), "{sk}");
        }
        let keys = [key("EDGES", "b"), key("NONE", "b"), key("LARGE", "0000"), key("EDGES", "a")];
        let request = json!({"RequestItems": {table(): {"Keys": keys, "ConsistentRead": true}}});
        let (ours, theirs) = both(&embedded, &reads, "BatchGetItem", &request);
        assert_eq!(ours, Some(theirs));
    }

    #[tokio::test]
    async fn queries_are_answered_page_by_page_as_by_the_database() {
        let (_directory, embedded, reads) = filled().await;
        let mut pages = 0;
        for (pk, prefix) in [("LARGE", ""), ("LARGE", "00"), ("EDGES", ""), ("EDGES", "a#"), ("EDGES", "zz")]
        {
            for (forward, limit) in [(true, None), (false, None), (true, Some(2)), (false, Some(9))] {
                let mut start = Value::Null;
                // A few pages of each are enough.
                for _ in 0..6 {
                    let request = query(pk, prefix, forward, limit, &start);
                    let (ours, theirs) = both(&embedded, &reads, "Query", &request);
                    assert_eq!(ours.as_ref(), Some(&theirs), "{pk} {prefix} {forward} {limit:?}");
                    pages += 1;
                    start = theirs["LastEvaluatedKey"].clone();
                    if start.is_null() {
                        break;
                    }
                }
            }
        }
        assert!(pages > 40, "{pages}");
    }

    fn query(pk: &str, prefix: &str, forward: bool, limit: Option<usize>, start: &Value) -> Value {
        let mut request = json!({"TableName": table(), "ConsistentRead": true, "ScanIndexForward": forward,
            "KeyConditionExpression": "#p = :p", "ExpressionAttributeNames": {"#p": "pk"},
            "ExpressionAttributeValues": {":p": {"S": pk}}});
        if !prefix.is_empty() {
            request["KeyConditionExpression"] = json!("#p = :p AND begins_with(#s, :s)");
            request["ExpressionAttributeNames"]["#s"] = json!("sk");
            request["ExpressionAttributeValues"][":s"] = json!({"S": prefix});
        }
        if let Some(limit) = limit {
            request["Limit"] = json!(limit);
        }
        if !start.is_null() {
            request["ExclusiveStartKey"] = start.clone();
        }
        request
    }

    #[tokio::test]
    async fn what_is_not_ours_is_left_to_the_database() {
        let (_directory, embedded, reads) = filled().await;
        let one = key("EDGES", "a");
        let whole = query("EDGES", "", true, None, &Value::Null);
        let with = |member: &str, value: Value| {
            let mut request = whole.clone();
            request[member] = value;
            ("Query", request)
        };
        let cases = [
            ("GetItem", json!({"TableName": "another", "Key": one})),
            ("GetItem", json!({"TableName": "_tables", "Key": one})),
            ("GetItem", json!({"TableName": table(), "Key": one, "ProjectionExpression": "pk"})),
            ("GetItem", json!({"TableName": table(), "Key": {"pk": {"S": "EDGES"}}})),
            ("GetItem", json!({"TableName": table(), "Key": {"pk": {"N": "1"}, "sk": {"S": "a"}}})),
            ("BatchGetItem", json!({"RequestItems": {table(): {"Keys": [one, one]}}})),
            ("BatchGetItem", json!({"RequestItems": {table(): {"Keys": []}}})),
            with("FilterExpression", json!("v = :p")),
            with("KeyConditionExpression", json!("#p = :p AND sk > :p")),
            with("ExpressionAttributeValues", json!({":p": {"S": "EDGES"}, ":q": {"S": "unused"}})),
            with("ExclusiveStartKey", key("LARGE", "0001")),
            with("Limit", json!(0)),
            with("Select", json!("COUNT")),
            ("Scan", json!({"TableName": table()})),
        ];
        for (operation, request) in cases {
            let (ours, theirs) = both(&embedded, &reads, operation, &request);
            assert_eq!(ours, None, "{request}");
            assert!(theirs.is_object());
        }
    }

    #[tokio::test]
    async fn a_read_sees_the_write_that_was_acknowledged_before_it() {
        let (_directory, embedded, _reads) = filled().await;
        let table = embedded.store(None).records;
        for version in 0..50 {
            let item = Item::new(Key::new("P", "S"), &version).unwrap().with_version(version);
            table.put(item.clone(), Guard::None).await.unwrap();
            assert_eq!(table.get(&item.key).await.unwrap(), Some(item));
        }
    }
}
