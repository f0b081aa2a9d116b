//! Who may edit a flag, and who may change which roles have access to it.
//!
//! Must stay true: the first question that has an answer decides; whether a role is linked to the flag is asked only
//! when nothing else decides, because it takes a look-up.

use super::{AccessLevel, Viewer};

/// The level of an organisation or role whose members can always edit flags.
pub const CAN_ALWAYS_EDIT: u8 = 37;

/// A user's level in an organisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Membership {
    /// 1
    Member,
    /// 8
    Admin,
    /// 15
    Owner,
}

impl Membership {
    /// The membership with this number; unknown numbers give no more rights than the next lower known one.
    pub fn from_level(level: u8) -> Self {
        match level {
            15.. => Self::Owner,
            8.. => Self::Admin,
            _ => Self::Member,
        }
    }

    /// Administrators and owners.
    pub fn is_admin(self) -> bool {
        self >= Self::Admin
    }
}

/// A caller in front of a flag.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Whether he made the flag.
    pub is_creator: bool,
    /// His level in the flag's organisation.
    pub membership: Membership,
    /// What the organisation's members can do with flags (21 view, 35 view unless a role says more, 37 edit); none when
    /// never set, which counts as 37.
    pub organization_level: Option<u8>,
    /// The same numbers of his roles in that organisation.
    pub role_levels: &'a [u8],
}

/// The answer to whether a caller may edit a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// He may.
    Yes,
    /// He may not.
    No,
    /// He may if the flag has a role access for one of his roles.
    DependsOnRoleAccess,
}

impl Caller<'_> {
    /// Whether he may edit the flag.
    pub fn can_edit(&self) -> Decision {
        let organization = self.organization_level.unwrap_or(CAN_ALWAYS_EDIT);
        if self.is_creator || self.membership.is_admin() || organization >= CAN_ALWAYS_EDIT {
            return Decision::Yes;
        }
        match self.role_levels.iter().max() {
            None => Decision::No,
            Some(level) if *level >= CAN_ALWAYS_EDIT => Decision::Yes,
            Some(_) => Decision::DependsOnRoleAccess,
        }
    }

    /// Whether he may change which roles have access to the flag.
    pub fn can_change_role_access(&self) -> bool {
        self.is_creator
            || self.membership.is_admin()
            || self.organization_level.is_none_or(|level| level >= CAN_ALWAYS_EDIT)
            || self.role_levels.iter().any(|level| *level >= CAN_ALWAYS_EDIT)
    }

    /// How the flag is shown to him, once it is decided whether he may edit it.
    pub fn viewer(&self, can_edit: bool) -> Viewer {
        let level = match can_edit {
            _ if self.is_creator || self.membership.is_admin() => AccessLevel::Manager,
            true => AccessLevel::Editor,
            false => AccessLevel::Viewer,
        };
        Viewer { can_edit, level }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: Caller<'static> = Caller {
        is_creator: false,
        membership: Membership::Member,
        organization_level: Some(21),
        role_levels: &[],
    };

    #[test]
    fn first_answer_wins() {
        assert_eq!(Caller { is_creator: true, ..MEMBER }.can_edit(), Decision::Yes);
        for membership in [Membership::from_level(8), Membership::from_level(15)] {
            assert_eq!(Caller { membership, ..MEMBER }.can_edit(), Decision::Yes);
        }
        assert_eq!(Caller { organization_level: Some(37), ..MEMBER }.can_edit(), Decision::Yes);
        assert_eq!(
            Caller { organization_level: None, role_levels: &[21], ..MEMBER }.can_edit(),
            Decision::Yes
        );
        assert_eq!(Caller { role_levels: &[21, 37], ..MEMBER }.can_edit(), Decision::Yes);
        for role_levels in [&[21][..], &[35], &[21, 35]] {
            assert_eq!(Caller { role_levels, ..MEMBER }.can_edit(), Decision::DependsOnRoleAccess);
        }
        assert_eq!(MEMBER.can_edit(), Decision::No);
        assert_eq!(Caller { organization_level: Some(35), ..MEMBER }.can_edit(), Decision::No);
        assert_eq!(Membership::from_level(1), Membership::Member);
    }

    #[test]
    fn role_access_is_changed_by_those_with_full_rights() {
        assert!(!MEMBER.can_change_role_access());
        assert!(!Caller { role_levels: &[21, 35], ..MEMBER }.can_change_role_access());
        assert!(Caller { role_levels: &[37], ..MEMBER }.can_change_role_access());
        assert!(Caller { is_creator: true, ..MEMBER }.can_change_role_access());
        assert!(Caller { membership: Membership::Admin, ..MEMBER }.can_change_role_access());
        assert!(Caller { organization_level: Some(37), ..MEMBER }.can_change_role_access());
        assert!(Caller { organization_level: None, ..MEMBER }.can_change_role_access());
    }

    #[test]
    fn rights_in_one_word() {
        let creator = Caller { is_creator: true, ..MEMBER };
        assert_eq!(creator.viewer(true), Viewer { can_edit: true, level: AccessLevel::Manager });
        assert_eq!(MEMBER.viewer(true), Viewer { can_edit: true, level: AccessLevel::Editor });
        assert_eq!(MEMBER.viewer(false), Viewer { can_edit: false, level: AccessLevel::Viewer });
    }
}
