//! What has one owner: the key of a flag, and the access of a role to a flag.

use serde_json::{Value, json};
use stateright::semantics::SequentialSpec;

use super::{Client, ObjectKind, documented};
use crate::Random;

/// Flags that take the key by a change of theirs.
const SPARES: usize = 2;
/// Roles of the workspace that get access.
pub(super) const ROLES: [&str; 2] =
    ["01900000-0000-7000-8000-0000000000c1", "01900000-0000-7000-8000-0000000000c2"];

/// A key that flags compete for: it never has two owners.
#[derive(Debug)]
pub struct FlagKey {
    key: String,
    spares: Vec<u64>,
}

/// A call about the key.
#[derive(Debug, Clone, PartialEq)]
pub enum FlagKeyOp {
    /// Create a flag with the key.
    Create,
    /// Give a flag the key.
    Take(u64),
    /// Give a flag that may have the key another one.
    Leave(u64),
    /// Delete a flag that may have the key.
    Delete(u64),
    /// Read the flags with the key.
    Read,
}

/// The response.
#[derive(Debug, Clone, PartialEq)]
pub enum FlagKeyRet {
    /// The flag was created.
    Created(u64),
    /// The flag was changed.
    Changed,
    /// The key has another owner.
    Exists,
    /// The flags that have the key.
    Flags(Vec<u64>),
}

/// The owner of the key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FlagKeyOwner {
    /// None.
    Free,
    /// This flag.
    Flag(u64),
    /// A flag whose creation had no response.
    Unknown,
}

impl SequentialSpec for FlagKeyOwner {
    type Op = FlagKeyOp;
    type Ret = FlagKeyRet;

    fn invoke(&mut self, op: &FlagKeyOp) -> FlagKeyRet {
        match op {
            FlagKeyOp::Create if *self == FlagKeyOwner::Free => *self = FlagKeyOwner::Unknown,
            FlagKeyOp::Take(id) if *self == FlagKeyOwner::Free => *self = FlagKeyOwner::Flag(*id),
            FlagKeyOp::Take(id) if *self == FlagKeyOwner::Flag(*id) => {}
            FlagKeyOp::Create | FlagKeyOp::Take(_) => return FlagKeyRet::Exists,
            FlagKeyOp::Leave(id) | FlagKeyOp::Delete(id) if *self == FlagKeyOwner::Flag(*id) => {
                *self = FlagKeyOwner::Free
            }
            FlagKeyOp::Leave(_) | FlagKeyOp::Delete(_) => {}
            FlagKeyOp::Read => {
                return match self {
                    FlagKeyOwner::Flag(id) => FlagKeyRet::Flags(vec![*id]),
                    FlagKeyOwner::Free | FlagKeyOwner::Unknown => FlagKeyRet::Flags(Vec::new()),
                };
            }
        }
        FlagKeyRet::Changed
    }

    fn is_valid_step(&mut self, op: &FlagKeyOp, ret: &FlagKeyRet) -> bool {
        match (op, ret, *self) {
            (FlagKeyOp::Create, FlagKeyRet::Created(id), FlagKeyOwner::Free) => {
                *self = FlagKeyOwner::Flag(*id)
            }
            (FlagKeyOp::Read, FlagKeyRet::Flags(ids), FlagKeyOwner::Unknown) if ids.len() == 1 => {
                *self = FlagKeyOwner::Flag(ids[0]);
            }
            (FlagKeyOp::Create, FlagKeyRet::Created(_), _) | (FlagKeyOp::Read, _, FlagKeyOwner::Unknown) => {
                return false;
            }
            _ => return self.invoke(op) == *ret,
        }
        true
    }
}

impl ObjectKind for FlagKey {
    const NAME: &'static str = "key of flags";
    type Op = FlagKeyOp;
    type Ret = FlagKeyRet;
    type Spec = FlagKeyOwner;

    async fn create(client: &Client, number: u64) -> FlagKey {
        let mut spares = Vec::new();
        for spare in 0..SPARES {
            spares.push(client.make_flag(&format!("spare-{number}-{spare}"), "").await);
        }
        FlagKey { key: format!("contested-{number}"), spares }
    }

    fn spec(&self) -> FlagKeyOwner {
        FlagKeyOwner::Free
    }

    fn next(&self, responses: &[FlagKeyRet], _: u64, random: &mut Random) -> FlagKeyOp {
        let created = responses.iter().rev().find_map(|ret| match ret {
            FlagKeyRet::Created(id) => Some(*id),
            _ => None,
        });
        let spare = *random.pick(&self.spares);
        match (random.below(10), created) {
            (0..2, _) => FlagKeyOp::Read,
            (2..4, _) => FlagKeyOp::Take(spare),
            (4..6, _) => FlagKeyOp::Leave(spare),
            (6..8, Some(id)) => FlagKeyOp::Delete(id),
            _ => FlagKeyOp::Create,
        }
    }

    async fn call(&self, client: &Client, op: &FlagKeyOp) -> Option<FlagKeyRet> {
        let one = |id: &u64| format!("feature_flags/{id}/");
        let response = match op {
            FlagKeyOp::Create => client.owner("POST", "feature_flags/", json!({"key": self.key})).await,
            FlagKeyOp::Take(id) => client.owner("PATCH", &one(id), json!({"key": self.key})).await,
            FlagKeyOp::Leave(id) => {
                client.owner("PATCH", &one(id), json!({"key": format!("{}-{id}", self.key)})).await
            }
            FlagKeyOp::Delete(id) => client.owner("PATCH", &one(id), json!({"deleted": true})).await,
            FlagKeyOp::Read => {
                client
                    .owner("GET", &format!("feature_flags/?limit=10&search={}", self.key), Value::Null)
                    .await
            }
        };
        let response = documented(response, &[200, 201, 400])?;
        let body = response.json();
        Some(match (response.status.as_u16(), op) {
            (201, _) => FlagKeyRet::Created(body["id"].as_u64().expect("an id")),
            (200, FlagKeyOp::Read) => FlagKeyRet::Flags(self.owners(&body)),
            (200, _) => FlagKeyRet::Changed,
            _ => {
                assert_eq!((&body["code"], &body["attr"]), (&json!("unique"), &json!("key")), "{body}");
                FlagKeyRet::Exists
            }
        })
    }

