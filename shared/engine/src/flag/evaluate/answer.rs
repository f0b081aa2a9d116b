//! Who is asked about, and what the answer looks like.
//!
//! Must stay true: [`Reason::as_str`] gives the codes of the HTTP contract, [`FlagValue`] serializes as clients read it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::flag::json::Object;

/// The person asked about, and the groups of the request.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// What is hashed, but for flags on groups.
    pub distinct_id: &'a str,
    /// The person's properties; empty for an unknown one.
    pub properties: &'a Object,
    /// By index of the group type; a type that the caller named no group of is absent.
    pub groups: BTreeMap<u32, GroupSubject<'a>>,
    /// The static cohorts of which the person is a member.
    pub static_cohorts: &'a BTreeSet<i64>,
}

/// A group of the request.
#[derive(Debug, Clone, Copy)]
pub struct GroupSubject<'a> {
    /// What is hashed for flags on groups of this type.
    pub key: &'a str,
    /// Its properties; empty for an unknown group.
    pub properties: &'a Object,
}

/// The value of a flag. Serializes as `false`, `true` or the variant's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlagValue {
    /// Off.
    Off,
    /// On, without a variant.
    On,
    /// On, with this variant.
    Variant(Arc<str>),
}

impl FlagValue {
    /// Whether the flag is on, with or without a variant.
    pub fn is_on(&self) -> bool {
        *self != Self::Off
    }

    /// The value as answers show it.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Off => Value::Bool(false),
            Self::On => Value::Bool(true),
            Self::Variant(key) => Value::String(key.to_string()),
        }
    }
}

impl From<bool> for FlagValue {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

impl Serialize for FlagValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_bool(false),
            Self::On => serializer.serialize_bool(true),
            Self::Variant(key) => serializer.serialize_str(key),
        }
    }
}

/// Why a flag has its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A condition matched.
    ConditionMatch,
    /// No condition's properties matched.
    NoConditionMatch,
    /// A condition's properties matched, but the id is outside of its rollout.
    OutOfRolloutBound,
    /// A flag on groups, and no group of its type was named.
    NoGroupType,
    /// The early access condition decided.
    SuperConditionValue,
    /// The id is held out.
    HoldoutConditionValue,
    /// The flag is switched off.
    Disabled,
    /// A flag that it depends on does not exist, or leads back to it.
    MissingDependency,
}

impl Reason {
    /// The code in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConditionMatch => "condition_match",
            Self::NoConditionMatch => "no_condition_match",
            Self::OutOfRolloutBound => "out_of_rollout_bound",
            Self::NoGroupType => "no_group_type",
            Self::SuperConditionValue => "super_condition_value",
            Self::HoldoutConditionValue => "holdout_condition_value",
            Self::Disabled => "disabled",
            Self::MissingDependency => "missing_dependency",
        }
    }
}

/// The value of a flag, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// The value.
    pub value: FlagValue,
    /// What decided.
    pub reason: Reason,
    /// The condition that decided or came closest.
    pub condition_index: Option<usize>,
}

impl Evaluation {
    /// An answer.
    pub(super) fn new(value: FlagValue, reason: Reason, condition_index: Option<usize>) -> Self {
        Self { value, reason, condition_index }
    }

    /// Off.
    pub(super) fn off(reason: Reason, condition_index: Option<usize>) -> Self {
        Self::new(FlagValue::Off, reason, condition_index)
    }
}
