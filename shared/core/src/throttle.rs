//! How often a key may ask. Off unless the administrator switches it on.
//!
//! Must stay true: calls are counted per key, by the hash under which it is stored; what is refused does not count; while
//! it is off nothing is read or written. The window slides: the calls of the running minute (or hour) count whole, those
//! of the one before by the share of it that still lies within the window.

use std::str::FromStr;

use chrono::{DateTime, Utc};

use crate::error::{ApiError, ApiResult};
use crate::store::Table;
use crate::store::keys;

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

/// Calls that one key may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Of all routes but the flag definitions, in a minute.
    pub burst: u64,
    /// The same, in an hour.
    pub sustained: u64,
    /// For flag definitions, in a minute.
    pub definitions: u64,
}

impl Default for Rates {
    fn default() -> Self {
        Rates { burst: 480, sustained: 4800, definitions: 600 }
    }
}

/// What `PENNON_RATE_LIMITS` and `--rate-limits` say: `on` for the usual rates, or some of `burst=N`, `sustained=N` and
/// `definitions=N` with commas between, the others being the usual ones.
impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Rates, String> {
        let mut rates = Rates::default();
        if text.trim() == "on" {
            return Ok(rates);
        }
        for part in text.split(',') {
            let (name, number) = part.split_once('=').ok_or_else(|| unusable(part))?;
            let number = number.trim().parse().ok().filter(|number| *number > 0);
            let number = number.ok_or_else(|| unusable(part))?;
            match name.trim() {
                "burst" => rates.burst = number,
                "sustained" => rates.sustained = number,
                "definitions" => rates.definitions = number,
                _ => return Err(unusable(part)),
            }
        }
        Ok(rates)
    }
}

fn unusable(part: &str) -> String {
    format!("{part:?} is no rate limit; write `on`, or like `burst=480,sustained=4800,definitions=600`")
}

/// What calls are counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket {
    /// Everything but the flag definitions.
    General,
    /// Flag definitions, which SDKs poll; they do not use up the rest.
    Definitions,
}

/// A limit: at most `calls` within `seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    name: &'static str,
    seconds: u64,
    calls: u64,
}

impl Rates {
    fn limits(&self, bucket: Bucket) -> Vec<Limit> {
        match bucket {
            Bucket::General => vec![
                Limit { name: "burst", seconds: MINUTE, calls: self.burst },
                Limit { name: "sustained", seconds: HOUR, calls: self.sustained },
            ],
            Bucket::Definitions => {
                vec![Limit { name: "definitions", seconds: MINUTE, calls: self.definitions }]
            }
        }
    }

