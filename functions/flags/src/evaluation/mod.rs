//! Flags evaluated for one person, for callers with nothing but a project token: `/flags`, `/decide`, OpenFeature's remote
//! protocol, and what posthog-js loads beside.
//!
//! The way of a request: [`body`] decodes it → [`project`] finds the project of its token, and the flags compiled for the
//! version that it has → [`request`] validates it → [`subject`] looks up what the request does not say of the person, and
//! only that → the engine evaluates → [`answer`] with [`records`], or [`ofrep`], writes the answer.
//!
//! Must stay true: nothing is written but overrides of experience continuity; stored properties, names, conditions and
//! encrypted payloads never leave; what could not be looked up is reported as failed and never as off.

mod answer;
mod body;
mod configuration;
mod handlers;
mod ofrep;
mod project;
mod records;
mod request;
mod subject;
mod version;

pub use handlers::{
    config, config_script, decide, early_access_features, evaluate, no_decision, no_flags, surveys,
};
pub use ofrep::{evaluate_all, evaluate_one};
pub use project::CompiledProjects;
