//! Admission control of a process that serves every function: how many requests of each class run at the same time, and how
//! many wait.
//!
//! In Lambda a function has one request at a time. Here all share the processor, so expensive requests would delay the
//! evaluation of flags, which is on the path of a page. A class runs a few requests for each core, because more of them only
//! wait for each other; further requests wait here, where they take no processor time, and are rejected when too many wait.
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
            RequestClass::Calculation => Some((32, 256)),
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
        Admission { classes: Arc::new(RouteClasses::new()), places: Arc::new(places.collect()) }
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
        match places.take().await {
            Ok(_place) => next.run(request).await,
            Err(error) => error.into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
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
        let routes = Router::new()
            .route(FLAGS, get(std::future::pending::<()>))
            .route("/flags/definitions", get(|| async {}));
        let admission = Admission::new(1);
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
        assert_eq!(
            (reads.running.available_permits(), reads.waiting.available_permits()),
            (running, waiting)
        );
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
