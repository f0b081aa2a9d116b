//! Lenient semantic versions: `1.2.3`, `v1.2`, `3.08`, `2.0.0-rc.1+build`.
//!
//! Must stay true: missing parts are 0, leading zeros and build metadata are ignored, and a pre-release (`-rc.1`) orders
//! below its release, as in semantic versioning. Anything else is not a version.

use std::cmp::Ordering;

/// A version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version<'a> {
    /// Major, minor, patch.
    core: [u64; 3],
    /// The pre-release, which follows the first hyphen; empty for a release.
    pre_release: &'a str,
}

impl<'a> Version<'a> {
    /// Parses a version.
    pub fn parse(text: &'a str) -> Option<Self> {
        let text = without_prefix(text);
        let text = match text.split_once('+') {
            Some((text, build)) => are_identifiers(build).then_some(text)?,
            None => text,
        };
        let (core, pre_release) = match text.split_once('-') {
            Some((core, pre_release)) => are_identifiers(pre_release).then_some((core, pre_release))?,
            None => (text, ""),
        };
        let mut parts = [0; 3];
        for (position, part) in core.split('.').enumerate() {
            *parts.get_mut(position)? = number(part)?;
        }
        Some(Self { core: parts, pre_release })
    }

    /// Converts to an owned version.
    pub fn into_owned(self) -> OwnedVersion {
        OwnedVersion { core: self.core, pre_release: self.pre_release.to_owned() }
    }
}

/// A version that owns its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedVersion {
    core: [u64; 3],
    pre_release: String,
}

impl OwnedVersion {
    fn as_version(&self) -> Version<'_> {
        Version { core: self.core, pre_release: &self.pre_release }
    }
}

/// The kind of a [`VersionRange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory; `Range` explains the last three")]
pub enum RangeKind {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Tilde,
    Caret,
    Wildcard,
}

/// A condition on versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionRange {
    /// The comparison with the version gives one of these orderings.
    Ordered(OwnedVersion, &'static [Ordering]),
    /// `~1.2.3`: at least this version, with the same major and minor number.
    Tilde(OwnedVersion),
    /// `^1.2.3`: at least this version, with the same numbers up to the first non-zero one.
    Caret(OwnedVersion),
    /// `1.2.*`: starts with these numbers.
    Wildcard(Vec<u64>),
}

impl VersionRange {
    /// Parses a range. None if the version is invalid.
    pub fn parse(kind: RangeKind, text: &str) -> Option<Self> {
        use Ordering::{Equal, Greater, Less};
        let version = || Version::parse(text).map(Version::into_owned);
        let ordered = |orders| version().map(|version| Self::Ordered(version, orders));
        match kind {
            RangeKind::Equal => ordered(&[Equal]),
            RangeKind::NotEqual => ordered(&[Less, Greater]),
            RangeKind::Greater => ordered(&[Greater]),
            RangeKind::GreaterOrEqual => ordered(&[Greater, Equal]),
            RangeKind::Less => ordered(&[Less]),
            RangeKind::LessOrEqual => ordered(&[Less, Equal]),
            RangeKind::Tilde => version().map(Self::Tilde),
            RangeKind::Caret => version().map(Self::Caret),
            RangeKind::Wildcard => wildcard(text).map(Self::Wildcard),
        }
    }

    /// Whether a version is in the range.
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

/// Whether the text is dot-separated identifiers of letters, digits and hyphens.
fn are_identifiers(text: &str) -> bool {
    text.split('.')
        .all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
}

/// The numbers before the first wildcard. Only wildcards may follow one; trailing parts may be left out.
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
    left.core.cmp(&right.core).then_with(|| match (left.pre_release, right.pre_release) {
        ("", "") => Ordering::Equal,
        ("", _) => Ordering::Greater,
        (_, "") => Ordering::Less,
        (left, right) => {
            let mut pairs = left.split('.').zip(right.split('.')).map(|(l, r)| compare_identifiers(l, r));
            let words = |text: &str| text.split('.').count();
            pairs.find(|order| *order != Ordering::Equal).unwrap_or_else(|| words(left).cmp(&words(right)))
        }
    })
}

/// Orders numeric identifiers by value and below others, which are ordered as texts.
fn compare_identifiers(left: &str, right: &str) -> Ordering {
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
