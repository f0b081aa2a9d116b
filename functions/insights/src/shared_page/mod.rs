//! Shared pages: `GET /shared/{token}`, `GET /embedded/{token}`, and the same with `.csv`. HTML of an insight or a dashboard for
//! visitors without a key, rendered here; a script of `web/src/shared` draws charts over the tables.
//!
//! * `content`: the records and their results; `page`: their HTML; `html`: text in HTML; `chart_data`: the data of charts.
//!
//! Must stay true: a page needs no scripts, loads nothing from other hosts, is not stored and not indexed; every error is a small
//! page; the token in the path is neither logged nor sent to another host; a page has no user and no link that needs a key.

mod chart_data;
mod content;
mod html;
mod page;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pennon_calculation::{file_name_slug, text_table};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::routes::Routes;
use serde_json::Map;

use crate::Insights;
use page::PageFrame;

const CSV_SUFFIX: &str = ".csv";
const HTML: &str = "text/html; charset=utf-8";
const CSV: &str = "text/csv; charset=utf-8";

/// Whether other pages may show the page in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// `/shared/`
    Forbidden,
    /// `/embedded/`
    Allowed,
}

impl Framing {
    /// Scripts, styles and pictures are those of this host only, and none is inline: nothing of an event or a name can become
    /// markup that runs or loads.
    fn content_security_policy(self) -> &'static str {
        match self {
            Framing::Forbidden => {
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; \
                 form-action 'none'; frame-ancestors 'none'"
            }
            Framing::Allowed => {
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; \
                 form-action 'none'; frame-ancestors *"
            }
        }
    }
}

/// The route table. The token in the path is the only authorization.
pub fn routes() -> Routes<Insights> {
    Routes::open().add(Method::GET, "/shared/{token}", shared).add(Method::GET, "/embedded/{token}", embedded)
}

/// `GET /shared/{token}`
async fn shared(State(state): State<Insights>, call: Call) -> Response {
    respond(&state, &call, Framing::Forbidden).await
}

/// `GET /embedded/{token}`: as [`shared`], and other pages may show it in a frame.
async fn embedded(State(state): State<Insights>, call: Call) -> Response {
    respond(&state, &call, Framing::Allowed).await
}

async fn respond(state: &Insights, call: &Call, framing: Framing) -> Response {
    let result = match call.param("token").strip_suffix(CSV_SUFFIX) {
        Some(token) => Box::pin(csv_file(state, call, token)).await,
        None => Box::pin(html_page(state, call)).await,
    };
    let mut response = result.unwrap_or_else(|error| error_page(call, error));
    let policy = framing.content_security_policy();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("x-robots-tag"), "noindex"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn html_page(state: &Insights, call: &Call) -> ApiResult<Response> {
    let token = call.param("token");
    let content = content::load(state, call, token).await?;
    let has_slash = call.url.path.ends_with('/');
    // Relative to the address of the page: with a slash, the page is in a folder named by the token.
    let csv = if has_slash { format!("../{token}{CSV_SUFFIX}") } else { format!("{token}{CSV_SUFFIX}") };
    let frame = PageFrame::new(root(call), csv, call.query_value("theme"), &content.settings);
    Ok(html_response(StatusCode::OK, page::content_page(&content, &frame)))
}

async fn csv_file(state: &Insights, call: &Call, token: &str) -> ApiResult<Response> {
    let insight = content::load_insight(state, call, token).await?;
    let result = insight.result.map_err(ApiError::missing)?;
    let mut response = ([(header::CONTENT_TYPE, HeaderValue::from_static(CSV))], text_table(&result.table()))
        .into_response();
    let disposition = format!("attachment; filename=\"{}.csv\"", file_name_slug(Some(&insight.title)));
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

/// The error as a small page, with its status and its headers.
fn error_page(call: &Call, error: ApiError) -> Response {
    let frame = PageFrame::new(root(call), String::new(), call.query_value("theme"), &Map::new());
    let (title, detail) = match error.status() {
        StatusCode::NOT_FOUND if error.detail() == ApiError::not_found().detail() => (
            "Not found",
            "This link does not exist, or it is no longer shared. Request a new link from the person who sent it.",
        ),
        StatusCode::TOO_MANY_REQUESTS => {
            ("Too many requests", "This link was opened too often. Try again in a minute.")
        }
        status if status.is_server_error() => {
            ("Not available", "The page could not be created. Try again in a minute.")
        }
        StatusCode::NOT_FOUND => ("No result", error.detail()),
        _ => ("This address is not valid", error.detail()),
    };
    let text = page::message_page(title, detail, &frame);
    let mut response = html_response(error.status(), text);
    // `Retry-After`, where there is one.
    if let Some(retry) = error.into_response().headers().get(header::RETRY_AFTER) {
        response.headers_mut().insert(header::RETRY_AFTER, retry.clone());
    }
    response
}

fn html_response(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(HTML))], text).into_response()
}

/// The folder that contains `shared/`, relative to the page, so that the page works below a gateway's stage prefix.
fn root(call: &Call) -> &'static str {
    if call.url.path.ends_with('/') { "../../" } else { "../" }
}
