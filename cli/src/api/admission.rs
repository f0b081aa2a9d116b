//! Admission control of a process that serves every function: how many requests of each class run at the same time, and how
//! many wait.
//!
//! In Lambda a function has one request at a time. Here all share the processor, so expensive requests would delay the
//! evaluation of flags, which is on the path of a page. A class runs a few requests for each core, because more of them only
//! wait for each other; further requests wait here, where they take no processor time, and are rejected when too many wait.
//! Those that run do so on threads of a low priority, if there is a [`BackgroundRuntime`](crate::background_runtime).
//!
//! Must stay true: evaluation and flag definitions never wait for requests of another class; a rejected request has changed
//! nothing; the response is a 503 with `Retry-After`; a client that disconnects gives its place back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::function_name::inherit_function_name;
use pennon_core::request_metrics::inherit_metrics;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument;

use crate::background_runtime::run_on;

/// The longest wait for a place.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Seconds until a rejected request is repeated.
const RETRY_AFTER_SECONDS: u32 = 1;
/// Paths of flag definitions, which SDKs read to evaluate flags themselves.
const DEFINITIONS: [&str; 2] = ["/flags/definitions", "/local_evaluation"];
/// Parts of paths below which a `GET` returns calculated results.
const RESULTS: [&str; 4] = ["/insights", "/dashboards", "/shared", "/embedded"];

/// A class of requests, from the one that is admitted first to the one that is rejected first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RequestClass {
    /// Evaluation of flags, and their definitions: always admitted.
    Evaluation,
    /// Captured events.
    Capture,
    /// Reads of records.
    Read,
    /// Changes of records.
    Write,
    /// Whatever reads events.
    Calculation,
}

impl RequestClass {
    /// Places for running requests for each core, and for waiting requests in total. Calculations wait for each other once
    /// more in the calculator, so their places are many.
    fn places(self) -> Option<(usize, usize)> {
        match self {
            RequestClass::Evaluation => None,
            RequestClass::Capture => Some((8, 1024)),
            RequestClass::Read => Some((8, 1024)),
            RequestClass::Write => Some((4, 512)),
            RequestClass::Calculation => Some((16, 256)),
        }
    }
}

/// The classes of the routes whose method does not say what they cost, by path.
#[derive(Debug, Default)]
struct RouteClasses(HashMap<String, RequestClass>);

impl RouteClasses {
    fn new() -> RouteClasses {
        let of = |class: RequestClass| move |route: pennon_core::routes::Route| (route.path, class);
        let evaluation = pennon_flags::open_routes().table().into_iter().map(of(RequestClass::Evaluation));
        let capture = pennon_capture::routes().table().into_iter().map(of(RequestClass::Capture));
        let calculation = pennon_calculation::routes().table().into_iter().map(of(RequestClass::Calculation));
        RouteClasses(evaluation.chain(capture).chain(calculation).collect())
    }

    fn class(&self, method: &Method, path: &str) -> RequestClass {
        if DEFINITIONS.iter().any(|end| path.ends_with(end)) {
            return RequestClass::Evaluation;
        }
        if let Some(class) = self.0.get(path) {
            return *class;
        }
        let is_result =
            RESULTS.iter().any(|part| path.contains(part)) || path.ends_with("/user_blast_radius");
        match (method.is_safe(), is_result) {
            (true, false) => RequestClass::Read,
            (false, false) => RequestClass::Write,
            (_, true) => RequestClass::Calculation,
        }
    }
}

/// The places of one class.
#[derive(Debug, Clone)]
struct Places {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// The longest wait.
    wait_max: Duration,
}

impl Places {
    fn new(running: usize, waiting: usize, wait_max: Duration) -> Places {
        let [running, waiting] = [running, waiting].map(|places| Arc::new(Semaphore::new(places)));
        Places { running, waiting, wait_max }
    }

    /// A place for a request, which is free again when it is dropped. 503 if too many wait, or after the longest wait.
    async fn take(&self) -> ApiResult<OwnedSemaphorePermit> {
        if let Ok(place) = self.running.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| ApiError::busy(RETRY_AFTER_SECONDS))?;
        match tokio::time::timeout(self.wait_max, self.running.clone().acquire_owned()).await {
            Ok(place) => place.map_err(|error| ApiError::internal(&error)),
            Err(_) => Err(ApiError::busy(RETRY_AFTER_SECONDS)),
        }
    }
}

/// The places of every class, and which requests belong to it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admission {
    classes: Arc<RouteClasses>,
    places: Arc<HashMap<RequestClass, Places>>,
    /// Where requests of other classes than evaluation run; `None` for the runtime of the connection.
    runtime: Option<Handle>,
}

