//! Calculations in parts: a query that reads more events than one process should is split by person range, each part is an
//! invocation of a function ([`PartInvoker`]), and the caller merges the partial results and finishes the query.
//!
//! A part gets everything that could change meanwhile by value ([`PartTask`]): the query, the definitions, the instant, the joined
//! data of its persons, and a pinned scan. It reads the objects of segments, which never change, and returns a partial result.
//! Where persons were merged, rows may be stored in another part than that of their person: then each part is first invoked to
//! return these rows, and once more, with the rows that others found for it, to calculate.
//!
//! Must stay true: the result is that of an undivided calculation, whatever the number of parts; each part counts once, however
//! often it is invoked; attempts, parts at once, and GB-seconds of a query and of a day are bounded; a part stops within two seconds after its query.

mod attempts;
mod calculate;
mod daily_spending;
mod division;
mod function;
mod invoker;
mod lease;
mod planned_query;
mod runner;
mod settings;
mod task;

pub use calculate::Parts;
pub(crate) use division::{Division, ResultKind};
pub use function::{PartFunctions, TASK_BYTES_MAX};
pub use invoker::{InvocationFuture, PartError, PartInvoker};
pub(crate) use planned_query::PlannedQuery;
pub use runner::PartLimits;
pub use settings::PartSettings;
#[cfg(feature = "fuzzing")]
pub(crate) use task::part_message;
pub use task::{DecodeError, PartFailure, PartOutcome, PartStats, PartTask, PartWork};
