//! HTTP: request parsing, responses, CORS and the request log, the same for every route of every function.

mod body;
mod call;
mod edge;
mod page;
mod query_string;
mod request_log;
mod response;
mod sdk_body;

#[cfg(feature = "fuzzing")]
pub(crate) use body::{Accepts, fields, file};
pub use body::{BODY_BYTES_MAX, Fields, NESTING_MAX, nesting};
pub use call::{Call, ClientUrl, Credential, CredentialSource, RestoredRecord, RestoredTile};
pub(crate) use edge::SdkRouteMarker;
pub use edge::{StagePrefix, edge};
pub use page::{LIMIT_DEFAULT, LIMIT_MAX, Page, link, link_in_place};
pub use request_log::{REQUEST_TARGET, RequestId};
pub use response::{
    GATEWAY_BYTES_MAX, GZIP_ABOVE_BYTES, accepts_gzip, created, deliver, empty, escaped_json_length, gzip,
    json, json_text, sized, too_long,
};
pub use sdk_body::{BodyRules, COMPRESSIONS, CONTENT_ENCODINGS, SdkBody, SdkBodyError, SdkPayload};
