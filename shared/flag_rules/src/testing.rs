//! Fixtures of the tests of this module.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use pennon_filters::body::json::Object;
use pennon_filters::body::{FieldError, timestamp};
use serde_json::{Value, json};

use crate::flag::{Flag, FlagInput, UserRef, ValidationContext, WriteKind};
use crate::relations::References;

pub mod random_json;

/// The instant at which tests run.
pub fn now() -> DateTime<Utc> {
    timestamp::parse("2026-01-05T10:00:00.123456Z").unwrap()
}

pub fn object(value: Value) -> Object {
    value.as_object().unwrap().clone()
}

pub fn user() -> UserRef {
    UserRef {
        id: 1,
        uuid: "0190".to_owned(),
        distinct_id: "u1".to_owned(),
        first_name: "Olive".to_owned(),
        email: "owner@example.com".to_owned(),
        ..UserRef::default()
    }
}

/// Parses a body with no stored data around it except `references`.
pub fn parse_input_with(
    body: Value,
    stored: Option<&Flag>,
    references: &References,
) -> Result<FlagInput, FieldError> {
    let write = if stored.is_some() { WriteKind::Update } else { WriteKind::Create };
    let around = ValidationContext {
        stored,
        key_holder: None,
        references,
        dashboards: &BTreeSet::from([1, 2]),
        linked_to_early_access: false,
    };
    FlagInput::parse(&object(body), write, &around)
}

pub fn parse_input(body: Value, stored: Option<&Flag>) -> Result<FlagInput, FieldError> {
    parse_input_with(body, stored, &References::default())
}

/// The flag that a body creates.
pub fn created(body: Value) -> Flag {
    Flag::create(12, &parse_input(body, None).unwrap(), now(), &user()).unwrap()
}

/// The flag after an update.
pub fn updated(flag: &Flag, body: Value) -> Flag {
    flag.apply(&parse_input(body, Some(flag)).unwrap(), now(), &user())
}

pub fn flag() -> Flag {
    created(json!({"key": "omega-feature"}))
}
