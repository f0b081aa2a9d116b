//! Adds an environment variable to every option, derived from the definition of the command line, so that none is missing.
//!
//! `--data`, `--cloud`, `--url` and `--json`, which mean the same for every command, and the options of `serve` are `PENNON_` and the
//! name of the option, such as `PENNON_PORT`. The options of other commands have the command in their name, such as
//! `PENNON_IMPORT_PROJECT` or `PENNON_KEYS_CREATE_LABEL`: a variable that was set for one command changes no other. The
//! options of `query` for ClickHouse have the variables with which a server is set up. An option on the command line wins. A variable without a value counts as not set.

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command};

/// Options with the same meaning in every command.
const COMMON: [&str; 4] = ["data", "cloud", "url", "json"];

/// Options, by id, whose variable is a setting of a server and of functions too.
const SETTINGS: [&str; 3] = ["clickhouse_url", "clickhouse_cluster", "clickhouse_files"];

/// Adds the variables to all options of the command `definition`.
pub(super) fn with_variables(definition: Command) -> Command {
    definition.mut_subcommands(|command| {
        let prefix = match command.get_name() {
            "serve" => "PENNON".to_owned(),
            name => format!("PENNON_{}", in_capitals(name)),
        };
        bind(command, &prefix)
    })
}

fn bind(command: Command, prefix: &str) -> Command {
    let command = command.mut_args(|arg| bind_option(arg, prefix));
    command.mut_subcommands(|inner| {
        let prefix = format!("{prefix}_{}", in_capitals(inner.get_name()));
        bind(inner, &prefix)
    })
}

fn bind_option(arg: Arg, prefix: &str) -> Arg {
    let Some(option) = arg.get_long() else { return arg };
    let id = arg.get_id().as_str();
    let name = match option {
        _ if SETTINGS.contains(&id) => format!("PENNON_{}", in_capitals(id)),
        option if COMMON.contains(&option) => format!("PENNON_{}", in_capitals(option)),
        option => format!("{prefix}_{}", in_capitals(option)),
    };
    if std::env::var_os(&name).is_some_and(|value| value.is_empty()) {
        return arg;
    }
    let arg = match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        // Several values in one variable are separated by line breaks.
        ArgAction::Append => arg.value_delimiter('\n'),
        _ => arg,
    };
    // Help does not show values: they may be private, and help is often copied.
    arg.env(name).hide_env_values(true)
}

fn in_capitals(name: &str) -> String {
    name.replace('-', "_").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::super::definition;
    use super::*;

    /// The options of `command` and of its subcommands, each with its variable.
    fn variables(command: &Command, found: &mut Vec<(String, String)>) {
        let options = command.get_arguments().filter(|arg| arg.get_long().is_some());
        for arg in options {
            let option = format!("{} --{}", command.get_name(), arg.get_long().unwrap());
            found.push((
                option,
                arg.get_env().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            ));
        }
        command.get_subcommands().for_each(|inner| variables(inner, found));
    }

    #[test]
    fn every_option_has_a_variable_that_no_other_reader_of_the_environment_uses() {
        let mut found = Vec::new();
        variables(&definition(), &mut found);
        assert!(found.len() > 50, "{found:?}");
        let read_elsewhere = [
            "PENNON_RECORDS_TABLE",
            "PENNON_BLOCKS_TABLE",
            "PENNON_EVENTS_URL",
            "PENNON_PAYLOAD_KEY",
            "PENNON_EVENTS_MEMORY_MB",
            "PENNON_ANSWER_SECONDS",
            "PENNON_METRICS",
            "PENNON_LOG",
            "PENNON_API_KEY",
            "PENNON_CLICKHOUSE_USER",
            "PENNON_CLICKHOUSE_PASSWORD",
            "PENNON_ICEBERG",
        ];
        for (option, variable) in &found {
            assert!(variable.starts_with("PENNON_"), "{option} has no variable");
            assert!(!read_elsewhere.contains(&variable.as_str()), "{option}: {variable}");
        }
        let of = |option: &str| &found.iter().find(|(name, _)| name == option).unwrap().1;
        assert_eq!(of("serve --port"), "PENNON_PORT");
        assert_eq!(of("serve --data"), "PENNON_DATA");
        assert_eq!(of("check --data"), "PENNON_DATA");
        assert_eq!(of("delete --project"), "PENNON_DELETE_PROJECT");
        assert_eq!(of("query --url"), "PENNON_CLICKHOUSE_URL");
        assert_eq!(of("query --cluster"), "PENNON_CLICKHOUSE_CLUSTER");
        assert_eq!(of("query --files"), "PENNON_CLICKHOUSE_FILES");
        assert_eq!(of("create --label"), "PENNON_KEYS_CREATE_LABEL");
        let common = |name: &str| COMMON.iter().any(|option| name.ends_with(&format!(" --{option}")));
        let own: Vec<_> =
            found.iter().filter(|(name, _)| !common(name)).map(|(_, variable)| variable).collect();
        assert_eq!(own.iter().collect::<BTreeSet<_>>().len(), own.len(), "two options share a variable");
    }

    #[test]
    fn the_definition_is_consistent() {
        definition().debug_assert();
    }
}
