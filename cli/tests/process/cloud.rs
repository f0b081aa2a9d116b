//! `--cloud` if the deployment cannot be used: one line within seconds that names the next step.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{BINARY, served, text};

/// The maximum time of a command.
const TIME_MAX: Duration = Duration::from_secs(20);
const CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "AKIATEST"), ("AWS_SECRET_ACCESS_KEY", "secret-of-test")];

/// The line with which `keys list --cloud` and `check --cloud` fail in this environment and no other.
fn refusal(environment: &[(&str, &str)]) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut lines = Vec::new();
    for command in ["keys list --cloud", "check --cloud"] {
        let begun = Instant::now();
        let failed = Command::new(BINARY)
            .args(command.split(' '))
            .env_clear()
            .envs([("AWS_EC2_METADATA_DISABLED", "true"), ("PENNON_EVENTS_URL", "s3://bucket/events")])
            .env("HOME", home.path())
            .envs(environment.iter().copied())
            .current_dir(home.path())
            .output()
            .unwrap();
        let error = text(&failed.stderr);
        assert!(begun.elapsed() < TIME_MAX, "{command} took {:?}: {error}", begun.elapsed());
        assert_eq!((failed.status.code(), text(&failed.stdout).as_str()), (Some(1), ""), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        for part in ["DispatchFailure", "ConnectorError", " { ", "Some(", "\u{1b}", "secret-of-test"] {
            assert!(!error.contains(part), "{part:?} in {error}");
        }
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing is created");
        lines.push(error);
    }
    lines.pop().unwrap()
}

/// An environment with credentials, and more.
fn with_credentials<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&CREDENTIALS[..], more].concat()
}

#[test]
fn missing_settings_are_named() {
    let error = refusal(&[("PENNON_EVENTS_URL", "")]);
    assert!(error.contains("--cloud needs PENNON_EVENTS_URL"), "{error}");
    let error = refusal(&with_credentials(&[]));
    assert!(error.contains("no AWS region is set; set AWS_REGION"), "{error}");
    let error = refusal(&[("AWS_REGION", "eu-central-1")]);
    assert!(
        error.contains("no AWS credentials were found") && error.contains("AWS_ACCESS_KEY_ID"),
        "{error}"
    );
    let error = refusal(&[("AWS_REGION", "eu-central-1"), ("AWS_PROFILE", "absent")]);
    assert!(error.contains("no AWS credentials were found"), "{error}");
}

#[test]
fn an_endpoint_that_is_not_reached_is_named_with_the_setting_that_chose_it() {
    let error = refusal(&with_credentials(&[("AWS_REGION", "nowhere-1")]));
    assert!(
        error.contains("cannot be reached at the region nowhere-1") && error.contains("check AWS_REGION"),
        "{error}"
    );
    let unresolved = [("AWS_REGION", "us-east-1"), ("AWS_ENDPOINT_URL_DYNAMODB", "http://tables.invalid")];
    let error = refusal(&with_credentials(&unresolved));
    assert!(
        error.contains("http://tables.invalid") && error.contains("AWS_ENDPOINT_URL_DYNAMODB"),
        "{error}"
    );
    let closed = [("AWS_REGION", "us-east-1"), ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")];
    let error = refusal(&with_credentials(&closed));
    assert!(error.contains("http://127.0.0.1:1") && error.contains("refused"), "{error}");
}

#[test]
fn rejected_credentials_and_an_unreachable_bucket_have_different_errors() {
    let (directory, server) = served();
    let info = std::fs::read(directory.path().join("data/server.json")).unwrap();
    let info: Value = serde_json::from_slice(&info).unwrap();
    let tables =
        [("AWS_REGION", "us-east-1"), ("AWS_ENDPOINT_URL_DYNAMODB", info["dynamodb"].as_str().unwrap())];
    let error = refusal(&with_credentials(&tables));
    assert!(error.contains("AWS refused the credentials (UnrecognizedClientException"), "{error}");
    let mut environment = tables.to_vec();
    environment.extend([
        ("AWS_ACCESS_KEY_ID", info["access_key_id"].as_str().unwrap()),
        ("AWS_SECRET_ACCESS_KEY", "secret-of-test"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"),
    ]);
    let error = refusal(&environment);
    assert!(error.contains("the events at s3://bucket/events cannot be used"), "{error}");
    assert!(error.contains("check PENNON_EVENTS_URL, AWS_ENDPOINT_URL_S3"), "{error}");
    assert_eq!(server.stop(), 0);
}
