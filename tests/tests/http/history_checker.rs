//! The checker of histories accepts consistent ones and rejects others.

use pennon_tests::history::model::{changed, changes, created, id, is_deleted, key, kind, version};
use pennon_tests::history::{Call, Entry, Fields, History, Outcome, Request, check};
use serde_json::{Value, json};

const OLIVE: &str = "owner@example.com";
const MEL: &str = "member@example.com";

fn fields(value: Value) -> Fields {
    value.as_object().cloned().unwrap()
}

/// A consistent history of sequential calls, which tests alter.
#[derive(Default)]
struct Story {
    history: History,
    tick: u64,
    flags: u64,
}

impl Story {
    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    fn note(&mut self, request: Request, outcome: Outcome, by: &str) {
        let (began, ended) = (self.tick(), self.tick());
        self.history.calls.push(Call { request, outcome, by: by.to_owned(), began, ended });
    }

    fn store(&mut self, before: Option<&Fields>, after: &Fields, by: &str) {
        self.history.stored.entries.push(Entry {
            flag: id(after),
            kind: before.map_or("created", |before| kind(before, after)).to_owned(),
            by: by.to_owned(),
            key: key(after).to_owned(),
            changes: before.map(|before| changes(before, after)).unwrap_or_default(),
        });
        *self.history.stored.pointers.entry(id(after)).or_default() += 1;
        self.history.stored.flags.insert(id(after), after.clone());
    }

    /// A new flag; deleted flags with its key are kept.
    fn create(&mut self, expected: &str) -> u64 {
        self.flags += 1;
        let sent = fields(json!({"key": expected, "filters": {"groups": [{"properties": []}]}}));
        let flag = created(self.flags, &sent, OLIVE);
        self.note(Request::Create(sent), Outcome::Flag(flag.clone()), OLIVE);
        self.store(None, &flag, OLIVE);
        self.flags
    }

    fn change(&mut self, flag: u64, sent: Value) -> Fields {
        let before = self.history.stored.flags[&flag].clone();
        let after = changed(&before, &fields(sent.clone()), MEL);
        let request = Request::Change { flag, fields: fields(sent), edited: None };
        self.note(request, Outcome::Flag(after.clone()), MEL);
        self.store(Some(&before), &after, MEL);
        after
    }

    fn read(&mut self, flag: u64) {
        let outcome = self.history.stored.flags.get(&flag).cloned().map_or(Outcome::Missing, Outcome::Flag);
        self.note(Request::Read(flag), outcome, OLIVE);
    }

    fn list(&mut self) {
        let live = self.history.stored.flags.values().filter(|flag| !is_deleted(flag));
        let outcome = Outcome::Flags(live.cloned().collect());
        self.note(Request::List, outcome, OLIVE);
    }

    /// The last call, to be altered.
    fn last(&mut self) -> &mut Call {
        self.history.calls.last_mut().unwrap()
    }

    /// Fills in everything that follows from the stored flags.
    fn end(mut self) -> History {
        let stored = &mut self.history.stored;
        let live: Vec<&Fields> = stored.flags.values().filter(|flag| !is_deleted(flag)).collect();
        let ids: Vec<u64> = live.iter().map(|flag| id(flag)).collect();
        stored.claims = live.iter().map(|flag| (key(flag).to_owned(), id(flag))).collect();
        (stored.listed, stored.rows) = (ids.clone(), ids);
        self.history
    }
}

#[track_caller]
fn accept(story: Story) {
    assert_eq!(check(&story.end()), Vec::<String>::new());
}

#[track_caller]
fn refuse(history: &History, why: &str) {
    let findings = check(history);
    assert!(findings.iter().any(|finding| finding.contains(why)), "{why:?} is not among {findings:#?}");
}

