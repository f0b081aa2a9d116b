//! Patterns of keys, as a policy can express them: the text of a key with wildcards instead of numbers and names.

/// Words after which the rest of a key is anything.
const OPEN: [&str; 5] = ["TOKEN", "KEY", "SHARE", "CALLS", "ACTIONNAME"];

/// The kind of a partition key: `PROJECT#7#FLAGROW#3` is of `PROJECT#*#FLAGROW#*`. A word is in capital letters. Parts of
/// long records are of one kind, because any record of a project may be long.
pub(super) fn kind_of(pk: &str) -> String {
    if pk.starts_with("PROJECT#") && pk.ends_with("#PART") {
        return "PROJECT#*#PART".to_owned();
    }
    let mut kind: Vec<&str> = Vec::new();
    let mut is_open = false;
    for part in pk.split('#') {
        let is_word = !part.is_empty() && part.chars().all(|char| char.is_ascii_uppercase() || char == '_');
        let part = if is_word && !is_open { part } else { "*" };
        if kind.last() != Some(&"*") || part != "*" {
            kind.push(part);
        }
        is_open |= OPEN.contains(&part);
    }
    kind.join("#")
}

/// The kind of an object: its folders, with any project.
pub(super) fn folder_of(name: &str) -> String {
    let folders = name.rsplit_once('/').map_or("", |(folders, _)| folders);
    let any = |folder: &str| match folder.strip_prefix("project=") {
        Some(_) => "project=*".to_owned(),
        None => folder.to_owned(),
    };
    folders.split('/').map(any).collect::<Vec<_>>().join("/") + "/*"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_anything() {
        for (pk, kind) in [
            ("INSTALLATION", "INSTALLATION"),
            ("PROJECT#12", "PROJECT#*"),
            ("PROJECT#12#FLAG", "PROJECT#*#FLAG"),
            ("PROJECT#12#FLAG#7#ROLE_ACCESS#3", "PROJECT#*#FLAG#*#ROLE_ACCESS#*"),
            ("PROJECT#12#ACTIVITY#FeatureFlag#2026-01", "PROJECT#*#ACTIVITY#*"),
            ("PROJECT#12#ACTIVITY#FeatureFlag#ITEM#5", "PROJECT#*#ACTIVITY#*#ITEM#*"),
            ("PROJECT#12#ACTIONNAME#BUY#NOW", "PROJECT#*#ACTIONNAME#*"),
            ("PROJECT#12#INSIGHT#00000000000000000007#PART", "PROJECT#*#PART"),
            ("TOKEN#phc_A#KEY", "TOKEN#*"),
            ("KEY#0ab", "KEY#*"),
            ("JOB#3", "JOB#*"),
        ] {
            assert_eq!(kind_of(pk), kind);
        }
    }

    #[test]
    fn objects_are_of_their_folder() {
        assert_eq!(folder_of("project=7/events/01-ab.parquet"), "project=*/events/*");
        assert_eq!(folder_of("merges/project=7/ab.bin"), "merges/project=*/*");
    }
}
