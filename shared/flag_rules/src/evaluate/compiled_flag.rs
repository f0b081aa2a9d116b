//! A compiled flag: its conditions as predicates, the id that is hashed, and the order of decisions.
//!
//! Must stay true: [`CompiledFlag::evaluate`] decides in the order of the contract's table: disabled, dependencies,
//! group, early access, holdout, conditions as listed. When both forms of early access or holdout are stored, the newer
//! form decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use pennon_filters::body::json::Object;
use serde_json::Value;

use super::{
    CohortEvaluator, Evaluation, EvaluationReason, FlagValue, OpenFeatureReason, Subject,
    compiler::FlagCompiler, dependency_graph::DependencyGraph, leaf::Leaf, required_data::RequiredData,
    selection::FlagRuntime, state::EvaluationState,
};
use crate::conditions::{filter_view as view, filters};
use crate::flag::Flag;
use crate::hash;

/// Prefix of the person property that records enrollment in a flag.
pub const ENROLLMENT: &str = "$feature_enrollment/";

/// Key prefix of flags that were created for surveys.
const SURVEY_PREFIX: &str = "survey-targeting-";

/// A compiled flag.
#[derive(Debug)]
pub struct CompiledFlag {
    /// Its index among the flags of its evaluator: from 0, without gaps.
    pub index: usize,
    /// The flag's id.
    pub id: i64,
    /// Its key.
    pub key: Arc<str>,
    /// Its version.
    pub version: i64,
    /// Whether it is enabled.
    pub active: bool,
    /// Whether it is a remote configuration: only its payload matters.
    pub is_remote_configuration: bool,
    /// Indexes of the flags that it depends on.
    pub(super) flags: Vec<usize>,
    /// Indexes of the dynamic cohorts that it names.
    pub(super) cohorts: Vec<usize>,
    /// The data that it reads, including its cohorts.
    pub(super) needs: RequiredData,
    pub(super) runtime: FlagRuntime,
    /// Whether it has experience continuity: a person keeps the value across a login.
    pub(super) is_continuous: bool,
    /// Whether a dependency does not exist or is on a cycle.
    unresolvable: bool,
    prefix: String,
    bucket_by: BucketBy,
    early_access: Option<EarlyAccess>,
    holdout: Option<Holdout>,
    conditions: Vec<CompiledCondition>,
    variants: Vec<(Arc<str>, f64)>,
    early_exit: bool,
    /// Payload texts by variant, or `true`; empty for a flag with encrypted payloads.
    payloads: BTreeMap<String, String>,
}

/// The entity that a flag is evaluated for, whose id is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BucketBy {
    Person,
    Device,
    Group(u32),
    /// A group type index that cannot exist.
    InvalidGroupType,
}

#[derive(Debug)]
enum EarlyAccess {
    /// Decided by this person property.
    Enrollment(String),
    /// Decides for every person with any of these properties.
    CompiledCondition { keys: Vec<String>, leaves: Vec<Leaf> },
}

#[derive(Debug)]
struct Holdout {
    percentage: f64,
    value: Arc<str>,
}

#[derive(Debug)]
struct CompiledCondition {
    leaves: Vec<Leaf>,
    rollout: Option<f64>,
    variant: Option<usize>,
}

impl CompiledCondition {
    fn is_partial(&self) -> bool {
        self.rollout.is_some_and(|percentage| percentage < 100.0)
    }
}

/// The hashed ids of a subject. `rollout` is `None` when a device id is needed and the request has none.
struct HashedIds<'a> {
    rollout: Option<&'a str>,
    holdout: &'a str,
}

/// Compiles flags in the order of their graph.
pub fn compile_all(
    graph: &DependencyGraph<'_>,
    cohorts: &CohortEvaluator,
    compiler: &FlagCompiler,
) -> Vec<CompiledFlag> {
    let compiled = graph.nodes.iter().enumerate().map(|(index, node)| {
        compiler.patterns.start_owner();
        CompiledFlag {
            index,
            unresolvable: node.unresolvable,
            flags: node.depends_on.clone(),
            ..CompiledFlag::new(node.flag, graph.numbers(), cohorts, compiler)
        }
    });
    compiled.collect()
}

