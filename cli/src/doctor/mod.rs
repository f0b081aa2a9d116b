//! `pennon doctor`: checks an installation, a deployment or a server, and names the next step for each problem. `pennon health`
//! checks a server with one request.
//!
//! Must stay true: a check changes and creates nothing; every check has a time limit; no secret is printed.

mod cloud;
mod finding;
mod local;
mod server;

pub use finding::{Finding, Report, State};
pub use server::{check_health, health_url};

use crate::args::Doctor;

/// Runs the checks that `options` select.
pub async fn examine(options: &Doctor) -> Report {
    let mut report = Report::default();
    report.push(Finding::ok("version", format!("pennon {}", env!("CARGO_PKG_VERSION"))));
    if let Some(url) = &options.url {
        server::examine(url, &mut report).await;
    }
    if options.target.cloud {
        cloud::examine(&mut report).await;
    } else if options.url.is_none() {
        local::examine(options, &mut report).await;
    }
    report
}
