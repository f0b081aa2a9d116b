//! Options of `pennon flags`.

use std::str::FromStr;

use clap::{Args, Subcommand};

use super::{ApiTarget, Output};

/// `pennon flags`
#[derive(Debug, Args)]
pub struct Flags {
    /// The subcommand.
    #[command(subcommand)]
    pub command: FlagsCommand,
}

/// Subcommands of `pennon flags`.
#[derive(Debug, Subcommand)]
pub enum FlagsCommand {
    /// List the flags: state, rollout, whether they are stale, and their last call.
    List(ListFlags),
    /// Show a flag.
    Get(GetFlag),
    /// Switch a flag on or off, or change its rollout. The change is in the activity log; one that conflicts with another
    /// user's is rejected.
    Set(SetFlag),
    /// Evaluate a flag for a person, with the reason and the condition that matched.
    Test(TestFlag),
}

/// `pennon flags list`
#[derive(Debug, Args)]
pub struct ListFlags {
    /// Which installation.
    #[command(flatten)]
    pub target: ApiTarget,
    /// Only flags whose key or name contains this text.
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Only stale flags: not called for 30 days, or never called and always the same value.
    #[arg(long)]
    pub stale: bool,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon flags get`
#[derive(Debug, Args)]
pub struct GetFlag {
    /// The key of the flag.
    pub key: String,
    /// Which installation.
    #[command(flatten)]
    pub target: ApiTarget,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon flags set`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["active", "rollout"]))]
pub struct SetFlag {
    /// The key of the flag.
    pub key: String,
    /// Whether the flag is on.
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    pub active: Option<bool>,
    /// The percentage of persons who get the flag, from 0 to 100.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub rollout: Option<f64>,
    /// The condition whose rollout changes, by its number in `pennon flags get`; optional if there is only one.
    #[arg(long, value_name = "N", requires = "rollout", value_parser = clap::value_parser!(u32).range(1..))]
    pub condition: Option<u32>,
    /// Mail address of the user who makes the change; optional if there is only one. With --url it is the owner of the key.
    #[arg(long, value_name = "EMAIL", conflicts_with = "url")]
    pub user: Option<String>,
    /// Which installation.
    #[command(flatten)]
    pub target: ApiTarget,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon flags test`
#[derive(Debug, Args)]
pub struct TestFlag {
    /// The key of the flag.
    pub key: String,
    /// The distinct id of the person.
    #[arg(long, value_name = "ID")]
    pub distinct_id: String,
    /// A property of the person, instead of the stored one; repeat for several. A stored property stays the same.
    #[arg(long = "person", value_name = "NAME=VALUE")]
    pub person: Vec<NamedValue>,
    /// A group of the person, such as company=acme; repeat for several types.
    #[arg(long = "group", value_name = "TYPE=KEY")]
    pub groups: Vec<NamedValue>,
    /// Which installation.
    #[command(flatten)]
    pub target: ApiTarget,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `NAME=VALUE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedValue {
    /// The name.
    pub name: String,
    /// The value, which may be empty.
    pub value: String,
}

impl FromStr for NamedValue {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedValue, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(NamedValue { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err("a name and a value, such as plan=pro".to_owned()),
        }
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "a number from 0 to 100".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_percentage_is_between_0_and_100() {
        assert_eq!(
            (parse_percent("0"), parse_percent("12.5%"), parse_percent("100")),
            (Ok(0.0), Ok(12.5), Ok(100.0))
        );
        for wrong in ["", "-1", "100.1", "NaN", "half"] {
            assert!(parse_percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_may_be_empty_or_contain_the_sign() {
        let parse = |text: &str| text.parse::<NamedValue>().map(|it| (it.name, it.value));
        assert_eq!(parse("plan=pro=x"), Ok(("plan".to_owned(), "pro=x".to_owned())));
        assert_eq!(parse("plan="), Ok(("plan".to_owned(), String::new())));
        assert!(parse("plan").is_err() && parse("=x").is_err());
    }
}
