//! The signals that end a command early.

/// Listens from now on for SIGINT (Ctrl-C) and SIGTERM (service managers); the future resolves at the first.
#[cfg(unix)]
pub(super) fn stop_signal() -> Result<impl Future<Output = ()>, String> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |e: std::io::Error| format!("signals cannot be received: {e}");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Resolves on Ctrl-C.
#[cfg(not(unix))]
pub(super) fn stop_signal() -> Result<impl Future<Output = ()>, String> {
    Ok(async {
        // On an error there is no handler, so Ctrl-C ends the process.
        let _ = tokio::signal::ctrl_c().await;
    })
}
