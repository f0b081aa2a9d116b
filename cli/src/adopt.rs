//! `pennon adopt`: makes tables and events of different states or installations one installation.
//!
//! Must stay true: nothing is deleted, and no server runs meanwhile.

use std::path::Path;

use pennon_core::store::Store;
use pennon_eventstore::AdoptionReport;

use crate::data::{DataDirectory, open_events};

/// Adopts the tables and events of the data directory `data`.
pub async fn adopt_local(data: &Path) -> Result<AdoptionReport, String> {
    let directory = DataDirectory::existing(data)?;
    let Some(_lock) = directory.lock()? else {
        return Err(format!(
            "{} is in use: a server that runs there has found tables and events that belong together; stop it first",
            directory.path().display()
        ));
    };
    let embedded = directory.open_unchecked().await?;
    let adopted = adopt_tables((embedded.store(None), directory.events_url())).await?;
    embedded.count_writes(directory.path())?;
    Ok(adopted)
}

/// Adopts the tables of `store` and the events at a URL.
pub async fn adopt_tables((store, events_url): (Store, String)) -> Result<AdoptionReport, String> {
    let events = open_events(&store, &events_url)?;
    let now = chrono::Utc::now().timestamp_micros();
    events.adopt_installation(now).await.map_err(|e| e.to_string())
}

/// The report as lines of text.
pub fn report_lines(adopted: &AdoptionReport) -> Vec<String> {
    let AdoptionReport { id, folder, kept, missing } = adopted;
    let mut lines = vec![format!(
        "tables and events are now installation {id}; {kept} files that the tables do not know are kept in {folder}"
    )];
    if *missing > 0 {
        lines.push(format!(
            "{missing} files that the tables list are missing; `pennon check` names the events that were in them"
        ));
    }
    lines
}
