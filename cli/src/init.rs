//! `pennon init`: a workspace file to start from.
//!
//! Must stay true: the file can be applied as it is; its ids and its token are its own; no file is overwritten.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use uuid::Uuid;

/// The file, with `@ORGANIZATION@` and `@TOKEN@` in place of what differs from file to file.
const TEMPLATE: &str = include_str!("init/workspace.yaml");

/// Writes a workspace file with a new `organization` and `token` to `path`, where no file is yet.
pub fn write_workspace(path: &Path, organization: Uuid, token: &str) -> Result<(), String> {
    let text = TEMPLATE.replace("@ORGANIZATION@", &organization.to_string()).replace("@TOKEN@", token);
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => {
            format!(
                "{} exists already and was not changed; name another file, or remove it first",
                path.display()
            )
        }
        _ => format!("{} cannot be written: {e}", path.display()),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn the_file_is_a_workspace_and_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.yaml");
        let organization = Uuid::from_u128(7);
        write_workspace(&path, organization, "phc_new").unwrap();
        let file = Workspace::read(&path).unwrap();
        assert_eq!(file.organizations[0].id, organization);
        assert_eq!(
            (file.projects[0].organization, file.projects[0].token.as_str()),
            (organization, "phc_new")
        );
        assert_eq!((file.users.len(), file.keys.len()), (1, 1));
        let before = std::fs::read(&path).unwrap();
        let text = String::from_utf8(before.clone()).unwrap();
        assert!(!text.contains("@ORGANIZATION@") && !text.contains("@TOKEN@"), "{text}");
        let error = write_workspace(&path, Uuid::from_u128(8), "phc_other").unwrap_err();
        assert!(error.contains("exists already"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
