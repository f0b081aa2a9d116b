//! Code shared by all Lambda functions: authentication, projects, HTTP middleware, and the DynamoDB client.
//!
//! This crate does not depend on the calculation engine or the event store. Handlers never see AWS SDK types: a handler gets
//! a [`Call`], authorizes the caller for a project through [`App`], and returns JSON or an [`ApiError`].
//!
//! * [`routes`]: route tables. [`http`]: request parsing, responses, CORS, the request log.
//! * [`app`]: the state of handlers, and the authorization of a request for its project.
//! * [`auth`]: API keys, scopes, project tokens, sharing links; caches of keys and tokens.
//! * [`store`]: items, keys, queries and transactions of the two DynamoDB tables.
//! * [`queue`]: messages to SQS.
//! * [`activity`]: the activity log. [`write_times`]: instants that never go back. [`idempotency`]: the `Idempotency-Key` header.
//!   [`throttle`]: rate limits. [`retry`]: optimistic concurrency.
//! * [`limits`]: limits of requests that the API document states too.
//! * [`request_metrics`], [`traces`], [`lambda`]: what a request consumed, OpenTelemetry spans, the Lambda runtime.
//!
//! [`Call`]: http::Call
//! [`App`]: app::App
//! [`ApiError`]: error::ApiError

pub mod activity;
pub mod app;
pub mod auth;
pub mod byte_limited_cache;
pub mod clock;
pub mod config;
pub mod error;
pub mod function_name;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod heap;
pub mod http;
pub mod idempotency;
pub mod ids;
pub mod invocation;
pub mod lambda;
pub mod limits;
pub mod model;
pub mod payload_keys;
pub mod queue;
pub mod request_metrics;
pub mod retry;
pub mod routes;
pub mod store;
pub mod throttle;
pub mod traces;
pub mod write_times;
