//! Counts billed units: DynamoDB's units, as the database reports them, and calls of the object store.

use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use serde_json::Value;

/// The billed units since the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UsedUnits {
    /// Read units.
    pub reads: f64,
    /// Write units.
    pub writes: f64,
    /// Objects, or parts of them, that were read.
    pub gets: u32,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Objects that were written, and lists of them.
    pub puts: u32,
}

/// Counts units while it is on; it is off at first.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Mutex<Option<UsedUnits>>>);

impl Meter {
    /// A meter that is on.
    pub fn on() -> Meter {
        Meter(Arc::new(Mutex::new(Some(UsedUnits::default()))))
    }

    /// Whether it counts.
    pub fn is_on(&self) -> bool {
        self.lock().is_some()
    }

    /// The units since the last call.
    pub fn take(&self) -> UsedUnits {
        self.lock().replace(UsedUnits::default()).unwrap_or_default()
    }

    pub(crate) fn add(&self, add: impl FnOnce(&mut UsedUnits)) {
        if let Some(spent) = self.lock().as_mut() {
            add(spent);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<UsedUnits>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connector that makes the database report the consumption of each call, if its meter is on.
#[derive(Debug, Clone)]
pub(crate) struct Metered<C>(pub C, pub Meter);

impl<C: HttpConnector + Clone + 'static> HttpClient for Metered<C> {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl<C: HttpConnector + Clone + 'static> HttpConnector for Metered<C> {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        if !self.1.is_on() {
            return self.0.call(request);
        }
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let is_read =
            ["GetItem", "BatchGetItem", "Query"].iter().any(|read| target.ends_with(&format!(".{read}")));
        let body = request.body().bytes().and_then(|body| serde_json::from_slice::<Value>(body).ok());
        if let Some(mut body) = body {
            body["ReturnConsumedCapacity"] = "TOTAL".into();
            *request.body_mut() = body.to_string().into();
        }
        let (response, meter) = (self.0.call(request), self.1.clone());
        HttpConnectorFuture::new(async move {
            let response = response.await?;
            let body = response.body().bytes().and_then(|body| serde_json::from_slice::<Value>(body).ok());
            let units = consumed(&body.unwrap_or_default());
            meter.add(|spent| *(if is_read { &mut spent.reads } else { &mut spent.writes }) += units);
            Ok(response)
        })
    }
}

/// The units of a response, of one table or of several.
fn consumed(response: &Value) -> f64 {
    let of = |table: &Value| table["CapacityUnits"].as_f64().unwrap_or_default();
    match &response["ConsumedCapacity"] {
        Value::Array(tables) => tables.iter().map(of).sum(),
        table => of(table),
    }
}
