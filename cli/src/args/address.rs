//! The address of `--url`.

use axum::http::Uri;

/// Validates an address; a slash at its end is removed.
pub(super) fn parse_url(text: &str) -> Result<String, String> {
    let wrong = || "an address such as http://127.0.0.1:8080 or https://flags.example.com".to_owned();
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    if !is_http || !has_host || has_user || text.contains(['?', '#']) {
        return Err(wrong());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_without_a_query_or_a_password() {
        assert_eq!(parse_url("https://a.example/prod/"), Ok("https://a.example/prod".to_owned()));
        assert_eq!(parse_url("http://[::1]:8080"), Ok("http://[::1]:8080".to_owned()));
        let wrong = [
            "",
            "a.example",
            "a.example:80",
            "ftp://a.example",
            "http://a:b@c.example",
            "http://a.example/?x=1",
            "http://a/#b",
        ];
        for wrong in wrong {
            assert!(parse_url(wrong).is_err_and(|text| text.contains("http://127.0.0.1:8080")), "{wrong}");
        }
    }
}
