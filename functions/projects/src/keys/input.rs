//! The body that creates or changes an API key.

use chrono::{DateTime, Utc};
use pennon_core::auth::{Caller, DeclaredKey, KeySpec, is_scope};
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Fields;
use pennon_core::limits::api_keys::{LABEL_CHARS, LIST};
use pennon_core::model::Declared;
use pennon_core::store::keys::ProjectId;
use pennon_filters::body::FieldError;
use pennon_filters::body::fields::{self, BodyField, TextRule};
use serde_json::Value;
use uuid::Uuid;

const LABEL: TextRule = TextRule { max_chars: LABEL_CHARS, blank: false, trim: true };

/// The fields that were sent.
#[derive(Debug)]
pub struct KeyInput {
    label: Option<String>,
    scopes: Option<Vec<String>>,
    projects: Option<Vec<ProjectId>>,
    organizations: Option<Vec<Uuid>>,
    /// `Some(None)`: without expiry.
    expires_at: Option<Option<DateTime<Utc>>>,
}

impl KeyInput {
    /// Parses a body; `is_new`: label and scopes are required.
    pub fn parse(body: &Fields, is_new: bool) -> ApiResult<KeyInput> {
        KeyInput::parse_fields(body, is_new)
            .map_err(|error| ApiError::invalid(error.code, error.detail, error.attr.as_deref()))
    }

    fn parse_fields(body: &Fields, is_new: bool) -> Result<KeyInput, FieldError> {
        let field = |name: &'static str| BodyField::of(body, name);
        let label = field("label").sent(|name, value| fields::string(name, value, LABEL))?;
        let scopes = field("scopes").sent(parse_scopes)?;
        if is_new && label.is_none() {
            return Err(FieldError::required("label"));
        }
        if is_new && scopes.is_none() {
            return Err(FieldError::required("scopes"));
        }
        Ok(KeyInput {
            label,
            scopes,
            projects: field("scoped_teams").nullable(parse_projects)?.map(Option::unwrap_or_default),
            organizations: field("scoped_organizations")
                .nullable(|name, value| parse_list(name, value, fields::uuid_key))?
                .map(Option::unwrap_or_default),
            expires_at: field("expires_at").nullable(fields::datetime)?,
        })
    }

    /// Whether projects were sent.
    pub fn is_limited_to_projects(&self) -> bool {
        self.projects.as_ref().is_some_and(|projects| !projects.is_empty())
    }

    /// 400 if the key would exceed what `caller` may access, or has expired already.
    pub fn validate(&self, caller: &Caller, reachable: &[ProjectId], now: DateTime<Utc>) -> ApiResult<()> {
        if let Some(id) = self.projects.iter().flatten().find(|id| !reachable.contains(id)) {
            let detail = format!("You have no access to a project with the ID {id}.");
            return Err(ApiError::invalid("does_not_exist", detail, Some("scoped_teams")));
        }
        let is_member = |id: &&Uuid| caller.key().level_in(**id).is_some();
        if let Some(id) = self.organizations.iter().flatten().find(|id| !is_member(id)) {
            let detail = format!("You are not a member of an organization with the ID {id}.");
            return Err(ApiError::invalid("does_not_exist", detail, Some("scoped_organizations")));
        }
        let invalid = |detail: String| Err(ApiError::invalid("invalid_input", detail, Some("expires_at")));
        match (self.expires_at, caller.key().expires_at) {
            (Some(Some(end)), _) if end <= now => {
                invalid("The time of expiry has passed already.".to_owned())
            }
            (Some(Some(end)), Some(latest)) if end > latest => invalid(too_late(latest)),
            (Some(None), Some(latest)) => invalid(too_late(latest)),
            _ => Ok(()),
        }
    }

    /// The declaration of a new key of the caller's user. Without an expiry it expires with the key that creates it.
    pub fn new_declaration(&self, caller: &Caller, mask: String, now: DateTime<Utc>) -> DeclaredKey {
        let spec = KeySpec {
            label: String::new(),
            user: caller.user().email.clone(),
            scopes: Vec::new(),
            projects: Vec::new(),
            organizations: Vec::new(),
            expires_at: caller.key().expires_at,
            value: None,
            hash: None,
            mask: None,
        };
        Declared { spec: self.apply(spec), created_at: now, updated_at: now, mask }
    }

    /// `spec` with the fields that were sent.
    pub fn apply(&self, spec: KeySpec) -> KeySpec {
        KeySpec {
            label: self.label.clone().unwrap_or(spec.label),
            scopes: self.scopes.clone().unwrap_or(spec.scopes),
            projects: self.projects.clone().unwrap_or(spec.projects),
            organizations: self.organizations.clone().unwrap_or(spec.organizations),
            expires_at: self.expires_at.unwrap_or(spec.expires_at),
            ..spec
        }
    }
}

fn too_late(latest: DateTime<Utc>) -> String {
    format!("No later than the expiry of the key that you use, {}.", timestamp(latest))
}

fn parse_scopes(name: &str, value: &Value) -> Result<Vec<String>, FieldError> {
    let mut scopes: Vec<String> = Vec::new();
    for scope in parse_list(name, value, |_, scope| Ok(scope.clone()))? {
        match scope.as_str() {
            Some(scope) if is_scope(scope) => {
                if !scopes.iter().any(|known| known == scope) {
                    scopes.push(scope.to_owned());
                }
            }
            _ => {
                let detail = format!("Invalid scope: {scope}. Use `object:read`, `object:write` or `*`.");
                return Err(FieldError::invalid(name, detail));
            }
        }
    }
    if scopes.is_empty() {
        return Err(FieldError::new(name, "empty", "A key needs at least one scope."));
    }
    Ok(scopes)
}

fn parse_projects(name: &str, value: &Value) -> Result<Vec<ProjectId>, FieldError> {
    parse_list(name, value, |name, value| {
        let id = fields::integer(name, value, Some(1))?;
        Ok(id.unsigned_abs())
    })
}

fn parse_list<T>(
    name: &str,
    value: &Value,
    parse: impl Fn(&str, &Value) -> Result<T, FieldError>,
) -> Result<Vec<T>, FieldError> {
    let list = fields::list(name, value)?;
    if list.len() > LIST {
        let detail = format!("Ensure this field has no more than {LIST} elements.");
        return Err(FieldError::new(name, "max_length", detail));
    }
    list.iter().map(|value| parse(name, value)).collect()
}
