//! Snapshots of users in flag records.

use pennon_core::model::User;
use pennon_flag_rules::UserRef;

/// The snapshot of `user` that a flag record stores.
pub fn user_ref(user: &User) -> UserRef {
    UserRef {
        id: i64::try_from(user.id).unwrap_or(i64::MAX),
        uuid: user.uuid.to_string(),
        distinct_id: user.distinct_id.clone(),
        first_name: user.first_name.clone(),
        last_name: user.last_name.clone(),
        email: user.email.clone(),
        is_email_verified: user.is_email_verified,
        hedgehog_config: user.hedgehog_config.clone(),
        role_at_organization: user.role_at_organization.clone(),
    }
}
