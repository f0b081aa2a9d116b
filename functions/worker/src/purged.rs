//! What belonged to flags that are gone for good is removed: their role accesses.
//!
//! Must stay true: a mark goes last, so that a run which stops anywhere leaves the rest to the next; nothing is added to
//! a flag that is gone, so what is found empty stays empty; two runs at once do the same work twice and no harm.

use std::time::Duration;

use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Key, Query, StoreError, Table, Write};
use tokio::time::Instant;

/// Marks, and rows of a partition, that are looked at in one step.
const AT_ONCE: usize = 500;

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purge {
    /// Flags of which nothing is left.
    pub flags: usize,
    /// Rows that were removed.
    pub rows: usize,
    /// Whether time ran out before everything was done; the next run goes on.
    pub unfinished: bool,
}

/// Removes what belonged to flags that are gone for good, for about `time`. At least one step is done.
pub async fn sweep_purged(records: &Table, time: Duration) -> Result<Purge, StoreError> {
    let deadline = Instant::now() + time;
    let mut run = Purge::default();
    while !run.unfinished {
        let marks = records.query(Query::partition(keys::PURGED).limit(AT_ONCE)).await?;
        if marks.is_empty() {
            break;
        }
        for mark in marks {
            run.unfinished = run.flags > 0 && Instant::now() >= deadline;
            if !run.unfinished {
                sweep_one(records, mark.key, deadline, &mut run).await?;
            }
            if run.unfinished {
                break;
            }
        }
    }
    if run.rows > 0 {
        tracing::info!(?run, "removed what belonged to flags that are gone");
    }
    Ok(run)
}

/// Removes what belonged to the flag of `mark`, then the mark.
async fn sweep_one(records: &Table, mark: Key, deadline: Instant, run: &mut Purge) -> Result<(), StoreError> {
    match keys::purged_flag_of(&mark) {
        Some((project, flag)) => sweep_children(records, project, flag, deadline, run).await?,
        None => tracing::error!(row = mark.sk, "a mark that names no flag is dropped"),
    }
    if !run.unfinished {
        records.transact(vec![Write::Delete(mark, Guard::None)]).await?;
        run.flags += 1;
    }
    Ok(())
}

async fn sweep_children(
    records: &Table,
    project: ProjectId,
    flag: u64,
    deadline: Instant,
    run: &mut Purge,
) -> Result<(), StoreError> {
    for pk in keys::flag_children_pks(project, flag) {
        loop {
            let rows = records.query(Query::partition(&pk).limit(AT_ONCE)).await?;
            if rows.is_empty() {
                break;
            }
            run.rows += rows.len();
            records.sweep(rows.into_iter().map(|row| row.key).collect()).await?;
            if Instant::now() >= deadline {
                run.unfinished = true;
                return Ok(());
            }
        }
    }
    Ok(())
}
