//! The declaration of an API key: what a workspace file says of it, and what the installation's list stores.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::project_numbers::{numbers, texts};

/// An API key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySpec {
    /// A name. Label and user identify a key.
    pub label: String,
    /// The owner's mail address.
    pub user: String,
    /// The key's scopes.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The projects that it is limited to; empty means no limit.
    #[serde(default, deserialize_with = "numbers", serialize_with = "texts")]
    pub projects: Vec<u64>,
    /// The organizations that it is limited to; empty means no limit.
    #[serde(default)]
    pub organizations: Vec<Uuid>,
    /// When it expires.
    #[serde(default)]
    pub expires_at: Option<DateTime<Utc>>,
    /// The secret itself, for tests; by default one is generated and printed once. Never stored.
    #[serde(default, skip_serializing)]
    pub value: Option<Secret>,
    /// The hash of an exported key, in place of the secret: so the same key works after an import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The shown part of an exported key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
}

/// A key's secret. Its `Debug` output omits it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("(secret)")
    }
}
