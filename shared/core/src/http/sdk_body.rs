//! Decodes request bodies of SDKs to JSON text, for events (`capture`) and flag evaluation (`flags`).
//!
//! Gzip is recognized by its first two bytes, because one browser SDK sends it without a header. An HTML form has the JSON
//! in its field `data`, as base64 or as plain text. Must stay true: decompression stops at a limit; a body in none of these
//! encodings is an error.

use std::borrow::Cow;
use std::io::Read;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use flate2::read::MultiGzDecoder;
use percent_encoding::percent_decode;
use serde::de::IgnoredAny;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The values of the query parameter and of the form field `compression`.
pub const COMPRESSIONS: [&str; 4] = ["", "gzip", "gzip-js", "base64"];
/// The values of the header `Content-Encoding`.
pub const CONTENT_ENCODINGS: [&str; 4] = ["gzip", "x-gzip", "identity", ""];
const GZIP: &[u8] = &[0x1f, 0x8b];
/// The start of gzip that was decoded as UTF-8 on its way: the second byte became U+FFFD.
const ALTERED_GZIP: &[u8] = &[0x1f, 0xef, 0xbf, 0xbd];

/// A body with the headers and parameters that describe its encoding.
#[derive(Debug, Clone, Copy, Default)]
pub struct SdkBody<'a> {
    /// Header `Content-Type`.
    pub content_type: Option<&'a str>,
    /// Header `Content-Encoding`.
    pub content_encoding: Option<&'a str>,
    /// Query parameter `compression`.
    pub compression: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

/// Decoding rules of a route.
#[derive(Debug, Clone, Copy)]
pub struct BodyRules {
    /// Maximum bytes of a body after decompression.
    pub inflated_bytes_max: usize,
    /// Whether a `Content-Encoding` other than gzip is an error; otherwise the header is ignored.
    pub refuses_other_encodings: bool,
    /// Whether base64 is decoded without `compression=base64`, and a form without the field `data` is taken as base64.
    pub takes_bare_base64: bool,
}

/// A decoded body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SdkPayload<'a> {
    /// The JSON text.
    pub json: Cow<'a, [u8]>,
    /// The project token, if a form has it as a field.
    pub form_token: Option<String>,
}

/// Why a body cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SdkBodyError {
    /// It has none of the supported encodings.
    Unreadable(String),
    /// A form lacks the field `data`.
    NoData,
    /// It has more than this number of bytes after decompression.
    TooLarge(usize),
}

fn unreadable(detail: impl Into<String>) -> SdkBodyError {
    SdkBodyError::Unreadable(detail.into())
}

