//! Requests for a service that nobody listens for at the moment.
//!
//! They are refused, as everywhere, but not at once: programs stop listening and begin anew, and a peer on the same machine may ask in
//! between (perftest's `-R` makes two connections one after the other, and its client comes to the second when it likes). So a request waits
//! some milliseconds, while it is looked again and again whether a process has claimed the service. Few wait at a time; more are
//! refused at once.

use std::net::IpAddr;

use crate::port::{Datagrams, KeptPacket};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::time::Time;

/// Requests that wait at most.
const CAPACITY: usize = 64;
/// From the first look to the second; then twice as long each time.
const FIRST_NS: u64 = 1_000_000;
/// The last wait. Together they are 63 ms.
const LAST_NS: u64 = 32_000_000;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Parked {
    pub packet: KeptPacket,
    /// The address of the socket it came to.
    pub at: IpAddr,
    /// Somebody had claimed the service at the last look: now he listens.
    pub is_claimed: bool,
    look_at: Time,
    wait_ns: u64,
}

/// Those that wait.
#[derive(Debug, Default)]
pub(super) struct Park {
    waiting: Mutex<Vec<Parked>>,
    count: AtomicUsize,
}

impl Park {
    /// Lets the only packet of `datagrams` wait; whether there was room.
    pub fn put(&self, now: Time, at: IpAddr, datagrams: &Datagrams<'_>) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= CAPACITY {
            return false;
        }
        waiting.push(Parked {
            packet: KeptPacket::new(datagrams, datagrams.bytes.into()),
            at,
            is_claimed: false,
            look_at: now.plus_ns(FIRST_NS),
            wait_ns: FIRST_NS,
        });
        self.count.store(waiting.len(), Ordering::Release);
        true
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// When to look again.
    pub fn next_look(&self) -> Option<Time> {
        if self.is_empty() {
            return None;
        }
        lock(&self.waiting).iter().map(|parked| parked.look_at).min()
    }

    /// Those that are to be looked at, each with whether it is its last look.
    pub fn due(&self, now: Time) -> Vec<(Parked, bool)> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut waiting = lock(&self.waiting);
        let (due, rest) = std::mem::take(&mut *waiting).into_iter().partition(|parked| parked.look_at <= now);
        *waiting = rest;
        self.count.store(waiting.len(), Ordering::Release);
        let due: Vec<Parked> = due;
        let with_last = |parked: Parked| {
            let is_last = parked.wait_ns >= LAST_NS;
            (parked, is_last)
        };
        due.into_iter().map(with_last).collect()
    }

    /// Lets one wait on.
    pub fn put_back(&self, now: Time, mut parked: Parked) {
        if !parked.is_claimed {
            parked.wait_ns *= 2;
        }
        parked.look_at = now.plus_ns(if parked.is_claimed { FIRST_NS } else { parked.wait_ns });
        let mut waiting = lock(&self.waiting);
        waiting.push(parked);
        self.count.store(waiting.len(), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_looked_at_six_times_and_few_wait() {
        let park = Park::default();
        let at: IpAddr = "127.0.0.1".parse().unwrap();
        let datagrams = Datagrams {
            from: at,
            from_port: 1,
            to: at,
            bytes: &[7; 9],
            segment_size: 9,
            traffic_class: 0,
            hop_limit: 0,
        };
        assert!(park.put(Time::ZERO, at, &datagrams));
        let (mut looks, mut now) = (0, Time::ZERO);
        while let Some(next) = park.next_look() {
            assert!(park.due(now).is_empty(), "too early");
            now = next;
            let (parked, is_last) = park.due(now).pop().unwrap();
            assert_eq!(*parked.packet.bytes, [7; 9]);
            looks += 1;
            if !is_last {
                park.put_back(now, parked);
            }
        }
        assert_eq!((looks, now), (6, Time::from_ns(63_000_000)));
        let taken = (0..100).filter(|_| park.put(now, at, &datagrams)).count();
        assert_eq!(taken, CAPACITY);
    }
}
