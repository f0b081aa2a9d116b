//! What the functions share: API keys and scopes, projects, the HTTP edge, and the one place that speaks to DynamoDB.
//!
//! It knows neither the calculation engine nor the event store. A handler never sees an SDK type: it gets a [`Call`],
//! asks [`App`] for the project that the caller may use, and answers with JSON or an [`ApiError`].
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
pub mod heap;
pub mod http;
pub mod idempotency;
pub mod ids;
pub mod lambda;
pub mod model;
pub mod payload_keys;
pub mod request_metrics;
pub mod store;
pub mod throttle;
pub mod traces;
