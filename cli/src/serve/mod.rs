//! `pennon serve`: every function's router on one port, over an embedded DynamoDB and a local event directory.

mod banner;
mod demo;
mod jobs;
mod router;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::store::{Store, keys};
use pennon_core::traces::{self, Sending};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::args::Serve;
use crate::backup;
use crate::data::{DataDirectory, ServerInfo};
use crate::embedded::Embedded;
use crate::workspace::{self, Options, Workspace};

pub use router::{Group, Services, api, groups};

/// How long requests may go on after the signal to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs until `stop` resolves.
pub async fn serve(options: &Serve, stop: impl Future<Output = ()>) -> Result<(), String> {
    traces::start(Sending::Beside)?;
    let directory = DataDirectory::at(&options.data.data)?;
    let Some(_lock) = directory.lock()? else {
        return Err(format!(
            "{} is served by another process already; stop it, or name another directory with --data",
            directory.path().display()
        ));
    };
    backup::clear(directory.path());
    let listener = bind(options.port, "--port").await?;
    let table_listener = bind(options.dynamodb_port, "--dynamodb-port").await?;
    let embedded = Embedded::open(directory.path()).await.map_err(|e| e.to_string())?;
    let clock = options.now.map_or(Clock::Running, Clock::Frozen);
    let app = App::new(embedded.store(None), clock)
        .limited(options.rate_limits)
        .with_payload_keys(directory.payload_keys()?);
    let services = Services::open(app, &directory.events_url())?;
    let follower = embedded.follow(keys::JOB_PREFIX).map_err(|e| e.to_string())?;

    let info = ServerInfo {
        http: format!("http://{}", address(&listener)?),
        dynamodb: format!("http://{}", address(&table_listener)?),
        pid: std::process::id(),
    };
    let mut stop = std::pin::pin!(stop);
    let first_start = tokio::select! {
        prepared = prepare(options, &services) => prepared?,
        // What was not prepared yet is by the next start.
        () = &mut stop => return Ok(()),
    };

    let (stopping, stopped) = watch::channel(false);
    let tables = axum::serve(table_listener, embedded.port()).with_graceful_shutdown(signal(stopped.clone()));
    let tables = tokio::spawn(tables.into_future());
    let server = axum::serve(listener, api(&services)).with_graceful_shutdown(signal(stopped.clone()));
    let server = tokio::spawn(server.into_future());
    let background = tokio::spawn(router::background(services.clone(), stopped.clone()));
    let tidying = tokio::spawn(router::tidying(embedded.clone(), services.clone(), stopped.clone()));
    let jobs = tokio::spawn(jobs::follow(services.clone(), follower, stopped));
    directory.announce(&info)?;
    banner::print(&info, &directory, first_start.as_ref());

    stop.await;
    stopping.send_replace(true);
    let all = async { tokio::join!(server, tables, background, tidying, jobs) };
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        tracing::warn!("some requests were still running and were cut off");
    }
    directory.withdraw();
    Ok(())
}

/// Applies the workspace file, or makes the demo on the first start of an empty installation.
async fn prepare(options: &Serve, services: &Services) -> Result<Option<demo::Demo>, String> {
    let store: &Store = &services.app.store;
    let now = services.app.clock.now(None);
    if let Some(path) = &options.workspace {
        let file = Workspace::read(path)?;
        let applied = workspace::apply_all(services, &file, Options::default(), now)
            .await
            .map_err(|e| format!("{}: {e}", path.display()))?;
        banner::print_new_keys(&applied.new_keys);
        return Ok(None);
    }
    let wanted = demo::is_wanted(&store.records).await.map_err(|e| e.to_string())?;
    if wanted { demo::load(services, now).await.map(Some) } else { Ok(None) }
}

async fn bind(port: u16, switch: &str) -> Result<TcpListener, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.map_err(|e| {
        format!("port {port} cannot be used ({e}); choose another with {switch}, 0 takes any free one")
    })
}

fn address(listener: &TcpListener) -> Result<SocketAddr, String> {
    listener.local_addr().map_err(|e| e.to_string())
}

async fn signal(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a reason to stop too.
    let _ = stopped.wait_for(|stop| *stop).await;
}
