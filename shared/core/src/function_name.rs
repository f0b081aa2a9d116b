//! A task-local with the name of the function on whose behalf a task runs. Tests run all functions in one process and use it
//! to record which function makes which AWS calls.
//!
//! Must stay true: no response depends on it.

use std::sync::Arc;

tokio::task_local! {
    static NAME: Arc<str>;
}

/// Runs `work` with this function name.
pub async fn with_function_name<F: Future>(name: &str, work: F) -> F::Output {
    NAME.scope(name.into(), work).await
}

/// The current function name, if one is set.
pub fn function_name() -> Option<Arc<str>> {
    NAME.try_with(Arc::clone).ok()
}

/// Wraps `work`, to be spawned as a new task, so that it runs with the caller's function name.
pub fn inherit_function_name<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let name = function_name();
    async move {
        match name {
            Some(name) => NAME.scope(name, work).await,
            None => work.await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_spawned_task_inherits_the_function_name() {
        let inherited = with_function_name("flags", async {
            tokio::spawn(inherit_function_name(async { function_name() })).await.unwrap()
        })
        .await;
        assert_eq!(inherited.as_deref(), Some("flags"));
        assert_eq!(tokio::spawn(inherit_function_name(async { function_name() })).await.unwrap(), None);
    }
}
