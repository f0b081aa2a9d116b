//! Files and the DynamoDB port are accessible only to the user who runs the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{BINARY, Server, WORKSPACE, pennon, purchase, served, text};

/// Asserts that `path` and all files in it are accessible only to their owner, and returns the number of files.
fn assert_private(path: &Path) -> usize {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    let mode = metadata.permissions().mode() & 0o777;
    if !metadata.is_dir() {
        assert_eq!(mode, 0o600, "{}", path.display());
        return 1;
    }
    assert_eq!(mode, 0o700, "{}", path.display());
    std::fs::read_dir(path).unwrap().map(|entry| assert_private(&entry.unwrap().path())).sum()
}

/// Runs `script` with the usual umask.
fn with_usual_mask(program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 022 && exec \"$0\" \"$@\"", program]);
    command
}

fn set_modes(path: &Path) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            set_modes(&entry.unwrap().path());
        }
    }
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn directories_and_files_are_accessible_only_to_their_owner() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let file = directory.path().join("workspace.json");
    std::fs::write(&file, WORKSPACE).unwrap();
    let start =
        || Server::start_by(&mut with_usual_mask(BINARY), &data, &["--workspace", &file.to_string_lossy()]);
    let run = |arguments: &[&str]| {
        let done = with_usual_mask(BINARY).args(arguments).arg("--data").arg(&data).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
    };
    let server = start();
    let event = purchase("01900000-0000-7000-8000-0000000000e1", 3);
    assert_eq!(server.post("/batch/", &json!({"api_key": "phc_process", "batch": [event]})).0, 200);
    run(&["compact"]);
    assert_eq!(server.purchases(), 1.0);
    let names = ["server.json", "dynamodb.sqlite", "dynamodb.sqlite-wal", "payload.key", "lock"];
    assert!(names.iter().all(|name| data.join(name).exists()));
    assert!(assert_private(&data) > names.len(), "segments are there too");
    let (copy, taken) = (directory.path().join("copy"), directory.path().join("export"));
    run(&["backup", "--out", &copy.to_string_lossy()]);
    run(&["export", "--out", &taken.to_string_lossy()]);
    assert!(assert_private(&copy) > 2 && assert_private(&taken) > 0);
    assert_eq!(server.stop(), 0);

    // As an earlier release left it.
    set_modes(&data);
    let server = start();
    assert!(assert_private(&data) > names.len());
    assert_eq!(server.purchases(), 1.0);
}

/// Writes an item through the DynamoDB port, signed with this access key id.
fn put(place: &str, id: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(place).unwrap();
    let body =
        json!({"TableName": "pennon-records", "Item": {"pk": {"S": "X"}, "sk": {"S": "Y"}}}).to_string();
    let signed = id.map_or(String::new(), |id| {
        format!(
            "Authorization: AWS4-HMAC-SHA256 Credential={id}/20260101/us-east-1/dynamodb/aws4_request, \
             SignedHeaders=host, Signature=00\r\n"
        )
    });
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: {place}\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\n{signed}\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    (response.split(' ').nth(1).unwrap().parse().unwrap(), response)
}

#[test]
fn the_dynamodb_port_accepts_only_the_credentials_of_server_json() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let info: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).unwrap()).unwrap();
    let place = info["dynamodb"].as_str().unwrap().strip_prefix("http://").unwrap();
    let id = info["access_key_id"].as_str().unwrap();
    for wrong in [None, Some("local"), Some(""), Some(&id[1..])] {
        let (status, response) = put(place, wrong);
        assert_eq!(status, 403, "{wrong:?}: {response}");
        assert!(
            response.contains("UnrecognizedClientException") && response.contains("pennon env"),
            "{response}"
        );
    }
    assert_eq!(put(place, Some(id)).0, 200);
    assert!(!server.output_text.contains(id), "what is printed may be seen by others");

    // Any client can use the tables with the printed environment.
    let printed = text(&pennon(&["env"], &data).stdout);
    let applied = Command::new("sh")
        .args(["-c", "eval \"$1\" && exec \"$0\" keys list --cloud", BINARY, &printed])
        .output()
        .unwrap();
    assert!(text(&applied.stdout).contains("test  ada@example.com"), "{}", text(&applied.stderr));
    assert_eq!(server.stop(), 0);

    // Each start has new credentials.
    let server = Server::start(&data, &[]);
    let again: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).unwrap()).unwrap();
    assert_ne!(again["access_key_id"], info["access_key_id"]);
    assert_eq!(server.stop(), 0);
    let none = pennon(&["env"], &data);
    assert!(
        !none.status.success() && text(&none.stderr).contains("no server runs on"),
        "{}",
        text(&none.stderr)
    );
}
