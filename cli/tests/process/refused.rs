//! Rejected commands: a short error names the problem and the next step.

use std::process::Command;

use serde_json::Value;

use super::{BINARY, pennon, served, text};

#[test]
fn errors_of_wrong_input_name_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let absent = pennon(&["keys", "create", "--label", "x"], directory.path());
    assert!(
        text(&absent.stderr).contains("holds no Pennon installation; create one there with `pennon serve`")
    );
    let no_file = pennon(&["apply", "nowhere.yaml"], directory.path());
    assert!(text(&no_file.stderr).contains("nowhere.yaml cannot be read"));
    let bad = directory.path().join("bad.yaml");
    std::fs::write(&bad, "projects: [{id: x}]").unwrap();
    let bad = pennon(&["apply", &bad.to_string_lossy()], directory.path());
    assert!(text(&bad.stderr).contains("bad.yaml"), "{}", text(&bad.stderr));
    assert!(!bad.status.success());
}

#[test]
fn a_missing_table_is_an_error_of_one_line() {
    let (directory, server) = served();
    let info = std::fs::read(directory.path().join("data/server.json")).unwrap();
    let info: Value = serde_json::from_slice(&info).unwrap();
    let of_server = |name: &str| info[name].as_str().unwrap();
    let file = directory.path().join("workspace.json");
    let refused = Command::new(BINARY)
        .args(["apply", "--cloud"])
        .arg(file)
        .envs([("AWS_ENDPOINT_URL_DYNAMODB", of_server("dynamodb")), ("AWS_REGION", "us-east-1")])
        .envs([("AWS_ACCESS_KEY_ID", of_server("access_key_id")), ("AWS_SECRET_ACCESS_KEY", "local")])
        .envs([("PENNON_RECORDS_TABLE", "no-records"), ("PENNON_BLOCKS_TABLE", "no-blocks")])
        .env("PENNON_EVENTS_URL", "file:///nowhere")
        .output()
        .unwrap();
    let output_text = text(&refused.stderr);
    assert!(!refused.status.success());
    assert!(
        output_text.contains("there is no table no-records in the region us-east-1; set AWS_REGION")
            && output_text.len() < 400,
        "{output_text}"
    );
    assert_eq!(server.stop(), 0);
}
