//! Who may use the loopback ports of a server that respond as AWS does.
//!
//! Must stay true: other users of this machine have no access. A request must carry the access key id that the server
//! generates at each start and writes into `server.json`, which only its owner can read. The id alone is the secret; the
//! request's signature is not verified. On loopback only root could read a request, an id is worthless after its server has
//! ended, and a listener that takes over the port later learns nothing about the next server. Verification would only
//! protect against AWS tools that log ids.
//!
//! Must stay true: web pages have no access. A browser sends `Origin` with every cross-origin request and a preflight with
//! OPTIONS; DNS rebinding shows in the `Host` header. All of these get 403, and no response carries CORS headers.

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

/// The access key id that requests must carry.
#[derive(Debug, Clone, Copy)]
pub struct LocalAccess {
    /// SHA-256 of the id: comparing digests does not leak by its timing how much of an id is right.
    digest: [u8; 32],
}

impl LocalAccess {
    /// Access for requests with this access key id.
    pub fn new(access_key_id: &str) -> LocalAccess {
        LocalAccess { digest: Sha256::digest(access_key_id).into() }
    }

    /// Whether a request with these headers is signed with the access key id.
    pub fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let credential = authorization
            .and_then(|text| text.strip_prefix("AWS4-HMAC-SHA256 "))
            .and_then(|text| text.split(',').find_map(|part| part.trim().strip_prefix("Credential=")));
        let id = credential.and_then(|credential| credential.split('/').next()).unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(id).into();
        digest == self.digest
    }
}

/// Whether a browser sent the request on behalf of a web page.
pub fn is_from_web_page(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    headers.contains_key(header::ORIGIN)
        || headers.contains_key("sec-fetch-site")
        || !matches!(name, "127.0.0.1" | "localhost" | "[::1]")
}
