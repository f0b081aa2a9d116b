//! The operators of property filters: their names, and whether flags and calculations may use them.
//!
//! Must stay true: this table is the only list of operators. The validators, the compilers of both sides and the API document
//! take theirs from it, and both compilers match on [`Operator`] without a default arm.

mod value_test;

pub use value_test::{Bound, RegexPattern, ValueTest};

/// What a filter is for. The two sides have different operators, and some operators differ between them (README).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterSide {
    /// Conditions of feature flags.
    Flags,
    /// Queries, cohorts and actions.
    Calculations,
}

/// Declares [`Operator`]: its variants, their names in requests, and the position of each in the lists of the two sides.
macro_rules! operators {
    ($($variant:ident, $name:literal, $flags:expr, $calculations:expr;)+) => {
        /// The comparison of a property filter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operator {
            $(#[doc = concat!("`", $name, "`")] $variant,)+
        }

        impl Operator {
            /// All operators, of either side.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in requests and responses.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }

            const fn position(self, side: FilterSide) -> Option<usize> {
                let (flags, calculations): (Option<usize>, Option<usize>) = match self {
                    $(Self::$variant => ($flags, $calculations),)+
                };
                match side {
                    FilterSide::Flags => flags,
                    FilterSide::Calculations => calculations,
                }
            }
        }
    };
}

// A number is the position in the lists of error texts and the API document, from 1; `None`: the side does not have the operator.
operators! {
    //                   name                    flags     calculations
    Exact,               "exact",                Some(1),  Some(1);
    IsNot,               "is_not",               Some(2),  Some(2);
    In,                  "in",                   Some(16), Some(3);
    NotIn,               "not_in",               Some(17), Some(4);
    Icontains,           "icontains",            Some(3),  Some(5);
    NotIcontains,        "not_icontains",        Some(4),  Some(6);
    IcontainsMulti,      "icontains_multi",      Some(25), Some(7);
    NotIcontainsMulti,   "not_icontains_multi",  Some(26), Some(8);
    StartsWith,          "starts_with",          Some(21), None;
    NotStartsWith,       "not_starts_with",      Some(22), None;
    EndsWith,            "ends_with",            Some(23), None;
    NotEndsWith,         "not_ends_with",        Some(24), None;
    Regex,               "regex",                Some(5),  Some(9);
    NotRegex,            "not_regex",            Some(6),  Some(10);
    Gt,                  "gt",                   Some(7),  Some(11);
    Gte,                 "gte",                  Some(8),  Some(12);
    Lt,                  "lt",                   Some(9),  Some(13);
    Lte,                 "lte",                  Some(10), Some(14);
    Min,                 "min",                  None,     Some(15);
    Max,                 "max",                  None,     Some(16);
    Between,             "between",              Some(19), Some(17);
    NotBetween,          "not_between",          Some(20), Some(18);
    IsSet,               "is_set",               Some(11), Some(19);
    IsNotSet,            "is_not_set",           Some(12), Some(20);
    IsDateExact,         "is_date_exact",        Some(13), Some(21);
    IsDateBefore,        "is_date_before",       Some(14), Some(22);
    IsDateAfter,         "is_date_after",        Some(15), Some(23);
    IsCleanedPathExact,  "is_cleaned_path_exact", None,    Some(24);
    SemverEq,            "semver_eq",            Some(27), Some(25);
    SemverNeq,           "semver_neq",           Some(28), Some(26);
    SemverGt,            "semver_gt",            Some(29), Some(27);
    SemverGte,           "semver_gte",           Some(30), Some(28);
    SemverLt,            "semver_lt",            Some(31), Some(29);
    SemverLte,           "semver_lte",           Some(32), Some(30);
    SemverTilde,         "semver_tilde",         Some(33), Some(31);
    SemverCaret,         "semver_caret",         Some(34), Some(32);
    SemverWildcard,      "semver_wildcard",      Some(35), Some(33);
    FlagEvaluatesTo,     "flag_evaluates_to",    Some(18), None;
}

const FLAGS: [Operator; count(FilterSide::Flags)] = in_order(FilterSide::Flags);
const CALCULATIONS: [Operator; count(FilterSide::Calculations)] = in_order(FilterSide::Calculations);

const fn count(side: FilterSide) -> usize {
    let (mut index, mut count) = (0, 0);
    while index < Operator::ALL.len() {
        if Operator::ALL[index].position(side).is_some() {
            count += 1;
        }
        index += 1;
    }
    count
}

