//! Moments that are kept whatever the loop does: a thread of its own sleeps until each of them and
//! says that it has come. The loop's own timers count in milliseconds, and are late when it is busy.

use std::time::Duration;

use tokio::sync::mpsc::{Receiver, channel};

use crate::clock::now;
use crate::prompt::Numbers;

/// How requests arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// As of independent users: exponential times in between.
    #[default]
    Poisson,
    /// At even times.
    Constant,
}

/// A moment that has come.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// When it was to be.
    pub due: u64,
    /// When the thread woke for it.
    pub woken: u64,
}

/// Moments of arrivals at `rate` a second, from `begin` until before `end`. They are fixed before,
/// each by itself, so that none drifts with what came before it.
pub fn arrivals(
    arrivals: Arrivals,
    rate: f64,
    seed: u64,
    begin: u64,
    end: u64,
) -> impl Iterator<Item = u64> + Send + 'static {
    let mut numbers = Numbers::new(seed ^ 0xa11);
    let mut at = 0.0;
    std::iter::from_fn(move || {
        at += match arrivals {
            Arrivals::Constant => 1.0 / rate,
            Arrivals::Poisson => -numbers.draw_share().ln() / rate,
        };
        let since = Duration::try_from_secs_f64(at).ok()?;
        let moment = begin.checked_add(u64::try_from(since.as_nanos()).ok()?)?;
        (moment < end).then_some(moment)
    })
}

/// Moments every `period`, without end.
pub fn every(period: Duration, begin: u64) -> impl Iterator<Item = u64> + Send + 'static {
    let period = crate::clock::nanoseconds(period).max(1);
    (1..).map_while(move |number: u64| begin.checked_add(number.checked_mul(period)?))
}

/// Starts the thread. It ends when the receiver is dropped, or after the last moment.
///
/// # Errors
/// No thread to be had.
pub fn start(
    moments: impl Iterator<Item = u64> + Send + 'static,
) -> std::io::Result<Receiver<Tick>> {
    let (sender, receiver) = channel(1024);
    std::thread::Builder::new().name("ticks".to_owned()).spawn(move || {
        for due in moments {
            loop {
                let wait = due.saturating_sub(now());
                if wait == 0 {
                    break;
                }
                // In steps, so that the thread does not outlive its receiver by much.
                std::thread::sleep(Duration::from_nanos(wait).min(Duration::from_millis(200)));
                if sender.is_closed() {
                    return;
                }
            }
            if sender.blocking_send(Tick { due, woken: now() }).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_fixed() {
        let end = 100_000_000_000;
        let constant: Vec<u64> = arrivals(Arrivals::Constant, 10.0, 1, 5, end).collect();
        assert_eq!(constant.first(), Some(&100_000_005));
        assert_eq!(constant.len(), 999, "the last would fall on the end or later");
        let poisson: Vec<u64> = arrivals(Arrivals::Poisson, 10.0, 1, 0, end).collect();
        let again: Vec<u64> = arrivals(Arrivals::Poisson, 10.0, 1, 0, end).collect();
        assert_eq!(poisson, again);
        // Four standard deviations of a count of 1,000.
        assert!((870..1130).contains(&poisson.len()), "{}", poisson.len());
        assert!(poisson.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn ticks_come_in_time_and_end() {
        let begin = now();
        let moments: Vec<u64> = every(Duration::from_millis(2), begin).take(5).collect();
        let mut ticks = start(moments.clone().into_iter()).unwrap();
        for moment in moments {
            let tick = ticks.blocking_recv().unwrap();
            assert_eq!(tick.due, moment);
            assert!(tick.woken >= moment, "never early");
        }
        assert!(ticks.blocking_recv().is_none());
    }
}
