//! Options of the command line, their environment variables, and the commands that describe them.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::{BINARY, Server, WORKSPACE, pennon, served, text};

fn run(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

fn succeed(arguments: &[&str]) -> String {
    let done = run(arguments);
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    text(&done.stdout)
}

/// Starts a server and reads the first line of its standard error.
fn start_with_warning(directory: &std::path::Path, host: &str) -> (Server, String) {
    let warnings = directory.join("stderr");
    let file = std::fs::File::create(&warnings).unwrap();
    let server = Server::start_by(
        Command::new(BINARY).stderr(file),
        &directory.join("data"),
        &["--no-demo", "--host", host],
    );
    (server, std::fs::read_to_string(&warnings).unwrap())
}

#[test]
fn a_host_that_other_machines_reach_prints_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let (server, warning) = start_with_warning(directory.path(), "0.0.0.0");
    assert!(warning.contains("warning: --host 0.0.0.0") && warning.contains("TLS"), "{warning}");
    assert_eq!(warning.lines().count(), 1, "{warning}");
    assert!(
        server.address.starts_with("127.0.0.1:"),
        "an address that this machine can use: {}",
        server.address
    );
    assert_eq!(server.request("GET", "/_health", "", &Value::Null).0, 200);
    let info = std::fs::read_to_string(directory.path().join("data/server.json")).unwrap();
    let info: Value = serde_json::from_str(&info).unwrap();
    assert!(info["dynamodb"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{info}");
    assert_eq!(server.stop(), 0);
    for loopback in ["127.0.0.1", "localhost"] {
        let (server, warning) = start_with_warning(directory.path(), loopback);
        assert_eq!(warning, "");
        assert_eq!(server.stop(), 0);
    }
}

#[test]
fn a_host_that_is_no_address_of_this_machine_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let refused = pennon(&["serve", "--port", "0", "--host", "example.com"], &data);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("expected an IP address of this machine"),
        "{}",
        text(&refused.stderr)
    );
    // An address reserved for documentation, which no machine has.
    let refused = pennon(&["serve", "--port", "0", "--host", "192.0.2.1"], &data);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("192.0.2.1 is not an address of this machine"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn options_come_from_the_environment_and_the_command_line_wins() {
    let directory = tempfile::tempdir().unwrap();
    let (file, data) = (directory.path().join("workspace.json"), directory.path().join("data"));
    std::fs::write(&file, WORKSPACE).unwrap();
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let environment = [("PENNON_DATA", path(&data)), ("PENNON_JSON", "true".to_owned())];
    let pennon = |arguments: &[&str]| {
        Command::new(BINARY)
            .args(arguments)
            .envs(environment.clone())
            .env("PENNON_KEYS_CREATE_LABEL", "ci")
            .output()
    };
    let applied = pennon(&["apply", &path(&file)]).unwrap();
    assert!(applied.status.success() && data.exists(), "{}", text(&applied.stderr));
    let created: Value = serde_json::from_slice(&pennon(&["keys", "create"]).unwrap().stdout).unwrap();
    assert_eq!(created["label"], "ci");
    let created = pennon(&["keys", "create", "--label", "other"]).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&created.stdout).unwrap()["label"], "other");
    let listed: Value = serde_json::from_slice(&pennon(&["keys", "list"]).unwrap().stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 3);

    let bad = Command::new(BINARY).arg("serve").env("PENNON_PORT", "many").output().unwrap();
    let error = text(&bad.stderr);
    assert!(bad.status.code() == Some(2) && error.contains("--port") && error.contains("many"), "{error}");
    let bad = Command::new(BINARY).args(["keys", "list"]).env("PENNON_JSON", "perhaps").output().unwrap();
    assert!(bad.status.code() == Some(2) && text(&bad.stderr).contains("--json"), "{}", text(&bad.stderr));
    let empty = Command::new(BINARY).args(["routes", "--json"]).env("PENNON_JSON", "").output().unwrap();
    assert!(empty.status.success(), "{}", text(&empty.stderr));
}

