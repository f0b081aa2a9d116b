//! Actions: an event matches an action if it matches one of its steps.
//!
//! Must stay true: a step is the AND of its conditions; text, link target, selector and tag are only tested on autocapture
//! events; an action without steps matches every event. An invalid definition is an error that names the action, never a
//! wider or narrower set of events.

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::operator::{Operator, ValueTest};
use serde_json::{Map, Value};

use crate::compiler::Compiler;
use crate::definitions::Action;
use crate::element::ElementTest;
use crate::filter::Predicate;
use crate::limits;
use crate::scan::{ColumnKey, ColumnRef};

/// The event whose elements steps can test.
const AUTOCAPTURE: &str = "$autocapture";

/// A compiled step.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The event's name; none for any.
    pub(crate) event: Option<String>,
    /// All other conditions.
    pub(crate) predicate: Predicate,
}

/// Compiles the steps of an action, at least one, and registers the values that they read.
pub(crate) fn compile_steps(
    id: u64,
    action: &Action,
    compiler: &mut Compiler<'_>,
    attr: &str,
) -> CalcResult<Vec<Step>> {
    if action.steps.len() > limits::ACTION_STEPS {
        return Err(limits::too_many(attr, "steps in one action", limits::ACTION_STEPS));
    }
    if action.steps.is_empty() {
        return Ok(vec![Step { event: None, predicate: Predicate::All(Vec::new()) }]);
    }
    let mut step = |step: &Value| match step {
        Value::Object(fields) => compile_step(fields, compiler, attr),
        _ => Err(CalcError::invalid(attr, "A step is not an object.")),
    };
    let steps: CalcResult<Vec<Step>> = action.steps.iter().map(&mut step).collect();
    steps.map_err(|error| error.inside(format_args!("action {id}")))
}

/// Validates the steps of an action. An error names the step as its field: `steps__0`.
pub(crate) fn validate(action: &Action, compiler: &mut Compiler<'_>) -> CalcResult<()> {
    if action.steps.len() > limits::ACTION_STEPS {
        return Err(limits::too_many("steps", "steps in one action", limits::ACTION_STEPS));
    }
    for (at, step) in action.steps.iter().enumerate() {
        let attr = format!("steps__{at}");
        match step {
            Value::Object(fields) => compile_step(fields, compiler, &attr)?,
            _ => return Err(CalcError::invalid(&attr, "A step is not an object.")),
        };
    }
    Ok(())
}

fn compile_step(fields: &Map<String, Value>, compiler: &mut Compiler<'_>, attr: &str) -> CalcResult<Step> {
    let event = text(fields, "event", attr)?.map(str::to_owned);
    let mut members = Vec::new();
    if let Some(url) = text(fields, "url", attr)? {
        let test = match MatchMode::of(fields, "url_matching", MatchMode::Contains, attr)? {
            MatchMode::Contains => ValueTest::ContainsCaseSensitive(url.to_owned()),
            MatchMode::Exact => compiler.compile_test(Operator::Exact, &url.into(), attr)?,
            MatchMode::Regex => compiler.compile_test(Operator::Regex, &url.into(), attr)?,
        };
        let url = ColumnRef::Event(ColumnKey::Property("$current_url".to_owned()));
        members.push(Predicate::Column(url, test));
    }
    if event.as_deref() == Some(AUTOCAPTURE) {
        members.extend(element_conditions(fields, compiler, attr)?.into_iter().map(Predicate::Elements));
    }
    let filter = compiler.parse_filter(fields.get("properties"), attr)?;
    for member in &members {
        compiler.require_values_of(member, attr)?;
    }
    members.push(compiler.compile_filter(&filter, attr)?);
    Ok(Step { event, predicate: Predicate::All(members) })
}

/// The conditions of a step on the elements of an event.
fn element_conditions(
    fields: &Map<String, Value>,
    compiler: &mut Compiler<'_>,
    attr: &str,
) -> CalcResult<Vec<ElementTest>> {
    let mut tests = Vec::new();
    let test = |key: &str, matching: &str, compiler: &mut Compiler<'_>| {
        let Some(value) = text(fields, key, attr)? else { return Ok(None) };
        let operator = match MatchMode::of(fields, matching, MatchMode::Exact, attr)? {
            MatchMode::Exact => Operator::Exact,
            MatchMode::Contains => Operator::Icontains,
            MatchMode::Regex => Operator::Regex,
        };
        compiler.compile_test(operator, &value.into(), attr).map(Some)
    };
    tests.extend(test("text", "text_matching", compiler)?.map(|test| ElementTest::Text { test, all: false }));
    tests.extend(test("href", "href_matching", compiler)?.map(ElementTest::Href));
    if let Some(selector) = text(fields, "selector", attr)? {
        tests.push(ElementTest::selectors(std::iter::once(selector), false, attr)?);
    }
    if let Some(tag) = text(fields, "tag_name", attr)? {
        tests.push(ElementTest::Tag { names: std::iter::once(tag.to_owned()).collect(), negated: false });
    }
    Ok(tests)
}

/// The ways in which a text of a step is compared, as steps name them.
pub const MATCH_MODES: [&str; 3] = ["contains", "regex", "exact"];

/// How a text of a step is compared.
#[derive(Clone, Copy)]
enum MatchMode {
    Contains,
    Exact,
    Regex,
}

impl MatchMode {
    fn of(fields: &Map<String, Value>, key: &str, default: Self, attr: &str) -> CalcResult<Self> {
        let Some(name) = text(fields, key, attr)? else { return Ok(default) };
        let modes = MATCH_MODES.into_iter().zip([Self::Contains, Self::Regex, Self::Exact]);
        let mode = modes.into_iter().find(|(known, _)| *known == name).map(|(_, mode)| mode);
        mode.ok_or_else(|| CalcError::invalid(attr, format!("There is no {key} \"{name}\".")))
    }
}

/// A string field of a step; none if missing or empty.
fn text<'a>(fields: &'a Map<String, Value>, key: &str, attr: &str) -> CalcResult<Option<&'a str>> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text.len() > limits::NAME_BYTES => {
            Err(limits::too_long(attr, key, limits::NAME_BYTES))
        }
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(CalcError::invalid(attr, format!("{key} is not a text."))),
    }
}
