//! Backups of a server during writes, and restores from them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use super::{BINARY, KEY, Server, done, pennon, purchase, served, text};

const FLAGS: &str = "/api/projects/1/feature_flags/";
/// How many clients write at once.
const CLIENTS: usize = 4;
/// Events of a batch.
const BATCH: u64 = 3;

/// The acknowledged writes of a client: so many flags, each changed once, and batches, each sent after a flag.
#[derive(Default)]
struct Acknowledged {
    flags: AtomicU64,
    batches: AtomicU64,
}

impl Acknowledged {
    fn now(&self) -> (u64, u64) {
        // Batches are sent after flags, so they are read first.
        let batches = self.batches.load(Ordering::SeqCst);
        (self.flags.load(Ordering::SeqCst), batches)
    }
}

/// Creates a flag, changes it, sends a batch, and again.
fn write_until(stop: &AtomicBool, server: &Server, client: usize, done: &Acknowledged) {
    for round in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let (status, flag) = server.post(FLAGS, &json!({"key": format!("c{client}-{round}")}));
        assert_eq!(status, 201, "{flag}");
        let one = format!("{FLAGS}{}/", flag["id"]);
        let (status, changed) = server.request("PATCH", &one, KEY, &json!({"name": "changed"}));
        assert_eq!(status, 200, "{changed}");
        done.flags.fetch_add(1, Ordering::SeqCst);
        let event = |n: u64| {
            let minute = (round as u64 * BATCH + n) % 60;
            json!({"event": format!("seen {client}"), "distinct_id": format!("p{round}"),
                "timestamp": format!("2024-01-09T10:{minute:02}:00Z")})
        };
        let batch: Vec<_> = (0..BATCH).map(event).collect();
        let (status, output_text) =
            server.post("/batch/", &json!({"api_key": "phc_process", "batch": batch}));
        assert_eq!(status, 200, "{output_text}");
        done.batches.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits until every client has been acknowledged so many batches.
fn wait_for(acknowledged: &[Acknowledged], batches: u64) -> Vec<(u64, u64)> {
    while acknowledged.iter().any(|of| of.batches.load(Ordering::SeqCst) < batches) {
        std::thread::yield_now();
    }
    acknowledged.iter().map(Acknowledged::now).collect()
}

fn backup(data: &Path, place: &Path, more: &[&str]) -> Output {
    let place = place.to_string_lossy().into_owned();
    pennon(&[&["backup", "--out", &place], more].concat(), data)
}

fn backed_up(data: &Path, place: &Path, more: &[&str]) -> String {
    let output = backup(data, place, more);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn restored(place: &Path, data: &Path) -> String {
    done(&["restore", &place.to_string_lossy()], data)
}

/// The error of a rejected restore, which leaves no files.
fn refused(place: &Path, data: &Path) -> String {
    let output = pennon(&["restore", &place.to_string_lossy()], data);
    assert!(!output.status.success(), "{}", text(&output.stdout));
    assert!(!data.exists(), "nothing is left where nothing was restored");
    assert_eq!(unfinished(data.parent().unwrap()), Vec::<PathBuf>::new());
    text(&output.stderr)
}

/// Temporary files that were not renamed yet.
fn unfinished(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains(".unfinished-")).collect()
}

/// The number of flags and of events per client, after comparing each flag with its log.
fn found(server: &Server) -> Vec<(u64, u64)> {
    let listed = server.get(&format!("{FLAGS}?limit=100000"));
    let flags = listed["results"].as_array().unwrap();
    assert_eq!(listed["count"], flags.len());
    let mut changed = [0; CLIENTS];
    for flag in flags {
        let one = format!("{FLAGS}{}/", flag["id"]);
        assert_eq!(&server.get(&one), flag, "record and row are equal");
        let log = server.get(&format!("{one}activity/"));
        let kinds: Vec<_> =
            log["results"].as_array().unwrap().iter().map(|entry| &entry["activity"]).collect();
        // The newest entry comes first.
        let (expected, name): (&[&str], _) =
            if flag["version"] == 2 { (&["updated", "created"], "changed") } else { (&["created"], "") };
        assert_eq!(
            (&kinds[..], &flag["name"]),
            (
                &expected.iter().map(|kind| json!(kind)).collect::<Vec<_>>().iter().collect::<Vec<_>>()[..],
                &json!(name)
            ),
            "{flag}"
        );
        let client: usize = flag["key"].as_str().unwrap()[1..2].parse().unwrap();
        changed[client] += u64::from(flag["version"] == 2);
    }
    let events = |client: usize| {
        let body = json!({"events": [{"id": format!("seen {client}")}], "date_from": "2024-01-01",
            "date_to": "2024-01-31"});
        let (status, response) = server.post("/api/projects/1/insights/trend/?refresh=true", &body);
        assert_eq!(status, 200, "{response}");
        response["result"][0]["count"].as_f64().unwrap() as u64
    };
    changed.into_iter().enumerate().map(|(client, changed)| (changed, events(client))).collect()
}

/// Whether `found` is a state at some moment after `before` was acknowledged.
fn assert_one_moment(found: &[(u64, u64)], before: &[(u64, u64)]) {
    for ((flags, events), (least_flags, least_batches)) in found.iter().zip(before) {
        assert_eq!(events % BATCH, 0, "a batch is there whole or not at all");
        let batches = events / BATCH;
        assert!(flags >= least_flags && batches >= *least_batches, "{found:?} after {before:?}");
        // A client sends each batch when its flag has been changed, and creates the next flag behind it.
        assert!(*flags == batches || *flags == batches + 1, "{flags} flags and {batches} batches");
    }
}

#[test]
fn a_backup_during_writes_is_of_one_moment() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let place = |name: &str| directory.path().join(name);
    let acknowledged: Vec<Acknowledged> = (0..CLIENTS).map(|_| Acknowledged::default()).collect();
    let stop = AtomicBool::new(false);
    let (first, second) = std::thread::scope(|scope| {
        let writers = acknowledged.iter().enumerate().map(|(client, done)| {
            let (stop, server) = (&stop, &server);
            scope.spawn(move || write_until(stop, server, client, done))
        });
        let writers: Vec<_> = writers.collect();
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                done(&["compact"], &data);
            }
        });
        let first = wait_for(&acknowledged, 3);
        backed_up(&data, &place("first"), &[]);
        let second = wait_for(&acknowledged, 2 + first.iter().map(|of| of.1).max().unwrap());
        backed_up(&data, &place("second.tar"), &[]);
        stop.store(true, Ordering::SeqCst);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        (first, second)
    });
    let last: Vec<_> = acknowledged.iter().map(Acknowledged::now).collect();
    assert_eq!(found(&server), last.iter().map(|of| (of.0, of.1 * BATCH)).collect::<Vec<_>>());
    assert_eq!(server.stop(), 0);
    assert_eq!((unfinished(&data), unfinished(directory.path())), (vec![], vec![]));

    let mut seen = Vec::new();
    for (backup, data, before) in [
        ("first", "a", &first),
        ("first", "b", &first),
        ("second.tar", "c", &second),
        ("second.tar", "d", &second),
    ] {
        let data = place(data);
        restored(&place(backup), &data);
        let checked = done(&["check"], &data);
        assert!(!checked.contains("damaged"), "{checked}");
        let server = Server::start(&data, &[]);
        let now = found(&server);
        assert_one_moment(&now, before);
        // It continues from there.
        let (status, flag) = server.post(FLAGS, &json!({"key": "c0-new"}));
        assert_eq!(status, 201, "{flag}");
        assert_eq!(server.stop(), 0);
        done(&["compact"], &data);
        seen.push(now);
    }
    assert_eq!((&seen[0], &seen[2]), (&seen[1], &seen[3]), "two restores of one backup have equal rows");
    assert_ne!(seen[0], seen[2]);
}