impl Admission {
    /// Places for a process on so many cores.
    pub fn new(cores: usize) -> Admission {
        let classes =
            [RequestClass::Capture, RequestClass::Read, RequestClass::Write, RequestClass::Calculation];
        let places = classes.into_iter().filter_map(|class| {
            let (running, waiting) = class.places()?;
            Some((class, Places::new(running * cores, waiting, WAIT_MAX)))
        });
        let (classes, places) = (Arc::new(RouteClasses::new()), Arc::new(places.collect()));
        Admission { classes, places, runtime: None }
    }

    /// Runs the requests of other classes than evaluation on `runtime`.
    pub fn on_runtime(self, runtime: Handle) -> Admission {
        Admission { runtime: Some(runtime), ..self }
    }

    /// Adds the control to `routes`.
    pub(super) fn control(self, routes: Router) -> Router {
        routes.layer(from_fn(move |request: Request, next: Next| {
            let admission = self.clone();
            async move { admission.run(request, next).await }
        }))
    }

    async fn run(&self, request: Request, next: Next) -> Response {
        let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let class = self.classes.class(request.method(), path);
        let Some(places) = self.places.get(&class) else { return next.run(request).await };
        let place = match places.take().await {
            Ok(place) => place,
            Err(error) => return error.into_response(),
        };
        let response = async move {
            let _place = place;
            next.run(request).await
        };
        let Some(runtime) = &self.runtime else { return response.await };
        let inherited = inherit_metrics(inherit_function_name(response)).in_current_span();
        run_on(runtime, inherited).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::background_runtime::BackgroundRuntime;
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::http::header::RETRY_AFTER;
    use axum::routing::get;
    use tower::ServiceExt;

    const FLAGS: &str = "/api/projects/{project_id}/feature_flags";

    fn class(method: Method, path: &str) -> RequestClass {
        RouteClasses::new().class(&method, path)
    }

    #[test]
    fn each_route_has_the_class_of_its_work() {
        assert_eq!(class(Method::POST, "/flags"), RequestClass::Evaluation);
        assert_eq!(class(Method::GET, "/flags/definitions"), RequestClass::Evaluation);
        assert_eq!(class(Method::GET, &format!("{FLAGS}/local_evaluation")), RequestClass::Evaluation);
        assert_eq!(class(Method::POST, "/batch"), RequestClass::Capture);
        assert_eq!(class(Method::GET, FLAGS), RequestClass::Read);
        assert_eq!(class(Method::PATCH, &format!("{FLAGS}/{{id}}")), RequestClass::Write);
        assert_eq!(class(Method::POST, "/api/projects/{project_id}/query"), RequestClass::Calculation);
        assert_eq!(
            class(Method::GET, "/api/projects/{project_id}/dashboards/{id}"),
            RequestClass::Calculation
        );
    }

    #[tokio::test]
    async fn a_full_class_rejects_its_requests_and_no_others() {
        fill_class(Admission::new(1)).await;
        let background = BackgroundRuntime::start(1).unwrap();
        fill_class(Admission::new(1).on_runtime(background.handle().clone())).await;
    }

    async fn fill_class(admission: Admission) {
        let routes = Router::new()
            .route(FLAGS, get(std::future::pending::<()>))
            .route("/flags/definitions", get(|| async {}));
        let routes = admission.clone().control(routes);
        let (running, waiting) = RequestClass::Read.places().unwrap();
        let send = |path: &str| {
            let path = path.replace("{project_id}", "1");
            routes.clone().oneshot(Request::get(path).body(Body::empty()).unwrap())
        };
        let occupied = (0..running + waiting).map(|_| tokio::spawn(send(FLAGS))).collect::<Vec<_>>();
        let reads = &admission.places[&RequestClass::Read];
        while reads.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let rejected = send(FLAGS).await.unwrap();
        assert_eq!(rejected.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(rejected.headers()[RETRY_AFTER], "1");
        assert_eq!(send("/flags/definitions").await.unwrap().status(), StatusCode::OK);
        // Clients that disconnect make room.
        for request in &occupied {
            request.abort();
        }
        for request in occupied {
            assert!(request.await.unwrap_err().is_cancelled());
        }
        assert_eq!(reads.waiting.available_permits(), waiting);
        // A request that ran on another thread ends there.
        while reads.running.available_permits() < running {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_request_does_not_wait_for_ever() {
        let places = Places::new(1, 1, Duration::from_millis(1));
        let place = places.take().await.unwrap();
        assert_eq!(places.take().await.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(place);
        assert!(places.take().await.is_ok());
    }
}
