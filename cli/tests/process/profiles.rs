//! `--cloud` with the profiles of the AWS CLI: region and credentials for tables and bucket alike, and the error without them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;

use serde_json::Value;

use super::{BINARY, Server, served, text};

/// A home directory with the profile `work`, whose settings are `lines`; `@HOME@` in them is its path.
fn home(lines: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let lines = lines.replace("@HOME@", &home.path().to_string_lossy());
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(home.path().join(".aws/config"), format!("[profile work]\n{lines}\n")).unwrap();
    home
}

/// The error of `check --cloud` with the profile `work`, in this environment and no other.
fn error_of(home: &Path, environment: &[(&str, &str)]) -> String {
    let failed = Command::new(BINARY)
        .args(["check", "--cloud"])
        .env_clear()
        .envs([("AWS_EC2_METADATA_DISABLED", "true"), ("PENNON_EVENTS_URL", "s3://bucket/events")])
        .envs([("HOME", &*home.to_string_lossy()), ("AWS_PROFILE", "work"), ("PATH", "/usr/bin:/bin")])
        .envs(environment.iter().copied())
        .current_dir(home)
        .output()
        .unwrap();
    let error = text(&failed.stderr);
    assert_eq!((failed.status.code(), text(&failed.stdout).as_str()), (Some(1), ""), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(!error.contains("secret-of-test"), "{error}");
    error
}

/// A server with tables; their address, and the id of the key that they require.
fn tables() -> (tempfile::TempDir, Server, String, String) {
    let (directory, server) = served();
    let info = std::fs::read(directory.path().join("data/server.json")).unwrap();
    let info: Value = serde_json::from_slice(&info).unwrap();
    let of = |name: &str| info[name].as_str().unwrap().to_owned();
    let (dynamodb, access_key_id) = (of("dynamodb"), of("access_key_id"));
    (directory, server, dynamodb, access_key_id)
}

/// A bucket that responds to each request with `response`; the headers of its requests, in lower case.
fn bucket(response: String) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let headers: Vec<String> =
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let _ = sender.send(headers.join("\n").to_ascii_lowercase());
            let _ = stream.write_all(response.as_bytes());
        }
    });
    (address, requests)
}

const ACCESS_DENIED: &str =
    "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code>\n<Message>Access Denied</Message></Error>";

fn forbidden() -> String {
    let length = ACCESS_DENIED.len();
    format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{ACCESS_DENIED}")
}

const REDIRECT: &str = "HTTP/1.1 301 Moved Permanently\r\nContent-Length: 0\r\nx-amz-bucket-region: eu-west-3\r\nConnection: close\r\n\r\n";

#[test]
fn a_profile_has_the_region_and_the_credentials_of_tables_and_bucket() {
    let (_directory, server, dynamodb, id) = tables();
    let process = r#"{"Version": 1, "AccessKeyId": "ID", "SecretAccessKey": "secret-of-test", "SessionToken": "token-of-test"}"#;
    let kinds = [
        format!("aws_access_key_id = {id}\naws_secret_access_key = secret-of-test\nregion = eu-north-1"),
        "credential_process = /bin/cat @HOME@/process.json\nregion = eu-north-1".to_owned(),
    ];
    for (kind, has_token) in kinds.iter().zip([false, true]) {
        let home = home(kind);
        std::fs::write(home.path().join("process.json"), process.replace("ID", &id)).unwrap();
        let (s3, requests) = bucket(forbidden());
        let endpoints = [("AWS_ENDPOINT_URL_DYNAMODB", &*dynamodb), ("AWS_ENDPOINT_URL_S3", &*s3)];
        let error = error_of(home.path(), &endpoints);
        // The tables were read with the credentials; the bucket refuses them.
        assert!(error.contains("the events at s3://bucket/events cannot be used"), "{error}");
        assert!(error.contains("AccessDenied") && error.contains("the region (eu-north-1)"), "{error}");
        let request = requests.recv().unwrap();
        assert!(request.contains(&format!("credential={}/", id.to_ascii_lowercase())), "{request}");
        assert!(request.contains("/eu-north-1/s3/aws4_request"), "{request}");
        assert_eq!(request.contains("x-amz-security-token: token-of-test"), has_token, "{request}");
    }
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_bucket_or_a_table_of_another_region_is_named_with_the_region() {
    let (_directory, server, dynamodb, id) = tables();
    let keys =
        format!("aws_access_key_id = {id}\naws_secret_access_key = secret-of-test\nregion = eu-north-1");
    let home = home(&keys);
    let (s3, _requests) = bucket(REDIRECT.to_owned());
    let endpoints = [("AWS_ENDPOINT_URL_DYNAMODB", &*dynamodb), ("AWS_ENDPOINT_URL_S3", &*s3)];
    let error = error_of(home.path(), &endpoints);
    assert!(error.contains("region") && error.contains("(eu-north-1)"), "{error}");
    let absent = [endpoints[0], endpoints[1], ("PENNON_RECORDS_TABLE", "pennon-absent")];
    let error = error_of(home.path(), &absent);
    assert!(
        error.contains("there is no table pennon-absent in the region eu-north-1; set AWS_REGION"),
        "{error}"
    );
    assert_eq!(server.stop(), 0);
}

#[test]
fn without_a_sign_in_the_command_for_it_is_named() {
    let sso = "sso_session = acme\nsso_account_id = 123456789012\nsso_role_name = admin\nregion = eu-north-1\n\
        [sso-session acme]\nsso_region = eu-north-1\nsso_start_url = https://acme.awsapps.com/start";
    let error = error_of(home(sso).path(), &[]);
    assert!(
        error.contains("no AWS credentials were found") && error.contains("run `aws sso login`"),
        "{error}"
    );
    let login = "login_session = arn:aws:iam::123456789012:user/ada\nregion = eu-north-1";
    let error = error_of(home(login).path(), &[]);
    assert!(error.contains("no AWS credentials were found") && error.contains("run `aws login`"), "{error}");
    let process = "credential_process = /bin/false\nregion = eu-north-1";
    let error = error_of(home(process).path(), &[]);
    assert!(error.contains("no AWS credentials were found"), "{error}");
    let no_region = "aws_access_key_id = id\naws_secret_access_key = secret-of-test";
    let error = error_of(home(no_region).path(), &[]);
    assert!(error.contains("no AWS region is set; set AWS_REGION, or `region` of the profile"), "{error}");
}
