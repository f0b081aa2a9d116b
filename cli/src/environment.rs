//! `pennon env`: the environment in which functions and AWS tools use the data of a running server.

use std::path::Path;

use pennon_core::config::StoreConfig;

use crate::data::{DataDirectory, ServerInfo};
use crate::embedded::{REGION, SECRET_ACCESS_KEY};

/// The environment variables for the tables and events of the server on `data`, with its credentials and its payload key,
/// without which functions cannot read the server's encrypted payloads and sharing tokens.
pub fn variables(data: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let no_server = || format!("no server runs on {}; start `pennon serve --data {0}` first", data.display());
    let directory = DataDirectory::for_reading(data).map_err(|_| no_server())?;
    let server = directory.server().ok_or_else(no_server)?;
    // A killed server leaves its announcement, but not its lock.
    if directory.lock()?.is_some() {
        return Err(no_server());
    }
    server_variables(&server, &directory)
}

/// The same for a server that is known, before it announces itself.
pub(crate) fn server_variables(
    server: &ServerInfo,
    directory: &DataDirectory,
) -> Result<Vec<(&'static str, String)>, String> {
    let tables = StoreConfig::local();
    Ok(vec![
        ("AWS_ENDPOINT_URL_DYNAMODB", server.dynamodb.clone()),
        ("AWS_ACCESS_KEY_ID", server.access_key_id.clone()),
        ("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY.to_owned()),
        ("AWS_REGION", REGION.to_owned()),
        ("PENNON_RECORDS_TABLE", tables.records_table),
        ("PENNON_BLOCKS_TABLE", tables.blocks_table),
        ("PENNON_EVENTS_URL", directory.events_url()),
        ("PENNON_PAYLOAD_KEY", directory.own_payload_key()?),
    ])
}

/// Shell commands that set `variables`, for `eval`.
pub fn shell_lines(variables: &[(&'static str, String)]) -> Vec<String> {
    let mut lines: Vec<String> =
        variables.iter().map(|(name, value)| format!("export {name}={}", shell_quote(value))).collect();
    // Values of a real account would be sent with every request, or take precedence.
    lines.push("unset AWS_SESSION_TOKEN AWS_PROFILE".to_owned());
    lines
}

/// `text` quoted as one word of a shell.
fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_value_is_one_word_of_a_shell() {
        assert_eq!(shell_quote("file:///a b/it's"), r"'file:///a b/it'\''s'");
    }

    #[test]
    fn the_error_without_a_server_names_the_start_command() {
        let place = tempfile::tempdir().unwrap();
        assert!(variables(place.path()).unwrap_err().contains("pennon serve --data"));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "nothing is created");
        assert!(variables(&place.path().join("nowhere")).unwrap_err().contains("no server runs on"));
    }
}
