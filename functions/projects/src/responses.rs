//! The JSON of projects, organizations and users in responses.

use pennon_core::auth::Caller;
use pennon_core::clock::timestamp;
use pennon_core::model::{Level, Organization, Project};
use serde_json::{Value, json};

/// A project in a list, for a caller with this membership level.
pub fn project_summary(project: &Project, ingested: bool, level: Level) -> Value {
    json!({
        "id": project.id,
        "uuid": project.uuid,
        "organization": project.organization,
        "project_id": project.id,
        "api_token": project.token,
        "name": project.name,
        "completed_snippet_onboarding": false,
        "has_completed_onboarding_for": null,
        "ingested_event": ingested,
        "is_demo": false,
        "timezone": project.timezone,
        "access_control": false,
        "effective_membership_level": level.number(),
    })
}

/// A project with all its fields, for a caller with this membership level.
pub fn project(project: &Project, ingested: bool, level: Level) -> Value {
    let mut response = project_summary(project, ingested, level);
    let group_types = project.group_types.iter().enumerate().map(|(index, name)| {
        json!({"group_type": name, "group_type_index": index, "name_singular": null, "name_plural": null})
    });
    let details = json!({
        "created_at": timestamp(project.created_at),
        "updated_at": timestamp(project.updated_at),
        "app_urls": [],
        "anonymize_ips": false,
        "test_account_filters": project.test_account_filters,
        "test_account_filters_default_checked": null,
        "path_cleaning_filters": project.path_cleaning_filters,
        "week_start_day": project.week_start_day,
        "group_types": group_types.collect::<Vec<_>>(),
        "user_access_level": if level.is_admin() { "admin" } else { "member" },
        "session_recording_opt_in": false,
        "autocapture_opt_out": null,
    });
    if let (Value::Object(response), Value::Object(details)) = (&mut response, details) {
        response.extend(details);
    }
    response
}

/// An organization, for a member with this level.
pub fn organization(organization: &Organization, level: Level) -> Value {
    json!({
        "id": organization.id,
        "name": organization.name,
        "slug": slug(&organization.name),
        "created_at": timestamp(organization.created_at),
        "membership_level": level.number(),
        "feature_flags_access_level": u8::from(organization.feature_flags_access_level),
    })
}

/// The user of `caller`; `organizations` and `team` (a project) are those that the API key may access.
pub fn user(caller: &Caller, organizations: &[Value], team: Option<Value>) -> Value {
    let user = caller.user();
    let team_organization = team.as_ref().map(|team| &team["organization"]);
    let current =
        organizations.iter().find(|org| team_organization == Some(&org["id"])).or(organizations.first());
    json!({
        "id": user.id,
        "uuid": user.uuid,
        "distinct_id": user.distinct_id,
        "first_name": user.first_name,
        "last_name": user.last_name,
        "email": user.email,
        "is_email_verified": user.is_email_verified,
        "hedgehog_config": user.hedgehog_config,
        "role_at_organization": user.role_at_organization,
        "organization": current,
        "organizations": organizations,
        "team": team,
    })
}

/// The URL slug of a name: lower case, runs of other characters than letters and digits replaced by one dash.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for character in name.to_lowercase().chars() {
        if character.is_alphanumeric() {
            slug.push(character);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn a_slug_holds_letters_digits_and_single_dashes() {
        assert_eq!(slug("Acme & Sons, Ltd."), "acme-sons-ltd");
        assert_eq!(slug("  "), "");
    }
}
