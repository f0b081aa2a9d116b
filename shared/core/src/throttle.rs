//! Rate limits per API key. Off unless the administrator configures them.
//!
//! A sliding window counter: the calls of the current minute (or hour) count fully, those of the previous one by the share
//! of it that is still inside the window. Must stay true: calls are counted per key, by its hash; rejected calls do not
//! count; without limits nothing is read or written.

use std::str::FromStr;

use chrono::{DateTime, Utc};

use crate::config::Config;
use crate::error::{ApiError, ApiResult};
use crate::store::Table;
use crate::store::keys;

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

/// The rate limits of each API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Calls per minute, of all routes but the flag definitions.
    pub burst: u64,
    /// Calls per hour, of the same routes.
    pub sustained: u64,
    /// Calls per minute for flag definitions.
    pub definitions: u64,
}

impl Default for Rates {
    fn default() -> Self {
        Rates { burst: 480, sustained: 4800, definitions: 600 }
    }
}

impl Rates {
    /// The rate limits of the configuration, if it has any. An invalid setting is an error message.
    pub fn from_config(config: &Config) -> Result<Option<Rates>, String> {
        config.rate_limits.as_deref().map(str::parse).transpose()
    }
}

/// The format of `PENNON_RATE_LIMITS` and `--rate-limits`: `on` for the defaults, or some of `burst=N`, `sustained=N` and
/// `definitions=N` separated by commas; the others keep their defaults.
impl FromStr for Rates {
    type Err = String;

    fn from_str(text: &str) -> Result<Rates, String> {
        let mut rates = Rates::default();
        if text.trim() == "on" {
            return Ok(rates);
        }
        for part in text.split(',') {
            let (name, number) = part.split_once('=').ok_or_else(|| invalid_rate(part))?;
            let number = number.trim().parse().ok().filter(|number| *number > 0);
            let number = number.ok_or_else(|| invalid_rate(part))?;
            match name.trim() {
                "burst" => rates.burst = number,
                "sustained" => rates.sustained = number,
                "definitions" => rates.definitions = number,
                _ => return Err(invalid_rate(part)),
            }
        }
        Ok(rates)
    }
}

fn invalid_rate(part: &str) -> String {
    format!("{part:?} is not a rate limit; write `on`, or like `burst=480,sustained=4800,definitions=600`")
}

/// Which limits a call counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket {
    /// `burst` and `sustained`: all routes but the flag definitions.
    General,
    /// `definitions`: flag definitions, which SDKs poll.
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

    /// Counts a call of the key with this hash; 429 if it exceeds a limit.
    ///
    /// Takes one batch read and then one write per limit, concurrently.
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
        // The conditional write also respects calls that were counted concurrently.
        let increments = limits.iter().zip(windows.chunks(2)).zip(counts.chunks(2)).map(
            async |((limit, windows), counts)| {
                // The counter is still needed for the next window; DynamoDB may expire it later.
                let expiry = seconds.saturating_add(2 * limit.seconds);
                let allowed = limit.allowed(counts[1], seconds % limit.seconds);
                let counted = records.add_if_below(&windows[0], 1, signed(allowed), signed(expiry)).await?;
                Ok::<_, ApiError>(
                    (!counted).then(|| limit.wait(counts[1], allowed, seconds % limit.seconds)).flatten(),
                )
            },
        );
        let waits = futures::future::try_join_all(increments).await?;
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
    /// Calls allowed in the current window, `elapsed` seconds after its start, after `previous` calls in the previous window.
    fn allowed(&self, previous: u64, elapsed: u64) -> u64 {
        let left = self.seconds.saturating_sub(elapsed);
        let share = previous.saturating_mul(left).div_ceil(self.seconds);
        self.calls.saturating_sub(share)
    }

    /// Whole seconds until one more call is allowed; `None` if it is allowed now: `elapsed` seconds after the start of the
    /// current window, with `current` calls in it and `previous` calls in the previous one.
    fn wait(&self, previous: u64, current: u64, elapsed: u64) -> Option<u64> {
        let others_max = self.calls.saturating_sub(1);
        let left = self.seconds.saturating_sub(elapsed);
        // Calls of the previous window count fully at the start of a window and not at all at its end.
        let until_at_most = |previous: u64, most: u64, left: u64| {
            let counted_for = most.saturating_mul(self.seconds).checked_div(previous).unwrap_or(u64::MAX);
            left.saturating_sub(counted_for)
        };
        if current > others_max {
            return Some(left + until_at_most(current, others_max, self.seconds)).map(|wait| wait.max(1));
        }
        Some(until_at_most(previous, others_max - current, left)).filter(|wait| *wait > 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::StoreConfig;

    #[test]
    fn rates_are_parsed() {
        assert_eq!("on".parse(), Ok(Rates::default()));
        assert_eq!("burst=2".parse(), Ok(Rates { burst: 2, ..Rates::default() }));
        assert_eq!(
            "burst=1, sustained=20 ,definitions=3".parse(),
            Ok(Rates { burst: 1, sustained: 20, definitions: 3 })
        );
        for bad in ["", "off", "burst", "burst=0", "burst=-1", "burst=x", "speed=3", "burst=1,"] {
            assert!(bad.parse::<Rates>().unwrap_err().contains("not a rate limit"), "{bad}");
        }
    }

    #[test]
    fn rate_limits_are_optional() {
        let rates = |limits: Option<&str>| {
            Rates::from_config(&Config {
                store: StoreConfig::local(),
                events_url: None,
                rate_limits: limits.map(str::to_owned),
                capture_queue_url: None,
                parts_function: None,
            })
        };
        assert_eq!(rates(None), Ok(None));
        assert_eq!(rates(Some("on")), Ok(Some(Rates::default())));
        assert!(rates(Some("pennon_rate_limits")).is_err());
    }

    const TEN: Limit = Limit { name: "ten", seconds: 60, calls: 10 };

    #[test]
    fn the_first_window_allows_as_many_calls_as_the_limit() {
        for current in 0..10 {
            assert_eq!(TEN.wait(0, current, 30), None, "{current}");
        }
        // 30 s to the next window, in which the ten calls count as nine from its sixth second on.
        assert_eq!(TEN.wait(0, 10, 30), Some(30 + 6));
    }

    #[test]
    fn calls_of_the_previous_window_count_by_their_share() {
        // At the start all ten count, halfway five of them.
        assert_eq!(TEN.wait(10, 0, 0), Some(6));
        assert_eq!(TEN.wait(10, 0, 6), None);
        assert_eq!(TEN.wait(10, 5, 30), Some(6));
        assert_eq!(TEN.wait(10, 4, 30), None);
        assert_eq!(TEN.wait(1000, 9, 59), Some(1));
    }

    #[test]
    fn after_the_wait_a_call_is_allowed() {
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
    fn wait_and_allowed_agree() {
        for previous in 0..30 {
            for elapsed in 0..60 {
                let allowed = TEN.allowed(previous, elapsed);
                for current in 0..12 {
                    let fits = TEN.wait(previous, current, elapsed).is_none();
                    assert_eq!(fits, current < allowed, "{previous} {current} {elapsed}");
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
