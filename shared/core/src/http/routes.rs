//! Route tables: one list a function has, from which come dispatch, 405 with `Allow`, preflight answers, and the
//! comparison with the gateway's routes.

use std::collections::BTreeMap;

use axum::Router;
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, on};

use super::call::Call;
use super::edge::SdkAnswer;
use crate::app::App;
use crate::error::ApiError;

/// What a preflight is answered that does not say which headers it wants.
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
    callers: Callers,
}

/// Who calls the routes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callers {
    /// Callers with a key.
    WithKey,
    /// Anybody.
    Anybody,
    /// SDKs with the public token of a project, in web pages too, which may ask with credentials.
    Sdks,
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Routes::new()
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// No routes; those added ask for a key before they refuse a method.
    pub fn new() -> Routes<S> {
        Routes { methods: BTreeMap::new(), routers: BTreeMap::new(), callers: Callers::WithKey }
    }

    /// No routes; those added are for callers without a key.
    pub fn open() -> Routes<S> {
        Routes { callers: Callers::Anybody, ..Routes::new() }
    }

    /// No routes; those added are for SDKs with a project token. A page of any origin may ask them with credentials, of
    /// which none are read.
    pub fn sdk() -> Routes<S> {
        Routes { callers: Callers::Sdks, ..Routes::new() }
    }

    /// Adds a route. A path below a project is served under its environment name too. HEAD comes with GET.
    #[must_use]
    pub fn add<H, T>(mut self, method: Method, path: &str, handler: H) -> Routes<S>
    where
        H: Handler<T, S>,
        T: 'static,
    {
        debug_assert!(!path.ends_with('/'), "{path} ends in a slash");
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
        // A method that axum has no filter for is a mistake in a route table, found by the first test.
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

    /// The router over `state`. `app` judges the key of requests whose method a path does not have.
    pub fn into_router(self, state: S, app: &App) -> Router {
        let app = (self.callers == Callers::WithKey).then(|| app.clone());
        self.routed(state, app.as_ref())
    }

    /// The router over `state` of routes that are for callers without a key, where there is nothing to judge keys with.
    pub fn into_open_router(self, state: S) -> Router {
        debug_assert!(self.callers != Callers::WithKey, "these routes ask for keys");
        self.routed(state, None)
    }

    fn routed(self, state: S, app: Option<&App>) -> Router {
        let mut router = Router::new();
        let is_sdk = self.callers == Callers::Sdks;
        for (path, methods) in self.routers {
            let allow = allow(&self.methods[&path]);
            let refuse = Refuse { app: app.cloned(), allow, is_sdk };
            let fallback = move |call: Call| refuse.clone().answer(call);
            let methods = methods.fallback(fallback);
            router =
                router.route(&path, if is_sdk { methods.layer(map_response(mark_sdk)) } else { methods });
        }
        router.with_state(state)
    }
}

/// Marks an answer of an SDK's route, refusals included, for the edge.
async fn mark_sdk(mut response: Response) -> Response {
    response.extensions_mut().insert(SdkAnswer);
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

/// What answers the methods that a path does not have.
#[derive(Clone)]
struct Refuse {
    /// What judges keys; none where none are asked for.
    app: Option<App>,
    allow: String,
    is_sdk: bool,
}

impl Refuse {
    async fn answer(self, call: Call) -> Response {
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

    /// A browser asks this before it sends a request with a key; it carries none itself. It may send the headers that it
    /// asks for: SDKs come with ever new ones, and none of them opens anything.
    fn preflight(&self, asked: Option<&HeaderValue>) -> Response {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        if let Ok(allow) = HeaderValue::from_str(&self.allow) {
            headers.insert(header::ALLOW, allow.clone());
            let methods = if self.is_sdk { HeaderValue::from_static(SDK_METHODS) } else { allow };
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        }
        let any = if self.is_sdk { SDK_HEADERS } else { KEY_HEADERS };
        let asked = asked.filter(|asked| !asked.is_empty()).cloned();
        let allowed = asked.unwrap_or_else(|| HeaderValue::from_static(any));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
        response
    }
}
