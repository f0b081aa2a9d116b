//! In whose name work is done: tells the functions apart where one process runs them all and notes who calls what.
//!
//! Must stay true: nothing that a caller can see depends on it.

use std::sync::Arc;

tokio::task_local! {
    static NAME: Arc<str>;
}

/// Runs `work` in this name.
pub async fn with_function_name<F: Future>(name: &str, work: F) -> F::Output {
    NAME.scope(name.into(), work).await
}

/// The name, if there is one.
pub fn function_name() -> Option<Arc<str>> {
    NAME.try_with(Arc::clone).ok()
}

/// `work` in the name in which this is called, for a task of its own.
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
    async fn a_task_has_the_name_of_whoever_started_it() {
        let within = with_function_name("flags", async {
            tokio::spawn(inherit_function_name(async { function_name() })).await.unwrap()
        })
        .await;
        assert_eq!(within.as_deref(), Some("flags"));
        assert_eq!(tokio::spawn(inherit_function_name(async { function_name() })).await.unwrap(), None);
    }
}