impl CompiledFlag {
    fn new(
        flag: &Flag,
        flags: &BTreeMap<i64, usize>,
        cohorts: &CohortEvaluator,
        compiler: &FlagCompiler,
    ) -> Self {
        // Filters that were never sent count as the default, which matches everyone.
        let default = filters::default_filters();
        let filters = if flag.filters.is_empty() { &default } else { &flag.filters };
        let bucket_by = bucket_by(flag, filters);
        let own_index = match bucket_by {
            BucketBy::Group(index) => Some(index),
            BucketBy::Person | BucketBy::Device | BucketBy::InvalidGroupType => None,
        };
        let leaves = |condition: &Value| -> Vec<Leaf> {
            let properties = view::properties(condition).iter();
            properties.map(|property| Leaf::property(property, flags, own_index, cohorts, compiler)).collect()
        };
        let variants: Vec<(Arc<str>, f64)> = view::variants(filters)
            .iter()
            .filter_map(|variant| {
                Some((view::text(variant, "key")?.into(), view::rollout(variant).unwrap_or(0.0)))
            })
            .collect();
        let condition = |condition: &Value| CompiledCondition {
            leaves: leaves(condition),
            rollout: view::rollout(condition),
            variant: view::condition_variant(condition)
                .and_then(|name| variants.iter().position(|(key, _)| **key == *name)),
        };
        let conditions: Vec<CompiledCondition> = view::groups(filters).iter().map(condition).collect();
        let early_access = early_access(&flag.key, filters, leaves);
        let holdout = holdout(filters);
        let is_continuous = bucket_by == BucketBy::Person && flag.ensure_experience_continuity == Some(true);
        let varies =
            holdout.is_some() || !variants.is_empty() || conditions.iter().any(CompiledCondition::is_partial);

        let (used, mut needs) = collect_requirements(&conditions, early_access.as_ref());
        let used: Vec<usize> = used.into_iter().collect();
        cohorts.closure(used.iter().copied()).into_iter().for_each(|cohort| needs.add(cohorts.needs(cohort)));
        needs.overrides = is_continuous && varies;
        Self {
            index: 0,
            id: flag.id,
            key: flag.key.as_str().into(),
            version: flag.version,
            active: flag.active,
            is_remote_configuration: flag.is_remote_configuration == Some(true),
            flags: Vec::new(),
            cohorts: used,
            needs,
            runtime: FlagRuntime::of(flag.evaluation_runtime.as_deref()),
            is_continuous,
            unresolvable: false,
            prefix: hash::flag_prefix(&flag.key),
            bucket_by,
            early_access,
            holdout,
            conditions,
            variants,
            early_exit: filters.get("early_exit") == Some(&Value::Bool(true)),
            payloads: if flag.is_encrypted() { BTreeMap::new() } else { payload_texts(filters) },
        }
    }

    /// Whether it has variants.
    pub fn has_variants(&self) -> bool {
        !self.variants.is_empty()
    }

    /// Whether it was created for a survey.
    pub(super) fn is_survey_flag(&self) -> bool {
        self.key.starts_with(SURVEY_PREFIX)
    }

    /// The payload for a value, as text.
    pub fn payload(&self, value: &FlagValue) -> Option<&str> {
        let name = match value {
            FlagValue::Off => return None,
            FlagValue::On => "true",
            FlagValue::Variant(key) => key,
        };
        self.payloads.get(name).map(String::as_str)
    }

    /// Maps the reason of an evaluation to OpenFeature.
    pub fn open_feature_reason(&self, evaluation: &Evaluation) -> OpenFeatureReason {
        match evaluation.reason {
            EvaluationReason::ConditionMatch => {
                let condition = evaluation.condition_index.and_then(|index| self.conditions.get(index));
                let is_split = condition.is_some_and(|condition| {
                    condition.is_partial() || (self.variants.len() > 1 && condition.variant.is_none())
                });
                let is_static = condition.is_none_or(|condition| condition.leaves.is_empty());
                match (is_split, is_static) {
                    (true, _) => OpenFeatureReason::Split,
                    (false, true) => OpenFeatureReason::Static,
                    (false, false) => OpenFeatureReason::TargetingMatch,
                }
            }
            EvaluationReason::SuperConditionValue => OpenFeatureReason::TargetingMatch,
            EvaluationReason::OutOfRolloutBound | EvaluationReason::HoldoutConditionValue => {
                OpenFeatureReason::Split
            }
            EvaluationReason::Disabled => OpenFeatureReason::Disabled,
            EvaluationReason::NoConditionMatch
            | EvaluationReason::NoGroupType
            | EvaluationReason::MissingDependency
            | EvaluationReason::StoreUnavailable
            | EvaluationReason::OverrideUnavailable => OpenFeatureReason::Unknown,
        }
    }

