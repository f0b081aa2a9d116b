//! Compiles the stored rules of a cohort.
//!
//! Must stay true: both formats are supported, `filters.properties` and the legacy `groups`; an unknown criterion is an
//! error, because ignoring it would change the membership. A negated criterion only excludes persons that other criteria
//! include, so a cohort with only negated criteria is an error. A cohort without criteria has no members.

use pennon_filters::error::{CalcError, CalcResult};
use serde_json::{Map, Value, json};

use super::{Rule, behaviour};
use crate::compiler::Compiler;
use crate::definitions::Cohort;
use crate::filter::{Filter, Target};
use crate::limits;

/// A compiled criterion or group.
struct CriterionRule {
    rule: Rule,
    /// It only excludes persons.
    negative: bool,
}

/// Compiles the rules of a dynamic cohort.
pub(super) fn rule(cohort: &Cohort, compiler: &mut Compiler<'_>, attr: &str) -> CalcResult<Rule> {
    let part = match cohort.filters.get("properties") {
        Some(properties) if is_not_empty(properties) => member(properties, compiler, attr, 1)?,
        _ => legacy_groups(&cohort.groups, compiler, attr)?,
    };
    match part {
        None => Ok(Rule::Any(Vec::new())),
        Some(CriterionRule { negative: true, .. }) => Err(CalcError::invalid(
            attr,
            "A criterion that is negated needs one beside it that is not: all of both have to hold.",
        )),
        Some(part) => Ok(part.rule),
    }
}

/// Whether the cohort has rules in `filters`, and not in the legacy `groups`.
pub(super) fn has_filters(cohort: &Cohort) -> bool {
    cohort.filters.get("properties").is_some_and(is_not_empty)
}

