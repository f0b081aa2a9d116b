#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::json;

const KEY: &str = "cache_1";

fn stored(result: Value) -> Stored {
    let stored = json!({"settings": "s", "has_more": null, "hogql": "SELECT", "timezone": "UTC", "result": result,
        "last_refresh": "2024-01-10T00:00:00Z", "next_allowed_client_refresh": "2024-01-10T00:15:00Z"});
    serde_json::from_value(stored).unwrap()
}

/// A text of so many letters and digits that does not compress well.
fn noise(length: usize) -> String {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from_digit(u32::try_from((state >> 33) % 36).unwrap(), 36).unwrap()
    };
    (0..length).map(|_| next()).collect()
}

/// What an item and its object hold together.
fn unpacked(item: &Item, object: Option<&Object>) -> Option<Stored> {
    let mut stored = Stored::read(Some(item)).unwrap();
    let Some(elsewhere) = stored.elsewhere.take() else { return Some(stored) };
    stored.result = unpack(&elsewhere, &object?.bytes)?;
    Some(stored)
}

#[test]
fn a_result_that_fits_into_its_item_needs_no_object() {
    // However long it is, as long as it compresses well.
    for result in [json!([]), json!([{"count": 12.5}]), json!(["x".repeat(3_000_000)])] {
        let (item, object) = pack(7, KEY, stored(result.clone())).unwrap();
        assert_eq!((item.fits(), &object), (true, &None));
        assert_eq!(unpacked(&item, None), Some(stored(result)));
    }
}

#[test]
fn a_larger_result_lies_in_an_object_and_comes_back_as_it_was() {
    let result = json!([{"label": noise(800_000), "count": 0.1 + 0.2, "data": [1, 1.0, null, "ü\"\u{0}"]}]);
    let (item, object) = pack(7, KEY, stored(result.clone())).unwrap();
    let object = object.unwrap();
    assert!(item.text.len() < 1000, "{}", item.text);
    assert_eq!((object.at.project, object.at.cache_key.as_str()), (7, KEY));
    assert!(object.bytes.len() < 800_000);
    let back = unpacked(&item, Some(&object)).unwrap();
    assert_eq!(back.result.to_string(), result.to_string(), "to the last digit");
    assert_eq!(back, stored(result.clone()));
    // Written again it is another object, so that nobody reads one for the other.
    let (again, other) = pack(7, KEY, stored(result)).unwrap();
    assert_ne!(other.as_ref().unwrap().at, object.at);
    assert_ne!(again.text, item.text);
}

#[test]
fn an_object_that_is_not_what_was_written_is_no_result() {
    let (item, object) = pack(7, KEY, stored(json!([noise(800_000)]))).unwrap();
    let (elsewhere, object) = (Stored::read(Some(&item)).unwrap().elsewhere.unwrap(), object.unwrap().bytes);
    assert!(unpack(&elsewhere, &object).is_some());
    for at in [0, object.len() / 2, object.len() - 1] {
        let mut flipped = object.to_vec();
        flipped[at] ^= 1;
        assert_eq!(unpack(&elsewhere, &flipped), None);
    }
    assert_eq!(unpack(&elsewhere, &object[..object.len() - 1]), None);
    assert_eq!(unpack(&elsewhere, &[]), None);
    assert_eq!(unpack(&elsewhere, &[&object[..], b"x"].concat()), None);
    // An item that does not say how long it is.
    for bytes in [0, 800_003, RESULT_BYTES_MAX + 1] {
        assert_eq!(unpack(&Elsewhere { bytes, ..elsewhere.clone() }, &object), None, "{bytes}");
    }
}

#[test]
fn a_release_that_knows_no_objects_reads_no_result_from_such_an_item() {
    let (item, _) = pack(7, KEY, stored(json!([noise(800_000)]))).unwrap();
    let body: Value = item.body().unwrap();
    assert_eq!(body.get("result"), None, "it asks for one");
}

#[test]
fn results_are_kept_up_to_sixteen_megabytes() {
    // Brackets and quotes take four bytes.
    let longest = json!([noise(16_000_000 - 4)]);
    let (item, object) = pack(7, KEY, stored(longest.clone())).unwrap();
    assert_eq!(unpacked(&item, object.as_ref()), Some(stored(longest)));
    let longer = pack(7, KEY, stored(json!([noise(16_000_000 - 3)])));
    assert!(matches!(longer, Err(StoreError::TooLarge)));
}