    /// Evaluates the flag; the flags and cohorts that it refers to were evaluated before.
    pub fn evaluate(&self, state: &EvaluationState<'_>) -> Evaluation {
        if !self.active {
            return Evaluation::off(EvaluationReason::Disabled, None);
        }
        if self.unresolvable {
            return Evaluation::off(EvaluationReason::MissingDependency, None);
        }
        let Some(ids) = self.hashed_ids(state.subject) else {
            return Evaluation::off(EvaluationReason::NoGroupType, None);
        };
        if let Some(reason) = self.failure(state) {
            return Evaluation::off(reason, None);
        }
        if let Some(on) = self.early_access(state) {
            return Evaluation::new(on.into(), EvaluationReason::SuperConditionValue, Some(0));
        }
        if let Some(holdout) = &self.holdout
            && hash::in_holdout(ids.holdout, holdout.percentage)
        {
            let value = FlagValue::Variant(Arc::clone(&holdout.value));
            return Evaluation::new(value, EvaluationReason::HoldoutConditionValue, None);
        }
        match (ids.rollout, self.conditions.len().checked_sub(1)) {
            (None, Some(last)) => Evaluation::off(EvaluationReason::OutOfRolloutBound, Some(last)),
            (id, _) => self.conditions(id.unwrap_or(state.subject.distinct_id), state),
        }
    }

    /// `None`: the request has no group of the flag's type.
    fn hashed_ids<'a>(&self, subject: &Subject<'a>) -> Option<HashedIds<'a>> {
        let same = |id| HashedIds { rollout: Some(id), holdout: id };
        Some(match self.bucket_by {
            BucketBy::InvalidGroupType => return None,
            BucketBy::Group(index) => same(subject.groups.get(&index)?.key),
            BucketBy::Device => HashedIds {
                rollout: subject.device_id,
                holdout: subject.device_id.unwrap_or(subject.distinct_id),
            },
            BucketBy::Person if self.is_continuous => {
                let stored = subject.overrides.and_then(|stored| stored.get(&self.id)).map(|id| &**id);
                same(stored.or(subject.anonymous_id).unwrap_or(subject.distinct_id))
            }
            BucketBy::Person => same(subject.distinct_id),
        })
    }

    /// Why there is no value: data that it, or transitively a dependency, needs could not be loaded.
    fn failure(&self, state: &EvaluationState<'_>) -> Option<EvaluationReason> {
        let dependency_failure = || {
            let mut others = self.flags.iter().filter_map(|flag| state.evaluation(*flag));
            others.find(|other| other.is_failure()).map(|other| other.reason)
        };
        self.needs.failure(state.subject).or_else(dependency_failure)
    }

    /// The early access decision, for a person that enrolled or declined, or that has any of the early access
    /// properties.
    fn early_access(&self, state: &EvaluationState<'_>) -> Option<bool> {
        let properties = state.subject.properties;
        match self.early_access.as_ref()? {
            EarlyAccess::Enrollment(key) => properties.get(key).map(is_enrolled),
            EarlyAccess::CompiledCondition { keys, leaves } => {
                let applies = keys.iter().any(|key| properties.contains_key(key));
                applies.then(|| all_hold(leaves, state))
            }
        }
    }

    fn conditions(&self, id: &str, state: &EvaluationState<'_>) -> Evaluation {
        // The hash is the same for all conditions, and not needed when all are fully rolled out.
        let mut hashed = None;
        let mut closest = (EvaluationReason::NoConditionMatch, 0);
        for (index, condition) in self.conditions.iter().enumerate() {
            if !all_hold(&condition.leaves, state) {
                if closest.0 == EvaluationReason::NoConditionMatch {
                    closest.1 = index;
                }
                continue;
            }
            let inside = match condition.rollout {
                Some(percentage) if percentage < 100.0 => {
                    *hashed.get_or_insert_with(|| hash::hash(&self.prefix, id, "")) <= percentage / 100.0
                }
                _ => true,
            };
            if inside {
                let value = self.matched_value(condition, id);
                return Evaluation::new(value, EvaluationReason::ConditionMatch, Some(index));
            }
            closest = (EvaluationReason::OutOfRolloutBound, index);
            if self.early_exit {
                break;
            }
        }
        Evaluation::off(closest.0, Some(closest.1))
    }

    fn matched_value(&self, condition: &CompiledCondition, id: &str) -> FlagValue {
        let variant = condition.variant.or_else(|| {
            let hashed = || hash::hash(&self.prefix, id, hash::VARIANT_SALT);
            let widths = self.variants.iter().map(|(_, percentage)| *percentage);
            if self.variants.is_empty() { None } else { hash::range(hashed(), widths) }
        });
        let variant = variant.and_then(|variant| self.variants.get(variant));
        variant.map_or(FlagValue::On, |(key, _)| FlagValue::Variant(Arc::clone(key)))
    }
}