/// A data directory with a flag, and events in a segment and in a block.
fn filled() -> (tempfile::TempDir, PathBuf) {
    let (directory, server) = served();
    let data = directory.path().join("data");
    assert_eq!(server.post(FLAGS, &json!({"key": "kept"})).0, 201);
    for (uuid, day) in
        [("01900000-0000-7000-8000-0000000000e1", 3), ("01900000-0000-7000-8000-0000000000e2", 4)]
    {
        let sent = json!({"api_key": "phc_process", "batch": [purchase(uuid, day)]});
        assert_eq!(server.post("/batch/", &sent).0, 200);
        if day == 3 {
            done(&["compact"], &data);
        }
    }
    assert_eq!(server.stop(), 0);
    (directory, data)
}

/// All files below a directory.
fn all_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { all_files(&path) } else { vec![path] }).collect()
}

fn copy_directory(from: &Path, to: &Path) {
    for file in all_files(from) {
        let to = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(file, to).unwrap();
    }
}

#[test]
fn a_backup_with_any_damage_is_rejected() {
    let (directory, data) = filled();
    let (whole, spoilt, new) =
        (directory.path().join("whole"), directory.path().join("spoilt"), directory.path().join("new"));
    backed_up(&data, &whole, &[]);
    let files = all_files(&whole);
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        let name = file.strip_prefix(&whole).unwrap();
        let spoil: [&dyn Fn(&Path); 3] = [
            &|path| {
                let mut bytes = std::fs::read(path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x01;
                std::fs::write(path, bytes).unwrap();
            },
            &|path| {
                let bytes = std::fs::read(path).unwrap();
                std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
            },
            &|path| std::fs::remove_file(path).unwrap(),
        ];
        for (how, spoil) in spoil.iter().enumerate() {
            if how == 1 && name == Path::new("backup.json") {
                // Its last byte is the end of the last line.
                continue;
            }
            copy_directory(&whole, &spoilt);
            spoil(&spoilt.join(name));
            let output_text = refused(&spoilt, &new);
            assert!(output_text.contains(name.to_str().unwrap()), "{output_text}");
            std::fs::remove_dir_all(&spoilt).unwrap();
        }
    }
    // As one file.
    let packed = directory.path().join("packed.tar");
    backed_up(&data, &packed, &[]);
    let bytes = std::fs::read(&packed).unwrap();
    for cut in [0, 100, 600, bytes.len() / 2, bytes.len() - 4000] {
        std::fs::write(&packed, &bytes[..cut]).unwrap();
        refused(&packed, &new);
    }
    let mut other = bytes.clone();
    let middle = other.len() / 2;
    other[middle] ^= 0x01;
    std::fs::write(&packed, other).unwrap();
    refused(&packed, &new);
    // A backup of a newer release.
    let contents = std::fs::read_to_string(whole.join("backup.json")).unwrap();
    std::fs::write(whole.join("backup.json"), contents.replace("\"format\": 1", "\"format\": 2")).unwrap();
    let output_text = refused(&whole, &new);
    assert!(output_text.contains("format 2") && output_text.contains("newer release"), "{output_text}");
}

