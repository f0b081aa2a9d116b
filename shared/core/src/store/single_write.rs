//! Writes of one item: `PutItem` and `DeleteItem` cost half of a transaction with the same item, and do not conflict with
//! writes of the same kind.
//!
//! Must stay true: a failed condition has the index 0, as in a transaction of one write. A transaction has an idempotency
//! token and these calls do not: if the response of a carried out write is lost, the SDK's retry of a conditional one reports
//! a failed condition. So a caller that gets [`StoreError::Condition`] reads the item again; it never concludes that another
//! process wrote it. A write without a condition may be repeated.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use futures::future::BoxFuture;

use super::change::{ItemAction, ItemChange};
use super::table::{ATTEMPTS_MAX, back_off};
use super::{StoreError, Table};

impl Table {
    /// Executes `change` without a transaction; `None` if it is neither a put nor a deletion. On a conflict with a transaction
    /// it retries with exponential backoff and jitter, at most 10 attempts.
    pub(super) fn write_single<'a>(
        &'a self,
        change: &'a ItemChange,
    ) -> Option<BoxFuture<'a, Result<(), StoreError>>> {
        if !matches!(change.action, ItemAction::Put(_) | ItemAction::Delete) {
            return None;
        }
        Some(Box::pin(async move {
            for attempt in 0.. {
                match self.send_single(change).await {
                    Err(StoreError::Conflict) if attempt + 1 < ATTEMPTS_MAX => {
                        back_off(attempt, "conflict").await?;
                    }
                    result => return result,
                }
            }
            Ok(())
        }))
    }

    async fn send_single(&self, change: &ItemChange) -> Result<(), StoreError> {
        let condition = change.condition_expression();
        let names = (!condition.names.is_empty()).then_some(condition.names);
        let values = (!condition.values.is_empty()).then_some(condition.values);
        match &change.action {
            ItemAction::Put(item) => {
                let call = self.client.put_item().table_name(&*self.name).set_item(Some(item.clone()));
                let call = call.set_condition_expression(condition.text);
                let call = call.set_expression_attribute_names(names).set_expression_attribute_values(values);
                call.send().await.map(drop).map_err(write_error)
            }
            _ => {
                let call = self.client.delete_item().table_name(&*self.name);
                let call = call.set_key(Some(change.key.attributes()));
                let call = call.set_condition_expression(condition.text);
                let call = call.set_expression_attribute_names(names).set_expression_attribute_values(values);
                call.send().await.map(drop).map_err(write_error)
            }
        }
    }
}

fn write_error<E, R>(error: SdkError<E, R>) -> StoreError
where
    SdkError<E, R>: Into<StoreError>,
    E: ProvideErrorMetadata,
{
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    if code == Some("ConditionalCheckFailedException") {
        return StoreError::Condition { index: 0 };
    }
    error.into()
}
