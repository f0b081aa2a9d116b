//! Records the calls to DynamoDB and their consumed capacity units in the request's metrics.

use std::time::SystemTime;

use aws_sdk_dynamodb::config::interceptors::{
    BeforeSerializationInterceptorContextMut, BeforeSerializationInterceptorContextRef,
    FinalizerInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::batch_get_item::{BatchGetItemInput, BatchGetItemOutput};
use aws_sdk_dynamodb::operation::batch_write_item::{BatchWriteItemInput, BatchWriteItemOutput};
use aws_sdk_dynamodb::operation::delete_item::{DeleteItemInput, DeleteItemOutput};
use aws_sdk_dynamodb::operation::get_item::{GetItemInput, GetItemOutput};
use aws_sdk_dynamodb::operation::put_item::{PutItemInput, PutItemOutput};
use aws_sdk_dynamodb::operation::query::{QueryInput, QueryOutput};
use aws_sdk_dynamodb::operation::transact_write_items::{TransactWriteItemsInput, TransactWriteItemsOutput};
use aws_sdk_dynamodb::operation::update_item::{UpdateItemInput, UpdateItemOutput};
use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity};

use aws_smithy_runtime_api::client::interceptors::context::{Input, Output};
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_types::config_bag::{Storable, StoreReplace};

use crate::request_metrics;
use crate::traces::CallSpan;

/// An SDK interceptor.
#[derive(Debug, Clone, Copy)]
pub struct CapacityMeter;

/// Requests the consumed capacity if the input is one of these types.
macro_rules! request_capacity {
    ($input:expr, $($kind:ty),+) => {$(
        if let Some(input) = $input.downcast_mut::<$kind>() {
            input.return_consumed_capacity = Some(ReturnConsumedCapacity::Total);
            return;
        }
    )+};
}

/// Returns the consumed units if the output is one of these types.
macro_rules! return_consumed_units {
    ($output:expr, $($kind:ty),+) => {$(
        if let Some(output) = $output.downcast_ref::<$kind>() {
            return output.consumed_capacity.iter().map(units).sum();
        }
    )+};
}

fn request_consumed_capacity(input: &mut Input) {
    request_capacity!(input, GetItemInput, BatchGetItemInput, QueryInput, TransactWriteItemsInput);
    request_capacity!(input, PutItemInput, UpdateItemInput, DeleteItemInput, BatchWriteItemInput);
}

fn read_units(output: &Output) -> f64 {
    return_consumed_units!(output, GetItemOutput, QueryOutput);
    match output.downcast_ref::<BatchGetItemOutput>() {
        Some(output) => output.consumed_capacity.iter().flatten().map(units).sum(),
        None => 0.0,
    }
}

fn write_units(output: &Output) -> f64 {
    return_consumed_units!(output, PutItemOutput, UpdateItemOutput, DeleteItemOutput);
    if let Some(output) = output.downcast_ref::<BatchWriteItemOutput>() {
        return output.consumed_capacity.iter().flatten().map(units).sum();
    }
    match output.downcast_ref::<TransactWriteItemsOutput>() {
        Some(output) => output.consumed_capacity.iter().flatten().map(units).sum(),
        None => 0.0,
    }
}

fn units(capacity: &ConsumedCapacity) -> f64 {
    capacity.capacity_units.unwrap_or_default()
}

/// Start of the running call, if its request is traced.
#[derive(Debug)]
struct CallStart(SystemTime);

impl Storable for CallStart {
    type Storer = StoreReplace<CallStart>;
}

impl Intercept for CapacityMeter {
    fn name(&self) -> &'static str {
        "CapacityMeter"
    }

    fn read_before_execution(
        &self,
        _context: &BeforeSerializationInterceptorContextRef<'_>,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        request_metrics::record(|metrics| {
            if metrics.is_traced() {
                bag.interceptor_state().store_put(CallStart(SystemTime::now()));
            }
        });
        Ok(())
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        request_consumed_capacity(context.input_mut());
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let output = context.output_or_error().and_then(Result::ok);
        let (read, write) = output.map_or((0.0, 0.0), |output| (read_units(output), write_units(output)));
        request_metrics::record(|metrics| {
            metrics.add_round_trip(read, write);
            if let Some(CallStart(start)) = bag.load::<CallStart>() {
                let operation = bag.load::<Metadata>().map_or("", Metadata::name).to_owned();
                let times = (*start, SystemTime::now());
                metrics.add_call(CallSpan { operation, times, has_failed: output.is_none() });
            }
        });
        Ok(())
    }
}