    fn is_read(op: &FlagKeyOp) -> bool {
        *op == FlagKeyOp::Read
    }
}

impl FlagKey {
    fn owners(&self, page: &Value) -> Vec<u64> {
        let flags = page["results"].as_array().into_iter().flatten();
        flags.filter(|flag| flag["key"] == self.key.as_str()).filter_map(|flag| flag["id"].as_u64()).collect()
    }
}

/// The access of a role to a flag: one at most. A list of accesses reads several partitions of the table and is no snapshot of several
/// roles, so each role is an object of its own.
#[derive(Debug)]
pub struct RoleAccess {
    flag: u64,
    role: &'static str,
}

/// A call about the access.
#[derive(Debug, Clone, PartialEq)]
pub enum AccessOp {
    /// Give the role access.
    Grant,
    /// Remove the access with this id.
    Revoke(u64),
    /// Read the accesses of the flag.
    List,
}

/// The response.
#[derive(Debug, Clone, PartialEq)]
pub enum AccessRet {
    /// The id of the new access.
    Granted(u64),
    /// The role has access.
    Exists,
    /// It was removed.
    Revoked,
    /// There is no such access.
    Missing,
    /// The ids of the role's accesses.
    Listed(Vec<u64>),
}

/// The access of the role.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AccessState {
    /// None.
    Absent,
    /// With this id.
    Known(u64),
    /// Of a grant without a response.
    Unknown,
}

impl SequentialSpec for AccessState {
    type Op = AccessOp;
    type Ret = AccessRet;

    /// Only for calls without a response.
    fn invoke(&mut self, op: &AccessOp) -> AccessRet {
        match op {
            AccessOp::Grant if *self == AccessState::Absent => *self = AccessState::Unknown,
            AccessOp::Revoke(id) if *self == AccessState::Known(*id) => *self = AccessState::Absent,
            AccessOp::Grant | AccessOp::Revoke(_) | AccessOp::List => {}
        }
        AccessRet::Missing
    }

    fn is_valid_step(&mut self, op: &AccessOp, ret: &AccessRet) -> bool {
        let (is_valid, next) = match (op, ret) {
            (AccessOp::Grant, AccessRet::Granted(id)) => {
                (*self == AccessState::Absent, AccessState::Known(*id))
            }
            (AccessOp::Grant, AccessRet::Exists) => (*self != AccessState::Absent, *self),
            (AccessOp::Revoke(id), AccessRet::Revoked) => {
                (*self == AccessState::Known(*id), AccessState::Absent)
            }
            (AccessOp::Revoke(id), AccessRet::Missing) => (*self != AccessState::Known(*id), *self),
            (AccessOp::List, AccessRet::Listed(ids)) => match (ids.as_slice(), *self) {
                ([], state) => (state == AccessState::Absent, state),
                ([id], AccessState::Unknown) => (true, AccessState::Known(*id)),
                ([id], state) => (state == AccessState::Known(*id), state),
                (_, state) => (false, state),
            },
            _ => (false, *self),
        };
        *self = next;
        is_valid
    }
}

impl ObjectKind for RoleAccess {
    const NAME: &'static str = "role access";
    type Op = AccessOp;
    type Ret = AccessRet;
    type Spec = AccessState;

    async fn create(client: &Client, number: u64) -> RoleAccess {
        let flag = client.make_flag(&format!("of-roles-{number}"), "").await;
        RoleAccess { flag, role: ROLES[usize::from(number.is_multiple_of(2))] }
    }

    fn spec(&self) -> AccessState {
        AccessState::Absent
    }

    fn next(&self, responses: &[AccessRet], _: u64, random: &mut Random) -> AccessOp {
        let known = responses.iter().rev().find_map(|ret| match ret {
            AccessRet::Granted(id) => Some(*id),
            AccessRet::Listed(ids) => ids.first().copied(),
            _ => None,
        });
        match (random.below(10), known) {
            (0..3, _) => AccessOp::List,
            (3..6, Some(id)) => AccessOp::Revoke(id),
            _ => AccessOp::Grant,
        }
    }

    async fn call(&self, client: &Client, op: &AccessOp) -> Option<AccessRet> {
        let path = format!("feature_flags/{}/role_access/", self.flag);
        let response = match op {
            AccessOp::Grant => client.owner("POST", &path, json!({"role_id": self.role})).await,
            AccessOp::Revoke(id) => client.owner("DELETE", &format!("{path}{id}/"), Value::Null).await,
            AccessOp::List => client.owner("GET", &path, Value::Null).await,
        };
        let response = documented(response, &[200, 201, 204, 400, 404])?;
        Some(match response.status.as_u16() {
            201 => AccessRet::Granted(response.json()["id"].as_u64().expect("an id")),
            204 => AccessRet::Revoked,
            404 => AccessRet::Missing,
            400 => {
                assert_eq!(response.json()["code"], "unique", "{}", response.text);
                AccessRet::Exists
            }
            _ => {
                let page = response.json();
                let records = page["results"].as_array().into_iter().flatten();
                AccessRet::Listed(records.filter_map(|record| record["id"].as_u64()).collect())
            }
        })
    }

    fn is_read(op: &AccessOp) -> bool {
        *op == AccessOp::List
    }
}
