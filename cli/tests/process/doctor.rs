//! `pennon doctor` and `pennon health`: what they report, and their exit status.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{BINARY, KEY, WORKSPACE, pennon, served, text};

/// The state of each check, by its name.
fn states(report: &Output) -> Value {
    let document: Value =
        serde_json::from_slice(&report.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&report.stderr)));
    let checks = document["checks"].as_array().unwrap();
    checks.iter().map(|it| (it["check"].as_str().unwrap().to_owned(), it["state"].clone())).collect()
}

#[test]
fn a_served_installation_has_no_failure_and_a_stopped_one_neither() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let report = pennon(&["doctor"], &data);
    let lines = text(&report.stdout);
    assert_eq!((report.status.code(), text(&report.stderr).as_str()), (Some(0), ""), "{lines}");
    assert!(lines.starts_with("ok       version") && !lines.contains("failure"), "{lines}");
    let found = states(&pennon(&["doctor", "--json"], &data));
    for check in ["data directory", "permissions", "database", "server", "latency", "clock", "server version"]
    {
        assert_eq!(found[check], "ok", "{check}: {found}");
    }
    let health = pennon(&["health"], &data);
    assert_eq!((health.status.code(), text(&health.stdout).as_str()), (Some(0), "ok\n"));
    let url = format!("http://{}", server.address);
    let health = Command::new(BINARY).args(["health", "--json", "--url", &url]).output().unwrap();
    let document: Value = serde_json::from_slice(&health.stdout).unwrap();
    assert_eq!(document, json!({"url": url, "healthy": true, "problems": []}));
    for (key, state) in [(KEY, "ok"), ("phx_wrong", "failure")] {
        let report = Command::new(BINARY)
            .args(["doctor", "--json", "--url", &url])
            .env("PENNON_API_KEY", key)
            .output()
            .unwrap();
        assert_eq!(states(&report)["API key"], state, "{}", text(&report.stdout));
        assert_eq!(report.status.code(), Some(i32::from(state == "failure")));
        assert!(!text(&report.stdout).contains(key), "no secret is printed");
    }

    assert_eq!(server.stop(), 0);
    let stopped = pennon(&["health"], &data);
    assert_eq!(stopped.status.code(), Some(1));
    assert!(text(&stopped.stderr).contains("start `pennon serve`"), "{}", text(&stopped.stderr));
    let stopped = Command::new(BINARY).args(["health", "--url", &url]).output().unwrap();
    assert_eq!(stopped.status.code(), Some(1));
    assert!(text(&stopped.stderr).contains("does not respond"), "{}", text(&stopped.stderr));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let report = pennon(&["doctor", "--json", "--port", &port], &data);
    assert_eq!((report.status.code(), &states(&report)["port"]), (Some(0), &json!("warning")));
}

#[test]
fn what_is_wrong_is_a_failure_with_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let report = pennon(&["doctor"], &directory.path().join("none"));
    let lines = text(&report.stdout);
    assert_eq!(report.status.code(), Some(1), "{lines}");
    assert!(
        lines.contains("failure  data directory") && lines.contains("-> create one with `pennon serve`"),
        "{lines}"
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is created");
    let file = directory.path().join("workspace.json");
    std::fs::write(&file, WORKSPACE).unwrap();
    let data = directory.path().join("data");
    assert!(pennon(&["apply", &file.to_string_lossy()], &data).status.success());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
        let report = pennon(&["doctor"], &data);
        let lines = text(&report.stdout);
        assert!(report.status.success() && lines.contains("-> run chmod -R go= "), "{lines}");
    }
    let database = data.join("dynamodb.sqlite");
    std::fs::write(&database, b"no database").unwrap();
    let report = pennon(&["doctor", "--json"], &data);
    assert_eq!((report.status.code(), &states(&report)["database"]), (Some(1), &json!("failure")));
}

#[test]
fn a_deployment_is_checked_step_by_step() {
    let (directory, server) = served();
    let home = tempfile::tempdir().unwrap();
    let examine = |environment: &[(&str, &str)]| {
        let mut command = Command::new(BINARY);
        command.args(["doctor", "--cloud", "--json"]).env_clear().env("HOME", home.path());
        command
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .envs(environment.iter().copied())
            .current_dir(home.path());
        let report = command.output().unwrap();
        assert_eq!(report.status.code(), Some(1), "{}", text(&report.stdout));
        assert!(!text(&report.stdout).contains("secret-of-test"));
        states(&report)
    };
    assert_eq!(examine(&[])["settings"], "failure");
    let events = ("PENNON_EVENTS_URL", "s3://bucket/events");
    assert_eq!(examine(&[events])["region"], "failure");
    assert_eq!(examine(&[events, ("AWS_REGION", "us-east-1")])["credentials"], "failure");
    let info: Value =
        serde_json::from_slice(&std::fs::read(directory.path().join("data/server.json")).unwrap()).unwrap();
    let all = [
        events,
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL_DYNAMODB", info["dynamodb"].as_str().unwrap()),
        ("AWS_ACCESS_KEY_ID", info["access_key_id"].as_str().unwrap()),
        ("AWS_SECRET_ACCESS_KEY", "secret-of-test"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"),
    ];
    let found = examine(&all);
    for check in ["settings", "region", "credentials", "records table", "blocks table", "latency"] {
        assert_eq!(found[check], "ok", "{check}: {found}");
    }
    assert_eq!(found["bucket"], "failure", "{found}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing is created");
    assert_eq!(server.stop(), 0);
}
