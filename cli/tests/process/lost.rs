//! A data directory with a missing, damaged or older part: starts and commands are rejected, nothing is removed, and
//! everything works again after the part is restored.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rusqlite::Connection;
use serde_json::json;

use super::{BINARY, Server, WORKSPACE, done, pennon, purchase, text, watch};

const DATABASE: &str = "dynamodb.sqlite";
const LOG: &str = "dynamodb.sqlite-wal";
const MARK: &str = "dynamodb.mark";

/// An installation with a flag, a segment and an event that waits, whose server was stopped.
struct Installation {
    directory: tempfile::TempDir,
    data: PathBuf,
}

impl Installation {
    fn new() -> Installation {
        let (installation, server) = Installation::served();
        assert_eq!(server.stop(), 0);
        installation.settle();
        installation
    }

    /// The same, with its server still running.
    fn served() -> (Installation, Server) {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let workspace = directory.path().join("workspace.json");
        std::fs::write(&workspace, WORKSPACE).unwrap();
        done(&["apply", &workspace.to_string_lossy()], &data);
        let installation = Installation { directory, data };
        installation.import("e1", 3);
        let server = Server::start(&installation.data, &[]);
        capture(&server, "e2", 4);
        assert_eq!(server.purchases(), 2.0);
        (installation, server)
    }

    fn import(&self, uuid: &str, day: u32) {
        let file = self.directory.path().join("history.jsonl");
        std::fs::write(&file, format!("{}\n", purchase(&id(uuid), day))).unwrap();
        done(&["import", &file.to_string_lossy(), "--project", "1"], &self.data);
        self.settle();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.data.join(name)
    }

    /// Makes a copy of `name`.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.directory.path().join(format!("copy of {name}"));
        std::fs::copy(self.file(name), &copy).unwrap();
        copy
    }

    /// Checkpoints the log, if an aborted stop has left one.
    fn settle(&self) {
        let connection = Connection::open(self.file(DATABASE)).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }

    /// Replaces the database by `copy` and removes its log.
    fn put(&self, copy: &Path) {
        for name in [LOG, "dynamodb.sqlite-shm"] {
            let _ = std::fs::remove_file(self.file(name));
        }
        std::fs::copy(copy, self.file(DATABASE)).unwrap();
    }

    /// The files below the events.
    fn events(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut open = vec![self.file("events")];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { open.push(path) } else { assert!(found.insert(path)) }
            }
        }
        found
    }

    /// Asserts that starts and commands are rejected repeatedly with all of `words`, and change nothing.
    fn is_refused(&self, words: &[&str]) {
        let events = self.events();
        for _ in 0..2 {
            let output_text = refused_start(&self.data);
            for word in
                words.iter().chain(&["pennon restore", "--data", "pennon adopt", "Nothing was changed"])
            {
                assert!(output_text.contains(word), "{word:?}: {output_text}");
            }
        }
        for command in [&["check"][..], &["compact"], &["keys", "list"]] {
            let refused = pennon(command, &self.data);
            let output_text = text(&refused.stderr);
            assert!(
                !refused.status.success() && output_text.contains(words[0]),
                "{command:?}: {output_text}"
            );
        }
        assert_eq!(self.events(), events);
    }

    /// Asserts that it starts and counts so many purchases.
    fn counts(&self, purchases: f64) {
        let server = Server::start(&self.data, &[]);
        assert!(!server.output_text.contains("First start"), "{}", server.output_text);
        let console = format!("  console            http://{}/\n", server.address);
        assert!(server.output_text.contains(&console), "{}", server.output_text);
        assert_eq!(server.purchases(), purchases);
        assert_eq!(server.stop(), 0);
    }
}

fn id(uuid: &str) -> String {
    format!("01900000-0000-7000-8000-0000000000{uuid}")
}

fn capture(server: &Server, uuid: &str, day: u32) {
    let body = json!({"api_key": "phc_process", "batch": [purchase(&id(uuid), day)]});
    assert_eq!(server.post("/batch/", &body).0, 200);
}

