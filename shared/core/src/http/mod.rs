//! The HTTP edge: what every route of every function has in common.

mod body;
mod call;
mod edge;
mod page;
mod reply;
mod routes;
mod sdk_body;
mod watch;

pub use body::{BODY_BYTES_MAX, Fields};
pub use call::{Call, ClientUrl, Credential, CredentialSource, Restored, RestoredTile};
pub use edge::{StagePrefix, edge};
pub use page::{LIMIT_DEFAULT, LIMIT_MAX, Page, link, link_in_place};
pub use reply::{
    GATEWAY_BYTES_MAX, accepts_gzip, as_json_text, created, deliver, empty, gzip, json, json_text, sized,
    too_long,
};
pub use routes::{Route, Routes};
pub use sdk_body::{BodyRules, SdkBody, SdkBodyError, SdkPayload};
pub use watch::{REQUEST_TARGET, RequestId};
