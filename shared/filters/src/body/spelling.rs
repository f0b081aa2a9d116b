//! Rejects misspelled fields of a request body. Unknown fields are ignored, but a field that is almost the name of a
//! writable field is an error: ignoring `filter` would store a flag that is on for all users.

use serde_json::{Map, Value};

use crate::body::FieldError;

/// Maximum unknown fields of one body that are checked; the others are ignored.
const COMPARED_MAX: usize = 100;
/// If both names have at least this length, up to two edits count as a misspelling, else one.
const LONG_NAME: usize = 6;

/// An error for the first field of `body` that is a misspelling of a field in `writable`. Fields in `writable` and in
/// `known`, the other fields of the API, are never misspellings.
pub fn check_spelling(
    body: &Map<String, Value>,
    writable: &[&str],
    known: &[&str],
) -> Result<(), FieldError> {
    let unknown =
        body.keys().filter(|name| !writable.contains(&name.as_str()) && !known.contains(&name.as_str()));
    for name in unknown.take(COMPARED_MAX) {
        if let Some(suggestion) = closest(name, writable) {
            return Err(FieldError::invalid(name, format!("Unknown field. Did you mean `{suggestion}`?")));
        }
    }
    Ok(())
}

/// The field that `name` is a misspelling of: the closest one, and the first one of equal distance.
fn closest<'a>(name: &str, writable: &[&'a str]) -> Option<&'a str> {
    let distance = |field: &str| {
        let most = if name.chars().count().min(field.len()) >= LONG_NAME { 2 } else { 1 };
        // A cheap length check first: it skips most names, and all long ones.
        let is_near = name.len().abs_diff(field.len()) <= 4 * most;
        is_near.then(|| strsim::osa_distance(name, field)).filter(|distance| *distance <= most)
    };
    let near = writable.iter().filter_map(|field| Some((distance(field)?, *field)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, field)| field)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const TAKEN: [&str; 5] = ["key", "name", "filters", "deleted", "description"];
    const KNOWN: [&str; 2] = ["filter_hash", "keys"];

    fn meant(name: &str) -> Option<String> {
        let body = Map::from_iter([(name.to_owned(), Value::Null)]);
        let error = check_spelling(&body, &TAKEN, &KNOWN).err()?;
        assert_eq!((error.code, error.attr.as_deref()), ("invalid_input", Some(name)));
        let meant = error.detail.strip_prefix("Unknown field. Did you mean `").unwrap();
        Some(meant.strip_suffix("`?").unwrap().to_owned())
    }

    #[test]
    fn one_edit_is_a_misspelling_and_two_are_from_six_letters_on() {
        for (name, field) in [
            ("filter", "filters"),
            ("fitlers", "filters"),
            ("fliter", "filters"),
            ("Filters", "filters"),
            ("filtres_", "filters"),
            ("nmae", "name"),
            ("nam", "name"),
            ("ky", "key"),
            ("kez", "key"),
            ("delete", "deleted"),
            ("descritpio", "description"),
            ("filtersü", "filters"),
        ] {
            assert_eq!(meant(name).as_deref(), Some(field), "{name}");
        }
        for name in
            ["nmea", "nams_", "k", "kxyz", "filt", "filtersxyz", "deletion", "", "ü", "rollout_percentage"]
        {
            assert_eq!(meant(name), None, "{name}");
        }
        for name in TAKEN.iter().chain(&KNOWN) {
            assert_eq!(meant(name), None, "{name}");
        }
    }

    #[test]
    fn only_some_unknown_fields_of_a_body_are_compared() {
        let body = |others: usize| -> Map<String, Value> {
            let others = (0..others).map(|number| format!("0_other_field_{number:06}"));
            others.chain(["filter".to_owned()]).map(|name| (name, Value::Null)).collect()
        };
        assert!(check_spelling(&body(COMPARED_MAX - 1), &TAKEN, &KNOWN).is_err());
        assert!(check_spelling(&body(COMPARED_MAX), &TAKEN, &KNOWN).is_ok());
    }

    /// By the definition: the fewest insertions, deletions, substitutions and swaps of neighbours, none edited twice.
    fn osa(one: &[char], other: &[char]) -> usize {
        let (Some(a), Some(b)) = (one.last(), other.last()) else { return one.len().max(other.len()) };
        let (short, shorter) = (&one[..one.len() - 1], &other[..other.len() - 1]);
        let mut least = (osa(short, other) + 1).min(osa(one, shorter) + 1);
        least = least.min(osa(short, shorter) + usize::from(a != b));
        if short.last() == Some(b) && shorter.last() == Some(a) && one.len() > 1 && other.len() > 1 {
            least = least.min(osa(&one[..one.len() - 2], &other[..other.len() - 2]) + 1);
        }
        least
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
        #[test]
        fn a_field_is_refused_exactly_within_the_distance(name in "[keynamfil]{0,7}") {
            let near = |field: &&str| {
                let of = |text: &str| text.chars().collect::<Vec<_>>();
                let most = if name.len() >= 6 && field.len() >= 6 { 2 } else { 1 };
                osa(&of(&name), &of(field)) <= most
            };
            let is_known = TAKEN.contains(&name.as_str()) || KNOWN.contains(&name.as_str());
            prop_assert_eq!(meant(&name).is_some(), !is_known && TAKEN[..4].iter().any(near));
        }
    }
}