/// The error of a start; one that serves fails the test.
pub(super) fn refused_start(data: &Path) -> String {
    let mut serve = Command::new(BINARY)
        .args(["serve", "--port", "0", "--data"])
        .arg(data)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let watched = watch(serve.id());
    let output_text = BufReader::new(serve.stdout.take().unwrap()).lines().next();
    if let Some(line) = output_text {
        serve.kill().unwrap();
        serve.wait().unwrap();
        panic!("it started: {}", line.unwrap());
    }
    let mut refused = String::new();
    serve.stderr.take().unwrap().read_to_string(&mut refused).unwrap();
    assert!(!serve.wait().unwrap().success());
    watched.send(()).unwrap();
    refused
}

fn flip(file: &Path, at: u64, bytes: usize) {
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut found = vec![0; bytes];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut found).unwrap();
    found.iter_mut().for_each(|byte| *byte ^= 0x55);
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&found).unwrap();
}

#[test]
fn a_missing_empty_or_invalid_database_is_rejected_until_it_is_restored() {
    let place = Installation::new();
    let copy = place.copy(DATABASE);
    for (what, words) in [
        ("gone", ["it is missing", DATABASE]),
        ("empty", ["it is empty", DATABASE]),
        ("no database", ["not a database", DATABASE]),
        ("cut", ["not a database", DATABASE]),
    ] {
        match what {
            "gone" => std::fs::remove_file(place.file(DATABASE)).unwrap(),
            "empty" => std::fs::write(place.file(DATABASE), "").unwrap(),
            "cut" => std::fs::write(place.file(DATABASE), "SQLite").unwrap(),
            _ => std::fs::write(place.file(DATABASE), vec![b'x'; 8192]).unwrap(),
        }
        place.is_refused(&words);
        // The mark may be missing too.
        let mark = std::fs::read(place.file(MARK)).unwrap();
        std::fs::remove_file(place.file(MARK)).unwrap();
        place.is_refused(&words);
        std::fs::write(place.file(MARK), mark).unwrap();
        assert_eq!(place.file(DATABASE).exists(), what != "gone", "none is made");
        place.put(&copy);
    }
    place.counts(2.0);
}

#[test]
fn a_database_with_damaged_pages_does_not_start() {
    let place = Installation::new();
    let (copy, size) = (place.copy(DATABASE), std::fs::metadata(place.file(DATABASE)).unwrap().len());
    let bytes = std::fs::read(&copy).unwrap();
    // The first byte of a page of a table or of an index has its type; the content of other pages is not checked.
    let pages = (4096..size).step_by(4096).filter(|at| matches!(bytes[*at as usize], 2 | 5 | 10 | 13));
    for page in pages.take(12) {
        flip(&place.file(DATABASE), page, 64);
        let output_text = refused_start(&place.data);
        assert!(
            output_text.contains(DATABASE) && output_text.contains("pennon restore"),
            "page at {page}: {output_text}"
        );
        place.put(&copy);
    }
    place.counts(2.0);
}

#[test]
fn a_missing_database_without_events_is_detected_too() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let workspace = directory.path().join("workspace.json");
    std::fs::write(&workspace, WORKSPACE).unwrap();
    done(&["apply", &workspace.to_string_lossy()], &data);
    let place = Installation { directory, data };
    assert!(place.events().is_empty());
    std::fs::remove_file(place.file(DATABASE)).unwrap();
    place.is_refused(&["it is missing", MARK]);
}

