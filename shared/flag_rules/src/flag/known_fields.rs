//! The names of fields in the body of a flag, for the spelling check.

use std::sync::LazyLock;

use super::field_table::FLAG_FIELDS;

/// Fields of other parts of the API, and of other releases of it, that a write of a flag accepts and ignores.
const OTHER_FIELDS: [&str; 20] = [
    "uuid",
    "experiment_set_metadata",
    "evaluation_environments",
    "_create_in_folder",
    "is_used_in_replay_settings",
    "has_experiment",
    "early_access_feature",
    "dashboard",
    "dashboards",
    "groups",
    "variants",
    "multivariate",
    "payloads",
    "properties",
    "team",
    "project",
    "project_id",
    "organization",
    "token",
    "personal_api_key",
];

/// Fields that a create or update validates.
pub fn writable() -> &'static [&'static str] {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
        FLAG_FIELDS.iter().filter(|field| field.write.parse().is_some()).map(|field| field.name).collect()
    });
    &NAMES
}

/// Fields that a write accepts and ignores.
pub fn ignored() -> &'static [&'static str] {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let read_only = FLAG_FIELDS.iter().filter(|field| field.write.parse().is_none());
        read_only.map(|field| field.name).chain(OTHER_FIELDS).collect()
    });
    &NAMES
}
