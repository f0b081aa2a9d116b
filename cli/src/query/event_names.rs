//! Rejects the name of an event that a project has never captured, with the names that are near to it.

use std::collections::BTreeSet;

use crate::show::text::sanitize;

/// Most names that an error suggests, or lists if none is near.
const SUGGESTIONS_MAX: usize = 3;
const LISTED_MAX: usize = 8;
/// One edit more is a misspelling for so many letters of the shorter name.
const LETTERS_PER_EDIT: usize = 4;
/// A name of at least this length that is a part of another is near to it.
const PART_LETTERS_MIN: usize = 3;

/// An error for the first of `names` that is not one of `known`.
pub(super) fn check(names: &[String], known: &[String]) -> Result<(), String> {
    let captured: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    let Some(missing) = names.iter().find(|name| !captured.contains(name.as_str())) else { return Ok(()) };
    if known.is_empty() {
        return Err(
            "this project has no events yet; send some, or import them with `pennon import`".to_owned()
        );
    }
    let quoted = |names: Vec<&str>| {
        let quoted = names.into_iter().map(|name| format!("`{}`", sanitize(name)));
        quoted.collect::<Vec<_>>().join(", ")
    };
    let near = near_names(missing, &captured);
    let missing = sanitize(missing);
    Err(if near.is_empty() {
        let listed: Vec<&str> = captured.iter().copied().take(LISTED_MAX).collect();
        let others = captured.len() - listed.len();
        let more = if others > 0 { format!(" and {others} more") } else { String::new() };
        format!("no event `{missing}` in this project; it has {}{more}", quoted(listed))
    } else {
        format!("no event `{missing}` in this project; did you mean {}?", quoted(near))
    })
}

/// The names that are a misspelling of `name`, or contain it or are contained in it; the nearest first.
fn near_names<'a>(name: &str, captured: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let lower = name.to_lowercase();
    let distance = |other: &str| {
        let other = other.to_lowercase();
        let shorter = lower.chars().count().min(other.chars().count());
        let most = 1 + shorter / LETTERS_PER_EDIT;
        let edits = strsim::osa_distance(&lower, &other);
        let is_part = shorter >= PART_LETTERS_MIN && (other.contains(&lower) || lower.contains(&other));
        (edits <= most || is_part).then_some(edits)
    };
    let mut near: Vec<(usize, &str)> =
        captured.iter().filter_map(|other| Some((distance(other)?, *other))).collect();
    near.sort_unstable();
    near.into_iter().map(|(_, name)| name).take(SUGGESTIONS_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn error(name: &str) -> String {
        let known = [
            "purchase",
            "product_view",
            "payment_details",
            "cart",
            "$pageview",
            "wishlist_add",
            "home",
            "a",
            "b",
            "c",
        ];
        let known: Vec<String> = known.map(str::to_owned).to_vec();
        check(&["cart".to_owned(), name.to_owned()], &known).unwrap_err()
    }

    #[test]
    fn near_names_are_suggested_the_nearest_first() {
        assert_eq!(error("purchse"), "no event `purchse` in this project; did you mean `purchase`?");
        assert_eq!(error("Purchase"), "no event `Purchase` in this project; did you mean `purchase`?");
        assert_eq!(error("pageview"), "no event `pageview` in this project; did you mean `$pageview`?");
        assert_eq!(error("wishlist"), "no event `wishlist` in this project; did you mean `wishlist_add`?");
        assert_eq!(error("carts"), "no event `carts` in this project; did you mean `cart`?");
    }

    #[test]
    fn without_a_near_name_some_are_listed() {
        let text = error("zzzzzzzz\u{1b}[2J");
        assert_eq!(
            text,
            "no event `zzzzzzzz [2J` in this project; it has `$pageview`, `a`, `b`, `c`, `cart`, `home`, `payment_details`, \
             `product_view` and 2 more"
        );
        assert!(check(&["x".to_owned()], &[]).unwrap_err().contains("no events yet"));
        assert_eq!(check(&["x".to_owned()], &["x".to_owned()]), Ok(()));
    }
}
