//! The tables of a simulated installation: rows in memory, with DynamoDB's conditions and atomic transactions.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use pennon_core::store::local_backend::{BackendFuture, LocalBackend, PartitionPage, PartitionRange};
use pennon_core::store::{Attributes, ItemAction, ItemChange, ItemCondition, Key, StoreError};
use serde_json::Value;

use super::defects::Defect;
use super::switch::{Call, ConnectionLost, Switch};

type Partition = BTreeMap<String, Attributes>;

/// The rows of both tables.
#[derive(Debug)]
pub struct Rows {
    /// By table and partition key.
    partitions: Mutex<BTreeMap<(String, String), Partition>>,
    /// A page has at most so many rows: DynamoDB's end after 1 MB, which histories as short as these never reach.
    page_rows: usize,
    defect: Option<Defect>,
    /// Writes so far, for the defects that some of them have.
    writes: AtomicU64,
}

impl Rows {
    pub fn new(page_rows: usize, defect: Option<Defect>) -> Rows {
        Rows { partitions: Mutex::default(), page_rows, defect, writes: AtomicU64::new(0) }
    }

    fn items(&self, table: &str, keys: &[&Key]) -> Vec<Attributes> {
        let partitions = self.partitions.lock().unwrap();
        let item = |key: &&Key| partitions.get(&(table.to_owned(), key.pk.clone()))?.get(&key.sk).cloned();
        keys.iter().filter_map(item).collect()
    }

    fn page(&self, table: &str, range: &PartitionRange) -> PartitionPage {
        let partitions = self.partitions.lock().unwrap();
        let Some(partition) = partitions.get(&(table.to_owned(), range.pk.clone())) else {
            return PartitionPage { items: Vec::new(), more: false };
        };
        let after = range.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = match range.descending {
            false => (after, Bound::Unbounded),
            true => (Bound::Unbounded, after),
        };
        let is_in = |(sk, _): &(&String, &Attributes)| {
            range.prefix.as_ref().is_none_or(|prefix| sk.starts_with(prefix.as_str()))
        };
        let rows = partition.range::<str, _>(bounds).filter(is_in).map(|(_, row)| row.clone());
        let mut rows = rows.collect::<Vec<_>>();
        if range.descending {
            rows.reverse();
        }
        let limit = range.limit.unwrap_or(usize::MAX).min(self.page_rows);
        let more = rows.len() > limit;
        rows.truncate(limit);
        PartitionPage { items: rows, more }
    }

    fn transact(&self, table: &str, changes: &[ItemChange]) -> Result<i64, StoreError> {
        let mut partitions = self.partitions.lock().unwrap();
        for (index, change) in changes.iter().enumerate() {
            let key = (table.to_owned(), change.key.pk.clone());
            let item = partitions.get(&key).and_then(|rows| rows.get(&change.key.sk));
            let is_forgotten = self.defect == Some(Defect::ForgottenCondition);
            if !is_forgotten && !change.when.iter().all(|condition| holds(*condition, item)) {
                return Err(StoreError::Condition { index });
            }
        }
        let write = self.writes.fetch_add(1, Ordering::Relaxed);
        let lost = match self.defect {
            Some(Defect::LostRow) if write % 16 == 15 => changes.len(),
            Some(Defect::HalfTransaction) if changes.len() > 1 => 1,
            _ => 0,
        };
        for change in &changes[..changes.len() - lost] {
            let rows = partitions.entry((table.to_owned(), change.key.pk.clone())).or_default();
            match &change.action {
                ItemAction::Put(item) => _ = rows.insert(change.key.sk.clone(), item.clone()),
                ItemAction::Delete => _ = rows.remove(&change.key.sk),
                ItemAction::Check => {}
                ItemAction::Count { .. } => panic!("the event store counts nothing in these histories"),
            }
        }
        Ok(0)
    }

    fn delete(&self, rows: &[(String, Key)]) {
        let mut partitions = self.partitions.lock().unwrap();
        for (table, key) in rows {
            if let Some(rows) = partitions.get_mut(&(table.clone(), key.pk.clone())) {
                rows.remove(&key.sk);
            }
        }
    }
}

