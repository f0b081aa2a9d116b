//! Files of every format and vendor, imported by the binary and queried over HTTP; the output of an import, and its errors.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::{Server, WORKSPACE, done, pennon, text};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/import_files").join(name)
}

/// A server with a project for each number up to `projects`, each with the group type `company`.
fn served(projects: u64) -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let mut declared: Value = serde_json::from_str(WORKSPACE).unwrap();
    let first = declared["projects"][0].clone();
    let project = |id: u64| {
        let mut project = first.clone();
        project["id"] = json!(id.to_string());
        project["token"] = json!(format!("phc_{id}"));
        project["group_types"] = json!(["company"]);
        project
    };
    declared["projects"] = (1..=projects).map(project).collect();
    let file = directory.path().join("workspace.json");
    std::fs::write(&file, declared.to_string()).unwrap();
    let server = Server::start(&directory.path().join("data"), &["--workspace", &file.to_string_lossy()]);
    (directory, server)
}

fn import(data: &Path, file: &Path, project: u64, more: &[&str]) -> Value {
    let (file, project) = (file.to_string_lossy(), project.to_string());
    let arguments = [&["import", &*file, "--project", &*project, "--json"], more].concat();
    serde_json::from_str(&done(&arguments, data)).unwrap()
}

/// The number of events in January 2024, by this math.
fn count(server: &Server, project: u64, event: &str, math: &str) -> f64 {
    let body = json!({"events": [{"id": event, "math": math}], "interval": "month",
        "date_from": "2024-01-01", "date_to": "2024-01-31"});
    let (status, response) =
        server.post(&format!("/api/projects/{project}/insights/trend/?refresh=true"), &body);
    assert_eq!(status, 200, "{response}");
    response["result"][0]["count"].as_f64().unwrap()
}

/// The distinct ids, sorted, and the properties of the person with this one.
fn person(server: &Server, project: u64, distinct_id: &str) -> (Vec<String>, Value) {
    let page = server.get(&format!("/api/projects/{project}/persons/?distinct_id={distinct_id}"));
    assert_eq!(
        page["count"].as_u64().or(page["results"].as_array().map(|r| r.len() as u64)),
        Some(1),
        "{page}"
    );
    let person = &page["results"][0];
    let ids = person["distinct_ids"].as_array().unwrap().iter();
    let mut ids: Vec<String> = ids.map(|id| id.as_str().unwrap().to_owned()).collect();
    ids.sort();
    (ids, person["properties"].clone())
}

#[test]
fn each_vendors_export_gives_events_persons_and_merges() {
    let (directory, server) = served(4);
    let data = directory.path().join("data");
    // File, vendor, events, persons, merges, refused merges, groups; Ann's and Ben's ids.
    let files = [
        (
            "posthog_events.jsonl",
            "posthog",
            [8, 2, 2, 1, 1],
            ["ann", "ann@shop.example", "device-ann"],
            vec!["ben"],
        ),
        (
            "mixpanel.jsonl",
            "mixpanel",
            [7, 2, 3, 1, 0],
            ["$device:9f1c", "ann", "ann@shop.example"],
            vec!["7d3a21c4-0a51-4c1e-9c67-1f0d2b3a4c5d", "ben"],
        ),
        (
            "amplitude.json",
            "amplitude",
            [5, 2, 2, 1, 1],
            ["ann-user", "device-ann", "phone-ann"],
            vec!["ben-user"],
        ),
        ("segment.json", "segment", [5, 2, 2, 1, 1], ["a-1", "ann", "ann@shop.example"], vec!["ben"]),
    ];
    for (project, (file, vendor, [events, persons, merges, refused, groups], ann, ben)) in (1..).zip(files) {
        for is_again in [false, true] {
            let summary = import(&data, &golden(file), project, &[]);
            assert_eq!(summary["from"], vendor, "{file}");
            assert!(summary["recognised_by"].is_string(), "{file}");
            let counts = ["events", "persons", "merges", "merges_refused", "groups"]
                .map(|key| summary[key].as_u64().unwrap());
            assert_eq!(counts, [events, persons, merges, refused, groups], "{file}: {summary}");
            let copies = summary["events_there_already"].as_u64().unwrap();
            let own_copies = u64::from(vendor == "mixpanel");
            assert_eq!(copies, if is_again { events } else { own_copies }, "{file}");
        }
        assert_eq!(count(&server, project, "purchase", "total"), 3.0, "{file}");
        assert_eq!(count(&server, project, "purchase", "monthly_active"), 2.0, "{file}");
        let (ids, properties) = person(&server, project, ann[1]);
        assert_eq!(ids, ann, "{file}");
        if vendor != "mixpanel" {
            assert_eq!(properties, json!({"email": "ann@example.com", "plan": "pro"}), "{file}");
        }
        assert_eq!(person(&server, project, ben[ben.len() - 1]).0, ben, "{file}");
    }
    // Profiles are a file of their own.
    let summary = import(&data, &golden("mixpanel_profiles.json"), 2, &[]);
    assert_eq!((&summary["persons"], &summary["from"]), (&json!(2), &json!("mixpanel")));
    let (_, properties) = person(&server, 2, "ann");
    assert_eq!((&properties["plan"], &properties["$email"]), (&json!("pro"), &json!("ann@example.com")));
    assert_eq!(server.stop(), 0);
}

