//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use pennon_filters::body::json::Object;
use serde_json::{Value, json};

use crate::conditions::pattern;
use crate::definitions::{CohortForm, FlagDefinitions};
use crate::evaluate::{Evaluator, FlagCohort, GroupSubject, Subject};
use crate::flag::{
    Flag, FlagInput, FlagRow, FlagViewer, UserAccessLevel, UserRef, ValidationContext, WriteKind,
    body_references, changes, conflict,
};
use crate::relations::{FlagReference, References};
use crate::{CallTimes, blast_radius};

/// Longest text that is searched with a pattern: the cost of a search is bounded by pattern and text, to half a second.
const SEARCHED_BYTES_MAX: usize = 256;
/// Most bytes of the document of flag definitions.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_767_608_400, 123_456_000).unwrap_or_default()
}

/// Bodies of writes: an accepted body is stored, read back, rendered, sent again without a change, and evaluated.
pub fn flag_writes(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Object>(bytes) else { return };
    body_references::collect(&body, None);
    let dependency = FlagReference { key: "other".to_owned(), active: true, depends_on: vec![8] };
    let references = References { flags: [(7, Some(dependency))].into(), ..References::default() };
    let Some(flag) = created(&body, &references) else { return };
    let viewer = FlagViewer { can_edit: true, level: UserAccessLevel::Manager };
    let shown = flag.response(viewer, &BTreeMap::new(), now());
    assert!(shown.is_object() && flag.status_response(now())["status"].is_string());
    let text = serde_json::to_string(&flag).unwrap_or_default();
    assert_eq!(serde_json::from_str::<Flag>(&text).ok().as_ref(), Some(&flag), "a stored flag is read back");
    assert_eq!(FlagRow::from(&flag).id, 1);

    let sent_back = if flag.filters.is_empty() { json!({"key": shown["key"]}) } else { shown };
    let Value::Object(sent_back) = sent_back else { return };
    let again = FlagInput::parse(&sent_back, WriteKind::Update, &context(&references, Some(&flag)));
    assert!(again.is_ok(), "a rendered flag is rejected: {:?}", again.err());
    let Ok(again) = again else { return };
    let updated = flag.apply(&again, now(), &user());
    for change in changes::between(&flag, &updated) {
        let field = &change["field"];
        assert!(field == "version" || field == "performed_rollback", "sending it back changes {field}");
    }
    conflict::detect(&body, &again, &updated);
    evaluate(std::slice::from_ref(&flag), &[], &Object::new());
}

fn user() -> UserRef {
    UserRef { id: 1, uuid: "0190".to_owned(), distinct_id: "u1".to_owned(), ..UserRef::default() }
}

/// The dashboards that exist.
static DASHBOARDS: BTreeSet<i64> = BTreeSet::new();

fn context<'a>(references: &'a References, stored: Option<&'a Flag>) -> ValidationContext<'a> {
    ValidationContext {
        stored,
        key_holder: None,
        references,
        dashboards: &DASHBOARDS,
        linked_to_early_access: false,
    }
}

/// The flag that a body creates, if it is valid.
fn created(body: &Object, references: &References) -> Option<Flag> {
    let input = FlagInput::parse(body, WriteKind::Create, &context(references, None)).ok()?;
    Flag::create(1, &input, now(), &user()).ok()
}

/// Stored flags: JSON with `flags`, a list of filters; `cohorts`, a list of criteria; `person`, properties; and `body`, a
/// request for the blast radius. All of it may have any form.
pub fn flag_evaluation(bytes: &[u8]) {
    let Ok(input) = serde_json::from_slice::<Object>(bytes) else { return };
    let list = |name: &str| input.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let object = |name: &str| input.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(flag) = created(&object_of(&json!({"key": "k"})), &References::default()) else { return };
    let stored = |(id, filters): (i64, &Value)| Flag {
        id,
        key: format!("flag-{id}"),
        filters: object_of(filters),
        ..flag.clone()
    };
    let flags: Vec<Flag> = (1..).zip(list("flags").iter().take(8)).map(stored).collect();
    let cohort = |(id, criteria): (i64, &Value)| {
        let stored =
            json!({"id": id, "name": "c", "is_static": id == 4, "filters": {"properties": criteria}});
        FlagCohort::read(&stored)
    };
    let cohorts: Vec<FlagCohort> = (1..).zip(list("cohorts").iter().take(8)).filter_map(cohort).collect();
    let person = object("person");
    evaluate(&flags, &cohorts, &person);
    documents(&flags, &cohorts);
    for flag in &flags {
        let viewer = FlagViewer { can_edit: false, level: UserAccessLevel::Viewer };
        assert!(flag.response(viewer, &BTreeMap::new(), now()).is_object());
        FlagRow::from(flag).is_listed_as_stale(now(), &CallTimes::none());
    }
    if let Ok(conditions) = blast_radius::Conditions::parse(&object("body")) {
        let radius = conditions.compile(cohorts, Tz::UTC, now());
        radius.matches_person("p", &person, &BTreeSet::new());
        radius.matches_group("org:1", &person);
    }
}

fn object_of(value: &Value) -> Object {
    value.as_object().cloned().unwrap_or_default()
}

/// Every flag has the same value alone and among all.
fn evaluate(flags: &[Flag], cohorts: &[FlagCohort], person: &Object) {
    let evaluator = Evaluator::new(flags, cohorts.to_vec(), Tz::America__Sao_Paulo);
    let static_cohorts = BTreeSet::from([4]);
    for distinct_id in ["person", "\u{e4}"] {
        let groups = BTreeMap::from([(0, GroupSubject { key: "org:1", properties: person })]);
        let subject = Subject::person(distinct_id, person, &static_cohorts, now()).with_groups(groups);
        let all = evaluator.evaluate_all(&subject);
        assert_eq!(all.len(), flags.len());
        for flag in flags {
            assert_eq!(evaluator.evaluate(flag.id, &subject).as_ref(), all.get(&flag.id));
        }
    }
}

/// The documents for local evaluation are JSON with every flag.
fn documents(flags: &[Flag], cohorts: &[FlagCohort]) {
    let cohorts: BTreeMap<i64, FlagCohort> = cohorts.iter().map(|one| (one.id, one.clone())).collect();
    let definitions = FlagDefinitions::new(1, flags);
    for form in [CohortForm::Sent, CohortForm::Flattened] {
        let Ok(text) = definitions.document(&cohorts, &[], form, DOCUMENT_BYTES_MAX) else { continue };
        let document: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_eq!(document["flags"].as_array().map(Vec::len), Some(flags.len()), "{text}");
    }
}

/// Regular expressions of conditions: the first line is the pattern, the rest the text.
pub fn patterns(bytes: &[u8]) {
    let Ok(input) = std::str::from_utf8(bytes) else { return };
    let (text, searched) = input.split_once('\n').unwrap_or((input, "Ab1 \u{e4}_\u{2028}x"));
    let Some(regex) = pattern::compile(text) else { return };
    if searched.len() <= SEARCHED_BYTES_MAX && regex.can_search(searched.len()) {
        assert_eq!(regex.is_match(searched), regex.regex().find(searched).is_some());
    }
}
