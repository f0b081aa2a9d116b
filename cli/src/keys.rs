//! `pennon keys`: creates, lists and revokes API keys without a workspace file.
//!
//! A key is declared like one of a workspace file, so that both interfaces have the same keys.

use chrono::{DateTime, Duration, Utc};
use pennon_core::auth::{KeySpec, delete_key, hash_key};
use pennon_core::store::Table;
use serde::Serialize;

use crate::args::CreateKey;
use crate::workspace::{self, ApplyOptions, Declarations, NewKey, Workspace};

/// Creates a key.
pub async fn create(records: &Table, options: &CreateKey, now: DateTime<Utc>) -> Result<NewKey, String> {
    let state = load(records).await?;
    let user = match &options.user {
        Some(email) => email.clone(),
        None => only_user(&state)?,
    };
    if state.keys.values().any(|key| key.spec.label == options.label && key.spec.user == user) {
        return Err(format!(
            "{user} has a key labelled \"{}\" already; choose another --label, or revoke that one first",
            options.label
        ));
    }
    let expires_at = options.expires.as_deref().map(|text| parse_expiry(text, now)).transpose()?;
    let scopes = if options.scopes.is_empty() { vec!["*".to_owned()] } else { options.scopes.clone() };
    let spec = KeySpec {
        label: options.label.clone(),
        user,
        scopes,
        projects: options.projects.clone(),
        organizations: Vec::new(),
        expires_at,
        value: None,
        hash: None,
        mask: None,
    };
    let file = Workspace { keys: vec![spec], ..Workspace::default() };
    let applied =
        workspace::apply(records, &file, ApplyOptions::default(), now).await.map_err(|e| e.to_string())?;
    applied.new_keys.into_iter().next().ok_or_else(|| "the key was not made".to_owned())
}

/// A key in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedKey {
    /// The part of the secret that is shown.
    pub mask: String,
    /// Its label.
    pub label: String,
    /// Its owner's mail address.
    pub user: String,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// The projects that it is limited to; empty means no limit.
    pub projects: Vec<u64>,
    /// When it expires.
    pub expires_at: Option<DateTime<Utc>>,
}

impl ListedKey {
    /// The key as a line of text.
    pub fn line(&self) -> String {
        let limits = match self.projects.as_slice() {
            [] => "all projects".to_owned(),
            ids => format!("projects {}", ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        };
        let end =
            self.expires_at.map_or("never expires".to_owned(), |end| format!("expires {}", end.to_rfc3339()));
        let scopes = self.scopes.join(" ");
        format!("{}  {}  {}  [{scopes}]  {limits}  {end}", self.mask, self.label, self.user)
    }
}

/// All keys, without their secrets.
pub async fn list(records: &Table) -> Result<Vec<ListedKey>, String> {
    let keys = load(records).await?.keys.into_values().map(|key| ListedKey {
        mask: key.mask,
        label: key.spec.label,
        user: key.spec.user,
        scopes: key.spec.scopes,
        projects: key.spec.projects,
        expires_at: key.spec.expires_at,
    });
    Ok(keys.collect())
}

/// Revokes the key with this secret, mask or label; returns its label.
pub async fn revoke(records: &Table, secret_mask_or_label: &str) -> Result<String, String> {
    let state = load(records).await?;
    let name = secret_mask_or_label;
    let hash = hash_key(name);
    let matches: Vec<_> = state
        .keys
        .iter()
        .filter(|(key_hash, key)| **key_hash == hash || key.mask == name || key.spec.label == name)
        .map(|(key_hash, key)| (key_hash.clone(), key.spec.label.clone()))
        .collect();
    match matches.as_slice() {
        [] => Err("no such key; `pennon keys list` shows those there are".to_owned()),
        [(hash, label)] => {
            delete_key(records, hash).await.map_err(|e| e.to_string())?;
            Ok(label.clone())
        }
        several => Err(format!("{} keys are called that; name one by its mask", several.len())),
    }
}

async fn load(records: &Table) -> Result<Declarations, String> {
    Declarations::load(records).await.map_err(|e| e.to_string())
}

fn only_user(state: &Declarations) -> Result<String, String> {
    let mut users = state.users.values();
    match (users.next(), users.next()) {
        (Some(only), None) => Ok(only.spec.email.clone()),
        (None, _) => Err("there is no user yet; declare one with `pennon apply`".to_owned()),
        _ => Err("there are several users; choose the key's owner with --user EMAIL".to_owned()),
    }
}

/// Parses an instant, or a number of days from `now`.
fn parse_expiry(text: &str, now: DateTime<Utc>) -> Result<DateTime<Utc>, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u16>().ok());
    let end = match days {
        Some(days) => now + Duration::days(days.into()),
        None => DateTime::parse_from_rfc3339(text)
            .map_err(|_| format!("--expires {text}: an instant like 2027-01-31T00:00:00Z, or days like 90d"))?
            .with_timezone(&Utc),
    };
    if end <= now {
        return Err(format!("--expires {text} lies in the past"));
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_key_expires_at_an_instant_or_after_days() {
        let now = "2026-01-05T10:00:00Z".parse().unwrap();
        assert_eq!(parse_expiry("90d", now).unwrap().to_rfc3339(), "2026-04-05T10:00:00+00:00");
        assert_eq!(
            parse_expiry("2027-01-31T00:00:00Z", now).unwrap().to_rfc3339(),
            "2027-01-31T00:00:00+00:00"
        );
        for bad in ["0d", "soon", "2020-01-01T00:00:00Z", "-1d"] {
            assert!(parse_expiry(bad, now).is_err(), "{bad}");
        }
    }
}