#[test]
fn an_older_copy_of_the_database_is_rejected() {
    let place = Installation::new();
    let (older, mark) = (place.copy(DATABASE), place.copy(MARK));
    place.import("e3", 5);
    let newer = place.directory.path().join("newer");
    std::fs::copy(place.file(DATABASE), &newer).unwrap();
    let newer_mark = std::fs::read(place.file(MARK)).unwrap();
    place.put(&older);
    place.is_refused(&["acknowledged writes are missing", "older copy"]);
    // A restore of everything but the events is rejected by the objects beside these.
    std::fs::copy(&mark, place.file(MARK)).unwrap();
    place.is_refused(&["the tables are older than the events", "project 1"]);
    std::fs::remove_file(place.file(MARK)).unwrap();
    place.is_refused(&["the tables are older than the events", "project 1"]);
    place.put(&newer);
    std::fs::write(place.file(MARK), newer_mark).unwrap();
    place.counts(3.0);
}

#[test]
fn tables_and_events_of_two_installations_are_refused() {
    let (place, other) = (Installation::new(), Installation::new());
    let own = place.copy(DATABASE);
    place.put(&other.file(DATABASE));
    std::fs::remove_file(place.file(MARK)).unwrap();
    place.is_refused(&["the tables are of installation", "the events of installation"]);
    // An empty installation of a trial.
    let empty = tempfile::tempdir().unwrap();
    let file = empty.path().join("workspace.json");
    std::fs::write(&file, "{}").unwrap();
    done(&["apply", &file.to_string_lossy()], empty.path());
    place.put(&empty.path().join(DATABASE));
    assert!(!place.file(MARK).exists(), "tables that are refused are not counted");
    place.is_refused(&["the tables are empty"]);
    place.put(&own);
    place.counts(2.0);

    let away = place.directory.path().join("away");
    std::fs::rename(place.file("events"), &away).unwrap();
    std::fs::create_dir(place.file("events")).unwrap();
    place.is_refused(&["the tables list stored events, and there are none"]);
    std::fs::remove_dir(place.file("events")).unwrap();
    std::fs::rename(other.file("events"), place.file("events")).unwrap();
    place.is_refused(&["the tables are of installation", "the events of installation"]);
    std::fs::remove_dir_all(place.file("events")).unwrap();
    std::fs::rename(&away, place.file("events")).unwrap();
    place.counts(2.0);
}

#[test]
fn a_truncated_log_is_rejected_and_a_complete_one_of_a_killed_server_is_accepted() {
    let (place, mut server) = Installation::served();
    for (number, day) in (10..30).zip(1..) {
        capture(&server, &number.to_string(), day);
    }
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let (database, log) = (place.copy(DATABASE), place.copy(LOG));
    let bytes = std::fs::metadata(&log).unwrap().len();
    assert!(bytes > 20 * 4096, "{bytes} bytes of a log that was not checkpointed");
    let put_back = || {
        for (copy, name) in [(&database, DATABASE), (&log, LOG)] {
            std::fs::copy(copy, place.file(name)).unwrap();
        }
    };
    let behind = ["acknowledged writes are missing", LOG];
    std::fs::remove_file(place.file(LOG)).unwrap();
    place.is_refused(&behind);
    for left in [0, 20, bytes / 2, bytes - 1] {
        put_back();
        let cut = std::fs::OpenOptions::new().write(true).open(place.file(LOG)).unwrap();
        cut.set_len(left).unwrap();
        drop(cut);
        place.is_refused(&behind);
    }
    for at in [40, 32 + 24 + 100, bytes / 2] {
        put_back();
        flip(&place.file(LOG), at, 1);
        place.is_refused(&["damaged at frame", LOG]);
        let backup =
            pennon(&["backup", "--out", &place.directory.path().join("b").to_string_lossy()], &place.data);
        assert!(!backup.status.success() && text(&backup.stderr).contains("acknowledged writes are missing"));
        // Without the mark only the log shows it.
        let mark = std::fs::read(place.file(MARK)).unwrap();
        std::fs::remove_file(place.file(MARK)).unwrap();
        place.is_refused(&["damaged at frame", LOG]);
        std::fs::write(place.file(MARK), mark).unwrap();
    }
    put_back();
    flip(&place.file(LOG), bytes - 10, 1);
    place.is_refused(&behind);
    put_back();
    place.counts(22.0);
}

