//! Flag evaluation for SDKs, authenticated with a project token: `/flags`, `/decide`, the OpenFeature Remote Evaluation
//! Protocol (OFREP), and the other endpoints that posthog-js calls.
//!
//! Request flow: [`body`] decodes the body → [`project`] finds the project of the token and its compiled flags at the
//! current version → [`request`] validates the request → [`subject`] loads what the flags need and the request does not
//! contain → the engine evaluates → [`response`] with [`records`], or [`ofrep`], encodes the response.
//!
//! Must stay true: nothing is written except overrides of experience continuity; stored properties, names, conditions
//! and encrypted payloads are never returned; a flag whose data could not be loaded is reported as failed, never as
//! off.

mod body;
mod configuration;
mod handlers;
mod ofrep;
mod project;
mod records;
mod request;
mod response;
mod response_version;
mod subject;

pub use handlers::{
    config, config_script, decide, early_access_features, evaluate, no_decision, no_flags, surveys,
};
pub use ofrep::{evaluate_all, evaluate_one};
pub use project::CompiledProjectCache;
#[cfg(feature = "fuzzing")]
pub(crate) use request::EvaluationRequest;
