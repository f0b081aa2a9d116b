//! The messages that `pennon serve` prints when it is ready.

use std::net::IpAddr;

use serde_json::json;

use super::InitialState;
use crate::data::{DataDirectory, ServerInfo};
use crate::output::print_json_line;
use crate::print_line;
use crate::workspace::NewKey;

/// Prints the URLs, and after the first start examples to try; with `json`, one line of JSON.
pub fn print(
    info: &ServerInfo,
    directory: &DataDirectory,
    initial_state: &InitialState,
    json: bool,
) -> Result<(), String> {
    let data = directory.path().display();
    if json {
        let demo = if let InitialState::Demo(demo) = initial_state { Some(demo.to_json()) } else { None };
        return print_json_line(&json!({
            "type": "ready", "http": info.http, "console": format!("{}/", info.http), "reference": format!("{}/docs", info.http),
            "dynamodb": info.dynamodb, "data": directory.path(), "demo": demo,
        }));
    }
    print_line!("Pennon serves on {}", info.http)?;
    if !matches!(initial_state, InitialState::Demo(_)) {
        print_line!("  console            {}/", info.http)?;
    }
    print_line!("  reference          {}/docs", info.http)?;
    print_line!("  embedded DynamoDB  {}", info.dynamodb)?;
    print_line!("  data               {data}")?;
    match initial_state {
        InitialState::Demo(demo) => print_line!("\n{}", demo.introduction(&info.http).trim_end())?,
        InitialState::Existing => {
            print_line!("  API keys           pennon keys create --data {data} --label NAME")?;
        }
        InitialState::Empty => {
            print_line!("\nThe installation is empty. Create a project, a user and a key in it:")?;
            print_line!("  pennon init workspace.yaml && pennon apply workspace.yaml --data {data}")?;
        }
    }
    print_line!("\nCtrl-C stops it.")
}

/// Prints the secrets of new keys. This is the only time that they are shown.
pub fn print_new_keys(keys: &[NewKey], json: bool) -> Result<(), String> {
    keys.iter().try_for_each(|key| {
        if json {
            print_json_line(
                &json!({"type": "new_key", "label": key.label, "user": key.user, "key": key.secret}),
            )
        } else {
            print_line!("new key \"{}\" of {}: {}", key.label, key.user, key.secret)
        }
    })
}

/// Warns on stderr if other machines can reach the API at `host`.
pub fn warn_if_public(host: IpAddr) {
    if !host.is_loopback() {
        eprintln!(
            "pennon: warning: --host {host} lets other machines reach the API, and HTTP sends API keys and events in clear. \
             Use it in a trusted network, or put a proxy with TLS in front and let Pennon listen on 127.0.0.1"
        );
    }
}