#[test]
fn posthogs_persons_model_maps_distinct_ids_to_persons() {
    let (directory, server) = served(1);
    let data = directory.path().join("data");
    let summary = import(&data, &golden("posthog_persons.jsonl"), 1, &[]);
    assert_eq!(
        (&summary["events"], &summary["persons"], &summary["merges"]),
        (&json!(0), &json!(2), &json!(2))
    );
    assert_eq!(summary["ignored"]["posthog: deleted persons"], 1);
    let (ids, properties) = person(&server, 1, "device-ann");
    assert_eq!(ids, ["ann", "ann@shop.example", "device-ann"]);
    assert_eq!(properties["plan"], "pro");
    // A property in a later file leaves the others unchanged.
    let later = directory.path().join("later.jsonl");
    let call = json!({"type": "identify", "userId": "ann", "messageId": "m1", "timestamp": "2024-02-01T00:00:00Z",
        "traits": {"plan": "large"}});
    std::fs::write(&later, format!("{call}\n")).unwrap();
    import(&data, &later, 1, &[]);
    let (_, properties) = person(&server, 1, "ann");
    assert_eq!(properties, json!({"email": "ann@example.com", "plan": "large"}));
    assert_eq!(server.stop(), 0);
}

const CSV: &str = "user;what;when;price;code;vip\n\
    ann;purchase;1704272400000;12.5;007;true\n\
    \"ben;jr\";purchase;1704358800000;;8;false\n\
    ann;\"view, \"\"home\"\"\";1704362400000;3;9;\n";
const RULES: [&str; 10] = [
    "--map",
    "user=distinct_id",
    "--map",
    "what=event",
    "--map",
    "when=timestamp",
    "--map",
    "price=properties.amount",
    "--extra",
    "properties",
];

#[test]
fn csv_and_arrays_plain_and_compressed_are_the_same_events() {
    let (directory, server) = served(2);
    let data = directory.path().join("data");
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(CSV.as_bytes()).unwrap();
    let plain = import(&data, &write("plain.csv", CSV.as_bytes()), 1, &RULES);
    assert_eq!((&plain["format"], &plain["events"]), (&json!("CSV (semicolons)"), &json!(3)));
    assert_eq!(plain["times"]["timestamp"], "epoch milliseconds");
    let packed = import(&data, &write("named-wrongly.json", &gzip.finish().unwrap()), 1, &RULES);
    assert_eq!((&packed["compression"], &packed["events_there_already"]), (&json!("gzip"), &json!(3)));
    let packed = import(&data, &write("zstd", &zstd::encode_all(CSV.as_bytes(), 1).unwrap()), 1, &RULES);
    assert_eq!((&packed["compression"], &packed["events_there_already"]), (&json!("zstd"), &json!(3)));
    assert_eq!(count(&server, 1, "purchase", "total"), 2.0);
    assert_eq!(count(&server, 1, "view, \"home\"", "total"), 1.0);
    let sum = |event: &str, property: &str| {
        let body = json!({"events": [{"id": event, "math": "sum", "math_property": property}], "interval": "month",
            "date_from": "2024-01-01", "date_to": "2024-01-31"});
        server.post("/api/projects/1/insights/trend/?refresh=true", &body).1["result"][0]["count"].clone()
    };
    assert_eq!(sum("purchase", "amount"), json!(12.5));
    // A column with `007` has texts, so that no digit is lost.
    let body = json!({"events": [{"id": "purchase"}], "breakdown": "code", "date_from": "2024-01-01", "date_to": "2024-01-31"});
    let (_, response) = server.post("/api/projects/1/insights/trend/?refresh=true", &body);
    let mut codes: Vec<&str> = response["result"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| series["breakdown_value"].as_str().unwrap())
        .collect();
    codes.sort();
    assert_eq!(codes, ["007", "8"]);

    let array = json!([
        {"event": "purchase", "distinct_id": "ann", "timestamp": 1_704_272_400, "properties": {"text": "a ] } \" b"}},
        {"event": "purchase", "distinct_id": "ben", "timestamp": 1_704_358_800.5},
    ]);
    let pretty = serde_json::to_string_pretty(&array).unwrap();
    let summary = import(&data, &write("array.json", pretty.as_bytes()), 2, &[]);
    assert_eq!((&summary["format"], &summary["events"]), (&json!("JSON array"), &json!(2)));
    assert_eq!(summary["times"]["timestamp"], "epoch seconds");
    assert_eq!(count(&server, 2, "purchase", "total"), 2.0);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_dry_run_prints_the_mapping_and_three_samples_and_creates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let file = directory.path().join("events.csv");
    std::fs::write(&file, CSV).unwrap();
    let file = file.to_string_lossy();
    let arguments = [&["import", &*file, "--project", "1", "--dry-run"], &RULES[..]].concat();
    let output_text = done(&arguments, &data);
    for part in [
        "CSV (semicolons), fields of pennon; timestamp: epoch milliseconds; fields:\n",
        "  user        ->  distinct_id\n",
        "  price       ->  properties.amount\n",
        "\"event\":\"purchase\",\"distinct_id\":\"ann\",\"timestamp\":\"2024-01-03T09:00:00.000000Z\"",
        "3 lines: 3 events; 0 persons, 0 groups\n",
        "nothing was stored",
    ] {
        assert!(output_text.contains(part), "{part} in {output_text}");
    }
    assert_eq!(output_text.matches("sample {").count(), 3, "{output_text}");
    assert!(!data.exists(), "a dry run makes no installation");
    let amplitude = golden("amplitude.json");
    let output_text = done(&["import", &amplitude.to_string_lossy(), "--project", "1", "--dry-run"], &data);
    assert!(
        output_text.contains("fields of amplitude (recognised by event_type, amplitude_id"),
        "{output_text}"
    );
    assert!(output_text.contains("{\"merge\":\"device-ann\",\"into\":\"ann-user\"}"), "{output_text}");
    assert!(
        output_text.contains("not kept of 1: groups of types that the project's group_types do not list"),
        "{output_text}"
    );
}