impl BodyRules {
    /// Decodes a body to JSON text.
    pub fn decode<'a>(&self, request: &SdkBody<'a>) -> Result<SdkPayload<'a>, SdkBodyError> {
        if request.body.is_empty() {
            return Err(unreadable("The body is empty."));
        }
        self.check_encoding(request.content_encoding)?;
        let compression = request.compression.unwrap_or("");
        check_compression(compression, "gzip-js or base64")?;
        if request.body.starts_with(ALTERED_GZIP) {
            return Err(unreadable(
                "The body is gzip that was altered on its way, because a gateway read it as text. Send to the address \
                 of the deployment (the output ApiUrl), whose gateway alters nothing. Or switch compression off \
                 (`disable_compression: true` in posthog-js, `disableCompression: true` in posthog-node), or send \
                 the JSON as base64.",
            ));
        }
        let plain = self.decompress(request.body)?;
        let is_form = request.content_type.is_some_and(|kind| {
            kind.trim_start().to_ascii_lowercase().starts_with("application/x-www-form-urlencoded")
        });
        if (is_form || plain.starts_with(b"data=")) && !looks_like_json(&plain) {
            return self.decode_form(&plain, compression);
        }
        let is_base64 = (compression == "base64" && !looks_like_json(&plain))
            || (self.takes_bare_base64 && !is_json(&plain));
        let json = if is_base64 { Cow::Owned(self.decode_base64(&plain)?) } else { plain };
        Ok(SdkPayload { json, form_token: None })
    }

    /// Decodes the value of the query parameter `data`, which is already percent-decoded.
    pub fn decode_data(&self, data: &str, compression: &str) -> Result<Vec<u8>, SdkBodyError> {
        check_compression(compression, "base64")?;
        self.decode_field(data.as_bytes().to_vec())
    }

    fn check_encoding(&self, encoding: Option<&str>) -> Result<(), SdkBodyError> {
        match encoding.map(str::trim).filter(|_| self.refuses_other_encodings) {
            Some(encoding) if !CONTENT_ENCODINGS.iter().any(|known| encoding.eq_ignore_ascii_case(known)) => {
                Err(unreadable(format!("Content-Encoding {encoding} is not supported; use gzip.")))
            }
            _ => Ok(()),
        }
    }

    fn decode_form(&self, plain: &[u8], compression: &str) -> Result<SdkPayload<'static>, SdkBodyError> {
        let mut fields = FormFields::default();
        for pair in plain.split(|byte| *byte == b'&') {
            let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            let value = pair.get(at + 1..).unwrap_or_default();
            let text = || percent_decode(value).decode_utf8_lossy().into_owned();
            match &pair[..at] {
                b"data" => fields.data = Some(percent_decode(value).collect()),
                b"compression" => fields.compression = Some(text()),
                b"api_key" | b"token" => fields.token = Some(text()),
                _ => {}
            }
        }
        let data = match fields.data {
            Some(data) => data,
            None if self.takes_bare_base64 => percent_decode(plain).collect(),
            None => return Err(SdkBodyError::NoData),
        };
        let json = self.decode_field(data)?;
        check_compression(fields.compression.as_deref().unwrap_or(compression), "base64")?;
        Ok(SdkPayload { json: Cow::Owned(json), form_token: fields.token })
    }

    /// The JSON text of a field `data`. Plain JSON is not changed: its plus signs may be encoded spaces, but inside of strings
    /// they are as likely to be literal.
    fn decode_field(&self, data: Vec<u8>) -> Result<Vec<u8>, SdkBodyError> {
        if looks_like_json(&data) {
            return Ok(data);
        }
        // Some clients do not escape the plus signs of base64, which then decode to spaces.
        let digits = data.iter().map(|byte| if *byte == b' ' { b'+' } else { *byte });
        self.decode_base64(&digits.collect::<Vec<_>>())
    }

    /// Decodes base64 and decompresses the result if it is gzip.
    fn decode_base64(&self, text: &[u8]) -> Result<Vec<u8>, SdkBodyError> {
        let lenient = GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true);
        let digits = text.iter().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        });
        let bytes =
            GeneralPurpose::new(&base64::alphabet::STANDARD, lenient).decode(digits.collect::<Vec<_>>());
        let bytes =
            bytes.map_err(|error| unreadable(format!("The data is neither JSON nor base64: {error}.")))?;
        Ok(self.decompress(&bytes)?.into_owned())
    }

    /// Decompresses `bytes` if they are gzip.
    fn decompress<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, SdkBodyError> {
        if !bytes.starts_with(GZIP) {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut plain = Vec::new();
        let limit = self.inflated_bytes_max as u64 + 1;
        MultiGzDecoder::new(bytes)
            .take(limit)
            .read_to_end(&mut plain)
            .map_err(|error| unreadable(format!("The body is not valid gzip: {error}.")))?;
        if plain.len() > self.inflated_bytes_max {
            return Err(SdkBodyError::TooLarge(self.inflated_bytes_max));
        }
        Ok(Cow::Owned(plain))
    }
}

#[derive(Default)]
struct FormFields {
    data: Option<Vec<u8>>,
    compression: Option<String>,
    token: Option<String>,
}

fn check_compression(compression: &str, supported: &str) -> Result<(), SdkBodyError> {
    if COMPRESSIONS.contains(&compression) {
        return Ok(());
    }
    Err(unreadable(format!("compression={compression} is not supported; use {supported}.")))
}

fn strip_byte_order_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