/// Files in the directory of a backup that the backup does not list.
#[test]
fn a_restore_leaves_out_what_a_backup_does_not_list() {
    let (directory, data) = filled();
    let (whole, more) = (directory.path().join("whole"), directory.path().join("more"));
    backed_up(&data, &whole, &[]);
    copy_directory(&whole, &more);
    let extras = ["dynamodb.sqlite-wal", "payload.key", "events/x"];
    for extra in extras {
        std::fs::write(more.join(extra), "not of the backup").unwrap();
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(&data, more.join("events/link")).unwrap();
    let (plain, new) = (directory.path().join("plain"), directory.path().join("new"));
    restored(&whole, &plain);
    restored(&more, &new);
    let names = |data: &Path| -> std::collections::BTreeSet<PathBuf> {
        let files = all_files(data).into_iter();
        files.map(|file| file.strip_prefix(data).unwrap().to_owned()).collect()
    };
    let found = names(&new);
    assert_eq!(found, names(&plain));
    assert!(extras.iter().all(|extra| !found.contains(Path::new(extra))), "{found:?}");
    assert!(new.join("events/link").symlink_metadata().is_err());
    let server = Server::start(&new, &[]);
    assert_eq!((server.purchases(), &server.get(FLAGS)["results"][0]["key"]), (json!(2.0), &json!("kept")));
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_backup_overwrites_nothing_and_is_complete_or_fails() {
    let (directory, data) = filled();
    let place = directory.path().join("backup");
    let output_text = backed_up(&data, &place, &["--link"]);
    assert!(output_text.contains("payload.key") && !place.join("payload.key").exists(), "{output_text}");
    let again = backup(&data, &place, &[]);
    assert!(
        !again.status.success() && text(&again.stderr).contains("is there already"),
        "{}",
        text(&again.stderr)
    );
    let cloud = backup(&data, &directory.path().join("cloud"), &["--cloud"]);
    assert!(
        !cloud.status.success() && text(&cloud.stderr).contains("docs/exit.md"),
        "{}",
        text(&cloud.stderr)
    );
    let nowhere = backup(&directory.path().join("nowhere"), &directory.path().join("none"), &[]);
    assert!(!nowhere.status.success() && !directory.path().join("nowhere").exists());

    let into = |data: &Path| text(&pennon(&["restore", &place.to_string_lossy()], data).stderr);
    assert!(into(&data).contains("is not empty"));
    let server = Server::start(&data, &[]);
    assert!(into(&data).contains("in use by another process"));
    assert_eq!(server.stop(), 0);
    let new = directory.path().join("new");
    std::fs::create_dir(&new).unwrap();
    let reported = restored(&place, &new);
    assert!(reported.contains("PENNON_PAYLOAD_KEY"), "{reported}");
    let server = Server::start(&new, &[]);
    assert_eq!((server.purchases(), &server.get(FLAGS)["results"][0]["key"]), (json!(2.0), &json!("kept")));
    assert_eq!(server.stop(), 0);

    let lost = super::segments(&data).remove(0);
    std::fs::remove_file(&lost).unwrap();
    let none = directory.path().join("none");
    let output = backup(&data, &none, &[]);
    let output_text = text(&output.stderr);
    assert!(
        output_text.contains(lost.file_name().unwrap().to_str().unwrap())
            && output_text.contains("pennon check"),
        "{output_text}"
    );
    assert!(!output.status.success() && !none.exists() && unfinished(directory.path()).is_empty());
    // A backup of damaged data fails too.
    std::fs::write(&lost, "no segment").unwrap();
    let output = backup(&data, &none, &[]);
    assert!(!output.status.success() && text(&output.stderr).contains("damaged"), "{}", text(&output.stderr));
    assert!(!none.exists() && unfinished(directory.path()).is_empty());
}

#[test]
fn a_killed_backup_leaves_no_backup_and_the_next_one_cleans_up() {
    let (directory, data) = filled();
    let place = directory.path().join("backup");
    for _ in 0..3 {
        let mut killed = Command::new(BINARY)
            .args(["backup", "--out"])
            .arg(&place)
            .arg("--data")
            .arg(&data)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while unfinished(directory.path()).is_empty() && killed.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let _ = killed.kill();
        killed.wait().unwrap();
        if place.exists() {
            // It ended before it was killed, and is complete.
            restored(&place, &directory.path().join("whole"));
            std::fs::remove_dir_all(&place).unwrap();
            std::fs::remove_dir_all(directory.path().join("whole")).unwrap();
            continue;
        }
        for left in unfinished(directory.path()) {
            let refused = pennon(&["restore", &left.to_string_lossy()], &directory.path().join("new"));
            assert!(!refused.status.success(), "{}", text(&refused.stdout));
        }
    }
    // Links of removed files occupy disk space; the next server removes them too.
    let left = data.join("backup.unfinished-1");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("lock"), "").unwrap();
    assert_eq!(Server::start(&data, &[]).stop(), 0);
    assert_eq!(unfinished(&data), Vec::<PathBuf>::new());
    backed_up(&data, &place, &[]);
    assert_eq!((unfinished(&data), unfinished(directory.path())), (vec![], vec![]));
    restored(&place, &directory.path().join("new"));
}

#[test]
fn secret_payloads_are_read_with_the_key_of_the_backup_or_of_the_environment() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let filters = json!({"groups": [{"properties": []}], "payloads": {"true": "\"hidden\""}});
    let secret = json!({"key": "secret", "is_remote_configuration": true, "has_encrypted_payloads": true,
        "filters": filters});
    let (status, made) = server.post(FLAGS, &secret);
    assert_eq!(status, 201, "{made}");
    let path = format!("{FLAGS}secret/remote_config");
    let shown = server.get(&path);
    assert!(shown.to_string().contains("hidden"), "{shown}");
    let place = |name: &str| directory.path().join(name);
    let without = backed_up(&data, &place("without"), &[]);
    assert!(without.contains("--with-payload-key"), "{without}");
    let with = backed_up(&data, &place("with.tar"), &["--with-payload-key"]);
    assert!(!with.contains("--with-payload-key"), "{with}");
    assert_eq!(server.stop(), 0);
    let key = std::fs::read(data.join("payload.key")).unwrap();

    restored(&place("with.tar"), &place("a"));
    assert_eq!(std::fs::read(place("a").join("payload.key")).unwrap(), key);
    let reported = restored(&place("without"), &place("b"));
    assert!(reported.contains("payload.key"), "{reported}");
    std::fs::write(place("b").join("payload.key"), &key).unwrap();
    for data in ["a", "b"] {
        let server = Server::start(&place(data), &[]);
        assert_eq!(server.get(&path), shown);
        assert_eq!(server.stop(), 0);
    }
    restored(&place("without"), &place("c"));
    let server = Server::start(&place("c"), &[]);
    let (status, response) = server.request("GET", &path, KEY, &Value::Null);
    assert!(status != 200 && !response.to_string().contains("hidden"), "{status} {response}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn imported_persons_of_a_project_without_events_are_backed_up() {
    let (directory, server) = served();
    assert_eq!(server.stop(), 0);
    let (data, place) = (directory.path().join("data"), directory.path().join("backup"));
    let lines = directory.path().join("persons.jsonl");
    std::fs::write(&lines, r#"{"person": {"distinct_ids": ["ada"], "properties": {"plan": "pro"}}}"#)
        .unwrap();
    done(&["import", &lines.to_string_lossy(), "--project", "1"], &data);
    backed_up(&data, &place, &[]);
    let again = directory.path().join("again");
    restored(&place, &again);
    let server = Server::start(&again, &[]);
    let listed = server.get("/api/projects/1/persons/");
    assert_eq!(listed["results"][0]["properties"]["plan"], "pro", "{listed}");
    assert_eq!(server.stop(), 0);
}
