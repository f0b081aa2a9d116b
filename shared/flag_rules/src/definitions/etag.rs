//! ETags of documents, and matching of `If-None-Match`.
//!
//! Must stay true: comparison is weak, so `W/` and quotes are ignored.

use sha1::{Digest, Sha1};

/// The ETag of a body: `W/"<16 hexadecimal digits>"`.
pub fn etag(body: &str) -> String {
    let digest = Sha1::digest(body);
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("W/\"{hex}\"")
}

/// Whether a header value matches the ETag: a list of tags, quoted or bare, with or without `W/`; or `*` for any.
pub fn matches(if_none_match: &str, etag: &str) -> bool {
    let requested = opaque(etag);
    let mut rest = if_none_match;
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        if rest.is_empty() {
            return false;
        }
        rest = rest.strip_prefix("W/").or_else(|| rest.strip_prefix("w/")).unwrap_or(rest);
        let (tag, after, quoted) = match rest.strip_prefix('"') {
            Some(inner) => match inner.split_once('"') {
                Some((tag, after)) => (tag, after, true),
                None => (inner, "", true),
            },
            None => {
                let (tag, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                (tag.trim_end(), after, false)
            }
        };
        if tag == requested || (tag == "*" && !quoted) {
            return true;
        }
        rest = after;
    }
}

/// The tag without `W/` and quotes.
fn opaque(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_the_digest_of_its_body() {
        // The first eight bytes of the published SHA-1 of "abc".
        assert_eq!(etag("abc"), "W/\"a9993e364706816a\"");
        assert_ne!(etag("{\"a\":1}"), etag("{\"a\":2}"));
    }

    #[test]
    fn forms_of_if_none_match() {
        let tag = "W/\"0123456789abcdef\"";
        for header in [
            "W/\"0123456789abcdef\"",
            "\"0123456789abcdef\"",
            "0123456789abcdef",
            " \t0123456789abcdef ",
            "w/\"0123456789abcdef\"",
            "W/0123456789abcdef",
            "*",
            "\"other\", W/\"0123456789abcdef\"",
            "\"with, comma\",0123456789abcdef",
            "other , 0123456789abcdef , more",
            "\"0123456789abcdef",
        ] {
            assert!(matches(header, tag), "{header}");
        }
        for header in [
            "",
            "  ",
            ",,",
            "\"wrong-etag\"",
            "0123456789abcde",
            "0123456789abcdef0",
            "\"*\"",
            "W/",
            "\"",
            "\"a 0123456789abcdef\"",
            "0123456789ABCDEF",
        ] {
            assert!(!matches(header, tag), "{header}");
        }
    }
}
