//! `pennon query` and `pennon impact`.

use pennon::args::{Impact, Query};
use pennon::installation::open_for_reading;
use pennon::output::print;

pub(super) async fn query(options: &Query) -> Result<(), String> {
    if let Some(command) = &options.command {
        return print(format_args!("{}", pennon::query::insight(command).await?));
    }
    let opened = open_for_reading(&options.target).await?;
    let stores_results = !opened.local.as_ref().is_some_and(|local| local.is_copy);
    let events = opened.events.clone();
    let text =
        pennon::query::run(options, opened.store.clone(), (events, &opened.events_url), stores_results)
            .await?;
    print(format_args!("{text}"))
}

pub(super) async fn impact(options: &Impact) -> Result<(), String> {
    let opened = open_for_reading(&options.target).await?;
    let stores_results = !opened.local.as_ref().is_some_and(|local| local.is_copy);
    let text =
        pennon::query::impact(options, opened.store.clone(), opened.events.clone(), stores_results).await?;
    print(format_args!("{text}"))
}
