//! The README's commands, run in their order as a newcomer runs them.
//!
//! Must stay true: a command of the README is run here or listed in [`NOT_RUN`] with the reason.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{BINARY, Server, text};

const README: &str = include_str!("../../../README.md");
/// What an indented line begins with that is a command; the others are what commands print.
const PROGRAMS: [&str; 14] = [
    "cargo ", "target/", "curl ", "KEY=", "echo ", "eval ", "export ", "python3 ", "pip ", "sam ", "sed ",
    "sh ", "docker ", ".venv/",
];
/// Commands that are not run here, by their beginning, and why.
const NOT_RUN: [(&str, &str); 10] = [
    ("cargo run --release", "builds this binary; the test starts the one it was built with"),
    ("cargo test --workspace", "is this very run"),
    ("python3 -m venv", "installs tools from a package registry; .ci/run does it"),
    (".venv/bin/cargo-lambda lambda watch", "scripts/check_cargo_lambda.sh runs it"),
    (".venv/bin/cargo-lambda lambda invoke", "scripts/check_cargo_lambda.sh runs it"),
    (
        "curl -s -H \"Authorization: Bearer $KEY\" http://127.0.0.1:9010",
        "scripts/check_cargo_lambda.sh runs it",
    ),
    ("sam build", "needs the tools of a deployment; .ci/full builds a function with it"),
    ("export PENNON_RECORDS_TABLE", "needs a deployment"),
    ("target/release/pennon apply workspace.yaml --cloud", "needs a deployment"),
    ("sed \"s/@KEY@", "only prepares the event of `lambda invoke`"),
];

/// The commands of a document: indented lines, with the deeper lines that continue them.
fn commands(document: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut continues = false;
    for line in document.lines() {
        let Some(inner) = line.strip_prefix("    ") else {
            continues = false;
            continue;
        };
        if inner.starts_with(' ') {
            if let (true, Some(command)) = (continues, found.last_mut()) {
                command.push('\n');
                command.push_str(inner);
            }
            continue;
        }
        continues = PROGRAMS.iter().any(|program| inner.starts_with(program));
        if continues {
            found.push(inner.to_owned());
        }
    }
    found
}

/// The server of the tour, the directory of the newcomer, and what the first start printed.
struct Tour {
    directory: tempfile::TempDir,
    server: Server,
    key: String,
    token: String,
}

impl Tour {
    fn begin() -> Tour {
        let directory = tempfile::tempdir().unwrap();
        let release = directory.path().join("target/release");
        std::fs::create_dir_all(&release).unwrap();
        std::os::unix::fs::symlink(BINARY, release.join("pennon")).unwrap();
        let server = Server::start(&directory.path().join("pennon-data"), &[]);
        let word = |start: &str| {
            let words = server.output_text.split_whitespace();
            words
                .map(|word| word.trim_end_matches('\''))
                .find(|word| word.starts_with(start))
                .unwrap()
                .to_owned()
        };
        let (key, token) = (word("phx_"), word("phc_"));
        let console = format!("  console            http://{}/#key={key}\n", server.address);
        assert!(server.output_text.contains(&console), "{}", server.output_text);
        Tour { directory, server, key, token }
    }

    /// Runs a command as it is pasted, with what differs from machine to machine filled in. Returns what it printed.
    fn run(&self, command: &str) -> String {
        let command = command
            .replace("127.0.0.1:8080", &self.server.address)
            .replace("phx_...", &self.key)
            .replace("phc_...", &self.token);
        let done = Command::new("sh")
            .args(["-c", &format!("set -e; {command}")])
            .env("KEY", &self.key)
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{command}: {}{}", text(&done.stdout), text(&done.stderr));
        text(&done.stdout)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Starts what `serve` commands start, on a free port, and stops it.
fn serve(data: &Path) {
    let server = Server::start(data, &[]);
    assert_eq!(server.request("GET", "/_health", "", &serde_json::Value::Null).0, 200);
    assert_eq!(server.stop(), 0);
}

#[test]
fn every_command_of_the_readme_works_for_a_newcomer() {
    let tour = Tour::begin();
    let (mut run, mut not_run) = (0, Vec::new());
    for command in commands(README) {
        if let Some((start, _)) = NOT_RUN.iter().find(|(start, _)| command.starts_with(start)) {
            not_run.push(*start);
            continue;
        }
        run += 1;
        if command.contains("pennon serve --data my-data") {
            serve(&tour.path("my-data"));
            continue;
        }
        let printed = tour.run(&command);
        if command.starts_with("curl ") {
            let response: serde_json::Value = serde_json::from_str(&printed).unwrap();
            let is_error = response["type"].as_str().is_some_and(|kind| kind.ends_with("_error"));
            assert!(!is_error, "{command}: {response}");
        }
        if command.contains("insights/trend/") {
            assert!(printed.contains("\"count\":") && !printed.contains("\"count\":0.0"), "{printed}");
        }
    }
    assert!(run >= 20, "only {run} commands were found");
    for (start, reason) in NOT_RUN {
        assert!(not_run.contains(&start), "{start} ({reason}) is not in the README any more");
    }
}
