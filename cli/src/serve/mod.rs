//! `pennon serve`: every function's router on one port, over an embedded DynamoDB and a local event directory.

mod background;
mod banner;
mod calculation_jobs;
mod connections;
mod demo;
mod part_processes;

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::ids;
use pennon_core::store::{Store, keys};
use pennon_core::traces::{self, SendTiming};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::{Health, Services, api};
use crate::args::Serve;
use crate::background_runtime::BackgroundRuntime;
use crate::backup;
use crate::data::{DataDirectory, ServerInfo};
use crate::embedded::preflight::Thoroughness;
use crate::workspace::{self, ApplyOptions, Declarations, Workspace};

use crate::environment::server_variables;
use connections::ConnectionRegistry;
use part_processes::PartProcesses;

/// Length of the DynamoDB port's access key id in letters and digits: 238 random bits.
const ACCESS_KEY_LENGTH: usize = 40;
/// How long running requests may take after the signal to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until `stop` resolves.
pub async fn serve(options: &Serve, stop: impl Future<Output = ()>) -> Result<(), String> {
    traces::start(SendTiming::Beside)?;
    let directory = DataDirectory::at(&options.data.data)?;
    let Some(_lock) = directory.lock()? else {
        return Err(format!(
            "{} is served by another process already; stop it, or name another directory with --data",
            directory.path().display()
        ));
    };
    backup::remove_unfinished(directory.path());
    let listener = bind(options.host.0, options.port, "--port").await?;
    let table_listener = bind(Ipv4Addr::LOCALHOST.into(), options.dynamodb_port, "--dynamodb-port").await?;
    let embedded = directory.open_database(Thoroughness::EveryPage).await?;
    let clock = options.now.map_or(Clock::Running, Clock::Frozen);
    let app = App::new(embedded.store(None), clock)
        .with_rate_limits(options.rate_limits.0)
        .with_payload_keys(directory.payload_keys()?);
    let mut services = Services::open(app, &directory.events_url())?;
    let installation = services.events.claim_installation().await.map_err(|e| e.to_string())?;
    embedded.count_writes(directory.path())?;
    services.health = Health::new(&directory, &embedded, installation)?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let background_runtime = BackgroundRuntime::start(cores).map_err(|e| e.to_string())?;
    let background = background_runtime.handle();
    services.admission = services.admission.on_runtime(background.clone());
    let follower = embedded.follow(keys::JOB_PREFIX).map_err(|e| e.to_string())?;

    let info = ServerInfo {
        http: format!("http://{}", reachable(address(&listener)?)),
        dynamodb: format!("http://{}", address(&table_listener)?),
        access_key_id: ids::random_text(ACCESS_KEY_LENGTH),
        pid: std::process::id(),
    };
    if options.parts > 0 {
        let environment = server_variables(&info, &directory)?;
        let processes = PartProcesses::new(options.parts, environment);
        services.calculator = services.calculator.in_parts(processes.into_parts(options.rows_per_part));
    }
    let mut stop = std::pin::pin!(stop);
    let initial_state = tokio::select! {
        state = prepare(options, &services) => state?,
        // The next start completes the preparation.
        () = &mut stop => return Ok(()),
    };

    let (stopping, stopped) = watch::channel(false);
    let registry =
        ConnectionRegistry::new(options.connections, connections::max_connections(&options.connections));
    let port = embedded.port(&info.access_key_id);
    let tables = tokio::spawn(connections::serve(table_listener, port, registry.clone(), stopped.clone()));
    let server = tokio::spawn(connections::serve(listener, api(&services), registry, stopped.clone()));
    let compaction = background.spawn(background::run_compaction(services.clone(), stopped.clone()));
    let cleanup =
        background.spawn(background::run_cleanup(embedded.clone(), services.clone(), stopped.clone()));
    let jobs = background.spawn(calculation_jobs::run_jobs(services.clone(), follower, stopped));
    directory.announce(&info)?;
    banner::warn_if_public(options.host.0);
    banner::print(&info, &directory, &initial_state, options.output.json)?;

    stop.await;
    stopping.send_replace(true);
    let all = async { tokio::join!(server, tables, compaction, cleanup, jobs) };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
        tracing::warn!("some requests were still running and were cut off");
    }
    directory.withdraw();
    Ok(())
}

/// The content of the installation when it starts to serve.
enum InitialState {
    /// That of a workspace file, or of an earlier start.
    Existing,
    /// Nothing: started with `--no-demo`.
    Empty,
    /// The demo, which was just loaded.
    Demo(demo::Demo),
}

/// Applies the workspace file, or loads the demo on the first start of an empty installation.
async fn prepare(options: &Serve, services: &Services) -> Result<InitialState, String> {
    let store: &Store = &services.app.store;
    let now = services.app.clock.now(None);
    if let Some(path) = &options.workspace {
        let file = Workspace::read(path)?;
        let applied = workspace::apply_all(services, &file, ApplyOptions::default(), now)
            .await
            .map_err(|e| format!("{}: {e}", path.display()))?;
        banner::print_new_keys(&applied.new_keys, options.output.json)?;
        return Ok(InitialState::Existing);
    }
    if options.no_demo {
        let declarations = Declarations::load(&store.records).await.map_err(|e| e.to_string())?;
        return Ok(if declarations.is_empty() { InitialState::Empty } else { InitialState::Existing });
    }
    let needs_demo = demo::needs_load(&store.records).await.map_err(|e| e.to_string())?;
    if needs_demo {
        demo::load(services, now).await.map(InitialState::Demo)
    } else {
        Ok(InitialState::Existing)
    }
}

async fn bind(host: IpAddr, port: u16, option: &str) -> Result<TcpListener, String> {
    TcpListener::bind(SocketAddr::from((host, port))).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrNotAvailable => {
            format!("{host} is not an address of this machine; --host takes one, or 0.0.0.0 for all of them")
        }
        _ => format!("port {port} cannot be used ({e}); choose another with {option}, 0 takes any free one"),
    })
}

/// An address of a listener that this machine can connect to: the loopback address for one on all interfaces.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

fn address(listener: &TcpListener) -> Result<SocketAddr, String> {
    listener.local_addr().map_err(|e| e.to_string())
}

/// Resolves when the server has to stop.
async fn signal(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender was dropped, which is a reason to stop too.
    let _ = stopped.wait_for(|stop| *stop).await;
}
