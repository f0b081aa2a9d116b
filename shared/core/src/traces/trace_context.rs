//! The header `traceparent` of W3C Trace Context, version 00.

use crate::ids::random_bytes;

/// The trace and the parent span of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceContext {
    /// The trace.
    pub trace: [u8; 16],
    /// The caller's span; `None` if the trace starts here.
    pub parent_span: Option<[u8; 8]>,
    /// Whether the caller sampled the trace.
    pub is_sampled: bool,
}

impl TraceContext {
    /// A new trace.
    pub fn new_trace() -> TraceContext {
        TraceContext { trace: random_bytes(), parent_span: None, is_sampled: false }
    }

    /// Parses the header; `None` if it is invalid. Later versions start in the same way.
    pub fn parse(header: &str) -> Option<TraceContext> {
        let mut parts = header.trim().split('-');
        let [version, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let [version] = bytes::<1>(version)?;
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span) = (bytes::<16>(trace)?, bytes::<8>(span)?);
        let [flags] = bytes::<1>(flags)?;
        let is_valid = trace != [0; 16] && span != [0; 8];
        is_valid.then_some(TraceContext { trace, parent_span: Some(span), is_sampled: flags & 1 == 1 })
    }
}

/// Decodes lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.as_bytes().iter().all(is_hex) {
        return None;
    }
    let mut decoded = [0; N];
    for (at, byte) in decoded.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(decoded)
}

/// Encodes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The examples of the recommendation, section 3.2.2, and headers that it calls invalid.
    #[test]
    fn a_header_is_parsed_by_the_recommendation() {
        let sampled = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        assert_eq!(hex(&sampled.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(
            (hex(&sampled.parent_span.unwrap()), sampled.is_sampled),
            ("00f067aa0ba902b7".to_owned(), true)
        );
        let unsampled =
            TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").unwrap();
        assert!(!unsampled.is_sampled);
        assert!(
            TraceContext::parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more").is_some()
        );
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }
}
