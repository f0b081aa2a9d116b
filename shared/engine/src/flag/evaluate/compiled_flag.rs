//! A flag compiled: its conditions as tests, the id that is hashed, and the order in which things are decided.
//!
//! Must stay true: [`CompiledFlag::evaluate`] decides in the order of the contract's table: disabled, dependencies, group,
//! early access, holdout, conditions as listed. Where both forms of early access or holdout are stored, the newer decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    Cohorts, Evaluation, FlagValue, OpenFeatureReason, Reason, Subject, compile::Compiler, context::Known,
    graph::Graph, leaf::Leaf, needs::Needs, selection::FlagRuntime,
};
use crate::flag::{Flag, filter_view as view, filters, hash, json::Object};

/// What the property of a person who enrolled in a flag, or declined it, begins with.
pub const ENROLLMENT: &str = "$feature_enrollment/";

/// What the keys of flags begin with that are made for surveys.
const SURVEY_PREFIX: &str = "survey-targeting-";

/// A compiled flag.
#[derive(Debug)]
pub struct CompiledFlag {
    /// Its place among the flags of its evaluator: from 0, without gaps.
    pub index: usize,
    /// The flag's id.
    pub id: i64,
    /// Its key.
    pub key: Arc<str>,
    /// Its version.
    pub version: i64,
    /// Whether it is switched on.
    pub active: bool,
    /// Whether its payload is all that matters.
    pub is_remote_configuration: bool,
    /// Indexes of the flags that it depends on.
    pub(super) flags: Vec<usize>,
    /// Indexes of the dynamic cohorts that it names.
    pub(super) cohorts: Vec<usize>,
    /// What it reads, its cohorts included.
    pub(super) needs: Needs,
    pub(super) runtime: FlagRuntime,
    /// Whether the value follows a person through a login.
    pub(super) is_continuous: bool,
    /// A flag that it needs does not exist or leads back to it.
    unresolvable: bool,
    prefix: String,
    by: By,
    early_access: Option<EarlyAccess>,
    holdout: Option<Holdout>,
    conditions: Vec<Condition>,
    variants: Vec<(Arc<str>, f64)>,
    early_exit: bool,
    /// Texts by variant, or `true`; none of a flag with encrypted payloads.
    payloads: BTreeMap<String, String>,
}

/// Whom a flag is evaluated for, and so whose id is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Person,
    Device,
    Group(u32),
    /// A group type that cannot exist.
    Nobody,
}

#[derive(Debug)]
enum EarlyAccess {
    /// This property of the person says whether it enrolled.
    Enrollment(String),
    /// A person with any of these properties is decided upon here.
    Condition { keys: Vec<String>, leaves: Vec<Leaf> },
}

#[derive(Debug)]
struct Holdout {
    percentage: f64,
    value: Arc<str>,
}

#[derive(Debug)]
struct Condition {
    leaves: Vec<Leaf>,
    rollout: Option<f64>,
    variant: Option<usize>,
}

impl Condition {
    fn is_partial(&self) -> bool {
        self.rollout.is_some_and(|percentage| percentage < 100.0)
    }
}

/// The ids that are hashed for a subject. `rollout` is none where a device is needed and the request names none.
struct HashedIds<'a> {
    rollout: Option<&'a str>,
    holdout: &'a str,
}

/// Compiles flags, in the order of their graph.
pub fn compile_all(graph: &Graph<'_>, cohorts: &Cohorts, compiler: &Compiler) -> Vec<CompiledFlag> {
    let compiled = graph.nodes.iter().enumerate().map(|(index, node)| {
        compiler.patterns.next_asker();
        CompiledFlag {
            index,
            unresolvable: node.unresolvable,
            flags: node.needs.clone(),
            ..CompiledFlag::new(node.flag, graph.numbers(), cohorts, compiler)
        }
    });
    compiled.collect()
}

