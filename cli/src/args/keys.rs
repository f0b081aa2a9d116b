//! Options of `pennon keys`.

use clap::{Args, Subcommand};

use super::{Output, Target};

/// `pennon keys`
#[derive(Debug, Args)]
pub struct Keys {
    /// The subcommand.
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// Subcommands of `pennon keys`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Create a key and print it, once.
    Create(CreateKey),
    /// List the keys, without their secrets.
    List(ListKeys),
    /// Revoke a key. A running server may accept it for five more seconds.
    Revoke(RevokeKey),
}

/// `pennon keys create`
#[derive(Debug, Args)]
pub struct CreateKey {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// Mail address of the owner; optional if there is only one user.
    #[arg(long)]
    pub user: Option<String>,
    /// A name, unique for the owner.
    #[arg(long)]
    pub label: String,
    /// A scope such as feature_flag:read; repeat for several. All scopes by default.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// A project that the key is limited to; repeat for several.
    #[arg(long = "project", value_name = "ID")]
    pub projects: Vec<u64>,
    /// When the key expires: an instant in RFC 3339, or a number of days such as 90d.
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon keys list`
#[derive(Debug, Args)]
pub struct ListKeys {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon keys revoke`
#[derive(Debug, Args)]
pub struct RevokeKey {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The key itself, its mask, or its label.
    pub key: String,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}
