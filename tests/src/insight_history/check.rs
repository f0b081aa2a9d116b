//! Checks of a history of insights.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::{Call, Entry, Fields, History, Outcome, Request};

/// The unexplained observations, one text each; empty if the history is consistent.
pub fn check(history: &History) -> Vec<String> {
    let mut findings = Vec::new();
    let marked = marked(history, &mut findings);
    let mut lives = BTreeMap::new();
    for (insight, description) in &history.started {
        lives.insert(*insight, live(history, *insight, description, &marked, &mut findings));
    }
    if !findings.is_empty() {
        // Without consistent histories, all other checks would only repeat their problems.
        return findings;
    }
    for call in &history.calls {
        outcome(&lives, call, &mut findings);
    }
    stored(history, &lives, &mut findings);
    views(history, &mut findings);
    findings
}

/// The expected state of an insight after a call.
#[derive(Debug, Clone, PartialEq)]
struct State {
    fields: BTreeMap<&'static str, Value>,
    /// Dashboards that it was ever on in the order in which it came to them, and whether it is on them.
    tiles: Vec<(u64, bool)>,
    /// Beginning and end of the call that made this state.
    began: u64,
    ended: u64,
    /// Beginning and end of the call that replaced it.
    replaced: (u64, u64),
}

const LOGGED: [&str; 6] = ["description", "favorited", "derived_name", "tags", "filters", "deleted"];

impl State {
    fn start(description: &str) -> State {
        let values = [json!(description), json!(false), Value::Null, json!([]), json!({}), json!(false)];
        State {
            fields: LOGGED.into_iter().zip(values).collect(),
            tiles: Vec::new(),
            began: 0,
            ended: 0,
            replaced: (u64::MAX, u64::MAX),
        }
    }

    fn is_deleted(&self) -> bool {
        self.fields["deleted"] == true
    }

    fn on(&self) -> Vec<u64> {
        self.tiles.iter().filter(|(_, kept)| *kept).map(|(id, _)| *id).collect()
    }

    /// The insight after a change; `None` if the change is not possible.
    fn after(&self, sent: &Fields) -> Option<State> {
        if self.is_deleted() && sent.get("deleted") != Some(&json!(false)) {
            return None;
        }
        let mut after = self.clone();
        for name in LOGGED {
            after.fields.extend(sent.get(name).map(|value| (name, value.clone())));
        }
        if after.is_deleted() {
            after.tiles.iter_mut().for_each(|(_, kept)| *kept = false);
        } else if let Some(expected) = sent.get("dashboards") {
            let expected = numbers(expected);
            after.tiles.iter_mut().for_each(|(id, kept)| *kept = expected.contains(id));
            let new = expected.iter().filter(|id| self.tiles.iter().all(|(old, _)| old != *id));
            after.tiles.extend(new.map(|id| (*id, true)));
        }
        Some(after)
    }

    /// The logged changes from this state to `after`.
    fn changes(&self, after: &State, sent: &Fields) -> BTreeMap<String, (Value, Value)> {
        let nothing = |value: &Value| [json!(null), json!([]), json!({}), json!("")].contains(value);
        let mut changes = BTreeMap::new();
        for name in LOGGED {
            let (old, new) = (&self.fields[name], &after.fields[name]);
            let shown =
                |value: &Value| if name != "tags" && nothing(value) { Value::Null } else { value.clone() };
            if old != new {
                changes.insert(name.to_owned(), (shown(old), shown(new)));
            }
        }
        let (mut old, new) = (self.on(), after.on());
        let sent = sent.get("dashboards").map(numbers).filter(|_| !after.is_deleted());
        if let Some(sent) = sent
            && old.iter().collect::<BTreeSet<_>>() != new.iter().collect::<BTreeSet<_>>()
        {
            old.sort_unstable();
            let named =
                |ids: Vec<u64>| ids.iter().map(|id| json!({"id": id, "name": format!("D{id}")})).collect();
            changes.insert("dashboards".to_owned(), (named(old), named(sent)));
        }
        changes
    }

    /// Whether the response `outcome` shows this state; `sent` are dashboards in an order of the client's own.
    fn is(&self, outcome: &Value, sent: Option<&Value>) -> bool {
        let dashboards = sent.filter(|_| !self.is_deleted()).cloned().unwrap_or_else(|| json!(self.on()));
        let plain = |name: &&str| match *name {
            "filters" => {
                let mut filters = self.fields["filters"].clone();
                filters["insight"] = json!("TRENDS");
                outcome["filters"] == filters
            }
            name => outcome[name] == self.fields[name],
        };
        LOGGED.iter().all(plain) && outcome["dashboards"] == dashboards
    }

