//! The subject of an evaluation, and its result.
//!
//! Must stay true: [`EvaluationReason::as_str`] returns the codes of the HTTP contract; [`FlagValue`] serializes as clients
//! expect.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use pennon_filters::body::json::Object;
use pennon_filters::work_budget::CancellationToken;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{required_data::Unavailable, slow_searches::SlowSearches};

/// The person to evaluate, and the groups of the request.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// The hashed id, except for flags on groups and the cases below.
    pub distinct_id: &'a str,
    /// The hashed id of flags by device. `None`: the request has no device id, and no condition of such a flag matches.
    /// Callers that never receive a device id pass the distinct id.
    pub device_id: Option<&'a str>,
    /// The distinct id from before a login: hashed for flags with experience continuity that have no override.
    pub anonymous_id: Option<&'a str>,
    /// The overrides of the person: the hashed id by flag id.
    pub overrides: Option<&'a BTreeMap<i64, String>>,
    /// The person properties; empty for an unknown person.
    pub properties: &'a Object,
    /// By group type index; a type without a group in the request is absent.
    pub groups: BTreeMap<u32, GroupSubject<'a>>,
    /// The static cohorts that contain the person.
    pub static_cohorts: &'a BTreeSet<i64>,
    /// The instant that relative dates count from.
    pub now: DateTime<Utc>,
    /// The data that could not be loaded. Flags that need it have no value.
    pub unavailable: Unavailable,
    /// Whether slow regular expression searches are allowed.
    pub slow_searches: SlowSearches<'a>,
}

impl<'a> Subject<'a> {
    /// A person with complete data, without groups and overrides; the distinct id is the device id.
    pub fn person(
        distinct_id: &'a str,
        properties: &'a Object,
        static_cohorts: &'a BTreeSet<i64>,
        now: DateTime<Utc>,
    ) -> Self {
        Self {
            distinct_id,
            device_id: Some(distinct_id),
            anonymous_id: None,
            overrides: None,
            properties,
            groups: BTreeMap::new(),
            static_cohorts,
            now,
            unavailable: Unavailable::default(),
            slow_searches: SlowSearches::Allowed,
        }
    }

    /// Stops the evaluation on cancellation; its result is invalid then.
    #[must_use]
    pub fn until_cancelled(self, cancellation: &'a CancellationToken) -> Self {
        Self { slow_searches: SlowSearches::UntilCancelled(cancellation), ..self }
    }

    /// Sets the groups.
    #[must_use]
    pub fn with_groups(self, groups: BTreeMap<u32, GroupSubject<'a>>) -> Self {
        Self { groups, ..self }
    }
}

/// A group of the request.
#[derive(Debug, Clone, Copy)]
pub struct GroupSubject<'a> {
    /// The hashed id of flags on groups of this type.
    pub key: &'a str,
    /// Its properties; empty for an unknown group.
    pub properties: &'a Object,
}

/// The value of a flag. Serializes as `false`, `true` or the variant's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlagValue {
    /// The result off.
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

    /// The key of its variant.
    pub fn variant(&self) -> Option<&str> {
        match self {
            Self::Variant(key) => Some(key),
            Self::Off | Self::On => None,
        }
    }

    /// The value in responses.
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
pub enum EvaluationReason {
    /// A condition matched.
    ConditionMatch,
    /// No condition's properties matched.
    NoConditionMatch,
    /// A condition's properties matched, but the id is outside of its rollout.
    OutOfRolloutBound,
    /// A flag on groups, and the request has no group of its type.
    NoGroupType,
    /// The early access condition decided.
    SuperConditionValue,
    /// The id is held out.
    HoldoutConditionValue,
    /// The flag is disabled.
    Disabled,
    /// A dependency does not exist or is on a cycle.
    MissingDependency,
    /// Stored properties or cohort lists that it needs could not be read.
    StoreUnavailable,
    /// The override of the person could not be read or stored.
    OverrideUnavailable,
}

impl EvaluationReason {
    /// The code in responses.
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
            Self::StoreUnavailable => "store_unavailable",
            Self::OverrideUnavailable => "override_unavailable",
        }
    }
}

/// The OpenFeature reasons that flags have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words of the protocol")]
pub enum OpenFeatureReason {
    Static,
    TargetingMatch,
    Split,
    Disabled,
    Unknown,
}

impl OpenFeatureReason {
    /// The value in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Static => "STATIC",
            Self::TargetingMatch => "TARGETING_MATCH",
            Self::Split => "SPLIT",
            Self::Disabled => "DISABLED",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// The value of a flag, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// The value.
    pub value: FlagValue,
    /// The reason.
    pub reason: EvaluationReason,
    /// The index of the condition that decided or came closest.
    pub condition_index: Option<usize>,
}

impl Evaluation {
    /// Whether there is no value, because data could not be loaded.
    pub fn is_failure(&self) -> bool {
        matches!(self.reason, EvaluationReason::StoreUnavailable | EvaluationReason::OverrideUnavailable)
    }

    /// The reason as a text, which SDKs copy into their events.
    pub fn description(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self.reason {
            EvaluationReason::ConditionMatch => {
                let set = self.condition_index.map_or(1, |index| index + 1);
                return Cow::Owned(format!("Matched condition set {set}"));
            }
            EvaluationReason::NoConditionMatch => "No matching condition set",
            EvaluationReason::OutOfRolloutBound => "Out of rollout bound",
            EvaluationReason::NoGroupType => "No group type",
            EvaluationReason::SuperConditionValue => "Super condition value",
            EvaluationReason::HoldoutConditionValue => "Holdout condition value",
            EvaluationReason::Disabled => "Flag is disabled",
            EvaluationReason::MissingDependency => "Flag cannot be evaluated due to missing dependency",
            EvaluationReason::StoreUnavailable => {
                "The stored properties that the flag needs could not be read"
            }
            EvaluationReason::OverrideUnavailable => {
                "The stored override of the person could not be read or written"
            }
        })
    }

    /// A result.
    pub(super) fn new(value: FlagValue, reason: EvaluationReason, condition_index: Option<usize>) -> Self {
        Self { value, reason, condition_index }
    }

    /// The result off.
    pub(super) fn off(reason: EvaluationReason, condition_index: Option<usize>) -> Self {
        Self::new(FlagValue::Off, reason, condition_index)
    }
}