/// The error of the binary for an invalid file.
fn refused(content: &[u8], more: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, content).unwrap();
    let file = file.to_string_lossy();
    let arguments = [&["import", &*file, "--project", "1"], more].concat();
    let output = pennon(&arguments, &directory.path().join("data"));
    assert!(!output.status.success(), "{}", text(&output.stdout));
    let output_text = text(&output.stderr);
    assert_eq!(
        output_text.lines().count(),
        1,
        "no progress where standard error is no terminal: {output_text}"
    );
    output_text
}

#[test]
fn errors_name_the_line_and_the_next_step() {
    let line = |extra: &str| {
        format!(
            "{{\"event\": \"a\", \"distinct_id\": \"u\", \"timestamp\": \"2024-01-01T00:00:00Z\"{extra}}}\n"
        )
    };
    let output_text = refused(line(", \"price\": 3").as_bytes(), &[]);
    assert!(
        output_text.trim_end().ends_with(
            "line 1: `price` is not a field of an event; put it into `properties`, or pass --extra properties"
        ),
        "{output_text}"
    );
    let second = format!("{}{}", line(""), line("").replace("\"2024-01-01T00:00:00Z\"", "1704272400"));
    for (content, more, want) in [
        (second, &[][..], "line 2: timestamp is epoch seconds here and ISO 8601 in record 1"),
        (
            line("").replace("\"2024-01-01T00:00:00Z\"", "17"),
            &[][..],
            "line 1: timestamp 17 is neither an ISO 8601 time",
        ),
        (
            "{\"person\": {\"distinct_ids\": [\"a\"], \"name\": 1}}".to_owned(),
            &[][..],
            "line 1: `name` is not a field of a person",
        ),
        ("[{\"a\": 1}, 5]".to_owned(), &["--from", "segment"][..], "element 1: there is no type"),
        (format!("[{}, 5]", line("").trim()), &[][..], "element 2: not a JSON object"),
        (format!("[{}", line("").trim()), &[][..], "the file ends inside the array"),
        ("{\n  \"event\": 1\n}\n".to_owned(), &[][..], "read as an element of a JSON array only"),
        (
            "a,b\n1,2\n".to_owned(),
            &[][..],
            "line 1: has no column event; name the one that is it: --map COLUMN=event",
        ),
        (
            "event,distinct_id,timestamp,price\na,b,2024-01-01,3\n".to_owned(),
            &[][..],
            "line 1: `price` is not a field of an event; pass --map price=properties.price, or --extra properties",
        ),
        (
            "event,distinct_id,timestamp\na,b\n".to_owned(),
            &[][..],
            "line 2: has 2 cells, and the header has 3",
        ),
        ("event,event\n".to_owned(), &[][..], "line 1: there are two columns `event`"),
        ("a,b\n".to_owned(), &["--map", "x=event"][..], "the file has no column `x`; it has a, b"),
        (
            "{\"event_type\": \"a\", \"amplitude_id\": 1}".to_owned(),
            &[][..],
            "line 1: there is no event_time",
        ),
        (
            "{\"amplitude_id\": 1, \"merged_amplitude_id\": 2}".to_owned(),
            &[][..],
            "line 1: this is a table of merged Amplitude ids, which is not needed",
        ),
        ("%PDF-1.7\n...".to_owned(), &[][..], "looks like a PDF document; an import reads JSON lines"),
        ("PK\u{3}\u{4}0_2024.json.gz".to_owned(), &[][..], "looks like a zip archive; unpack it"),
        (
            "<!doctype html><html>".to_owned(),
            &[][..],
            "looks like an HTML page; the download was likely a login",
        ),
        ("SQLite format 3\0".to_owned(), &[][..], "looks like an SQLite database; export its table as CSV"),
    ] {
        let output_text = refused(content.as_bytes(), more);
        assert!(output_text.contains(want), "{want} in {output_text}");
    }
    let output_text = refused(b"{}", &["--map", "a=event", "--from", "segment"]);
    assert!(output_text.contains("leave one out"), "{output_text}");
    let mut tar = vec![0_u8; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar).unwrap();
    let output_text = refused(&gzip.finish().unwrap(), &[]);
    assert!(output_text.contains("looks like a tar archive inside gzip; unpack it"), "{output_text}");
    let utf16: Vec<u8> = line("").encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(refused(&utf16, &[]).contains("looks like UTF-16 text; save it as UTF-8"));
}

