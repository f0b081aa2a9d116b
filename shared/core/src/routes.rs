//! Route tables: each function has one, from which dispatch, 405 with `Allow`, CORS preflight and the comparison with the
//! gateway's routes are derived.

use std::collections::BTreeMap;

use axum::Router;
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, on};

use crate::app::App;
use crate::error::ApiError;
use crate::http::{Call, SdkRouteMarker};

/// Allowed headers for a preflight request that does not list any.
const KEY_HEADERS: &str =
    "Authorization, Content-Type, Content-Encoding, If-None-Match, Idempotency-Key, X-Requested-With";
const SDK_HEADERS: &str = "Authorization, Content-Type, X-API-Key, X-Request-Id, If-None-Match";
const SDK_METHODS: &str = "GET, POST, OPTIONS";

const PROJECT_PREFIX: &str = "/api/projects/{project_id}";
const PROJECT_ALIAS: &str = "/api/environments/{project_id}";

/// One method of one path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The path pattern, without a trailing slash.
    pub path: String,
    /// The method.
    pub method: String,
}

/// The routes of a function, over its state `S`.
pub struct Routes<S> {
    methods: BTreeMap<String, Vec<Method>>,
    routers: BTreeMap<String, MethodRouter<S>>,
    authentication: Authentication,
}

/// How callers of a route table authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Authentication {
    /// By API key.
    ApiKey,
    /// Not at all.
    None,
    /// By the public token of a project: SDKs, also in web pages, which may send credentials.
    ProjectToken,
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Routes::new()
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// An empty table of routes that require an API key, also for a 405.
    pub fn new() -> Routes<S> {
        Routes { methods: BTreeMap::new(), routers: BTreeMap::new(), authentication: Authentication::ApiKey }
    }

    /// An empty table of routes without authentication.
    pub fn open() -> Routes<S> {
        Routes { authentication: Authentication::None, ..Routes::new() }
    }

    /// An empty table of routes for SDKs with a project token. Pages of any origin may send credentials, which are ignored.
    pub fn sdk() -> Routes<S> {
        Routes { authentication: Authentication::ProjectToken, ..Routes::new() }
    }

    /// Adds a route. A path below `/api/projects/{project_id}` is also served below `/api/environments/{project_id}`. HEAD is
    /// included in GET.
    #[must_use]
    pub fn add<H, T>(mut self, method: Method, path: &str, handler: H) -> Routes<S>
    where
        H: Handler<T, S>,
        T: 'static,
    {
        debug_assert!(path == "/" || !path.ends_with('/'), "{path} ends in a slash");
        if let Some(rest) = path.strip_prefix(PROJECT_PREFIX) {
            self.add_one(method.clone(), format!("{PROJECT_ALIAS}{rest}"), handler.clone());
        }
        self.add_one(method, path.to_owned(), handler);
        self
    }

    fn add_one<H, T>(&mut self, method: Method, path: String, handler: H)
    where
        H: Handler<T, S>,
        T: 'static,
    {
        // A method that axum does not know is a bug in a route table, found by the first test.
        let Ok(filter) = axum::routing::MethodFilter::try_from(method.clone()) else {
            debug_assert!(false, "no filter for {method}");
            return;
        };
        let router = self.routers.remove(&path).unwrap_or_default();
        self.routers.insert(path.clone(), router.merge(on(filter, handler)));
        self.methods.entry(path).or_default().push(method);
    }

    /// The table, for comparison with the gateway's.
    pub fn table(&self) -> Vec<Route> {
        self.methods
            .iter()
            .flat_map(|(path, methods)| {
                methods.iter().map(|method| Route { path: path.clone(), method: method.to_string() })
            })
            .collect()
    }

    /// The router over `state`. `app` authenticates requests with an unsupported method before they get a 405.
    pub fn into_router(self, state: S, app: &App) -> Router {
        let app = (self.authentication == Authentication::ApiKey).then(|| app.clone());
        self.build(state, app.as_ref())
    }

    /// The router over `state` for routes that do not require an API key, without an [`App`].
    pub fn into_open_router(self, state: S) -> Router {
        debug_assert!(self.authentication != Authentication::ApiKey, "these routes require a key");
        self.build(state, None)
    }

    fn build(self, state: S, app: Option<&App>) -> Router {
        let mut router = Router::new();
        let is_sdk = self.authentication == Authentication::ProjectToken;
        for (path, methods) in self.routers {
            let allow = allow(&self.methods[&path]);
            let fallback = MethodFallback { app: app.cloned(), allow, is_sdk };
            let fallback = move |call: Call| fallback.clone().respond(call);
            let methods = methods.fallback(fallback);
            router =
                router.route(&path, if is_sdk { methods.layer(map_response(mark_sdk)) } else { methods });
        }
        router.with_state(state)
    }
}

/// Marks the response of an SDK route, errors included, for the CORS headers.
async fn mark_sdk(mut response: Response) -> Response {
    response.extensions_mut().insert(SdkRouteMarker);
    response
}

/// The value of `Allow` for a path with `methods`.
fn allow(methods: &[Method]) -> String {
    let mut names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    names.push("OPTIONS");
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

/// Handles requests with a method that the path does not support, and CORS preflight.
#[derive(Clone)]
struct MethodFallback {
    /// For authentication; `None` for routes that do not require an API key.
    app: Option<App>,
    allow: String,
    is_sdk: bool,
}

impl MethodFallback {
    async fn respond(self, call: Call) -> Response {
        if call.method == Method::OPTIONS {
            return self.preflight(call.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS));
        }
        if let Some(app) = &self.app
            && let Err(error) = app.caller(&call, |_| Ok(())).await
        {
            return error.into_response();
        }
        ApiError::method_not_allowed(call.method.as_str(), &self.allow).into_response()
    }

    /// The response to a CORS preflight request, which has no API key. All requested headers are allowed: new SDKs send new
    /// ones, and no header grants access by itself.
    fn preflight(&self, requested: Option<&HeaderValue>) -> Response {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        if let Ok(allow) = HeaderValue::from_str(&self.allow) {
            headers.insert(header::ALLOW, allow.clone());
            let methods = if self.is_sdk { HeaderValue::from_static(SDK_METHODS) } else { allow };
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        }
        let default = if self.is_sdk { SDK_HEADERS } else { KEY_HEADERS };
        let requested = requested.filter(|requested| !requested.is_empty()).cloned();
        let allowed = requested.unwrap_or_else(|| HeaderValue::from_static(default));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
        response
    }
}