/// The operators of a side by position. A position that is missing or occurs twice does not compile.
const fn in_order<const COUNT: usize>(side: FilterSide) -> [Operator; COUNT] {
    let mut operators = [Operator::Exact; COUNT];
    let mut is_filled = [false; COUNT];
    let mut index = 0;
    while index < Operator::ALL.len() {
        let operator = Operator::ALL[index];
        if let Some(position) = operator.position(side) {
            assert!(!is_filled[position - 1], "two operators have the same position");
            is_filled[position - 1] = true;
            operators[position - 1] = operator;
        }
        index += 1;
    }
    operators
}

impl Operator {
    /// The operator of a name. None if there is no such operator on this side.
    pub fn parse(name: &str, side: FilterSide) -> Option<Self> {
        Self::from_name(name).filter(|operator| operator.is_available_to(side))
    }

    /// Whether a side has the operator.
    pub fn is_available_to(self, side: FilterSide) -> bool {
        self.position(side).is_some()
    }

    /// The operators of a side, in the order of error texts and the API document.
    pub fn available_to(side: FilterSide) -> &'static [Self] {
        match side {
            FilterSide::Flags => &FLAGS,
            FilterSide::Calculations => &CALCULATIONS,
        }
    }

    /// The names of the operators of a side, in the same order.
    pub fn names(side: FilterSide) -> Vec<&'static str> {
        Self::available_to(side).iter().map(|operator| operator.name()).collect()
    }

    /// Whether the operator is a negation, which in calculations also passes missing values.
    pub fn is_negative(self) -> bool {
        matches!(
            self,
            Self::IsNot
                | Self::NotIn
                | Self::NotIcontains
                | Self::NotIcontainsMulti
                | Self::NotRegex
                | Self::SemverNeq
                | Self::IsNotSet
        )
    }

    /// False for the two operators that only test presence.
    pub fn needs_value(self) -> bool {
        !matches!(self, Self::IsSet | Self::IsNotSet)
    }
}

/// A comparison of a value with a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum ComparisonOperator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
}

impl ComparisonOperator {
    /// Whether the comparison is true of two values.
    #[inline]
    pub fn holds<T: PartialOrd + ?Sized>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            Self::Equal => left == right,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chrono::DateTime;
    use chrono_tz::Tz;
    use serde_json::json;

    use super::*;
    use crate::compile_budget::CompileBudget;

    #[test]
    fn lists_have_the_order_of_the_contract() {
        let flags = "exact, is_not, icontains, not_icontains, regex, not_regex, gt, gte, lt, lte, is_set, is_not_set, \
            is_date_exact, is_date_before, is_date_after, in, not_in, flag_evaluates_to, between, not_between, starts_with, \
            not_starts_with, ends_with, not_ends_with, icontains_multi, not_icontains_multi, semver_eq, semver_neq, semver_gt, \
            semver_gte, semver_lt, semver_lte, semver_tilde, semver_caret, semver_wildcard";
        assert_eq!(Operator::names(FilterSide::Flags).join(", "), flags);
        let calculations = "exact, is_not, in, not_in, icontains, not_icontains, icontains_multi, not_icontains_multi, regex, \
            not_regex, gt, gte, lt, lte, min, max, between, not_between, is_set, is_not_set, is_date_exact, is_date_before, \
            is_date_after, is_cleaned_path_exact, semver_eq, semver_neq, semver_gt, semver_gte, semver_lt, semver_lte, \
            semver_tilde, semver_caret, semver_wildcard";
        assert_eq!(Operator::names(FilterSide::Calculations).join(", "), calculations);
    }

    #[test]
    fn each_operator_is_parsed_from_its_name_by_the_sides_that_have_it() {
        let names: BTreeSet<&str> = Operator::ALL.iter().map(|operator| operator.name()).collect();
        assert_eq!(names.len(), Operator::ALL.len());
        for operator in Operator::ALL {
            let sides = [FilterSide::Flags, FilterSide::Calculations];
            assert!(sides.iter().any(|side| operator.is_available_to(*side)), "{operator:?}");
            for side in sides {
                let expected = operator.is_available_to(side).then_some(*operator);
                assert_eq!(Operator::parse(operator.name(), side), expected, "{operator:?}");
            }
        }
        assert_eq!(Operator::parse("Exact", FilterSide::Flags), None);
    }

    #[test]
    fn operators_of_calculations_and_no_others_compile() {
        let now = DateTime::UNIX_EPOCH.with_timezone(&Tz::UTC);
        for operator in Operator::ALL {
            let compiles = [json!([1, 2]), json!("1.2.3")].iter().any(|value| {
                ValueTest::new(*operator, value, now, &mut CompileBudget::default(), "properties").is_ok()
            });
            assert_eq!(compiles, operator.is_available_to(FilterSide::Calculations), "{operator:?}");
        }
    }
}
