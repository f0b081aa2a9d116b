//! Finds a flag by its key.

use serde_json::Value;

use crate::client::ApiClient;
use crate::show::text::sanitize;

use super::list_pages;

/// Most keys that an error suggests.
const SUGGESTIONS_MAX: usize = 3;

/// The flag with this key; an error with near keys if there is none.
pub async fn find(client: &ApiClient, key: &str) -> Result<Value, String> {
    let page = client.get("feature_flags/", &[("key", key)]).await?;
    let found = page["results"].as_array().into_iter().flatten();
    if let Some(flag) = found.into_iter().find(|flag| flag["key"] == key) {
        return Ok(flag.clone());
    }
    let flags = list_pages(client, &[]).await?;
    let keys = flags.iter().filter_map(|flag| flag["key"].as_str());
    Err(not_found_message(key, keys))
}

fn not_found_message<'a>(key: &str, keys: impl Iterator<Item = &'a str>) -> String {
    let lower = key.to_lowercase();
    let distance = |other: &str| {
        let other = other.to_lowercase();
        let edits = strsim::osa_distance(&lower, &other);
        (edits <= 2 || other.contains(&lower)).then_some(edits)
    };
    let mut near: Vec<(usize, &str)> = keys.filter_map(|key| Some((distance(key)?, key))).collect();
    near.sort_unstable();
    let near: Vec<String> =
        near.into_iter().take(SUGGESTIONS_MAX).map(|(_, key)| format!("`{}`", sanitize(key))).collect();
    let next = if near.is_empty() {
        "`pennon flags list` lists the flags".to_owned()
    } else {
        format!("did you mean {}?", near.join(", "))
    };
    format!("no flag `{}` in this project; {next}", sanitize(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_keys_are_suggested() {
        let message =
            |key: &str| not_found_message(key, ["new-checkout", "banner", "free-shipping"].into_iter());
        assert_eq!(
            message("new-chekout"),
            "no flag `new-chekout` in this project; did you mean `new-checkout`?"
        );
        assert_eq!(message("shipping"), "no flag `shipping` in this project; did you mean `free-shipping`?");
        assert_eq!(message("\u{1b}x"), "no flag ` x` in this project; `pennon flags list` lists the flags");
    }
}
