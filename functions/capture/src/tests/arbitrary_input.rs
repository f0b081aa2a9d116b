//! Any input is either accepted or rejected with a 4xx; accepted properties are stored as sent.

use pennon_core::http::SdkBody;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{NOW, events, gzip, metadata, read_text};
use crate::decode::decode;
use crate::event::CaptureFormat;
use crate::normalize::normalize;

/// Any JSON value, nested a little.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(|text: String| Value::from(text.replace('\0', ""))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop_oneof![Just("$set".to_owned()), Just("token".to_owned()), "[a-c\"\\\\ü]{0,3}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn properties_are_stored_as_sent(value in any_value()) {
        let properties = json!({"k": value, "l": [value]});
        let got = events(json!({"event": "a", "distinct_id": "d", "properties": properties}));
        // Compared after a JSON round trip, which changes some numbers by itself.
        let want = serde_json::from_str::<Value>(&properties.to_string()).unwrap();
        prop_assert_eq!(Value::from(got[0].properties.clone()).to_string(), want.to_string());
    }

    #[test]
    fn any_value_in_any_field_is_accepted_or_rejected(value in any_value(), field in 0_usize..12, is_batch in any::<bool>()) {
        const FIELDS: [&str; 12] = ["event", "uuid", "distinct_id", "timestamp", "offset", "properties", "$set",
            "$unset", "batch", "api_key", "sent_at", "options"];
        let mut event = json!({"event": "a", "distinct_id": "d"});
        event[FIELDS[field]] = value;
        let format = if is_batch { CaptureFormat::Batch } else { CaptureFormat::Analytics };
        for body in [event.clone(), json!([event]), json!({"batch": [event], "created_at": NOW})] {
            let normalized =
                normalize(body.to_string().as_bytes(), format, &metadata(), &mut || Uuid::from_u128(9));
            match normalized {
                Ok(batch) => prop_assert!(batch.captured.encode().is_ok()),
                Err(error) => prop_assert!(error.status.is_client_error()),
            }
        }
    }

    #[test]
    fn any_bytes_are_accepted_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_usize..4) {
        let content_type = [None, Some("application/json"), Some("application/x-www-form-urlencoded"), Some("text/plain")][kind];
        for body in [bytes.clone(), [b"data=".as_slice(), &bytes].concat(), gzip(&bytes),
            [b"{\"batch\":[".as_slice(), &bytes].concat()] {
            for compression in [None, Some("base64"), Some("gzip-js")] {
                let sent = SdkBody { content_type, content_encoding: None, compression, body: &body };
                let error = match decode(&sent) {
                    Ok(payload) => read_text(&payload.json).err(),
                    Err(error) => Some(error),
                };
                prop_assert!(error.is_none_or(|error| error.status.is_client_error()));
            }
        }
    }
}
