//! The connection of one simulated process to table and objects: it counts the calls of a process, and ends, cuts or delays them
//! at a call that the seed chose.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

/// What happens to the calls of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fate {
    Unharmed,
    /// The process ends at this call, before or after its effect: nothing of the operation runs any more.
    Dies {
        at: u64,
        is_done: bool,
    },
    /// The process loses its connection at this call, before or after its effect: this call and all later ones fail.
    LosesConnection {
        at: u64,
        is_done: bool,
    },
    /// The call is delayed until the steps of the other process are over.
    Waits {
        at: u64,
    },
}

/// A call that failed.
#[derive(Debug)]
pub struct ConnectionLost;

/// One call to table or objects.
pub struct Call<'a> {
    pub operation: &'static str,
    /// Called only for a trace.
    pub name: &'a (dyn Fn() -> String + Sync),
    pub is_write: bool,
}

#[derive(Debug)]
struct State {
    calls: u64,
    fate: Fate,
    is_dead: bool,
}

/// All calls of an installation. Reads between two writes are sorted when it is compared: the threads that decode may order them
/// differently, and no result depends on it.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Mutex<Vec<(bool, String)>>,
}

impl Trace {
    /// Adds a call of the process with this number.
    fn add(&self, process: usize, call: &Call<'_>) {
        let line = format!("process {process}: {} {}", call.operation, without_times(&(call.name)()));
        self.lines.lock().unwrap().push((call.is_write, line));
    }

    /// The calls so far, reads between two writes sorted.
    pub fn sorted(&self) -> Vec<String> {
        let mut lines = self.lines.lock().unwrap().clone();
        for reads in lines.chunk_by_mut(|(left, _), (right, _)| !left && !right) {
            reads.sort();
        }
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

/// Names of objects begin with the time at which work was done, which includes how long it took.
fn without_times(name: &str) -> String {
    const TIME_DIGITS: usize = 20;
    let mut text = String::with_capacity(name.len());
    for run in name.as_bytes().chunk_by(|left, right| left.is_ascii_digit() == right.is_ascii_digit()) {
        let run = std::str::from_utf8(run).unwrap_or("?");
        let is_time = run.len() == TIME_DIGITS && !run.starts_with("00000000000");
        text.push_str(if is_time { "TIME" } else { run });
    }
    text
}

#[derive(Debug)]
pub struct Switch {
    process: usize,
    state: Mutex<State>,
    halted: Notify,
    resumed: Notify,
    trace: Option<Arc<Trace>>,
}

enum Verdict {
    Happens,
    Waits,
    Dies { is_done: bool },
    Fails { is_done: bool },
    NeverReturns,
}

impl Switch {
    pub fn new(process: usize, trace: Option<Arc<Trace>>) -> Switch {
        let state = State { calls: 0, fate: Fate::Unharmed, is_dead: false };
        Switch { process, state: Mutex::new(state), halted: Notify::new(), resumed: Notify::new(), trace }
    }

    /// The fate of the calls from now on.
    pub fn set(&self, fate: Fate) {
        let mut state = self.state.lock().unwrap();
        (state.calls, state.fate) = (0, fate);
    }

    /// Whether the process has died or lost its connection.
    pub fn is_dead(&self) -> bool {
        self.state.lock().unwrap().is_dead
    }

    /// Returns when the process has died, or a call waits.
    pub async fn halted(&self) {
        self.halted.notified().await;
    }

    /// The call that waits goes on.
    pub fn resume(&self) {
        self.resumed.notify_one();
    }

    fn next(&self, may_wait: bool) -> Verdict {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let calls = state.calls;
        if state.is_dead {
            return match state.fate {
                Fate::LosesConnection { .. } => Verdict::Fails { is_done: false },
                _ => Verdict::NeverReturns,
            };
        }
        match state.fate {
            Fate::Waits { at } if calls >= at && may_wait => {
                state.fate = Fate::Unharmed;
                Verdict::Waits
            }
            Fate::Dies { at, is_done } if calls == at => {
                state.is_dead = true;
                Verdict::Dies { is_done }
            }
            Fate::LosesConnection { at, is_done } if calls == at => {
                state.is_dead = true;
                Verdict::Fails { is_done }
            }
            _ => Verdict::Happens,
        }
    }

    fn record(&self, call: &Call<'_>) {
        if let Some(trace) = &self.trace {
            trace.add(self.process, call);
        }
    }

    /// Makes a call, with what the fate does to it.
    pub async fn call<T>(&self, call: Call<'_>, effect: impl FnOnce() -> T) -> Result<T, ConnectionLost> {
        match self.next(true) {
            Verdict::Happens => {}
            Verdict::Waits => {
                self.halted.notify_one();
                self.resumed.notified().await;
            }
            Verdict::Fails { is_done } => {
                if is_done {
                    self.record(&call);
                    effect();
                }
                return Err(ConnectionLost);
            }
            Verdict::Dies { is_done } => {
                if is_done {
                    self.record(&call);
                    effect();
                }
                self.halted.notify_one();
                return std::future::pending().await;
            }
            Verdict::NeverReturns => return std::future::pending().await,
        }
        self.record(&call);
        Ok(effect())
    }

    /// A read that cannot wait: of a process that died it fails, and the caller gets no further than its next call.
    pub fn read_at_once<T>(&self, call: Call<'_>, read: impl FnOnce() -> T) -> Result<T, ConnectionLost> {
        match self.next(false) {
            Verdict::Happens | Verdict::Waits => {
                self.record(&call);
                Ok(read())
            }
            Verdict::Fails { .. } | Verdict::NeverReturns => Err(ConnectionLost),
            Verdict::Dies { .. } => {
                self.halted.notify_one();
                Err(ConnectionLost)
            }
        }
    }
}
