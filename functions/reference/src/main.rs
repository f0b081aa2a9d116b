//! The Lambda function `reference`.

use pennon_core::auth::KeyCache;
use pennon_core::clock::Clock;
use pennon_core::http::edge;
use pennon_core::lambda;

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::start_logging();
    lambda::run(edge(pennon_reference::router(), Clock::Running), KeyCache::default()).await
}
