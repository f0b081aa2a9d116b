//! Evaluates filters on columns: each distinct value is tested once, rows look up the result by code.

use chrono::DateTime;
use chrono_tz::Tz;
use pennon_filters::CompileBudget;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::operator::{Operator, ValueTest};
use pennon_filters::text::text_of;
use pennon_filters::work_budget::WorkBudget;
use serde_json::Value;

use super::parse::group_column_index;
use super::{Filter, PropertyFilter, Target};
use crate::element::{self, ElementTest};
use crate::mask::Mask;
use crate::scan::{Column, ColumnKey, ColumnRef, EventRun, JoinedColumnKey, group_column};
use crate::sessions;
use crate::sql::CompiledExpression;

/// A compiled filter.
#[derive(Debug, Clone)]
pub(crate) enum Predicate {
    /// AND of all members.
    All(Vec<Predicate>),
    /// OR of all members.
    Any(Vec<Predicate>),
    /// A test of the values of a column.
    Column(ColumnRef, ValueTest),
    /// A test of the event's name.
    EventName(ValueTest),
    /// An SQL expression is true.
    Expression(Box<CompiledExpression>),
    /// A test of the event's time.
    Time(ValueTest),
    /// A test of the event's elements.
    Elements(ElementTest),
}

impl Predicate {
    /// Compiles a filter. Relative dates are relative to `now`, in its time zone; errors name the field `attr`.
    pub(crate) fn new(
        filter: &Filter,
        now: DateTime<Tz>,
        budget: &mut CompileBudget,
        attr: &str,
    ) -> CalcResult<Self> {
        let mut each = |members: &[Filter]| {
            members.iter().map(|member| Self::new(member, now, budget, attr)).collect::<CalcResult<Vec<_>>>()
        };
        match filter {
            Filter::All(members) => each(members).map(Self::All),
            Filter::Any(members) => each(members).map(Self::Any),
            Filter::Property(leaf) => Self::from_property(leaf, now, budget, attr),
            Filter::Cohort { id, negated } => {
                let member = ValueTest::OneOf {
                    texts: std::iter::once("true".to_owned()).collect(),
                    negated: *negated,
                };
                Ok(Self::Column(ColumnRef::Joined(JoinedColumnKey::InCohort(*id)), member))
            }
            Filter::Expression(expression) => {
                expression.compile(now.timezone(), budget, attr).map(Box::new).map(Self::Expression)
            }
        }
    }

    fn from_property(
        leaf: &PropertyFilter,
        now: DateTime<Tz>,
        budget: &mut CompileBudget,
        attr: &str,
    ) -> CalcResult<Self> {
        let event = ColumnRef::Event;
        let key = match leaf.target {
            Target::Element => return element_condition(leaf, now, budget, attr).map(Self::Elements),
            Target::Metadata if leaf.key == "event" => {
                return ValueTest::new(leaf.operator, &leaf.value, now, budget, attr).map(Self::EventName);
            }
            Target::Metadata if leaf.key == "timestamp" => {
                return ValueTest::of_instants(leaf.operator, &leaf.value, now, budget, attr).map(Self::Time);
            }
            Target::Metadata if leaf.key == "person_id" => ColumnRef::Joined(JoinedColumnKey::PersonId),
            Target::Metadata => match group_column_index(&leaf.key) {
                Some(index) => event(group_column(index)),
                None => event(ColumnKey::DistinctId),
            },
            Target::Person if leaf.key == "distinct_id" => return distinct_id_predicate(leaf, attr),
            Target::Event => event(ColumnKey::Property(leaf.key.clone())),
            Target::Feature => event(ColumnKey::Property(format!("$feature/{}", leaf.key))),
            Target::Person => ColumnRef::Joined(JoinedColumnKey::Person(leaf.key.clone())),
            Target::Group(index) => ColumnRef::Joined(JoinedColumnKey::Group(index, leaf.key.clone())),
            Target::Session => {
                let key = ColumnRef::Joined(JoinedColumnKey::Session(leaf.key.clone()));
                let test =
                    if sessions::is_instant(&leaf.key) { ValueTest::of_instants } else { ValueTest::new };
                return Ok(Self::Column(key, test(leaf.operator, &leaf.value, now, budget, attr)?));
            }
        };
        Ok(Self::Column(key, ValueTest::new(leaf.operator, &leaf.value, now, budget, attr)?))
    }

