//! Compiled properties of conditions and criteria of cohorts.
//!
//! Must stay true: a property of the wrong shape never matches.

use std::collections::{BTreeMap, BTreeSet};

use pennon_filters::operator::Operator;
use serde_json::Value;

use super::{
    CohortEvaluator, FlagValue,
    cohorts::CohortTest,
    compiler::FlagCompiler,
    predicate::{ComparableValue, PropertyPredicate},
    state::EvaluationState,
};
use crate::conditions::filter_view as view;
use crate::conditions::record_ids;

/// The pseudo-property for a group's own key.
pub const GROUP_KEY: &str = "$group_key";

/// A compiled property of a condition.
#[derive(Debug, Clone)]
pub enum Leaf {
    /// Never matches.
    Never,
    /// A property of the person; equal tests have the same number.
    Person { key: String, predicate: PropertyPredicate, test: usize },
    /// A property of the group of this type.
    Group { index: u32, key: String, predicate: PropertyPredicate },
    /// The key of the group of this type.
    GroupKey { index: u32, predicate: PropertyPredicate },
    /// Membership in a cohort.
    Member { cohort: CohortTest, negated: bool },
    /// The value of another flag.
    Flag { flag: usize, expected: ExpectedFlagValue },
}

/// The expected value of another flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedFlagValue {
    /// On or off.
    On(bool),
    /// On with this variant.
    Variant(String),
}

impl Leaf {
    /// Compiles a property of a flag's condition; `flags` has the flag indexes by id, `own_index` is the flag's group
    /// type.
    pub fn property(
        property: &Value,
        flags: &BTreeMap<i64, usize>,
        own_index: Option<u32>,
        cohorts: &CohortEvaluator,
        compiler: &FlagCompiler,
    ) -> Self {
        match view::text(property, "type") {
            Some("flag") => Self::flag(property, flags).unwrap_or(Self::Never),
            Some("group") => Self::group(property, own_index, compiler).unwrap_or(Self::Never),
            _ => Self::criterion(property, cohorts, compiler),
        }
    }

    /// Compiles a criterion of a cohort, or a property of a flag's condition on a person or a cohort.
    pub fn criterion(property: &Value, cohorts: &CohortEvaluator, compiler: &FlagCompiler) -> Self {
        if record_ids::is_cohort(property) {
            return Self::cohort_membership(property, cohorts);
        }
        match view::text(property, "type") {
            Some("person") | None => Self::person(property, compiler).unwrap_or(Self::Never),
            Some(_) => Self::Never,
        }
    }

    fn person(property: &Value, compiler: &FlagCompiler) -> Option<Self> {
        let key = view::text(property, "key")?.to_owned();
        let predicate = predicate(property, compiler)?;
        let test = compiler.person_test(&key, view::operator(property)?, property.get("value"));
        Some(Self::Person { key, predicate, test })
    }

    /// Compiles a property of a group; its type is the stated one, otherwise that of the flag.
    pub fn group(property: &Value, own_index: Option<u32>, compiler: &FlagCompiler) -> Option<Self> {
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

    fn cohort_membership(property: &Value, cohorts: &CohortEvaluator) -> Self {
        let not_in = match view::operator(property) {
            Some(Operator::In | Operator::Exact) => false,
            Some(Operator::NotIn) => true,
            _ => return Self::Never,
        };
        let negation = property.get("negation").and_then(Value::as_bool).unwrap_or(false);
        Self::Member { cohort: cohorts.test(record_ids::cohort_id(property)), negated: not_in != negation }
    }

    fn flag(property: &Value, flags: &BTreeMap<i64, usize>) -> Option<Self> {
        let expected = match property.get("value")? {
            Value::Bool(on) => ExpectedFlagValue::On(*on),
            Value::String(variant) => ExpectedFlagValue::Variant(variant.clone()),
            _ => return None,
        };
        Some(Self::Flag { flag: *flags.get(&record_ids::flag_id(property)?)?, expected })
    }

    /// Whether it matches. `None`: the values cannot be compared.
    pub fn holds(&self, state: &EvaluationState<'_>) -> Option<bool> {
        let subject = state.subject;
        let (now, slow) = (subject.now, subject.slow_searches);
        match self {
            Self::Never => None,
            Self::Person { key, predicate, test } => state.person_tests.get_or_test(*test, || {
                predicate.holds(subject.properties.get(key).map(ComparableValue::from), now, slow)
            }),
            Self::Group { index, key, predicate } => {
                let group = subject.groups.get(index);
                predicate.holds(
                    group.and_then(|group| group.properties.get(key)).map(ComparableValue::from),
                    now,
                    slow,
                )
            }
            Self::GroupKey { index, predicate } => predicate.holds(
                subject.groups.get(index).map(|group| ComparableValue::Text(group.key)),
                now,
                slow,
            ),
            Self::Member { cohort, negated } => {
                let is_member = match cohort {
                    CohortTest::Static(id) => subject.static_cohorts.contains(id),
                    CohortTest::Dynamic(index) => state.members.contains(*index),
                    CohortTest::Empty => false,
                };
                Some(is_member != *negated)
            }
            Self::Flag { flag, expected } => {
                let value = state.value(*flag);
                Some(match expected {
                    ExpectedFlagValue::On(on) => value.is_on() == *on,
                    ExpectedFlagValue::Variant(variant) => {
                        matches!(value, FlagValue::Variant(key) if **key == **variant)
                    }
                })
            }
        }
    }

    /// Adds the dynamic cohort that it refers to.
    pub fn add_cohorts(&self, dynamic: &mut BTreeSet<usize>) {
        if let Self::Member { cohort: CohortTest::Dynamic(index), .. } = self {
            dynamic.insert(*index);
        }
    }
}

fn predicate(property: &Value, compiler: &FlagCompiler) -> Option<PropertyPredicate> {
    PropertyPredicate::new(view::operator(property)?, property.get("value"), compiler)
}
