//! A flag compiled: its conditions as tests, and the order in which things are decided.
//!
//! Must stay true: [`Program::evaluate`] decides in the order of the contract's table: disabled, dependencies, group,
//! early access, holdout, conditions as listed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    Cohorts, Evaluation, FlagValue, Reason,
    cohorts::CohortTest,
    compile::Compiler,
    context::Known,
    graph::Graph,
    predicate::{Given, Predicate},
};
use crate::flag::{Flag, filter_view as view, filters, hash, references};

/// What a group's own key is called among its properties.
pub const GROUP_KEY: &str = "$group_key";

/// A compiled property of a condition.
#[derive(Debug, Clone)]
pub enum Leaf {
    /// Nothing meets it.
    Never,
    /// A property of the person.
    Person { key: String, predicate: Predicate },
    /// A property of the group of this type.
    Group { index: u32, key: String, predicate: Predicate },
    /// The key of the group of this type.
    GroupKey { index: u32, predicate: Predicate },
    /// Membership in a cohort.
    Member { cohort: CohortTest, negated: bool },
    /// The value of another flag.
    Flag { flag: usize, expected: Expected },
}

/// What another flag's value has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// On or off.
    On(bool),
    /// On with this variant.
    Variant(String),
}

impl Leaf {
    /// A property of a flag's condition; `flags` are the indexes of flags by id, `own_index` the flag's group type.
    fn property(
        property: &Value,
        flags: &BTreeMap<i64, usize>,
        own_index: Option<u32>,
        cohorts: &Cohorts,
        compiler: &Compiler,
    ) -> Self {
        match view::text(property, "type") {
            Some("flag") => Self::flag(property, flags).unwrap_or(Self::Never),
            Some("group") => Self::group(property, own_index, compiler).unwrap_or(Self::Never),
            _ => Self::criterion(property, cohorts, compiler),
        }
    }

    /// A criterion of a cohort, or a property of a flag's condition on a person or a cohort.
    pub fn criterion(property: &Value, cohorts: &Cohorts, compiler: &Compiler) -> Self {
        if references::is_cohort(property) {
            return Self::member(property, cohorts);
        }
        match view::text(property, "type") {
            Some("person") | None => Self::person(property, compiler).unwrap_or(Self::Never),
            Some(_) => Self::Never,
        }
    }

    fn person(property: &Value, compiler: &Compiler) -> Option<Self> {
        let key = view::text(property, "key")?.to_owned();
        Some(Self::Person { key, predicate: predicate(property, compiler)? })
    }

    /// A property of a group; its type is the one stated, else that of the flag.
    pub fn group(property: &Value, own_index: Option<u32>, compiler: &Compiler) -> Option<Self> {
        let index = match property.get("group_type_index").filter(|index| !index.is_null()) {
            Some(index) => u32::try_from(index.as_u64()?).ok()?,
            None => own_index?,
        };
        let (key, predicate) = (view::text(property, "key")?, predicate(property, compiler)?);
        Some(match key {
            GROUP_KEY => Self::GroupKey { index, predicate },
            key => Self::Group { index, key: key.to_owned(), predicate },
        })
    }

    fn member(property: &Value, cohorts: &Cohorts) -> Self {
        let not_in = match view::operator(property) {
            "in" | "exact" => false,
            "not_in" => true,
            _ => return Self::Never,
        };
        let negation = property.get("negation").and_then(Value::as_bool).unwrap_or(false);
        Self::Member { cohort: cohorts.test(references::cohort_id(property)), negated: not_in != negation }
    }

    fn flag(property: &Value, flags: &BTreeMap<i64, usize>) -> Option<Self> {
        let expected = match property.get("value")? {
            Value::Bool(on) => Expected::On(*on),
            Value::String(variant) => Expected::Variant(variant.clone()),
            _ => return None,
        };
        Some(Self::Flag { flag: *flags.get(&references::flag_id(property)?)?, expected })
    }

    /// Whether it is met. None: there is nothing to compare with.
    pub fn holds(&self, known: &Known<'_>) -> Option<bool> {
        let subject = known.subject;
        match self {
            Self::Never => None,
            Self::Person { key, predicate } => predicate.holds(subject.properties.get(key).map(Given::from)),
            Self::Group { index, key, predicate } => {
                let group = subject.groups.get(index);
                predicate.holds(group.and_then(|group| group.properties.get(key)).map(Given::from))
            }
            Self::GroupKey { index, predicate } => {
                predicate.holds(subject.groups.get(index).map(|group| Given::Text(group.key)))
            }
            Self::Member { cohort, negated } => {
                let member = match cohort {
                    CohortTest::Static(id) => subject.static_cohorts.contains(id),
                    CohortTest::Dynamic(index) => known.members.contains(*index),
                    CohortTest::Empty => false,
                };
                Some(member != *negated)
            }
            Self::Flag { flag, expected } => {
                let value = known.value(*flag);
                Some(match expected {
                    Expected::On(on) => value.is_on() == *on,
                    Expected::Variant(variant) => {
                        matches!(value, FlagValue::Variant(key) if **key == **variant)
                    }
                })
            }
        }
    }

