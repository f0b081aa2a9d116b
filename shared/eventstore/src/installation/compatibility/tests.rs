#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const US: Uuid = Uuid::from_u128(1);
const THEM: Uuid = Uuid::from_u128(2);
const NOTHING: Inventory = Inventory { lists_objects: false, has_objects: false };
const USED: Inventory = Inventory { lists_objects: true, has_objects: true };
const LOST_OBJECTS: Inventory = Inventory { lists_objects: true, has_objects: false };
const UNKNOWN_OBJECTS: Inventory = Inventory { lists_objects: false, has_objects: true };

fn tables(row: Option<(Uuid, bool)>, heads: &[(u64, u64)]) -> Tables {
    let row = row.map(|(id, complete)| InstallationRow { id, complete });
    Tables { row, heads: heads.iter().copied().collect(), is_empty: heads.is_empty() && row.is_none() }
}

fn marks(ids: &[Uuid], heads: &[(u64, u64)]) -> StoredMarks {
    StoredMarks {
        ids: ids.iter().copied().collect::<BTreeSet<_>>(),
        heads: heads.iter().copied().collect(),
        ..StoredMarks::default()
    }
}

/// The name of a state, the state, and the expected action.
type Case = (&'static str, Tables, StoredMarks, Inventory, Decision);

fn decides(cases: impl IntoIterator<Item = Case>) {
    for (what, tables, marks, inventory, expected) in cases {
        assert_eq!(decide(&tables, &marks, inventory), expected, "{what}");
    }
}

const OURS: Option<(Uuid, bool)> = Some((US, true));
const BEGUN: Option<(Uuid, bool)> = Some((US, false));

#[test]
fn a_start_passes_wherever_the_previous_process_was_killed() {
    let none = || marks(&[], &[]);
    decides([
        ("a first start", tables(None, &[]), none(), NOTHING, Decision::Claim),
        ("an earlier release's", tables(None, &[(1, 4)]), none(), USED, Decision::Claim),
        ("all erased", tables(None, &[(1, 4)]), none(), NOTHING, Decision::Claim),
        ("a claim cut off at once", tables(BEGUN, &[(1, 4)]), none(), USED, Decision::Complete(US)),
        ("cut off later", tables(BEGUN, &[(1, 4)]), marks(&[US], &[]), USED, Decision::Complete(US)),
        ("as ever", tables(OURS, &[(1, 4)]), marks(&[US], &[(1, 4)]), NOTHING, Decision::Matches(US)),
        ("before a mark", tables(OURS, &[(1, 5)]), marks(&[US], &[(1, 4)]), NOTHING, Decision::Matches(US)),
        ("before the first", tables(OURS, &[(1, 1)]), marks(&[US], &[]), NOTHING, Decision::Matches(US)),
        ("unused", tables(OURS, &[]), none(), NOTHING, Decision::Complete(US)),
    ]);
}

#[test]
fn lost_older_and_other_tables_are_refused() {
    let newer = || marks(&[US], &[(1, 4)]);
    let refused = Decision::Refuse;
    let older = |tables| refused(Mismatch::OlderTables { project: 1, tables, events: 4 });
    let others = || refused(Mismatch::Other { tables: US, events: THEM });
    let no_id = refused(Mismatch::NoId { events: US });
    decides([
        ("tables lost", tables(None, &[]), newer(), UNKNOWN_OBJECTS, refused(Mismatch::EmptyTables)),
        (
            "without an id",
            tables(None, &[]),
            marks(&[], &[]),
            UNKNOWN_OBJECTS,
            refused(Mismatch::EmptyTables),
        ),
        ("a copy from before the id", tables(None, &[(1, 3)]), newer(), USED, no_id),
        ("others'", tables(OURS, &[(1, 9)]), marks(&[THEM], &[(1, 4)]), USED, others()),
        ("two in one folder", tables(OURS, &[(1, 9)]), marks(&[US, THEM], &[(1, 4)]), USED, others()),
        ("an older copy", tables(OURS, &[(1, 3)]), newer(), NOTHING, older(3)),
        ("from before the project", tables(OURS, &[]), newer(), NOTHING, older(0)),
        ("older, its claim cut off", tables(BEGUN, &[(1, 3)]), newer(), USED, older(3)),
    ]);
}

#[test]
fn lost_events_are_refused() {
    let none = || marks(&[], &[]);
    let no_mark = || Decision::Refuse(Mismatch::NoMark { tables: US });
    let no_objects = || Decision::Refuse(Mismatch::NoObjects);
    decides([
        ("events lost", tables(OURS, &[(1, 4)]), none(), LOST_OBJECTS, no_objects()),
        ("of an earlier release", tables(None, &[(1, 4)]), none(), LOST_OBJECTS, no_objects()),
        ("events without a mark", tables(OURS, &[(1, 4)]), none(), USED, no_mark()),
        ("unknown events", tables(OURS, &[]), none(), UNKNOWN_OBJECTS, no_mark()),
    ]);
}

#[test]
fn errors_name_the_next_step() {
    for mismatch in [
        Mismatch::EmptyTables,
        Mismatch::NoId { events: US },
        Mismatch::Other { tables: US, events: THEM },
        Mismatch::NoMark { tables: US },
        Mismatch::NoObjects,
        Mismatch::OlderTables { project: 1, tables: 3, events: 4 },
    ] {
        let text = mismatch.to_string();
        assert!(
            ["pennon restore", "--data", "pennon adopt", "Nothing was changed"]
                .iter()
                .all(|part| text.contains(part)),
            "{text}"
        );
    }
}

/// A step of an installation's life: a commit of a project's manifest, and whether its mark was written too.
fn life() -> impl Strategy<Value = Vec<(u64, bool)>> {
    prop::collection::vec((1_u64..4, any::<bool>()), 0..30)
}

/// Tables and marks after `steps`.
fn lived(steps: &[(u64, bool)]) -> (Tables, StoredMarks) {
    let (mut tables, mut marks) = (tables(Some((US, true)), &[]), marks(&[US], &[]));
    for (project, is_marked) in steps {
        let head = tables.heads.entry(*project).or_insert(0);
        *head += 1;
        if *is_marked {
            marks.heads.insert(*project, *head);
        }
    }
    (tables, marks)
}

proptest! {
    #[test]
    fn the_next_start_passes_after_any_kill(steps in life()) {
        let (tables, marks) = lived(&steps);
        prop_assert_eq!(decide(&tables, &marks, USED), Decision::Matches(US));
    }

    #[test]
    fn tables_from_before_a_mark_are_refused(steps in life(), at in any::<prop::sample::Index>()) {
        let at = at.index(steps.len() + 1);
        let (older, _) = lived(&steps[..at]);
        let (_, marks) = lived(&steps);
        let is_older = marks.heads.iter().any(|(project, mark)| older.heads.get(project).unwrap_or(&0) < mark);
        let decision = decide(&older, &marks, USED);
        prop_assert_eq!(matches!(decision, Decision::Refuse(Mismatch::OlderTables { .. })), is_older);
        prop_assert_eq!(decision == Decision::Matches(US), !is_older);
    }
}