    /// Counts a call of the key with this hash; 429 when it is one too many.
    ///
    /// One batch read and, for each limit, one write beside the others.
    pub async fn count(
        &self,
        records: &Table,
        key_hash: &str,
        bucket: Bucket,
        now: DateTime<Utc>,
    ) -> ApiResult<()> {
        let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
        let limits = self.limits(bucket);
        let windows = limits.iter().flat_map(|limit| {
            let window = seconds / limit.seconds;
            [window, window.saturating_sub(1)].map(|window| keys::calls(key_hash, limit.name, window))
        });
        let windows: Vec<_> = windows.collect();
        let items = records.batch_get(&windows).await?;
        let counts: Vec<u64> = items
            .iter()
            .map(|item| item.as_ref().map_or(0, |item| u64::try_from(item.count).unwrap_or(0)))
            .collect();
        let wait = limits.iter().zip(counts.chunks(2)).filter_map(|(limit, counts)| match counts {
            [current, previous] => limit.wait(*previous, *current, seconds % limit.seconds),
            _ => None,
        });
        if let Some(wait) = wait.max() {
            return Err(ApiError::throttled(wait));
        }
        // Calls that were counted meanwhile count too: each limit's counter only goes as far as there is room.
        let added = limits.iter().zip(windows.chunks(2)).zip(counts.chunks(2)).map(
            async |((limit, windows), counts)| {
                // Needed for one window more; the store may take its time to remove it.
                let expiry = seconds.saturating_add(2 * limit.seconds);
                let room = limit.room(counts[1], seconds % limit.seconds);
                let counted = records.count_below(&windows[0], signed(room), signed(expiry)).await?;
                Ok::<_, ApiError>(
                    (!counted).then(|| limit.wait(counts[1], room, seconds % limit.seconds)).flatten(),
                )
            },
        );
        let waits = futures::future::try_join_all(added).await?;
        match waits.into_iter().flatten().max() {
            Some(wait) => Err(ApiError::throttled(wait)),
            None => Ok(()),
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Limit {
    /// Calls that the running window may hold `elapsed` seconds after its start, with this many in the one before.
    fn room(&self, previous: u64, elapsed: u64) -> u64 {
        let left = self.seconds.saturating_sub(elapsed);
        let share = previous.saturating_mul(left).div_ceil(self.seconds);
        self.calls.saturating_sub(share)
    }

    /// Whole seconds until one more call fits, if it does not fit now: `elapsed` seconds into the running window, with
    /// this many calls in it and in the one before.
    fn wait(&self, previous: u64, current: u64, elapsed: u64) -> Option<u64> {
        let room = self.calls.saturating_sub(1);
        let left = self.seconds.saturating_sub(elapsed);
        // Calls of `before` count whole at a window's start and not at all at its end.
        let until_at_most = |before: u64, most: u64, left: u64| {
            let counted_for = most.saturating_mul(self.seconds).checked_div(before).unwrap_or(u64::MAX);
            left.saturating_sub(counted_for)
        };
        if current > room {
            return Some(left + until_at_most(current, room, self.seconds)).map(|wait| wait.max(1));
        }
        Some(until_at_most(previous, room - current, left)).filter(|wait| *wait > 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rates_are_read() {
        assert_eq!("on".parse(), Ok(Rates::default()));
        assert_eq!("burst=2".parse(), Ok(Rates { burst: 2, ..Rates::default() }));
        assert_eq!(
            "burst=1, sustained=20 ,definitions=3".parse(),
            Ok(Rates { burst: 1, sustained: 20, definitions: 3 })
        );
        for bad in ["", "off", "burst", "burst=0", "burst=-1", "burst=x", "speed=3", "burst=1,"] {
            assert!(bad.parse::<Rates>().unwrap_err().contains("no rate limit"), "{bad}");
        }
    }

    const TEN: Limit = Limit { name: "ten", seconds: 60, calls: 10 };

    #[test]
    fn a_fresh_window_takes_as_many_calls_as_the_limit_says() {
        for current in 0..10 {
            assert_eq!(TEN.wait(0, current, 30), None, "{current}");
        }
        // 30 s to the next window; there the ten count as nine at most from its sixth second on.
        assert_eq!(TEN.wait(0, 10, 30), Some(30 + 6));
    }

    #[test]
    fn calls_of_the_window_before_count_by_their_share() {
        // At the start all ten count, at half time five of them.
        assert_eq!(TEN.wait(10, 0, 0), Some(6));
        assert_eq!(TEN.wait(10, 0, 6), None);
        assert_eq!(TEN.wait(10, 5, 30), Some(6));
        assert_eq!(TEN.wait(10, 4, 30), None);
        assert_eq!(TEN.wait(1000, 9, 59), Some(1));
    }

    #[test]
    fn after_the_wait_a_call_fits() {
        for calls in [1, 2, 7] {
            let limit = Limit { name: "some", seconds: 60, calls };
            for previous in 0..12 {
                for current in 0..=calls {
                    for elapsed in [0, 1, 17, 59] {
                        let Some(wait) = limit.wait(previous, current, elapsed) else { continue };
                        let then = elapsed + wait;
                        let later = match then / 60 {
                            0 => limit.wait(previous, current, then),
                            1 => limit.wait(current, 0, then - 60),
                            _ => None,
                        };
                        assert_eq!(later, None, "{calls} {previous} {current} {elapsed} {wait}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_call_that_need_not_wait_finds_room() {
        for previous in 0..30 {
            for elapsed in 0..60 {
                let room = TEN.room(previous, elapsed);
                for current in 0..12 {
                    let fits = TEN.wait(previous, current, elapsed).is_none();
                    assert_eq!(fits, current < room, "{previous} {current} {elapsed}");
                }
            }
        }
    }

    #[test]
    fn a_limit_of_one_call_is_possible() {
        let one = Limit { name: "one", seconds: 60, calls: 1 };
        assert_eq!(one.wait(0, 0, 0), None);
        assert_eq!(one.wait(0, 1, 0), Some(120));
        assert_eq!(one.wait(1, 0, 0), Some(60));
    }
}