#[test]
fn adopting_older_tables_keeps_every_file() {
    let place = Installation::new();
    let older = place.copy(DATABASE);
    place.import("e3", 5);
    let before = place.events();
    let newer = place.directory.path().join("newer");
    std::fs::rename(place.file(DATABASE), &newer).unwrap();
    place.put(&older);
    let output_text = done(&["adopt"], &place.data);
    assert!(output_text.contains("are kept in kept/"), "{output_text}");
    let names = |files: &BTreeSet<PathBuf>| -> BTreeSet<String> {
        files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect()
    };
    let after = place.events();
    assert!(names(&before).is_subset(&names(&after)), "{before:?} {after:?}");
    place.counts(2.0);
    done(&["compact"], &place.data);
    assert!(names(&before).is_subset(&names(&place.events())));
    // Older tables that are restored later are rejected.
    place.put(&newer);
    std::fs::remove_file(place.file(MARK)).unwrap();
    place.is_refused(&["the tables are of installation"]);
}

#[test]
fn a_restored_backup_is_the_same_installation_at_an_earlier_moment() {
    let place = Installation::new();
    let backup = place.directory.path().join("backup.tar").to_string_lossy().into_owned();
    done(&["backup", "--out", &backup], &place.data);
    place.import("e3", 5);
    let data = place.directory.path().join("restored");
    done(&["restore", &backup], &data);
    let restored = Installation { directory: tempfile::tempdir().unwrap(), data };
    restored.counts(2.0);
    restored.import("e4", 6);
    restored.counts(3.0);
    // Its tables with the events of the other installation, which continued.
    std::fs::remove_file(place.file(MARK)).unwrap();
    let restored_again = place.directory.path().join("again");
    done(&["restore", &backup], &restored_again);
    place.put(&restored_again.join(DATABASE));
    place.is_refused(&["the tables are older than the events"]);
}

#[test]
fn an_installation_of_an_earlier_release_gets_its_id_at_the_first_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let backup = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/formats/1/backup");
    done(&["restore", backup], &data);
    let place = Installation { directory, data };
    let has_id = |place: &Installation| place.file("events/installation").exists();
    assert!(!has_id(&place));
    let copy = place.copy(DATABASE);
    assert_eq!(Server::start(&place.data, &[]).stop(), 0);
    assert!(has_id(&place));
    // Killed between the row and what lies beside the events: the next start continues. The row loses its checksum, which
    // is that of the body before.
    let connection = Connection::open(place.file(DATABASE)).unwrap();
    let table = pennon_core::config::StoreConfig::local().records_table;
    let sql = format!(
        "UPDATE \"{table}\" SET item_json = json_remove(replace(item_json, '\\\"complete\\\":true', '\\\"complete\\\":false'), '$.c') \
         WHERE sk = 'S:INSTALLATION'"
    );
    assert_eq!(connection.execute(&sql, []).unwrap(), 1);
    drop(connection);
    std::fs::remove_dir_all(place.file("events/installation")).unwrap();
    assert_eq!(Server::start(&place.data, &[]).stop(), 0);
    assert!(has_id(&place));
    place.put(&copy);
    std::fs::remove_file(place.file(MARK)).unwrap();
    place.is_refused(&["the events are of installation", "the tables of none"]);
}

#[test]
fn an_unlisted_file_is_reported_by_check() {
    let place = Installation::new();
    let orphans = place.file("events/orphans/project=1/events");
    std::fs::create_dir_all(&orphans).unwrap();
    std::fs::write(orphans.join("2026-01-05.0001-ab.parquet"), "left").unwrap();
    let output_text = done(&["check"], &place.data);
    assert!(
        output_text.contains("2026-01-05.0001-ab.parquet, 4 bytes") && output_text.contains("2026-02-05"),
        "{output_text}"
    );
}
