//! The bytes of a capture request into JSON text, in every form that the SDKs send.
//!
//! Gzip is recognised by its first two bytes, because one browser library sends it without saying so. A form carries
//! the JSON in its field `data`, as base64 or as it is. Must stay true: what is inflated is bounded before it is
//! stored anywhere; bytes that are neither of these forms are a 400.

use std::borrow::Cow;
use std::io::Read;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use flate2::read::MultiGzDecoder;
use percent_encoding::percent_decode;

use crate::refusal::Refusal;

/// Most bytes of a body after inflation.
pub const INFLATED_BYTES_MAX: usize = 20_000_000;

/// A body and what the request says of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent<'a> {
    /// Header `Content-Type`.
    pub content_type: Option<&'a str>,
    /// Header `Content-Encoding`.
    pub content_encoding: Option<&'a str>,
    /// Query parameter `compression`.
    pub compression: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

/// What a body holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload<'a> {
    /// The JSON text.
    pub json: Cow<'a, [u8]>,
    /// The token, where a form has it as a field of its own.
    pub form_token: Option<String>,
}

/// The JSON text that `sent` carries.
pub fn decode<'a>(sent: &Sent<'a>) -> Result<Payload<'a>, Refusal> {
    if sent.body.is_empty() {
        return Err(Refusal::body("The body is empty."));
    }
    match sent.content_encoding.map(str::trim).filter(|encoding| !encoding.is_empty()) {
        None => {}
        Some(encoding)
            if ["gzip", "x-gzip", "identity"].iter().any(|known| encoding.eq_ignore_ascii_case(known)) => {}
        Some(encoding) => {
            return Err(Refusal::body(format!("Content-Encoding {encoding} is not supported; use gzip.")));
        }
    }
    let compression = sent.compression.unwrap_or("");
    if !["", "gzip", "gzip-js", "base64"].contains(&compression) {
        return Err(Refusal::body(format!(
            "compression={compression} is not supported; use gzip-js or base64."
        )));
    }
    let plain = inflated(sent.body)?;
    let is_form = sent.content_type.is_some_and(|kind| {
        kind.trim_start().to_ascii_lowercase().starts_with("application/x-www-form-urlencoded")
    });
    if (is_form || plain.starts_with(b"data=")) && !looks_like_json(&plain) {
        return form(&plain, compression);
    }
    let is_base64 = compression == "base64" && !looks_like_json(&plain);
    let json = if is_base64 { Cow::Owned(unpacked(&plain)?) } else { plain };
    Ok(Payload { json, form_token: None })
}

fn form(plain: &[u8], compression: &str) -> Result<Payload<'static>, Refusal> {
    let mut fields = Form::default();
    for pair in plain.split(|byte| *byte == b'&') {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let value = pair.get(at + 1..).unwrap_or_default();
        match &pair[..at] {
            b"data" => fields.data = Some(percent_decode(value).collect()),
            b"compression" => {
                fields.compression = Some(percent_decode(value).decode_utf8_lossy().into_owned())
            }
            b"api_key" | b"token" => {
                fields.token = Some(percent_decode(value).decode_utf8_lossy().into_owned())
            }
            _ => {}
        }
    }
    let data =
        fields.data.ok_or_else(|| Refusal::field("required", "The form has no field data.", "data"))?;
    let compression = fields.compression.as_deref().unwrap_or(compression);
    let text = match looks_like_json(&data) {
        true => data,
        // In base64 a plus sign is a digit, but some clients leave it unescaped, where it stands for a blank.
        false => {
            unpacked(&data.iter().map(|byte| if *byte == b' ' { b'+' } else { *byte }).collect::<Vec<_>>())?
        }
    };
    if !["", "base64", "gzip", "gzip-js"].contains(&compression) {
        return Err(Refusal::body(format!("compression={compression} is not supported; use base64.")));
    }
    // In a form that is not base64, plus signs stand for blanks, but inside JSON texts they are as likely to be meant.
    Ok(Payload { json: Cow::Owned(text), form_token: fields.token })
}

#[derive(Default)]
struct Form {
    data: Option<Vec<u8>>,
    compression: Option<String>,
    token: Option<String>,
}

fn looks_like_json(bytes: &[u8]) -> bool {
    matches!(bytes.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
}

/// The bytes behind base64, inflated when they are gzip.
fn unpacked(text: &[u8]) -> Result<Vec<u8>, Refusal> {
    let lenient = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let digits = text.iter().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => *other,
    });
    let bytes = GeneralPurpose::new(&base64::alphabet::STANDARD, lenient).decode(digits.collect::<Vec<_>>());
    let bytes =
        bytes.map_err(|error| Refusal::body(format!("The data is neither JSON nor base64: {error}.")))?;
    Ok(inflated(&bytes)?.into_owned())
}

/// `bytes`, inflated when they are gzip.
fn inflated(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut plain = Vec::new();
    let most = INFLATED_BYTES_MAX as u64 + 1;
    MultiGzDecoder::new(bytes)
        .take(most)
        .read_to_end(&mut plain)
        .map_err(|error| Refusal::body(format!("The body is not valid gzip: {error}.")))?;
    if plain.len() > INFLATED_BYTES_MAX {
        let megabytes = INFLATED_BYTES_MAX / 1_000_000;
        return Err(Refusal::too_large(format!("The body has more than {megabytes} MB when inflated.")));
    }
    Ok(Cow::Owned(plain))
}