fn is_not_empty(properties: &Value) -> bool {
    match properties {
        Value::Object(object) => !object.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

/// Compiles a group or a criterion; none for a group without members.
fn member(
    value: &Value,
    compiler: &mut Compiler<'_>,
    attr: &str,
    depth: usize,
) -> CalcResult<Option<CriterionRule>> {
    if depth > limits::FILTER_DEPTH {
        return Err(limits::too_many(attr, "groups of criteria inside each other", limits::FILTER_DEPTH));
    }
    match value {
        Value::Array(list) => group(list, false, compiler, attr, depth),
        Value::Object(object) if !object.contains_key("key") && object.contains_key("values") => {
            let any = match object.get("type").and_then(Value::as_str) {
                Some(kind) if kind.eq_ignore_ascii_case("or") => true,
                Some(kind) if kind.eq_ignore_ascii_case("and") => false,
                _ => return Err(CalcError::invalid(attr, "A group of criteria is of type AND or OR.")),
            };
            let Some(Value::Array(list)) = object.get("values") else {
                return Err(CalcError::invalid(attr, "A group of criteria has a list of values."));
            };
            group(list, any, compiler, attr, depth)
        }
        Value::Object(object) => criterion(object, compiler, attr).map(Some),
        _ => Err(CalcError::invalid(attr, "A criterion is not an object.")),
    }
}

/// Compiles a group. In an AND group, negated members are subtracted from the others. In an OR group, a negated member
/// includes everyone outside of it, so the whole group counts as negative.
fn group(
    list: &[Value],
    any: bool,
    compiler: &mut Compiler<'_>,
    attr: &str,
    depth: usize,
) -> CalcResult<Option<CriterionRule>> {
    let mut parts = Vec::new();
    for value in list {
        parts.extend(member(value, compiler, attr, depth + 1)?);
    }
    if parts.is_empty() {
        return Ok(None);
    }
    let mut negatives = parts.iter().map(|part| part.negative);
    let negative = if any { negatives.any(|negative| negative) } else { negatives.all(|negative| negative) };
    let rules = parts.into_iter().map(|part| part.rule).collect();
    Ok(Some(CriterionRule { rule: if any { Rule::Any(rules) } else { Rule::All(rules) }, negative }))
}

fn criterion(
    object: &Map<String, Value>,
    compiler: &mut Compiler<'_>,
    attr: &str,
) -> CalcResult<CriterionRule> {
    let negated = match object.get("negation") {
        Some(Value::Bool(negated)) => *negated,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        _ => false,
    };
    let negate_if_needed = |rule: Rule| if negated { Rule::Not(Box::new(rule)) } else { rule };
    match object.get("type").and_then(Value::as_str) {
        Some("behavioral") => {
            let rule = Rule::Behaviour(behaviour::compile(object, compiler, attr)?);
            Ok(CriterionRule { rule: negate_if_needed(rule), negative: negated })
        }
        None | Some("person") => {
            let rule = filters_rule(&json!([object]), compiler, attr)?;
            Ok(CriterionRule { rule: negate_if_needed(rule), negative: negated })
        }
        Some("cohort" | "static-cohort" | "dynamic-cohort" | "precalculated-cohort") => {
            // Cohort filters contain their negation.
            let rule = filters_rule(&json!([object]), compiler, attr)?;
            let negative = matches!(&rule, Rule::All(rules) if matches!(rules.as_slice(), [Rule::Not(_)]));
            Ok(CriterionRule { rule, negative })
        }
        Some(other) => Err(unknown_criterion_type(other, attr)),
    }
}

/// The error for an unknown criterion type.
fn unknown_criterion_type(kind: &str, attr: &str) -> CalcError {
    let detail = format!(
        "A cohort has no criteria of type {kind}. The type must be one of person, cohort, behavioral; a criterion without \
         one is of type person."
    );
    CalcError::invalid(attr, detail)
}

/// Compiles property filters. An incomplete one would include all persons, so it is an error.
fn filters_rule(filters: &Value, compiler: &mut Compiler<'_>, attr: &str) -> CalcResult<Rule> {
    let filter = compiler.parse_filter(Some(filters), attr)?;
    if filter.is_none() {
        let detail = "A criterion is incomplete: it needs a \"key\", and a \"value\" unless its operator is is_set or \
                      is_not_set.";
        return Err(CalcError::invalid(attr, detail));
    }
    filter_rule(&filter, compiler, attr)
}

fn filter_rule(filter: &Filter, compiler: &mut Compiler<'_>, attr: &str) -> CalcResult<Rule> {
    let mut each = |members: &[Filter]| {
        members.iter().map(|member| filter_rule(member, compiler, attr)).collect::<CalcResult<Vec<_>>>()
    };
    match filter {
        Filter::All(members) => each(members).map(Rule::All),
        Filter::Any(members) => each(members).map(Rule::Any),
        // The older form called properties of persons those of events.
        Filter::Property(leaf) if matches!(leaf.target, Target::Person | Target::Event) => {
            if leaf.key == "distinct_id" {
                return Err(CalcError::unsupported(attr, "cohorts by distinct id"));
            }
            let test = compiler.compile_test(leaf.operator, &leaf.value, attr)?;
            compiler.needs.persons.insert(leaf.key.clone());
            Ok(Rule::Person(leaf.key.clone(), test))
        }
        Filter::Cohort { id, negated } => {
            super::compile(*id, compiler, attr)?;
            let member = Rule::Member(*id);
            Ok(if *negated { Rule::Not(Box::new(member)) } else { member })
        }
        Filter::Expression(_) => Err(unknown_criterion_type("hogql", attr)),
        Filter::Property(leaf) => Err(unknown_criterion_type(leaf.target.name(), attr)),
    }
}

/// The older form: one of the entries has to hold, each of which is a set of properties or a number of events.
fn legacy_groups(
    groups: &Value,
    compiler: &mut Compiler<'_>,
    attr: &str,
) -> CalcResult<Option<CriterionRule>> {
    let groups = match groups {
        Value::Null => return Ok(None),
        Value::Array(groups) => groups,
        _ => return Err(CalcError::invalid(attr, "The groups of a cohort are a list.")),
    };
    let mut rules = Vec::new();
    for group in groups {
        let Value::Object(group) = group else {
            return Err(CalcError::invalid(attr, "A group of a cohort is not an object."));
        };
        let given = |key: &str| group.get(key).filter(|value| !value.is_null());
        if let Some(properties) = given("properties").filter(|properties| is_not_empty(properties)) {
            rules.push(filters_rule(properties, compiler, attr)?);
        } else if let Some((key, kind)) = (given("action_id").map(|id| (id, "actions")))
            .or_else(|| given("event_id").map(|id| (id, "events")))
        {
            let count = given("count").filter(|count| **count != json!(0) && **count != json!(""));
            let criterion = json!({
                "key": key, "event_type": kind, "type": "behavioral",
                "value": if count.is_some() { "performed_event_multiple" } else { "performed_event" },
                "time_interval": "day",
                "time_value": given("days").cloned().unwrap_or_else(|| json!(365)),
                "operator": given("count_operator"), "operator_value": count,
            });
            let criterion = criterion.as_object().cloned().unwrap_or_default();
            rules.push(Rule::Behaviour(behaviour::compile(&criterion, compiler, attr)?));
        } else {
            return Err(CalcError::invalid(attr, "A group of a cohort has neither properties nor an event."));
        }
    }
    Ok((!rules.is_empty()).then_some(CriterionRule { rule: Rule::Any(rules), negative: false }))
}