#[test]
fn unknown_fields_are_imported_or_skipped_by_a_rule_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let file = directory.path().join("lines.jsonl");
    let line = json!({"event": "a", "distinct_id": "u", "timestamp": "2024-01-01", "price": 3});
    std::fs::write(&file, format!("{line}\n")).unwrap();
    let dry = |rule: &str| import(&data, &file, 1, &["--dry-run", "--extra", rule]);
    let taken = dry("properties");
    assert_eq!(taken["samples"][0]["event"]["properties"], json!({"price": 3}));
    assert_eq!(taken["ignored"], json!({}));
    let left = dry("ignore");
    assert_eq!(left["samples"][0]["event"]["properties"], json!({}));
    assert_eq!(left["ignored"], json!({"unknown fields (--extra ignore)": 1}));
}

#[test]
fn a_record_of_16_mib_is_read_and_one_byte_more_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let most = 16 << 20;
    let line = |bytes: usize| {
        let head = r#"{"event":"a","distinct_id":"u","timestamp":"2024-01-01","properties":{"x":""#;
        format!("{head}{}\"}}}}", "x".repeat(bytes - head.len() - 3))
    };
    // The end of a line is a part of it.
    let formats = [("line 1", "", "\n", most - 1), ("element 1", "[", "]", most)];
    for (name, before, after, longest) in formats {
        for (bytes, is_read) in [(longest, true), (longest + 1, false)] {
            let file = directory.path().join("file");
            std::fs::write(&file, format!("{before}{}{after}", line(bytes))).unwrap();
            let output = pennon(
                &["import", &file.to_string_lossy(), "--project", "1", "--dry-run"],
                &directory.path().join("data"),
            );
            assert_eq!(output.status.success(), is_read, "{name} of {bytes}: {}", text(&output.stderr));
            assert!(is_read || text(&output.stderr).contains(&format!("{name}: longer than 16 MiB")));
        }
    }
}

/// 64 MiB of one record, in 64 KB of a compressed file: no more of it than a record may have is decompressed into memory.
#[test]
fn a_record_that_is_too_long_after_decompression_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file.gz");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(br#"{"event":"a","distinct_id":"u","properties":{"x":""#).unwrap();
    encoder.write_all(&vec![b'x'; 64 << 20]).unwrap();
    encoder.write_all(b"\"}}\n").unwrap();
    let bytes = encoder.finish().unwrap();
    assert!(bytes.len() < 100_000, "{}", bytes.len());
    std::fs::write(&file, bytes).unwrap();
    let output = pennon(
        &["import", &file.to_string_lossy(), "--project", "1", "--dry-run"],
        &directory.path().join("data"),
    );
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("line 1: longer than 16 MiB"), "{}", text(&output.stderr));
}