fn looks_like_json(bytes: &[u8]) -> bool {
    matches!(strip_byte_order_mark(bytes).iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
}

/// Whether the bytes are JSON: an object or a list, complete or not, or any other complete value.
fn is_json(bytes: &[u8]) -> bool {
    looks_like_json(bytes) || serde_json::from_slice::<IgnoredAny>(strip_byte_order_mark(bytes)).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const RULES: BodyRules =
        BodyRules { inflated_bytes_max: 100, refuses_other_encodings: false, takes_bare_base64: true };
    const JSON: &str = r#"{"token":"phc_?>","a":"ü"}"#;

    fn read(body: &[u8], content_type: &str, compression: &str) -> Result<String, SdkBodyError> {
        let sent = SdkBody {
            content_type: Some(content_type),
            content_encoding: Some("br"),
            compression: Some(compression),
            body,
        };
        RULES.decode(&sent).map(|payload| String::from_utf8(payload.json.into_owned()).unwrap())
    }

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_encoding_is_decoded_whatever_the_headers() {
        let base64 = BASE64_STANDARD.encode(JSON);
        let escaped = base64.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        for (body, content_type, compression) in [
            (JSON.as_bytes().to_vec(), "application/json", ""),
            (JSON.as_bytes().to_vec(), "text/xml", "base64"),
            (JSON.as_bytes().to_vec(), form, "gzip-js"),
            (gzipped(JSON.as_bytes()), "text/plain", ""),
            (gzipped(JSON.as_bytes()), "application/json", "gzip"),
            (gzipped(format!("data={escaped}").as_bytes()), form, ""),
            (base64.clone().into_bytes(), "text/plain", ""),
            (BASE64_STANDARD_NO_PAD.encode(JSON).into_bytes(), "application/json", "base64"),
            (BASE64_STANDARD.encode(gzipped(JSON.as_bytes())).into_bytes(), "", ""),
            (format!("data={escaped}").into_bytes(), form, ""),
            (format!("data={escaped}&compression=base64&x=1").into_bytes(), "text/plain", ""),
            (format!("data={base64}").into_bytes(), form, "base64"),
            (escaped.clone().into_bytes(), form, ""),
            (format!("data={}", JSON.replace('"', "%22")).into_bytes(), form, ""),
        ] {
            assert_eq!(
                read(&body, content_type, compression).as_deref(),
                Ok(JSON),
                "{content_type} {body:?}"
            );
        }
        assert_eq!(RULES.decode_data(&base64.replace('+', " "), "base64").unwrap(), JSON.as_bytes());
        let marked = [BYTE_ORDER_MARK, b" ", JSON.as_bytes()].concat();
        assert!(read(&marked, "", "").unwrap().ends_with(JSON));
    }

    #[test]
    fn scalar_json_values_are_not_taken_for_base64() {
        for json in ["[1]", "\"abcd\"", "1234", "null", "true"] {
            assert_eq!(read(json.as_bytes(), "", "").as_deref(), Ok(json));
        }
    }

    #[test]
    fn unsupported_encodings_are_errors() {
        for (body, compression) in [("", ""), ("{}", "lz64"), ("no base64!", ""), ("data=%21", "")] {
            assert!(
                matches!(read(body.as_bytes(), "", compression), Err(SdkBodyError::Unreadable(_))),
                "{body}"
            );
        }
        let altered = String::from_utf8_lossy(&gzipped(JSON.as_bytes())).into_owned();
        let Err(SdkBodyError::Unreadable(detail)) = read(altered.as_bytes(), "text/plain", "") else {
            panic!()
        };
        assert!(detail.contains("disable_compression"), "{detail}");
    }

    #[test]
    fn decompression_stops_at_the_limit() {
        let object = |bytes: usize| gzipped(format!("{{{}}}", " ".repeat(bytes - 2)).as_bytes());
        assert_eq!(read(&object(100), "", "").map(|text| text.len()), Ok(100));
        assert_eq!(read(&object(101), "", ""), Err(SdkBodyError::TooLarge(100)));
    }

    #[test]
    fn strict_rules_require_declared_encodings() {
        let strict = BodyRules { refuses_other_encodings: true, takes_bare_base64: false, ..RULES };
        let sent = SdkBody { content_encoding: Some("br"), body: b"{}", ..SdkBody::default() };
        assert!(matches!(strict.decode(&sent), Err(SdkBodyError::Unreadable(_))));
        let form = SdkBody {
            content_type: Some("application/x-www-form-urlencoded"),
            body: b"x=1",
            ..SdkBody::default()
        };
        assert_eq!(strict.decode(&form), Err(SdkBodyError::NoData));
    }
}