impl CompiledFlag {
    fn new(flag: &Flag, flags: &BTreeMap<i64, usize>, cohorts: &Cohorts, compiler: &Compiler) -> Self {
        // Filters that were never sent are the default ones, for everybody.
        let default = filters::default_shown();
        let filters = if flag.filters.is_empty() { &default } else { &flag.filters };
        let by = by(flag, filters);
        let own_index = match by {
            By::Group(index) => Some(index),
            By::Person | By::Device | By::Nobody => None,
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
        let condition = |condition: &Value| Condition {
            leaves: leaves(condition),
            rollout: view::rollout(condition),
            variant: view::condition_variant(condition)
                .and_then(|name| variants.iter().position(|(key, _)| **key == *name)),
        };
        let conditions: Vec<Condition> = view::groups(filters).iter().map(condition).collect();
        let early_access = early_access(&flag.key, filters, leaves);
        let holdout = holdout(filters);
        let is_continuous = by == By::Person && flag.ensure_experience_continuity == Some(true);
        let varies =
            holdout.is_some() || !variants.is_empty() || conditions.iter().any(Condition::is_partial);

        let (used, mut needs) = read_by(&conditions, early_access.as_ref());
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
            by,
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

    /// Whether it was made for a survey.
    pub(super) fn is_of_survey(&self) -> bool {
        self.key.starts_with(SURVEY_PREFIX)
    }

    /// The payload that goes with a value, as text.
    pub fn payload(&self, value: &FlagValue) -> Option<&str> {
        let name = match value {
            FlagValue::Off => return None,
            FlagValue::On => "true",
            FlagValue::Variant(key) => key,
        };
        self.payloads.get(name).map(String::as_str)
    }

    /// The reason of an evaluation in OpenFeature's words.
    pub fn open_feature_reason(&self, evaluation: &Evaluation) -> OpenFeatureReason {
        match evaluation.reason {
            Reason::ConditionMatch => {
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
            Reason::SuperConditionValue => OpenFeatureReason::TargetingMatch,
            Reason::OutOfRolloutBound | Reason::HoldoutConditionValue => OpenFeatureReason::Split,
            Reason::Disabled => OpenFeatureReason::Disabled,
            Reason::NoConditionMatch
            | Reason::NoGroupType
            | Reason::MissingDependency
            | Reason::StoreUnavailable
            | Reason::OverrideUnavailable => OpenFeatureReason::Unknown,
        }
    }

    /// The value of the flag; flags and cohorts that it names are known.
    pub fn evaluate(&self, known: &Known<'_>) -> Evaluation {
        if !self.active {
            return Evaluation::off(Reason::Disabled, None);
        }
        if self.unresolvable {
            return Evaluation::off(Reason::MissingDependency, None);
        }
        let Some(ids) = self.hashed_ids(known.subject) else {
            return Evaluation::off(Reason::NoGroupType, None);
        };
        if let Some(reason) = self.failure(known) {
            return Evaluation::off(reason, None);
        }
        if let Some(on) = self.early_access(known) {
            return Evaluation::new(on.into(), Reason::SuperConditionValue, Some(0));
        }
        if let Some(holdout) = &self.holdout
            && hash::in_holdout(ids.holdout, holdout.percentage)
        {
            let value = FlagValue::Variant(Arc::clone(&holdout.value));
            return Evaluation::new(value, Reason::HoldoutConditionValue, None);
        }
        match (ids.rollout, self.conditions.len().checked_sub(1)) {
            (None, Some(last)) => Evaluation::off(Reason::OutOfRolloutBound, Some(last)),
            (id, _) => self.conditions(id.unwrap_or(known.subject.distinct_id), known),
        }
    }

    /// None: the request names no group of the flag's type.
    fn hashed_ids<'a>(&self, subject: &Subject<'a>) -> Option<HashedIds<'a>> {
        let same = |id| HashedIds { rollout: Some(id), holdout: id };
        Some(match self.by {
            By::Nobody => return None,
            By::Group(index) => same(subject.groups.get(&index)?.key),
            By::Device => HashedIds {
                rollout: subject.device_id,
                holdout: subject.device_id.unwrap_or(subject.distinct_id),
            },
            By::Person if self.is_continuous => {
                let stored = subject.overrides.and_then(|stored| stored.get(&self.id)).map(|id| &**id);
                same(stored.or(subject.anonymous_id).unwrap_or(subject.distinct_id))
            }
            By::Person => same(subject.distinct_id),
        })
    }

    /// Why there is no value: something that it needs, or that a flag needs on which it depends, could not be looked up.
    fn failure(&self, known: &Known<'_>) -> Option<Reason> {
        let of_others = || {
            let mut others = self.flags.iter().filter_map(|flag| known.evaluation(*flag));
            others.find(|other| other.is_failure()).map(|other| other.reason)
        };
        self.needs.failure(known.subject).or_else(of_others)
    }

    /// Decides for a person that enrolled or declined, or that has any of the early access properties.
    fn early_access(&self, known: &Known<'_>) -> Option<bool> {
        let properties = known.subject.properties;
        match self.early_access.as_ref()? {
            EarlyAccess::Enrollment(key) => {
                let value = properties.get(key)?;
                Some(*value == Value::Bool(true) || value.as_str() == Some("true"))
            }
            EarlyAccess::Condition { keys, leaves } => {
                let concerned = keys.iter().any(|key| properties.contains_key(key));
                concerned.then(|| all_hold(leaves, known))
            }
        }
    }

    fn conditions(&self, id: &str, known: &Known<'_>) -> Evaluation {
        // The hash is the same for all conditions, and not needed where all are fully rolled out.
        let mut hashed = None;
        let mut closest = (Reason::NoConditionMatch, 0);
        for (index, condition) in self.conditions.iter().enumerate() {
            if !all_hold(&condition.leaves, known) {
                if closest.0 == Reason::NoConditionMatch {
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
                let value = self.matched(condition, id);
                return Evaluation::new(value, Reason::ConditionMatch, Some(index));
            }
            closest = (Reason::OutOfRolloutBound, index);
            if self.early_exit {
                break;
            }
        }
        Evaluation::off(closest.0, Some(closest.1))
    }

    fn matched(&self, condition: &Condition, id: &str) -> FlagValue {
        let variant = condition.variant.or_else(|| {
            let hashed = || hash::hash(&self.prefix, id, hash::VARIANT_SALT);
            let widths = self.variants.iter().map(|(_, percentage)| *percentage);
            if self.variants.is_empty() { None } else { hash::range(hashed(), widths) }
        });
        let variant = variant.and_then(|variant| self.variants.get(variant));
        variant.map_or(FlagValue::On, |(key, _)| FlagValue::Variant(Arc::clone(key)))
    }
}

fn all_hold(leaves: &[Leaf], known: &Known<'_>) -> bool {
    leaves.iter().all(|leaf| leaf.holds(known) == Some(true))
}

fn by(flag: &Flag, filters: &Object) -> By {
    match filters.get("aggregation_group_type_index").filter(|index| !index.is_null()) {
        None if flag.bucketing_identifier.as_deref() == Some("device_id") => By::Device,
        None => By::Person,
        Some(index) => {
            index.as_u64().and_then(|index| u32::try_from(index).ok()).map_or(By::Nobody, By::Group)
        }
    }
}

fn early_access(key: &str, filters: &Object, leaves: impl Fn(&Value) -> Vec<Leaf>) -> Option<EarlyAccess> {
    if filters.get("feature_enrollment") == Some(&Value::Bool(true)) {
        return Some(EarlyAccess::Enrollment(format!("{ENROLLMENT}{key}")));
    }
    view::super_groups(filters).first().map(|condition| EarlyAccess::Condition {
        keys: view::properties(condition)
            .iter()
            .filter(|property| matches!(view::text(property, "type"), Some("person") | None))
            .filter_map(|property| view::text(property, "key").map(str::to_owned))
            .collect(),
        leaves: leaves(condition),
    })
}

/// The holdout: the newer form where it is stored, complete or not, else the older one.
fn holdout(filters: &Object) -> Option<Holdout> {
    if let Some(newer) = filters.get("holdout").filter(|holdout| !holdout.is_null()) {
        let id = match newer.get("id")? {
            Value::Null => return None,
            Value::String(id) => id.clone(),
            other => other.to_string(),
        };
        let percentage = newer.get("exclusion_percentage")?.as_f64()?;
        return Some(Holdout { percentage: percentage.max(0.0), value: format!("holdout-{id}").into() });
    }
    view::holdout_groups(filters).first().map(|condition| Holdout {
        percentage: view::rollout(condition).unwrap_or(100.0),
        value: view::condition_variant(condition).unwrap_or("holdout").into(),
    })
}

/// The dynamic cohorts that conditions name, and what the conditions read themselves.
fn read_by(conditions: &[Condition], early_access: Option<&EarlyAccess>) -> (BTreeSet<usize>, Needs) {
    let (mut cohorts, mut needs) = (BTreeSet::new(), Needs::default());
    let early: &[Leaf] = match early_access {
        None => &[],
        Some(EarlyAccess::Enrollment(key)) => {
            needs.add_person(key);
            &[]
        }
        Some(EarlyAccess::Condition { keys, leaves }) => {
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

/// Payloads as texts: a stored text as it is, other JSON as its text. Null is no payload.
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