/// A flag of each kind: changed, deleted, restored, renamed, deleted with a key that a new flag takes.
fn sound() -> Story {
    let mut story = Story::default();
    let a = story.create("a");
    story.change(a, json!({"name": "n", "tags": ["t"]}));
    story.change(a, json!({"active": false}));
    story.change(a, json!({"active": true, "tags": []}));
    story.list();
    let b = story.create("b");
    story.change(b, json!({"deleted": true}));
    story.read(b);
    story.change(b, json!({"deleted": false}));
    story.change(b, json!({"key": "c"}));
    story.change(b, json!({"deleted": true}));
    story.note(Request::Create(fields(json!({"key": "a"}))), Outcome::KeyExists, OLIVE);
    let c = story.create("c");
    story.read(b);
    story.read(c);
    story.list();
    story
}

#[test]
fn a_consistent_history_is_accepted() {
    accept(sound());
    accept(Story::default());
}

#[test]
fn a_lost_update_is_refused() {
    let mut story = sound();
    let kept = story.change(1, json!({"name": "kept"}));
    let mut lost = story.change(1, json!({"tags": ["x"]}));
    lost.insert("name".to_owned(), json!("n"));
    story.last().outcome = Outcome::Flag(lost.clone());
    story.history.stored.flags.insert(1, lost.clone());
    refuse(&story.end(), "a write has the wrong response");

    // Also if only the stored state is wrong.
    let mut story = sound();
    story.change(1, json!({"name": "kept"}));
    story.change(1, json!({"tags": ["x"]}));
    story.history.stored.flags.get_mut(&1).unwrap().insert("name".to_owned(), json!("n"));
    refuse(&story.end(), "ends as");
    assert_ne!(kept["name"], lost["name"]);
}

#[test]
fn two_winners_are_refused() {
    let mut story = sound();
    let after = story.change(1, json!({"name": "one"}));
    let second = Request::Change { flag: 1, fields: fields(json!({"name": "two"})), edited: None };
    story.note(second, Outcome::Flag(after), MEL);
    refuse(&story.end(), "two writes won");

    // Two flags of one key, both acknowledged.
    let mut story = sound();
    story.create("a");
    refuse(&story.end(), "two flags had one key");
}

#[test]
fn missing_doubled_and_wrong_entries_are_refused() {
    let mut story = sound();
    story.history.stored.entries.retain(|entry| entry.flag != 1 || entry.version() != Some(3));
    refuse(&story.end(), "no entry for version 3");

    let mut story = sound();
    story.change(1, json!({"name": "last"}));
    story.history.stored.entries.pop();
    refuse(&story.end(), "an acknowledged write has no entry");

    let mut story = sound();
    let twice = story.history.stored.entries[1].clone();
    story.history.stored.entries.push(twice);
    refuse(&story.end(), "2 entries for version 2");

    let mut story = sound();
    story.history.stored.entries[1].changes.remove("tags");
    refuse(&story.end(), "an entry differs from the write");

    let mut story = sound();
    *story.history.stored.pointers.get_mut(&1).unwrap() += 1;
    refuse(&story.end(), "its own log has 5 entries, must be 4");

    let mut story = sound();
    story.change(1, json!({"name": "unknown"}));
    story.history.calls.pop();
    refuse(&story.end(), "no call wrote version 5");
}

#[test]
fn a_resurrected_value_is_refused() {
    let mut story = sound();
    story.change(1, json!({"name": "new"}));
    story.read(1);
    let Outcome::Flag(outcome) = &mut story.last().outcome else { panic!("a flag was read") };
    outcome.insert("name".to_owned(), json!("n"));
    refuse(&story.end(), "nothing explains a response");

    // An earlier state, read after the change was acknowledged.
    let mut story = sound();
    story.read(1);
    let earlier = story.last().outcome.clone();
    story.change(1, json!({"name": "new"}));
    story.read(1);
    story.last().outcome = earlier;
    refuse(&story.end(), "nothing explains a response");
}

#[test]
fn an_executed_write_with_an_error_response_is_rejected() {
    let mut story = sound();
    story.change(1, json!({"name": "refused"}));
    story.last().outcome = Outcome::Conflict;
    refuse(&story.end(), "no call wrote version 5");
}

