//! Decides which future of a queue pair polls for all, and for how long.
//!
//! Polling saves the wake-up of a thread if the completion comes soon. If it comes late, polling
//! takes the processor from the peer. Therefore waits without polling follow after a poll in vain:
//! one, then three, then seven, up to [`MOST_RESTS`]. A completion that comes during a poll ends
//! that.
//!
//! ```text
//!   Claimed ─> Polls ─┬─ a completion ──> its time begins again
//!                     └─ no time left ──> Expired ─> Rests: no poll until something completes
//! ```

use urxe_stack::time::Time;

/// Nanoseconds after its time limit at which a future that is not polled loses its claim.
const GRACE_NS: u64 = 100_000;
/// The most waits without polling that follow after a poll in vain.
const MOST_RESTS: u32 = 63;

/// What a future does that found no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Polls from now on.
    Claimed,
    Polls,
    /// Polled for long enough.
    Expired,
    /// Another future polls.
    Sleeps,
    /// No future polls.
    Rests,
}

/// The polls of a queue pair.
#[derive(Debug, Default)]
pub(super) struct BusyPolling {
    poller: Option<Poller>,
    /// The number of the last future that polled.
    last: u64,
    /// Whether no future polls until a completion or a request comes.
    is_resting: bool,
    /// Whether a request came since the last completion. Further requests end no rest, because
    /// many of them are one wait.
    is_requested: bool,
    /// Waits without polling that are left.
    rests_left: u32,
    /// Waits without polling that followed after the last poll in vain.
    rests: u32,
}

/// The future that polls for all others.
#[derive(Clone, Copy, Debug)]
struct Poller {
    number: u64,
    until: Time,
    has_progressed: bool,
}

impl BusyPolling {
    /// Handles a completion.
    pub fn on_completion(&mut self) {
        (self.is_resting, self.is_requested) = (false, false);
        if let Some(poller) = &mut self.poller {
            poller.has_progressed = true;
            (self.rests, self.rests_left) = (0, 0);
        }
    }

    /// Handles a new request.
    pub fn on_request(&mut self) {
        if !self.is_requested {
            (self.is_resting, self.is_requested) = (false, true);
        }
    }

    /// Returns what a future does at `now`. `number` is that of the future as the one that polls,
    /// or 0.
    pub fn role(&mut self, number: &mut u64, now: Time, busy_poll_ns: u64) -> Role {
        let until = now.plus_ns(busy_poll_ns);
        match &mut self.poller {
            Some(poller) if poller.number == *number => {
                if poller.has_progressed {
                    *poller = Poller { until, has_progressed: false, ..*poller };
                }
                if now < poller.until {
                    return Role::Polls;
                }
                (self.poller, *number) = (None, 0);
                self.is_resting = true;
                self.rests = (self.rests * 2 + 1).min(MOST_RESTS);
                self.rests_left = self.rests;
                Role::Expired
            }
            Some(poller) if now < poller.until.plus_ns(GRACE_NS) => Role::Sleeps,
            _ if self.is_resting => Role::Rests,
            _ if self.rests_left > 0 => {
                self.rests_left -= 1;
                self.is_resting = true;
                Role::Rests
            }
            _ => {
                self.last += 1;
                *number = self.last;
                self.poller = Some(Poller { number: self.last, until, has_progressed: false });
                Role::Claimed
            }
        }
    }

    /// Ends the poll of a future. Returns whether it polled.
    pub fn end(&mut self, number: u64) -> bool {
        self.poller.take_if(|poller| poller.number == number).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY_NS: u64 = 50_000;

    fn at(ns: u64) -> Time {
        Time::from_ns(1_000_000 + ns)
    }

    /// Polls in vain from `ns` on.
    fn poll_in_vain(polling: &mut BusyPolling, ns: u64) {
        let mut number = 0;
        assert_eq!(polling.role(&mut number, at(ns), BUSY_NS), Role::Claimed);
        assert_eq!(polling.role(&mut number, at(ns + BUSY_NS - 1), BUSY_NS), Role::Polls);
        assert_eq!(polling.role(&mut number, at(ns + BUSY_NS), BUSY_NS), Role::Expired);
        assert_eq!(polling.role(&mut number, at(ns + BUSY_NS), BUSY_NS), Role::Rests);
    }

    /// Returns how many waits do not poll, each of which ends with a completion.
    fn rests(polling: &mut BusyPolling, ns: u64) -> u32 {
        (0..)
            .find(|_| {
                polling.on_completion();
                polling.role(&mut 0, at(ns), BUSY_NS) == Role::Claimed
            })
            .unwrap()
    }

    #[test]
    fn one_future_polls_and_a_completion_gives_it_more_time() {
        let mut polling = BusyPolling::default();
        let (mut first, mut second) = (0, 0);
        assert_eq!(polling.role(&mut first, at(0), BUSY_NS), Role::Claimed);
        assert_eq!(polling.role(&mut second, at(1), BUSY_NS), Role::Sleeps);
        polling.on_completion();
        assert_eq!(polling.role(&mut first, at(BUSY_NS - 1), BUSY_NS), Role::Polls);
        assert_eq!(polling.role(&mut first, at(2 * BUSY_NS - 2), BUSY_NS), Role::Polls);
        assert!(!polling.end(second), "it did not poll");
        assert!(polling.end(first));
        assert_eq!(polling.role(&mut second, at(2 * BUSY_NS), BUSY_NS), Role::Claimed);
    }

    #[test]
    fn a_future_that_is_not_polled_loses_its_claim() {
        let mut polling = BusyPolling::default();
        let (mut first, mut second) = (0, 0);
        assert_eq!(polling.role(&mut first, at(0), BUSY_NS), Role::Claimed);
        let end = BUSY_NS + GRACE_NS;
        assert_eq!(polling.role(&mut second, at(end - 1), BUSY_NS), Role::Sleeps);
        assert_eq!(polling.role(&mut second, at(end), BUSY_NS), Role::Claimed);
        assert_eq!(polling.role(&mut first, at(end), BUSY_NS), Role::Sleeps);
    }

    #[test]
    fn polls_in_vain_become_rare() {
        let mut polling = BusyPolling::default();
        for expected in [1, 3, 7, 15, 31, 63, 63] {
            poll_in_vain(&mut polling, 0);
            assert_eq!(rests(&mut polling, 0), expected);
            assert!(polling.end(polling.last));
        }
        // A completion during a poll.
        assert_eq!(polling.role(&mut 0, at(0), BUSY_NS), Role::Claimed);
        polling.on_completion();
        assert!(polling.end(polling.last));
        poll_in_vain(&mut polling, 0);
        assert_eq!(rests(&mut polling, 0), 1);
    }

    #[test]
    fn many_requests_are_one_wait() {
        let mut polling = BusyPolling::default();
        poll_in_vain(&mut polling, 0);
        poll_in_vain_after_a_rest(&mut polling);
        for _ in 0..10 {
            polling.on_request();
            assert_eq!(polling.role(&mut 0, at(0), BUSY_NS), Role::Rests);
        }
        assert_eq!(polling.rests_left, 2);
        polling.on_completion();
        polling.on_request();
        assert_eq!(polling.role(&mut 0, at(0), BUSY_NS), Role::Rests);
        assert_eq!(polling.rests_left, 1);
    }

    fn poll_in_vain_after_a_rest(polling: &mut BusyPolling) {
        polling.on_completion();
        assert_eq!(polling.role(&mut 0, at(0), BUSY_NS), Role::Rests);
        polling.on_completion();
        poll_in_vain(polling, 0);
    }
}