    /// Calls `back` with every column that the predicate reads.
    pub(crate) fn for_each_column(&self, back: &mut dyn FnMut(&ColumnRef)) {
        match self {
            Self::All(members) | Self::Any(members) => {
                members.iter().for_each(|member| member.for_each_column(back))
            }
            Self::Column(key, _) => back(key),
            Self::EventName(_) | Self::Time(_) => {}
            Self::Expression(program) => program.for_each_column(back),
            Self::Elements(_) => {
                back(&ColumnRef::Event(element::chain_column()));
                back(&ColumnRef::Event(element::list_column()));
            }
        }
    }

    /// The rows of a run that pass.
    pub(crate) fn mask(&self, run: &EventRun, work: &WorkBudget<'_>) -> CalcResult<Mask> {
        Ok(match self {
            Self::All(members) => members.iter().try_fold(Mask::Every, |mask, member| match mask {
                Mask::Nothing => Ok(Mask::Nothing),
                mask => Ok(mask.and(member.mask(run, work)?)),
            })?,
            Self::Any(members) => members.iter().try_fold(Mask::Nothing, |mask, member| match mask {
                Mask::Every => Ok(Mask::Every),
                mask => Ok(mask.or(member.mask(run, work)?)),
            })?,
            Self::Expression(program) => program.mask(run, work)?,
            Self::EventName(test) => {
                Mask::constant(test.matches_within_budget(Some(&Value::String(run.event.clone())), work)?)
            }
            Self::Time(test) => {
                let passes = run.times.iter().map(|time| {
                    work.consume_comparisons(test.comparisons(), 0)?;
                    Ok(test.matches_time(*time))
                });
                Mask::of(passes.collect::<CalcResult<_>>()?)
            }
            Self::Elements(test) => Mask::of(test.rows(run, work)?),
            Self::Column(key, test) => match run.column(key) {
                Some(column) => column_mask(column, test, work)?,
                None => Mask::constant(test.holds(None)),
            },
        })
    }
}

/// A filter on the distinct ids of a person. Any of the person's ids can match, not only the one of the event. Every
/// person has one.
fn distinct_id_predicate(leaf: &PropertyFilter, attr: &str) -> CalcResult<Predicate> {
    let values = match &leaf.value {
        Value::Array(list) => list.as_slice(),
        other => std::slice::from_ref(other),
    };
    let scan_all_persons = Predicate::All(Vec::new());
    match leaf.operator {
        Operator::IsSet => Ok(scan_all_persons),
        Operator::IsNotSet => Ok(Predicate::Any(Vec::new())),
        Operator::Exact | Operator::In | Operator::IsNot | Operator::NotIn if values.is_empty() => {
            Ok(scan_all_persons)
        }
        Operator::Exact | Operator::In | Operator::IsNot | Operator::NotIn => {
            let ids = values.iter().filter_map(text_of).map(Into::into).collect();
            let test =
                ValueTest::OneOf { texts: ["true".to_owned()].into(), negated: leaf.operator.is_negative() };
            Ok(Predicate::Column(ColumnRef::Joined(JoinedColumnKey::HasDistinctId(ids)), test))
        }
        other => {
            let what = format!("the distinct ids of a person compared by {}", other.name());
            Err(CalcError::unsupported(attr, what))
        }
    }
}

/// A filter on elements. Any tag or selector of a list can match; with an empty list all events pass.
fn element_condition(
    leaf: &PropertyFilter,
    now: DateTime<Tz>,
    budget: &mut CompileBudget,
    attr: &str,
) -> CalcResult<ElementTest> {
    let negated = leaf.operator.is_negative();
    let values = match &leaf.value {
        Value::Array(list) => list.as_slice(),
        other => std::slice::from_ref(other),
    };
    let texts: Vec<String> = values.iter().filter_map(text_of).map(Into::into).collect();
    match leaf.key.as_str() {
        "tag_name" | "selector" if texts.is_empty() => {
            Ok(ElementTest::Text { test: ValueTest::Always(true), all: true })
        }
        "tag_name" => Ok(ElementTest::Tag { names: texts.into_iter().collect(), negated }),
        "selector" => ElementTest::selectors(texts.iter().map(String::as_str), negated, attr),
        key => {
            let test = ValueTest::new(leaf.operator, &leaf.value, now, budget, attr)?;
            Ok(if key == "href" { ElementTest::Href(test) } else { ElementTest::Text { test, all: negated } })
        }
    }
}

