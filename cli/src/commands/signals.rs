//! The signals that end a command early.

/// Listens from now on for Ctrl-C, and for the signal by which a service manager asks a process to end; resolves then.
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
        // Without a handler for it there is nothing to wait for but the process's end.
        let _ = tokio::signal::ctrl_c().await;
    })
}