fn all_hold(leaves: &[Leaf], state: &EvaluationState<'_>) -> bool {
    leaves.iter().all(|leaf| leaf.holds(state) == Some(true))
}

fn bucket_by(flag: &Flag, filters: &Object) -> BucketBy {
    match filters.get("aggregation_group_type_index").filter(|index| !index.is_null()) {
        None if flag.bucketing_identifier.as_deref() == Some("device_id") => BucketBy::Device,
        None => BucketBy::Person,
        Some(index) => index
            .as_u64()
            .and_then(|index| u32::try_from(index).ok())
            .map_or(BucketBy::InvalidGroupType, BucketBy::Group),
    }
}

fn early_access(key: &str, filters: &Object, leaves: impl Fn(&Value) -> Vec<Leaf>) -> Option<EarlyAccess> {
    if let Some(property) = enrollment_property(key, filters) {
        return Some(EarlyAccess::Enrollment(property));
    }
    view::super_groups(filters).first().map(|condition| EarlyAccess::CompiledCondition {
        keys: view::properties(condition)
            .iter()
            .filter(|property| matches!(view::text(property, "type"), Some("person") | None))
            .filter_map(|property| view::text(property, "key").map(str::to_owned))
            .collect(),
        leaves: leaves(condition),
    })
}

/// The holdout: the newer form when it is stored, complete or not, otherwise the older one.
fn holdout(filters: &Object) -> Option<Holdout> {
    if let Some(newer) = filters.get("holdout").filter(|holdout| !holdout.is_null()) {
        let id = match newer.get("id")? {
            Value::Null => return None,
            Value::String(id) => id.clone(),
            other => other.to_string(),
        };
        return Some(Holdout {
            percentage: holdout_percentage(filters)?,
            value: format!("holdout-{id}").into(),
        });
    }
    view::holdout_groups(filters).first().map(|condition| Holdout {
        percentage: view::rollout(condition).unwrap_or(100.0),
        value: view::condition_variant(condition).unwrap_or("holdout").into(),
    })
}

/// The share of ids, in percent, that the newer form of a holdout holds out. `None`: there is no such holdout, or it is
/// incomplete.
pub fn holdout_percentage(filters: &Object) -> Option<f64> {
    let holdout = filters.get("holdout")?;
    holdout.get("id").filter(|id| !id.is_null())?;
    Some(holdout.get("exclusion_percentage")?.as_f64()?.max(0.0))
}

/// The person property that decides for a flag with the newer form of early access. `None`: the flag has none.
pub fn enrollment_property(key: &str, filters: &Object) -> Option<String> {
    (filters.get("feature_enrollment") == Some(&Value::Bool(true))).then(|| format!("{ENROLLMENT}{key}"))
}

/// Whether the value of the enrollment property switches the flag on; any other value switches it off.
pub fn is_enrolled(value: &Value) -> bool {
    *value == Value::Bool(true) || value.as_str() == Some("true")
}

/// The dynamic cohorts that conditions refer to, and the data that the conditions read.
fn collect_requirements(
    conditions: &[CompiledCondition],
    early_access: Option<&EarlyAccess>,
) -> (BTreeSet<usize>, RequiredData) {
    let (mut cohorts, mut needs) = (BTreeSet::new(), RequiredData::default());
    let early: &[Leaf] = match early_access {
        None => &[],
        Some(EarlyAccess::Enrollment(key)) => {
            needs.add_person(key);
            &[]
        }
        Some(EarlyAccess::CompiledCondition { keys, leaves }) => {
            keys.iter().for_each(|key| needs.add_person(key));
            leaves
        }
    };
    for leaf in conditions.iter().flat_map(|condition| &condition.leaves).chain(early) {
        leaf.add_cohorts(&mut cohorts);
        needs.add_leaf(leaf);
    }
    (cohorts, needs)
}

/// Payloads as texts: a stored string as it is, other JSON encoded. Null counts as no payload.
fn payload_texts(filters: &Object) -> BTreeMap<String, String> {
    let payloads = filters.get("payloads").and_then(Value::as_object).into_iter().flatten();
    let text = |(name, payload): (&String, &Value)| {
        let text = match payload {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some((name.clone(), text))
    };
    payloads.filter_map(text).collect()
}