fn column_mask(column: &Column, test: &ValueTest, work: &WorkBudget<'_>) -> CalcResult<Mask> {
    work.consume(column.codes.len())?;
    let missing = test.holds(None);
    // For few rows of a long dictionary, test the values of the rows only.
    if column.codes.len() < column.values.len() {
        let value = |code: &u32| usize::try_from(*code).ok().and_then(|code| column.values.get(code));
        let test_code = |code: &u32| {
            value(code).map_or(Ok(missing), |value| test.matches_within_budget(Some(value), work))
        };
        return Ok(Mask::of(column.codes.iter().map(test_code).collect::<CalcResult<_>>()?));
    }
    let passes = column.values.iter().map(|value| test.matches_within_budget(Some(value), work));
    let passes: Vec<bool> = passes.collect::<CalcResult<_>>()?;
    if passes.iter().all(|passes| *passes == missing) {
        return Ok(Mask::constant(missing));
    }
    // A row with a code outside of the dictionary has no value.
    let of_code = |code: &u32| usize::try_from(*code).ok().and_then(|code| passes.get(code)).copied();
    Ok(Mask::Rows(column.codes.iter().map(|code| of_code(code).unwrap_or(missing)).collect()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::limits;
    use crate::scan::Column;
    use pennon_filters::ComparisonBudget;
    use serde_json::json;

    #[test]
    fn a_list_of_slow_patterns_is_cancelled_between_two_of_them() {
        let now = "2024-05-15T12:00:00Z".parse::<DateTime<chrono::Utc>>().unwrap().with_timezone(&Tz::UTC);
        let patterns: Vec<String> = (0..8).map(|more| format!("[ab]*a[ab]{{100}}c{more}")).collect();
        let budget = &mut CompileBudget::default();
        let test = ValueTest::new(Operator::Regex, &json!(patterns), now, budget, "properties").unwrap();
        // The work of all of them is consumed before the first search: a check for the values, and one for each.
        let checks = std::cell::Cell::new(0);
        let is_cancelled = || {
            checks.set(checks.get() + 1);
            checks.get() > 9
        };
        let work = WorkBudget::new(&is_cancelled);
        let stopped = test.matches_within_budget(Some(&json!("ab".repeat(30_000))), &work);
        assert_eq!((stopped, checks.get()), (Err(CalcError::timeout()), 10));
    }

    #[test]
    fn each_comparison_of_a_mask_is_counted() {
        let mut run = EventRun {
            event: "e".to_owned(),
            actors: vec![0; 2].into(),
            times: vec![1, 2].into(),
            ..EventRun::default()
        };
        run.columns.insert(
            ColumnKey::Property("p".to_owned()),
            Column::new(vec![0, 1], vec![json!("x"), json!("y")]),
        );
        let now = "2024-05-15T12:00:00Z".parse::<DateTime<chrono::Utc>>().unwrap().with_timezone(&Tz::UTC);
        let names = json!(["a", "b", "c"]);
        let times = json!(["2024-01-01", "2024-01-02", "2024-01-03"]);
        // Of two values with each of three, and of one name.
        for (kind, key, value, comparisons) in [
            ("event", "p", &names, 6),
            ("event_metadata", "event", &names, 3),
            ("event_metadata", "timestamp", &times, 6),
        ] {
            let operator = if key == "timestamp" { "in" } else { "icontains" };
            let filter = json!([{"type": kind, "key": key, "operator": operator, "value": value}]);
            let filter = crate::filter::Parser::default().parse(Some(&filter), "properties").unwrap();
            let predicate =
                Predicate::new(&filter, now, &mut CompileBudget::default(), "properties").unwrap();
            let mask = |most: u64| {
                ComparisonBudget::of(most).pass(&|| false, |work| predicate.mask(&run, work).map(drop))
            };
            assert_eq!(mask(comparisons), Ok(()), "{key}");
            assert_eq!(mask(comparisons - 1), Err(limits::too_many_evaluations()), "{key}");
        }
    }
}
