//! The usage status of a flag: active, stale or deleted. One rule for the record field `status`, the status endpoint
//! and the list filter.
//!
//! Must stay true: all three agree about a flag at an instant (except that the list leaves out one more case, see
//! [`super::FlagRow`]).

use chrono::{DateTime, TimeDelta, Utc};
use pennon_filters::body::json::Object;
use serde_json::{Value, json};

use super::{Flag, display};
use crate::conditions::filter_view as view;

/// Days without a call, or since creation for a flag that was never called, after which it may be stale.
const STALE_DAYS: i64 = 30;

/// The usage status of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// In use, or too new to decide.
    Active,
    /// Not called for a while, or fully rolled out for long.
    Stale,
    /// Soft-deleted.
    Deleted,
}

impl Status {
    /// All values of the field `status` in records.
    pub const RECORD_VALUES: [&str; 3] =
        [Self::Active.record_value(), Self::Stale.record_value(), Self::Deleted.record_value()];

    /// The value of the field `status` in records.
    pub const fn record_value(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Stale => "STALE",
            Self::Deleted => "DELETED",
        }
    }

    /// The value in the response of the status endpoint.
    pub fn endpoint_value(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Stale => "stale",
            Self::Deleted => "deleted",
        }
    }
}

/// The single value of a fully rolled out flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FullRollout {
    /// `true`, of a boolean flag.
    True,
    /// This variant.
    Variant(String),
}

/// The value that all persons get, if the filters alone determine it.
pub fn full_rollout(filters: &Object) -> Option<FullRollout> {
    let groups = view::groups(filters);
    let is_full = |group: &&Value| view::rollout(group) == Some(100.0) && view::properties(group).is_empty();
    let mut full = groups.iter().filter(is_full).peekable();
    let variants = view::variants(filters);
    if variants.is_empty() {
        return (groups.is_empty() || full.peek().is_some()).then_some(FullRollout::True);
    }
    full.peek()?;
    let named = full.find_map(view::condition_variant);
    let full_variant = || variants.iter().find(|variant| view::rollout(variant) == Some(100.0));
    let variant = named.or_else(|| view::text(full_variant()?, "key"))?;
    Some(FullRollout::Variant(variant.to_owned()))
}

/// The facts that the status depends on.
#[derive(Debug, Clone, Copy)]
pub struct FlagUsage {
    /// Soft-deleted.
    pub deleted: bool,
    /// Whether it is enabled.
    pub active: bool,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When an application last called it.
    pub last_called_at: Option<DateTime<Utc>>,
    /// Whether [`full_rollout`] names a value.
    pub fully_rolled_out: bool,
}

/// Why a flag has its status: the first reason that applies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusReason {
    /// Soft-deleted.
    Deleted,
    /// Disabled, so staleness is not evaluated.
    Disabled,
    /// Last called this many whole days ago, which is too long.
    NotCalled(i64),
    /// Last called this many whole days ago.
    Called(i64),
    /// Never called, old, and all persons get the same value.
    RolledOut,
    /// None of the above.
    NoData,
}

impl StatusReason {
    /// Computes the reason at an instant.
    pub fn of(usage: FlagUsage, now: DateTime<Utc>) -> Self {
        let limit = TimeDelta::days(STALE_DAYS);
        if usage.deleted {
            return Self::Deleted;
        }
        if !usage.active {
            return Self::Disabled;
        }
        match usage.last_called_at {
            Some(called) if now - called > limit => Self::NotCalled((now - called).num_days()),
            Some(called) => Self::Called((now - called).num_days().max(0)),
            None if now - usage.created_at > limit && usage.fully_rolled_out => Self::RolledOut,
            None => Self::NoData,
        }
    }

    /// The status for this reason.
    pub fn status(self) -> Status {
        match self {
            Self::Deleted => Status::Deleted,
            Self::NotCalled(_) | Self::RolledOut => Status::Stale,
            Self::Disabled | Self::Called(_) | Self::NoData => Status::Active,
        }
    }

    fn message(self, rollout: Option<&FullRollout>) -> String {
        match self {
            Self::Deleted => "The flag is soft-deleted".to_owned(),
            Self::Disabled => "The flag is switched off, staleness is not judged".to_owned(),
            Self::NotCalled(days) => format!("Not called for {days} days"),
            Self::Called(0) => "Last called today".to_owned(),
            Self::Called(1) => "Last called 1 day ago".to_owned(),
            Self::Called(days) => format!("Last called {days} days ago"),
            Self::RolledOut => match rollout {
                Some(FullRollout::Variant(variant)) => format!("Always variant \"{variant}\""),
                _ => "Always \"true\"".to_owned(),
            },
            Self::NoData => "No usage data yet".to_owned(),
        }
    }
}

impl Flag {
    /// The facts that the flag's status depends on.
    pub fn usage(&self) -> FlagUsage {
        FlagUsage {
            deleted: self.deleted,
            active: self.active,
            created_at: self.created_at,
            last_called_at: self.last_called_at,
            fully_rolled_out: full_rollout(&self.filters).is_some(),
        }
    }

    /// The body of the status endpoint: `{status, reason, reason_states_rollout, rollout}`.
    pub fn status_response(&self, now: DateTime<Utc>) -> Value {
        let rollout = full_rollout(&self.filters);
        let reason = StatusReason::of(self.usage(), now);
        json!({
            "status": reason.status().endpoint_value(),
            "reason": reason.message(rollout.as_ref()),
            "reason_states_rollout": reason == StatusReason::RolledOut,
            "rollout": {
                "effectively_full_rollout": rollout.is_some(),
                "has_targeting_conditions":
                    view::groups(&self.filters).iter().any(|group| !view::properties(group).is_empty()),
                "max_rollout_percentage": max_rollout(&self.filters),
                "is_multivariate": !view::variants(&self.filters).is_empty(),
            },
        })
    }
}

/// The largest percentage of any condition, a missing one counting as 100; null without conditions.
fn max_rollout(filters: &Object) -> Value {
    let percentages = view::groups(filters).iter().map(|group| view::rollout(group).unwrap_or(100.0));
    percentages.reduce(f64::max).map_or(Value::Null, |max| display::integral(&json!(max)))
}

#[cfg(test)]
mod tests;
