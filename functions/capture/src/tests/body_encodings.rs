//! Every encoding of a request body decodes to the same JSON.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use pennon_core::http::SdkBody;
use serde_json::{Value, json};

use super::gzip;
use crate::decode::decode;

fn escaped(text: &str) -> String {
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

fn value(sent: &SdkBody<'_>) -> Value {
    serde_json::from_slice(&decode(sent).unwrap().json).unwrap()
}

#[test]
fn every_body_encoding_is_decoded() {
    let body = json!({"event": "a?>~ü", "distinct_id": "d", "properties": {"token": "t"}});
    let text = body.to_string();
    let plain = SdkBody { body: text.as_bytes(), ..SdkBody::default() };
    assert_eq!(value(&plain), body);
    let packed = gzip(text.as_bytes());
    for sent in [
        SdkBody { body: &packed, content_encoding: Some("gzip"), ..SdkBody::default() },
        SdkBody { body: &packed, content_type: Some("text/plain"), ..SdkBody::default() },
        SdkBody { body: &packed, compression: Some("gzip-js"), ..SdkBody::default() },
        // A gateway that has decompressed the body already.
        SdkBody { body: text.as_bytes(), content_encoding: Some("gzip"), ..SdkBody::default() },
    ] {
        assert_eq!(
            value(&sent),
            body,
            "{:?} {:?} {:?}",
            sent.content_type,
            sent.content_encoding,
            sent.compression
        );
    }
    let form = Some("application/x-www-form-urlencoded; charset=UTF-8");
    let base64 = STANDARD.encode(&text);
    let forms = [
        format!("data={}&compression=base64", escaped(&base64)),
        format!("compression=base64&data={}", base64.replace('+', " ")),
        format!("data={}", URL_SAFE_NO_PAD.encode(&text)),
        format!("data={}", escaped(&STANDARD.encode(&packed))),
        format!("data={}", percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC)),
    ];
    for body_text in &forms {
        assert_eq!(
            value(&SdkBody { body: body_text.as_bytes(), content_type: form, ..SdkBody::default() }),
            body,
            "{body_text}"
        );
        // A form without a content type is recognized by its prefix `data=`.
        let without_type =
            SdkBody { content_type: form.filter(|_| !body_text.starts_with("data=")), ..SdkBody::default() };
        assert_eq!(value(&SdkBody { body: body_text.as_bytes(), ..without_type }), body, "{body_text}");
    }
    assert_eq!(
        value(&SdkBody { body: base64.as_bytes(), compression: Some("base64"), ..SdkBody::default() }),
        body
    );
    let with_token = format!("data={}&api_key=phc_1", escaped(&base64));
    let payload =
        decode(&SdkBody { body: with_token.as_bytes(), content_type: form, ..SdkBody::default() }).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&payload.json).unwrap(), body);
    assert_eq!(payload.form_token.as_deref(), Some("phc_1"));
}