    /// Whether a call may have read it.
    fn may_be_met(&self, call: &Call) -> bool {
        self.began < call.ended && self.replaced.1 > call.began
    }

    /// Whether it was there from the beginning of a call to its end for certain.
    fn lasted(&self, call: &Call) -> bool {
        self.ended < call.began && self.replaced.0 > call.ended
    }
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

/// The changes by the description that each sent.
fn marked<'a>(history: &'a History, findings: &mut Vec<String>) -> HashMap<String, &'a Call> {
    let mut marked = HashMap::new();
    for call in &history.calls {
        if let Outcome::Other(status, text) = &call.outcome {
            findings.push(format!("unexpected response {status} {text}: {:?}", call.request));
        }
        if let Request::Change(_, fields) = &call.request {
            marked.insert(fields["description"].as_str().unwrap_or_default().to_owned(), call);
        }
    }
    marked
}

/// The successive states of an insight according to its log.
fn live(
    history: &History,
    insight: u64,
    description: &str,
    marked: &HashMap<String, &Call>,
    findings: &mut Vec<String>,
) -> Vec<State> {
    let mut steps: HashMap<&str, &Entry> = HashMap::new();
    let (mut created, mut count) = (0, 0);
    for entry in history.stored.entries.iter().filter(|entry| entry.insight == insight) {
        match entry.changes.get("description") {
            _ if entry.kind == "created" => created += 1,
            Some((before, _)) => {
                count += 1;
                if steps.insert(before.as_str().unwrap_or_default(), entry).is_some() {
                    findings.push(format!("two changes of insight {insight} follow {before}: one is lost"));
                }
            }
            None => findings.push(format!("an entry without a description: {entry:?}")),
        }
    }
    if created != 1 {
        findings.push(format!("insight {insight} was created {created} times"));
    }
    let mut states = vec![State::start(description)];
    let mut latest_began = 0;
    let mut at = description.to_owned();
    while let Some(entry) = steps.remove(at.as_str()) {
        at = entry.changes["description"].1.as_str().unwrap_or_default().to_owned();
        let before = states.last().cloned().unwrap_or_else(|| State::start(description));
        let Some((call, fields)) = marked.get(&at).and_then(|call| match &call.request {
            Request::Change(of, fields) if *of == insight => Some((*call, fields)),
            _ => None,
        }) else {
            findings.push(format!("no call wrote {entry:?}"));
            break;
        };
        let Some(after) = before.after(fields) else {
            findings.push(format!("a change was made that must not be: {call:?} after {before:?}"));
            break;
        };
        let changes = before.changes(&after, fields);
        let kind = match (before.is_deleted(), after.is_deleted()) {
            (false, true) => "deleted",
            (true, false) => "restored",
            _ => "updated",
        };
        if entry.kind != kind || entry.changes != changes {
            findings
                .push(format!("an entry differs from the write: {entry:?}\n  must be {kind} {changes:?}"));
        }
        if call.ended < latest_began {
            findings.push(format!("written before what it followed: {call:?}"));
        }
        latest_began = latest_began.max(call.began);
        if let Some(last) = states.last_mut() {
            last.replaced = (call.began, call.ended);
        }
        states.push(State { began: call.began, ended: call.ended, replaced: (u64::MAX, u64::MAX), ..after });
    }
    if states.len() != count + 1 {
        findings.push(format!("{} entries of insight {insight} follow nothing", count + 1 - states.len()));
    }
    acknowledged(history, insight, &states, findings);
    states
}

/// Every acknowledged change is in the log and its response had the resulting state; no rejected change is in the log.
fn acknowledged(history: &History, insight: u64, states: &[State], findings: &mut Vec<String>) {
    let by_mark: HashMap<&Value, &State> =
        states.iter().map(|state| (&state.fields["description"], state)).collect();
    for call in &history.calls {
        let Request::Change(of, fields) = &call.request else { continue };
        if *of != insight {
            continue;
        }
        match (&call.outcome, by_mark.get(&fields["description"])) {
            (Outcome::Insights(outcome), Some(state))
                if !outcome.iter().all(|outcome| state.is(outcome, fields.get("dashboards"))) =>
            {
                findings.push(format!("a change has the wrong response: {call:?}\n  must be {state:?}"));
            }
            (Outcome::Insights(_), None) => {
                findings.push(format!("an acknowledged change has no entry: {call:?}"))
            }
            (Outcome::Missing, Some(_)) => findings.push(format!("a refused change was made: {call:?}")),
            _ => {}
        }
    }
}

