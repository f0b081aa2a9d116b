//! Versions as applications write them: `1.2.3`, `v1.2`, `3.08`, `2.0.0-rc.1+build`.
//!
//! Must stay true: missing parts are 0, leading zeros mean nothing, build metadata is ignored, and a version before a
//! release (`-rc.1`) orders below it, as semantic versioning has it. Anything else is no version.

use std::cmp::Ordering;

/// A version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version<'a> {
    /// Major, minor, patch.
    core: [u64; 3],
    /// What follows the first hyphen; empty for a release.
    before_release: &'a str,
}

impl<'a> Version<'a> {
    /// Reads a version.
    pub fn parse(text: &'a str) -> Option<Self> {
        let text = without_prefix(text);
        let text = match text.split_once('+') {
            Some((text, build)) => identifiers(build).then_some(text)?,
            None => text,
        };
        let (core, before_release) = match text.split_once('-') {
            Some((core, before_release)) => identifiers(before_release).then_some((core, before_release))?,
            None => (text, ""),
        };
        let mut parts = [0; 3];
        for (position, part) in core.split('.').enumerate() {
            *parts.get_mut(position)? = number(part)?;
        }
        Some(Self { core: parts, before_release })
    }

    /// A copy that borrows nothing.
    pub fn into_owned(self) -> OwnedVersion {
        OwnedVersion { core: self.core, before_release: self.before_release.to_owned() }
    }
}

/// A version with its own text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedVersion {
    core: [u64; 3],
    before_release: String,
}

impl OwnedVersion {
    fn as_version(&self) -> Version<'_> {
        Version { core: self.core, before_release: &self.before_release }
    }
}

/// What a version is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// Ordered like this against a version; the flag says whether the answer is turned round.
    Ordered(OwnedVersion, &'static [Ordering]),
    /// `~1.2.3`: from that version on, with the same major and minor number.
    Tilde(OwnedVersion),
    /// `^1.2.3`: from that version on, with the same numbers up to the first that is not 0.
    Caret(OwnedVersion),
    /// `1.2.*`: these first numbers.
    Wildcard(Vec<u64>),
}

impl Range {
    /// The range of an operator's name after `semver_`. None: not such an operator, or not a version.
    pub fn parse(operator: &str, text: &str) -> Option<Self> {
        use Ordering::{Equal, Greater, Less};
        let version = || Version::parse(text).map(Version::into_owned);
        let ordered = |orders| version().map(|version| Self::Ordered(version, orders));
        match operator {
            "eq" => ordered(&[Equal]),
            "neq" => ordered(&[Less, Greater]),
            "gt" => ordered(&[Greater]),
            "gte" => ordered(&[Greater, Equal]),
            "lt" => ordered(&[Less]),
            "lte" => ordered(&[Less, Equal]),
            "tilde" => version().map(Self::Tilde),
            "caret" => version().map(Self::Caret),
            "wildcard" => wildcard(text).map(Self::Wildcard),
            _ => None,
        }
    }

    /// Whether a version lies in the range.
    pub fn contains(&self, version: &Version<'_>) -> bool {
        let from = |first: &OwnedVersion| compare(version, &first.as_version()) != Ordering::Less;
        match self {
            Self::Ordered(bound, orders) => orders.contains(&compare(version, &bound.as_version())),
            Self::Tilde(first) => from(first) && version.core[..2] == first.core[..2],
            Self::Caret(first) => {
                let same = first.core.iter().position(|part| *part != 0).unwrap_or(2);
                from(first) && version.core[..=same] == first.core[..=same]
            }
            Self::Wildcard(first) => version.core.starts_with(first),
        }
    }
}

fn without_prefix(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix(['v', 'V']).unwrap_or(text).trim_start()
}

fn number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Dot-separated words of letters, digits and hyphens.
fn identifiers(text: &str) -> bool {
    text.split('.')
        .all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
}

/// The numbers before the first star. After one come only stars, and none of the three parts has to be written.
fn wildcard(text: &str) -> Option<Vec<u64>> {
    let (mut numbers, mut open, mut parts) = (Vec::new(), false, 0);
    for part in without_prefix(text).split('.') {
        parts += 1;
        match part {
            "*" | "x" | "X" => open = true,
            _ if open => return None,
            number_text => numbers.push(number(number_text)?),
        }
    }
    (parts <= 3).then_some(numbers)
}

fn compare(left: &Version<'_>, right: &Version<'_>) -> Ordering {
    left.core.cmp(&right.core).then_with(|| match (left.before_release, right.before_release) {
        ("", "") => Ordering::Equal,
        ("", _) => Ordering::Greater,
        (_, "") => Ordering::Less,
        (left, right) => {
            let mut pairs = left.split('.').zip(right.split('.')).map(|(l, r)| compare_words(l, r));
            let words = |text: &str| text.split('.').count();
            pairs.find(|order| *order != Ordering::Equal).unwrap_or_else(|| words(left).cmp(&words(right)))
        }
    })
}

/// Numbers by value and below other words, which compare as texts.
fn compare_words(left: &str, right: &str) -> Ordering {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    match (is_number(left), is_number(right)) {
        (true, true) => {
            let (left, right) = (left.trim_start_matches('0'), right.trim_start_matches('0'));
            left.len().cmp(&right.len()).then_with(|| left.cmp(right))
        }
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => left.cmp(right),
    }
}
