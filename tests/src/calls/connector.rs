//! Records the calls to DynamoDB, between the SDK and the database.

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use serde_json::Value;

use super::keys::kind_of;
use super::{NOTES, note};

/// A connector that records its calls, if enabled.
#[derive(Debug, Clone)]
pub struct Noting<C>(pub C);

impl<C: HttpConnector + Clone + 'static> HttpClient for Noting<C> {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl<C: HttpConnector> HttpConnector for Noting<C> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        if NOTES.is_some() {
            let target = request.headers().get("x-amz-target").unwrap_or_default();
            let operation = target.rsplit('.').next().unwrap_or_default();
            let body = request.body().bytes().and_then(|body| serde_json::from_slice(body).ok());
            for named in named(operation, &body.unwrap_or_default()) {
                note(&named.table, &format!("dynamodb:{}", named.action), || kind_of(&named.pk));
            }
        }
        self.0.call(request)
    }
}

/// An item, or a partition, that a call names.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    /// The action by which a policy allows it.
    action: String,
    table: String,
    pk: String,
}

/// The keys of a call. A call without a partition concerns all: `*`.
fn named(operation: &str, body: &Value) -> Vec<Named> {
    let one = |action: &str, table: &Value, key: &Value| Named {
        action: action.to_owned(),
        table: table_word(table.as_str().unwrap_or_default()),
        pk: key["pk"]["S"].as_str().unwrap_or("*").to_owned(),
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let by_table = |items: &Value| items.as_object().cloned().unwrap_or_default().into_iter();
    match operation {
        "PutItem" => vec![one(operation, &body["TableName"], &body["Item"])],
        "GetItem" | "UpdateItem" | "DeleteItem" => vec![one(operation, &body["TableName"], &body["Key"])],
        "Query" => {
            let pk = &body["ExpressionAttributeValues"][":p"];
            vec![one(operation, &body["TableName"], &serde_json::json!({ "pk": pk }))]
        }
        "BatchGetItem" => by_table(&body["RequestItems"])
            .flat_map(|(table, required)| {
                let keys = list(&required["Keys"]);
                keys.iter().map(|key| one(operation, &table.clone().into(), key)).collect::<Vec<_>>()
            })
            .collect(),
        "BatchWriteItem" => by_table(&body["RequestItems"])
            .flat_map(|(table, writes)| {
                let key = |write: &Value| match &write["PutRequest"]["Item"] {
                    Value::Null => write["DeleteRequest"]["Key"].clone(),
                    item => item.clone(),
                };
                let writes = list(&writes);
                writes
                    .iter()
                    .map(|write| one(operation, &table.clone().into(), &key(write)))
                    .collect::<Vec<_>>()
            })
            .collect(),
        "TransactWriteItems" => list(&body["TransactItems"]).iter().flat_map(by_policy).collect(),
        other => vec![one(other, &body["TableName"], &Value::Null)],
    }
}

/// The action and key of one item of a transaction. Policies have no transactions, only their actions.
fn by_policy(item: &Value) -> Vec<Named> {
    let operations = item.as_object().into_iter().flatten();
    let named = |(operation, what): (&String, &Value)| {
        let (action, key) = match operation.as_str() {
            "Put" => ("PutItem", "Item"),
            "Update" => ("UpdateItem", "Key"),
            "Delete" => ("DeleteItem", "Key"),
            _ => ("ConditionCheckItem", "Key"),
        };
        let pk = what[key]["pk"]["S"].as_str().unwrap_or("*").to_owned();
        let table = table_word(what["TableName"].as_str().unwrap_or_default());
        Named { action: action.to_owned(), table, pk }
    };
    operations.map(named).collect()
}

fn table_word(name: &str) -> String {
    name.strip_prefix("pennon-").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(operation: &str, body: &Value) -> Vec<String> {
        let shown = |named: Named| format!("{} {} {}", named.action, named.table, named.pk);
        named(operation, body).into_iter().map(shown).collect()
    }

    #[test]
    fn every_item_of_a_transaction_has_the_action_of_policies() {
        let on = |key: &str, pk: &str| json!({"TableName": "pennon-records", key: {"pk": {"S": pk}, "sk": {"S": "s"}}});
        let body = json!({"TransactItems": [{"Put": on("Item", "A")}, {"Update": on("Key", "B")},
            {"Delete": on("Key", "C")}, {"ConditionCheck": on("Key", "D")}]});
        let expected = [
            "PutItem records A",
            "UpdateItem records B",
            "DeleteItem records C",
            "ConditionCheckItem records D",
        ];
        assert_eq!(shown("TransactWriteItems", &body), expected);
    }

    #[test]
    fn batches_name_each_item_and_queries_their_partition() {
        let key = |pk: &str| json!({"pk": {"S": pk}, "sk": {"S": "s"}});
        let body = json!({"RequestItems": {"pennon-blocks": {"Keys": [key("A"), key("B")]}}});
        assert_eq!(shown("BatchGetItem", &body), ["BatchGetItem blocks A", "BatchGetItem blocks B"]);
        let writes = json!([{"PutRequest": {"Item": key("A")}}, {"DeleteRequest": {"Key": key("B")}}]);
        let body = json!({"RequestItems": {"pennon-records": writes}});
        assert_eq!(shown("BatchWriteItem", &body), ["BatchWriteItem records A", "BatchWriteItem records B"]);
        let body = json!({"TableName": "pennon-records", "ExpressionAttributeValues": {":p": {"S": "A"}}});
        assert_eq!(shown("Query", &body), ["Query records A"]);
    }

    #[test]
    fn a_scan_concerns_all_keys() {
        assert_eq!(shown("Scan", &json!({"TableName": "pennon-records"})), ["Scan records *"]);
    }
}