    /// Adds the cohort that it asks about.
    pub fn cohorts(&self, dynamic: &mut BTreeSet<usize>, by_list: &mut BTreeSet<i64>) {
        match self {
            Self::Member { cohort: CohortTest::Dynamic(index), .. } => {
                dynamic.insert(*index);
            }
            Self::Member { cohort: CohortTest::Static(id), .. } => {
                by_list.insert(*id);
            }
            _ => {}
        }
    }
}

fn predicate(property: &Value, compiler: &Compiler) -> Option<Predicate> {
    Predicate::new(view::operator(property), property.get("value"), compiler)
}

/// A compiled flag.
#[derive(Debug)]
pub struct Program {
    /// The flag's id.
    pub id: i64,
    /// Indexes of the flags that it depends on.
    pub flags: Vec<usize>,
    /// Indexes of the dynamic cohorts that it names.
    pub cohorts: Vec<usize>,
    /// Ids of the static cohorts that it names.
    pub static_cohorts: BTreeSet<i64>,
    /// A flag that it needs does not exist or leads back to it.
    unresolvable: bool,
    active: bool,
    prefix: String,
    by: By,
    early_access: Option<EarlyAccess>,
    holdout: Option<Holdout>,
    conditions: Vec<Condition>,
    variants: Vec<(Arc<str>, f64)>,
    early_exit: bool,
}

/// Whom a flag is evaluated for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Person,
    Group(u32),
    /// A group type that cannot exist.
    Nobody,
}

#[derive(Debug)]
struct EarlyAccess {
    /// A person with any of these properties is decided upon here.
    keys: Vec<String>,
    leaves: Vec<Leaf>,
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

/// Compiles flags, in the order of their graph.
pub fn compile_all(graph: &Graph<'_>, cohorts: &Cohorts, compiler: &Compiler) -> Vec<Program> {
    let compiled = graph.nodes.iter().map(|node| {
        compiler.patterns.next_asker();
        Program {
            unresolvable: node.unresolvable,
            flags: node.needs.clone(),
            ..Program::new(node.flag, graph.numbers(), cohorts, compiler)
        }
    });
    compiled.collect()
}

impl Program {
    fn new(flag: &Flag, flags: &BTreeMap<i64, usize>, cohorts: &Cohorts, compiler: &Compiler) -> Self {
        // Filters that were never sent are the default ones, for everybody.
        let default = filters::default_shown();
        let filters = if flag.filters.is_empty() { &default } else { &flag.filters };
        let by = match filters.get("aggregation_group_type_index").filter(|index| !index.is_null()) {
            None => By::Person,
            Some(index) => {
                index.as_u64().and_then(|index| u32::try_from(index).ok()).map_or(By::Nobody, By::Group)
            }
        };
        let own_index = match by {
            By::Group(index) => Some(index),
            By::Person | By::Nobody => None,
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
        let early_access = view::super_groups(filters).first().map(|condition| EarlyAccess {
            keys: view::properties(condition)
                .iter()
                .filter(|property| matches!(view::text(property, "type"), Some("person") | None))
                .filter_map(|property| view::text(property, "key").map(str::to_owned))
                .collect(),
            leaves: leaves(condition),
        });
        let holdout = view::holdout_groups(filters).first().map(|condition| Holdout {
            percentage: view::rollout(condition).unwrap_or(100.0),
            value: view::condition_variant(condition).unwrap_or("holdout").into(),
        });

        let (mut used, mut static_cohorts) = (BTreeSet::new(), BTreeSet::new());
        let early = early_access.iter().flat_map(|early| &early.leaves);
        for leaf in conditions.iter().flat_map(|condition| &condition.leaves).chain(early) {
            leaf.cohorts(&mut used, &mut static_cohorts);
        }
        Self {
            id: flag.id,
            flags: Vec::new(),
            cohorts: used.into_iter().collect(),
            static_cohorts,
            unresolvable: false,
            active: flag.active,
            prefix: hash::flag_prefix(&flag.key),
            by,
            early_access,
            holdout,
            conditions,
            variants,
            early_exit: filters.get("early_exit") == Some(&Value::Bool(true)),
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
        let id = match self.by {
            By::Person => Some(known.subject.distinct_id),
            By::Group(index) => known.subject.groups.get(&index).map(|group| group.key),
            By::Nobody => None,
        };
        let Some(id) = id else { return Evaluation::off(Reason::NoGroupType, None) };
        if let Some(on) = self.early_access(known) {
            return Evaluation::new(on.into(), Reason::SuperConditionValue, Some(0));
        }
        if let Some(holdout) = &self.holdout
            && hash::in_holdout(id, holdout.percentage)
        {
            let value = FlagValue::Variant(Arc::clone(&holdout.value));
            return Evaluation::new(value, Reason::HoldoutConditionValue, None);
        }
        self.conditions(id, known)
    }

    /// Decides for a person that has any of the early access properties.
    fn early_access(&self, known: &Known<'_>) -> Option<bool> {
        let early_access = self.early_access.as_ref()?;
        let properties = known.subject.properties;
        let concerned = early_access.keys.iter().any(|key| properties.contains_key(key));
        concerned.then(|| all_hold(&early_access.leaves, known))
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
