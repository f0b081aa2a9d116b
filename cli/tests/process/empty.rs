//! Commands that only read, or that need an installation, create nothing where there is none.

use std::path::Path;
use std::process::{Command, Output};

use super::{BINARY, WORKSPACE, text};

/// Runs a command in `directory`, in which it would also create what it creates by default.
fn run_in(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).current_dir(directory).output().unwrap()
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn commands_that_need_an_installation_fail_without_one_and_create_nothing() {
    let commands: [&[&str]; 25] = [
        &["check"],
        &["check", "--lift"],
        &["query", "1"],
        &["query", "funnel", "--steps", "a,b"],
        &["query", "trend", "--event", "a", "--json"],
        &["flags", "list"],
        &["flags", "get", "x", "--json"],
        &["flags", "set", "x", "--active", "true"],
        &["flags", "test", "x", "--distinct-id", "d"],
        &["tail", "--once"],
        &["health"],
        &["impact", "1", "metric.json"],
        &["export", "--out", "leaving"],
        &["keys", "list"],
        &["keys", "create", "--label", "x"],
        &["keys", "revoke", "x"],
        &["compact"],
        &["delete", "--project", "1", "--dry-run"],
        &["delete", "--project", "1", "--yes"],
        &["backup", "--out", "copy.tar"],
        &["adopt"],
        &["env"],
        &["env", "--json"],
        &["restore", "copy.tar"],
        &["apply", "nowhere.yaml"],
    ];
    for there in [false, true] {
        for arguments in commands {
            let directory = tempfile::tempdir().unwrap();
            if there {
                std::fs::create_dir(directory.path().join("pennon-data")).unwrap();
            }
            let refused = run_in(directory.path(), arguments);
            let error = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {error}");
            assert_eq!(
                (error.lines().count(), text(&refused.stdout).as_str()),
                (1, ""),
                "{arguments:?}: {error}"
            );
            assert_eq!(
                entries(directory.path()).len(),
                usize::from(there),
                "{arguments:?} created something"
            );
            if there {
                assert!(entries(&directory.path().join("pennon-data")).is_empty(), "{arguments:?}");
            }
            if !["restore", "apply"].contains(&arguments[0]) {
                assert!(
                    error.contains("pennon serve") || error.contains("pennon apply"),
                    "{arguments:?}: {error}"
                );
            }
        }
    }
}

#[test]
fn commands_without_an_installation_create_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("workspace.json"), WORKSPACE).unwrap();
    std::fs::write(
        directory.path().join("history.jsonl"),
        "{\"event\": \"e\", \"distinct_id\": \"d\", \"timestamp\": \"2024-01-09T10:00:00Z\"}\n",
    )
    .unwrap();
    let commands: [&[&str]; 14] = [
        &["routes"],
        &["routes", "--json"],
        &["openapi"],
        &["openapi", "--yaml"],
        &["cost", "--events", "1M"],
        &["cost", "--json"],
        &["help"],
        &["help", "serve"],
        &["--version"],
        &["completions", "bash"],
        &["man"],
        &["apply", "workspace.json", "--dry-run"],
        &["apply", "workspace.json", "--dry-run", "--json"],
        &["import", "history.jsonl", "--project", "1", "--dry-run"],
    ];
    for arguments in commands {
        let done = run_in(directory.path(), arguments);
        assert!(done.status.success() && !done.stdout.is_empty(), "{arguments:?}: {}", text(&done.stderr));
        assert_eq!(text(&done.stderr), "", "{arguments:?}");
        assert_eq!(entries(directory.path()).len(), 2, "{arguments:?} created something");
    }
    let planned = text(&run_in(directory.path(), &["apply", "workspace.json", "--dry-run"]).stdout);
    assert!(planned.contains("+ project 1") || planned.contains("+ project \"1\""), "{planned}");
    assert!(planned.contains("run again without --dry-run"), "{planned}");
}