/// The tables and keys of a `BatchWriteItem` of deletions.
fn deleted_rows(body: &Value) -> Vec<(String, Key)> {
    let mut rows = Vec::new();
    for (table, requests) in body["RequestItems"].as_object().unwrap() {
        for request in requests.as_array().unwrap() {
            let key = &request["DeleteRequest"]["Key"];
            let text = |name: &str| key[name]["S"].as_str().unwrap();
            rows.push((table.clone(), Key::new(text("pk"), text("sk"))));
        }
    }
    rows
}

fn names<'a>(keys: impl IntoIterator<Item = &'a Key>) -> String {
    keys.into_iter().map(|key| format!("{}/{} ", key.pk, key.sk)).collect()
}

fn holds(condition: ItemCondition, item: Option<&Attributes>) -> bool {
    let number = |name: &str| item?.get(name)?.as_n().ok()?.parse::<i64>().ok();
    match condition {
        ItemCondition::Absent => item.is_none(),
        ItemCondition::Present => item.is_some(),
        ItemCondition::Is(name, value) => number(name) == Some(value),
        ItemCondition::IsOrUnset(name, value) => number(name).is_none_or(|found| found == value),
        ItemCondition::AtMostOrUnset(name, most) => number(name).is_none_or(|found| found <= most),
    }
}

/// The tables as one process calls them.
#[derive(Debug, Clone)]
pub struct Table {
    pub rows: Arc<Rows>,
    pub switch: Arc<Switch>,
}

fn unavailable(_: ConnectionLost) -> StoreError {
    StoreError::Failed("the table does not respond".to_owned())
}

impl LocalBackend for Table {
    fn items(&self, table: &str, keys: &[&Key]) -> Option<Result<Vec<Attributes>, StoreError>> {
        let name = || names(keys.iter().copied());
        let call = Call { operation: "get", name: &name, is_write: false };
        Some(self.switch.read_at_once(call, || self.rows.items(table, keys)).map_err(unavailable))
    }

    fn page(
        &self,
        table: &str,
        range: PartitionRange,
    ) -> BackendFuture<'_, Result<PartitionPage, StoreError>> {
        let table = table.to_owned();
        Box::pin(async move {
            let name = || format!("{}/{}", range.pk, range.prefix.as_deref().unwrap_or("*"));
            let call = Call { operation: "query", name: &name, is_write: false };
            let page = self.switch.call(call, || self.rows.page(&table, &range)).await;
            Some(page.map_err(unavailable))
        })
    }

    fn transact(
        &self,
        table: &str,
        changes: Arc<Vec<ItemChange>>,
    ) -> BackendFuture<'_, Result<i64, StoreError>> {
        let table = table.to_owned();
        Box::pin(async move {
            let name =
                || changes.iter().map(|change| format!("{}/{} ", change.key.pk, change.key.sk)).collect();
            let call = Call { operation: "transact", name: &name, is_write: true };
            let written = self.switch.call(call, || self.rows.transact(&table, &changes)).await;
            Some(written.map_err(unavailable).and_then(|written| written))
        })
    }
}

/// Batches of deletions go through the SDK.
impl HttpClient for Table {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Table {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let table = self.clone();
        HttpConnectorFuture::new(async move {
            let target = request.headers().get("x-amz-target").unwrap_or_default();
            assert!(target.ends_with(".BatchWriteItem"), "{target} is not simulated");
            let body = serde_json::from_slice::<Value>(request.body().bytes().unwrap_or_default()).unwrap();
            let rows = deleted_rows(&body);
            let name = || names(rows.iter().map(|(_, key)| key));
            let call = Call { operation: "delete", name: &name, is_write: true };
            let (status, text) = match table.switch.call(call, || table.rows.delete(&rows)).await {
                Ok(()) => (200, r#"{"UnprocessedItems":{}}"#),
                Err(ConnectionLost) => {
                    (400, r#"{"__type":"AccessDeniedException","message":"no connection"}"#)
                }
            };
            let status =
                StatusCode::try_from(status).map_err(|error| ConnectorError::other(error.into(), None))?;
            let mut response = HttpResponse::new(status, text.into());
            response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
            Ok(response)
        })
    }
}