/// Every response of a read is explained by states that it may have met.
fn outcome(lives: &BTreeMap<u64, Vec<State>>, call: &Call, findings: &mut Vec<String>) {
    let met = |insight: u64| lives[&insight].iter().filter(|state| state.may_be_met(call));
    let explained = match (&call.request, &call.outcome) {
        (_, Outcome::Busy) => true,
        (
            Request::Change(insight, _) | Request::Read(insight) | Request::View(insight, _),
            Outcome::Missing,
        ) => met(*insight).any(State::is_deleted),
        (Request::Read(insight), Outcome::Insights(outcome)) => outcome
            .iter()
            .all(|outcome| met(*insight).any(|state| !state.is_deleted() && state.is(outcome, None))),
        (Request::View(insight, _), Outcome::Done) => met(*insight).any(|state| !state.is_deleted()),
        (Request::List, Outcome::Insights(outcome)) => {
            let ids: Vec<u64> = outcome.iter().filter_map(|outcome| outcome["id"].as_u64()).collect();
            let all_were = outcome
                .iter()
                .zip(&ids)
                .all(|(outcome, id)| met(*id).any(|state| !state.is_deleted() && state.is(outcome, None)));
            let none_lacks = lives.iter().all(|(id, states)| {
                ids.contains(id) || !states.iter().any(|state| !state.is_deleted() && state.lasted(call))
            });
            all_were && none_lacks && ids.is_sorted_by(|one, next| one < next)
        }
        (Request::Change(..), Outcome::Insights(_)) => true,
        _ => false,
    };
    if !explained {
        findings.push(format!("nothing explains a response: {call:?}"));
    }
}

/// The final stored state is the last state of each record, in every place where it is stored.
fn stored(history: &History, lives: &BTreeMap<u64, Vec<State>>, findings: &mut Vec<String>) {
    let stored = &history.stored;
    let (mut rows, mut pointers) = (Vec::new(), Vec::new());
    for (insight, states) in lives {
        let Some(last) = states.last() else { continue };
        let record = &stored.records[insight];
        let kept = record["tiles"].as_array().into_iter().flatten().filter(|tile| tile["deleted"] != true);
        let on: Vec<u64> = kept.filter_map(|tile| tile["dashboard_id"].as_u64()).collect();
        if LOGGED.iter().any(|name| record[*name] != last.fields[name]) || on != last.on() {
            findings.push(format!("insight {insight} ends as {record}\n  must be {last:?}"));
        }
        rows.extend((!last.is_deleted()).then_some(*insight));
        pointers.extend(last.on().into_iter().map(|dashboard| (dashboard, *insight)));
        let entries = stored.entries.iter().filter(|entry| entry.insight == *insight).count();
        if stored.own[insight] != entries {
            findings
                .push(format!("insight {insight}: its own log has {}, not {entries}", stored.own[insight]));
        }
    }
    pointers.sort_unstable();
    if stored.rows != rows {
        findings.push(format!("summary rows of {:?}, must be of {rows:?}", stored.rows));
    }
    if !stored.is_proven {
        findings.push("the version row has other checksums than the rows".to_owned());
    }
    if stored.pointers != pointers {
        findings.push(format!("pointers {:?}, must be {pointers:?}", stored.pointers));
    }
    if usize::try_from(stored.counted) != Ok(stored.entries.len()) {
        findings.push(format!("{} entries, counted {}", stored.entries.len(), stored.counted));
    }
}

/// The latest view is the latest acknowledged one, or one with unknown outcome.
fn views(history: &History, findings: &mut Vec<String>) {
    for insight in history.started.keys() {
        let views = |sure: bool| {
            let of = history.calls.iter().filter_map(move |call| match (&call.request, &call.outcome) {
                (Request::View(of, at), Outcome::Done) if of == insight => Some(*at),
                (Request::View(of, at), Outcome::Busy) if of == insight && !sure => Some(*at),
                _ => None,
            });
            of.collect::<Vec<i64>>()
        };
        let found = history.stored.views.get(insight).copied();
        let least = views(true).into_iter().max();
        if found < least || found.is_some_and(|found| !views(false).contains(&found)) {
            findings.push(format!("insight {insight} was viewed last at {found:?}, must be {least:?}"));
        }
    }
}
