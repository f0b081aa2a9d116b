#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::json;

const KEY: &str = "cache_1";

fn stored(result: Value) -> CachedResult {
    let stored = json!({"settings": "s", "has_more": null, "hogql": "SELECT", "timezone": "UTC", "result": result,
        "last_refresh": "2024-01-10T00:00:00Z", "next_allowed_client_refresh": "2024-01-10T00:15:00Z"});
    serde_json::from_value(stored).unwrap()
}

/// Pseudo-random letters and digits, which do not compress well.
fn noise(length: usize) -> String {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from_digit(u32::try_from((state >> 33) % 36).unwrap(), 36).unwrap()
    };
    (0..length).map(|_| next()).collect()
}

/// The cached result of an item and its object.
fn decoded(item: &Item, object: Option<&NewObject>) -> Option<CachedResult> {
    let mut stored = CachedResult::from_item(Some(item)).unwrap();
    let Some(object_ref) = stored.object_ref.take() else { return Some(stored) };
    stored.result = decode(&object_ref, &object?.bytes)?;
    Some(stored)
}

#[test]
fn a_small_result_has_no_object() {
    // The limit is on the compressed length.
    for result in [json!([]), json!([{"count": 12.5}]), json!(["x".repeat(3_000_000)])] {
        let (item, object) = encode(7, KEY, stored(result.clone())).unwrap();
        assert_eq!((item.fits(), &object), (true, &None));
        assert_eq!(decoded(&item, None), Some(stored(result)));
    }
}

#[test]
fn a_large_result_round_trips_through_an_object() {
    let result = json!([{"label": noise(800_000), "count": 0.1 + 0.2, "data": [1, 1.0, null, "ü\"\u{0}"]}]);
    let (item, object) = encode(7, KEY, stored(result.clone())).unwrap();
    let object = object.unwrap();
    assert!(item.text.len() < 1000, "{}", item.text);
    assert_eq!((object.at.project, object.at.cache_key.as_str()), (7, KEY));
    assert!(object.bytes.len() < 800_000);
    let back = decoded(&item, Some(&object)).unwrap();
    assert_eq!(back.result.to_string(), result.to_string(), "to the last digit");
    assert_eq!(back, stored(result.clone()));
    // A second write gets its own object id.
    let (again, other) = encode(7, KEY, stored(result)).unwrap();
    assert_ne!(other.as_ref().unwrap().at, object.at);
    assert_ne!(again.text, item.text);
}

#[test]
fn a_damaged_object_gives_no_result() {
    let (item, object) = encode(7, KEY, stored(json!([noise(800_000)]))).unwrap();
    let (object_ref, object) =
        (CachedResult::from_item(Some(&item)).unwrap().object_ref.unwrap(), object.unwrap().bytes);
    assert!(decode(&object_ref, &object).is_some());
    for at in [0, object.len() / 2, object.len() - 1] {
        let mut flipped = object.to_vec();
        flipped[at] ^= 1;
        assert_eq!(decode(&object_ref, &flipped), None);
    }
    assert_eq!(decode(&object_ref, &object[..object.len() - 1]), None);
    assert_eq!(decode(&object_ref, &[]), None);
    assert_eq!(decode(&object_ref, &[&object[..], b"x"].concat()), None);
    // A wrong length in the item.
    for bytes in [0, 800_003, RESULT_BYTES_MAX + 1] {
        assert_eq!(decode(&ResultObjectRef { bytes, ..object_ref.clone() }, &object), None, "{bytes}");
    }
}

#[test]
fn a_release_without_objects_reads_no_result_from_such_an_item() {
    let (item, _) = encode(7, KEY, stored(json!([noise(800_000)]))).unwrap();
    let body: Value = item.body().unwrap();
    assert_eq!(body.get("result"), None, "the result is in the object");
}

#[test]
fn results_are_cached_up_to_sixteen_megabytes() {
    // Brackets and quotes take four bytes.
    let longest = json!([noise(16_000_000 - 4)]);
    let (item, object) = encode(7, KEY, stored(longest.clone())).unwrap();
    assert_eq!(decoded(&item, object.as_ref()), Some(stored(longest)));
    let longer = encode(7, KEY, stored(json!([noise(16_000_000 - 3)])));
    assert!(matches!(longer, Err(StoreError::TooLarge)));
}