#[test]
fn a_write_with_unknown_outcome_may_have_been_executed_or_not() {
    let mut story = sound();
    story.change(1, json!({"name": "perhaps"}));
    story.last().outcome = Outcome::Busy;
    let not_done = Request::Change { flag: 1, fields: fields(json!({"name": "not done"})), edited: None };
    story.note(not_done, Outcome::Busy, MEL);
    story.note(Request::Create(fields(json!({"key": "d"}))), Outcome::Busy, OLIVE);
    let made = story.create("e");
    story.last().outcome = Outcome::Busy;
    story.read(made);
    accept(story);

    // But not twice.
    let mut story = sound();
    story.change(1, json!({"name": "perhaps"}));
    story.last().outcome = Outcome::Busy;
    let after = story.history.stored.flags[&1].clone();
    let again = changed(&after, &fields(json!({"name": "perhaps"})), MEL);
    story.store(Some(&after), &again, MEL);
    refuse(&story.end(), "no call wrote version 6");
}

#[test]
fn a_write_before_its_predecessor_is_rejected() {
    let mut story = sound();
    story.change(1, json!({"name": "one"}));
    story.change(1, json!({"name": "two"}));
    let at = story.history.calls.len() - 2;
    let calls = &mut story.history.calls;
    ((calls[at].began, calls[at].ended), (calls[at + 1].began, calls[at + 1].ended)) =
        ((calls[at + 1].began, calls[at + 1].ended), (calls[at].began, calls[at].ended));
    refuse(&story.end(), "written before what it followed");
}

#[test]
fn unjustified_and_missing_conflicts_are_rejected() {
    let edit = |story: &Story, name: &str| {
        let original = story.history.stored.flags[&1].clone();
        Request::Change { flag: 1, fields: fields(json!({"name": name})), edited: Some(original) }
    };
    let mut story = sound();
    let request = edit(&story, "mine");
    story.change(1, json!({"name": "theirs"}));
    story.note(request, Outcome::Conflict, OLIVE);
    accept(story);

    let mut story = sound();
    let request = edit(&story, "mine");
    story.change(1, json!({"tags": ["theirs"]}));
    story.note(request, Outcome::Conflict, OLIVE);
    refuse(&story.end(), "nothing explains a response");

    let mut story = sound();
    let request = edit(&story, "mine");
    story.change(1, json!({"name": "theirs"}));
    story.change(1, json!({"name": "mine"}));
    story.last().request = request;
    refuse(&story.end(), "nothing explains a response");
}

#[test]
fn unjustified_key_errors_and_lost_flags_are_rejected() {
    let mut story = sound();
    story.note(Request::Create(fields(json!({"key": "free"}))), Outcome::KeyExists, OLIVE);
    refuse(&story.end(), "no flag had the key");

    let mut story = sound();
    story.note(Request::Read(1), Outcome::Missing, OLIVE);
    refuse(&story.end(), "a flag was missing");

    let mut story = sound();
    story.history.stored.flags.remove(&1);
    refuse(&story.end(), "flag 1 is not stored any more");

    let mut story = sound();
    story.change(1, json!({"deleted": true}));
    story.create("a");
    story.read(1);
    accept(story);
}

#[test]
fn contradicting_lists_and_rows_are_rejected() {
    let mut story = sound();
    story.list();
    let Outcome::Flags(flags) = &mut story.last().outcome else { panic!("a list was read") };
    flags.pop();
    refuse(&story.end(), "lacks flag");

    let mut story = sound();
    story.change(1, json!({"deleted": true}));
    story.list();
    let deleted = story.history.stored.flags[&1].clone();
    let Outcome::Flags(flags) = &mut story.last().outcome else { panic!("a list was read") };
    flags.push(deleted);
    refuse(&story.end(), "shows what was not");

    for place in ["the list", "the summary rows", "keys are held by"] {
        let mut history = sound().end();
        match place {
            "the list" => drop(history.stored.listed.pop()),
            "the summary rows" => history.stored.rows.push(99),
            _ => history.stored.claims.push(("a".to_owned(), 1)),
        }
        refuse(&history, place);
    }
    let mut history = sound().end();
    assert_eq!(version(&history.stored.flags[&1]), 4);
    history.calls[0].outcome = Outcome::Other(500, "?".to_owned());
    refuse(&history, "no call wrote version 1");
}
