//! `pennon flags`: lists, shows, changes and evaluates flags through the API, of a server or in this process.
//!
//! Must stay true: there is no second implementation of a flag's rules here: the API validates, detects conflicts, logs and
//! evaluates.

mod describe;
mod evaluate;
mod lookup;
mod set;
mod show;

pub use evaluate::{Evaluated, evaluate};
pub use set::{Change, set};
pub use show::{flag_text, list_text};

use serde_json::{Value, json};

use crate::args::ListFlags;
use crate::client::ApiClient;

pub use lookup::find;

/// Flags in one page of the API.
const FLAGS_PER_PAGE: usize = 100;

/// All flags that the options select, as one page of the API.
pub async fn list(client: &ApiClient, options: &ListFlags) -> Result<Value, String> {
    let mut query: Vec<(&str, &str)> = Vec::new();
    query.extend(options.search.as_deref().map(|text| ("search", text)));
    query.extend(options.stale.then_some(("active", "STALE")));
    let flags = list_pages(client, &query).await?;
    Ok(json!({"count": flags.len(), "next": null, "previous": null, "results": flags}))
}

async fn list_pages(client: &ApiClient, query: &[(&str, &str)]) -> Result<Vec<Value>, String> {
    let mut flags = Vec::new();
    loop {
        let (limit, offset) = (FLAGS_PER_PAGE.to_string(), flags.len().to_string());
        let page = [query, &[("limit", &limit), ("offset", &offset)]].concat();
        let mut page = client.get("feature_flags/", &page).await?;
        let is_last = page["next"].is_null();
        let before = flags.len();
        if let Some(results) = page["results"].as_array_mut() {
            flags.append(results);
        }
        if is_last || flags.len() == before {
            return Ok(flags);
        }
    }
}