#[test]
fn a_plain_pennon_serves_as_the_environment_sets() {
    let directory = tempfile::tempdir().unwrap();
    let process = Command::new(BINARY)
        .current_dir(directory.path())
        .envs([
            ("PENNON_PORT", "0"),
            ("PENNON_NO_DEMO", "1"),
            ("PENNON_JSON", "1"),
            ("PENNON_DATA", "elsewhere"),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let watched = super::watch(process.id());
    let mut process = process;
    let mut line = String::new();
    let mut output = std::io::BufReader::new(process.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    watched.send(()).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&ready["type"], &ready["demo"]), (&json!("ready"), &Value::Null));
    assert!(ready["data"].as_str().unwrap().ends_with("elsewhere"), "{ready}");
}

#[test]
fn help_lists_commands_and_variables_without_their_values() {
    let help = succeed(&["help"]);
    for command in ["serve", "init", "completions", "man", "help"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
    }
    let of_serve =
        Command::new(BINARY).args(["help", "serve"]).env("PENNON_HOST", "10.9.8.7").output().unwrap();
    let of_serve = text(&of_serve.stdout);
    assert!(of_serve.contains("[env: PENNON_HOST]") && !of_serve.contains("10.9.8.7"), "{of_serve}");
    assert!(!of_serve.contains('\u{1b}'), "no colour codes without a terminal");
}

#[test]
fn completions_contain_the_commands_in_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = succeed(&["completions", shell]);
        for word in ["serve", "dynamodb-port", "workspace"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let wrong = run(&["completions", "tcsh"]);
    assert!(
        wrong.status.code() == Some(2) && text(&wrong.stderr).contains("fish"),
        "{}",
        text(&wrong.stderr)
    );
    // Where there is a bash, it accepts the script and completes a command.
    let script = format!(
        "{}\nCOMP_WORDS=(pennon se); COMP_CWORD=1; _pennon pennon se pennon; echo \"${{COMPREPLY[*]}}\"",
        succeed(&["completions", "bash"])
    );
    if let Ok(done) = Command::new("bash").args(["-c", &script]).output() {
        assert_eq!(text(&done.stdout).trim(), "serve", "{}", text(&done.stderr));
    }
}

#[test]
fn every_command_has_a_man_page() {
    let page = succeed(&["man"]);
    assert!(page.contains(".TH pennon 1") && page.contains("pennon\\-serve"), "{page}");
    let of_create = succeed(&["man", "keys", "create"]);
    assert!(
        of_create.contains("\\-\\-label") && of_create.contains("PENNON_KEYS_CREATE_LABEL"),
        "{of_create}"
    );
    let wrong = run(&["man", "fly"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        text(&wrong.stderr).contains("there is no command \"fly\"; `pennon help`"),
        "{}",
        text(&wrong.stderr)
    );
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("man1");
    succeed(&["man", "--out", &out.to_string_lossy()]);
    for name in ["pennon.1", "pennon-serve.1", "pennon-keys-create.1"] {
        assert!(out.join(name).exists(), "{name}");
    }
}

#[test]
fn init_writes_a_workspace_that_serves_and_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let init = |arguments: &[&str]| {
        Command::new(BINARY).arg("init").args(arguments).current_dir(directory.path()).output().unwrap()
    };
    let written = init(&[]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    assert!(
        text(&written.stdout).contains("pennon serve --workspace workspace.yaml"),
        "{}",
        text(&written.stdout)
    );
    let file = directory.path().join("workspace.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    #[cfg(unix)]
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions()) & 0o777,
        0o600
    );
    let refused = init(&[]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("exists already"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    let other: Value = serde_json::from_slice(&init(&["other.yaml", "--json"]).stdout).unwrap();
    assert_eq!(other["file"], "other.yaml");
    assert_ne!(std::fs::read_to_string(directory.path().join("other.yaml")).unwrap(), before, "ids are new");

    // The commented lines are valid too.
    let (declared, examples) = before.split_once("# flags:").unwrap();
    let examples =
        format!("# flags:{examples}").replace("\n# ", "\n").replace("\n#\n", "\n").replacen("# ", "", 1);
    std::fs::write(&file, format!("{declared}{examples}")).unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, &["--workspace", &file.to_string_lossy()]);
    let key = server.output_text.split_whitespace().find(|word| word.starts_with("phx_")).expect("a key");
    for (what, name) in
        [("feature_flags", "The new checkout, for half of the users"), ("insights", "Purchases a day")]
    {
        let (status, page) = server.request("GET", &format!("/api/projects/1/{what}/"), key, &Value::Null);
        assert_eq!((status, &page["results"][0]["name"]), (200, &json!(name)), "{page}");
    }
    assert_eq!(server.stop(), 0);
}

#[test]
fn rate_limits_can_be_switched_off_by_the_variable_that_functions_have() {
    let (directory, server) = served();
    assert_eq!(server.stop(), 0);
    let data = directory.path().join("data");
    let server = Server::start_in(&[("PENNON_RATE_LIMITS", "off")], &data, &[]);
    assert_eq!(server.stop(), 0);
    let server = Server::start_in(&[("PENNON_RATE_LIMITS", "burst=1")], &data, &[]);
    let status = || server.request("GET", "/api/projects/1/feature_flags/", super::KEY, &Value::Null).0;
    assert_eq!((status(), status()), (200, 429));
    assert_eq!(server.stop(), 0);
}
