//! Edit permissions: who may edit a flag, and who may change which roles have access to it.
//!
//! Must stay true: the first rule that applies decides; role access to the flag is checked last, because it needs a
//! look-up.

use super::{FlagViewer, UserAccessLevel};

/// The access level of an organization or role whose members can always edit flags.
pub const EDIT_LEVEL: u8 = 37;

/// A user's level in an organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MembershipLevel {
    /// 1
    Member,
    /// 8
    Admin,
    /// 15
    Owner,
}

impl MembershipLevel {
    /// The membership with this number; an unknown number gives the rights of the next lower known one.
    pub fn from_level(level: u8) -> Self {
        match level {
            15.. => Self::Owner,
            8.. => Self::Admin,
            _ => Self::Member,
        }
    }

    /// Whether the user is an administrator or owner.
    pub fn is_admin(self) -> bool {
        self >= Self::Admin
    }
}

/// The facts that decide a caller's permissions on a flag.
#[derive(Debug, Clone, Copy)]
pub struct CallerPermissions<'a> {
    /// Whether the caller created the flag.
    pub is_creator: bool,
    /// The caller's level in the organization of the flag.
    pub membership: MembershipLevel,
    /// The organization's access level for flags (21 view, 35 view unless a role grants more, 37 edit); `None` when
    /// never set, which counts as 37.
    pub organization_level: Option<u8>,
    /// The access levels of the caller's roles in that organization.
    pub role_levels: &'a [u8],
}

/// Whether a caller may edit a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditDecision {
    /// Allowed.
    Allowed,
    /// Denied.
    Denied,
    /// Allowed if the flag has a role access for one of the caller's roles.
    DependsOnRoleAccess,
}

impl CallerPermissions<'_> {
    /// Whether the caller may edit the flag.
    pub fn can_edit(&self) -> EditDecision {
        let organization = self.organization_level.unwrap_or(EDIT_LEVEL);
        if self.is_creator || self.membership.is_admin() || organization >= EDIT_LEVEL {
            return EditDecision::Allowed;
        }
        match self.role_levels.iter().max() {
            None => EditDecision::Denied,
            Some(level) if *level >= EDIT_LEVEL => EditDecision::Allowed,
            Some(_) => EditDecision::DependsOnRoleAccess,
        }
    }

    /// Whether the caller may change which roles have access to the flag.
    pub fn can_change_role_access(&self) -> bool {
        self.is_creator
            || self.membership.is_admin()
            || self.organization_level.is_none_or(|level| level >= EDIT_LEVEL)
            || self.role_levels.iter().any(|level| *level >= EDIT_LEVEL)
    }

    /// The viewer for rendering the flag, given whether the caller may edit it.
    pub fn viewer(&self, can_edit: bool) -> FlagViewer {
        let level = match can_edit {
            _ if self.is_creator || self.membership.is_admin() => UserAccessLevel::Manager,
            true => UserAccessLevel::Editor,
            false => UserAccessLevel::Viewer,
        };
        FlagViewer { can_edit, level }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: CallerPermissions<'static> = CallerPermissions {
        is_creator: false,
        membership: MembershipLevel::Member,
        organization_level: Some(21),
        role_levels: &[],
    };

    #[test]
    fn the_first_matching_rule_decides() {
        assert_eq!(CallerPermissions { is_creator: true, ..MEMBER }.can_edit(), EditDecision::Allowed);
        for membership in [MembershipLevel::from_level(8), MembershipLevel::from_level(15)] {
            assert_eq!(CallerPermissions { membership, ..MEMBER }.can_edit(), EditDecision::Allowed);
        }
        assert_eq!(
            CallerPermissions { organization_level: Some(37), ..MEMBER }.can_edit(),
            EditDecision::Allowed
        );
        assert_eq!(
            CallerPermissions { organization_level: None, role_levels: &[21], ..MEMBER }.can_edit(),
            EditDecision::Allowed
        );
        assert_eq!(CallerPermissions { role_levels: &[21, 37], ..MEMBER }.can_edit(), EditDecision::Allowed);
        for role_levels in [&[21][..], &[35], &[21, 35]] {
            assert_eq!(
                CallerPermissions { role_levels, ..MEMBER }.can_edit(),
                EditDecision::DependsOnRoleAccess
            );
        }
        assert_eq!(MEMBER.can_edit(), EditDecision::Denied);
        assert_eq!(
            CallerPermissions { organization_level: Some(35), ..MEMBER }.can_edit(),
            EditDecision::Denied
        );
        assert_eq!(MembershipLevel::from_level(1), MembershipLevel::Member);
    }

    #[test]
    fn role_access_is_changed_by_those_with_full_rights() {
        assert!(!MEMBER.can_change_role_access());
        assert!(!CallerPermissions { role_levels: &[21, 35], ..MEMBER }.can_change_role_access());
        assert!(CallerPermissions { role_levels: &[37], ..MEMBER }.can_change_role_access());
        assert!(CallerPermissions { is_creator: true, ..MEMBER }.can_change_role_access());
        assert!(CallerPermissions { membership: MembershipLevel::Admin, ..MEMBER }.can_change_role_access());
        assert!(CallerPermissions { organization_level: Some(37), ..MEMBER }.can_change_role_access());
        assert!(CallerPermissions { organization_level: None, ..MEMBER }.can_change_role_access());
    }

    #[test]
    fn access_levels_of_viewers() {
        let creator = CallerPermissions { is_creator: true, ..MEMBER };
        assert_eq!(creator.viewer(true), FlagViewer { can_edit: true, level: UserAccessLevel::Manager });
        assert_eq!(MEMBER.viewer(true), FlagViewer { can_edit: true, level: UserAccessLevel::Editor });
        assert_eq!(MEMBER.viewer(false), FlagViewer { can_edit: false, level: UserAccessLevel::Viewer });
    }
}
