//! Management datagrams that wait some milliseconds.
//!
//! * Requests for a service that nobody listens for at the moment. They are refused, as everywhere;
//!   but where other processes share the address not at once: programs stop listening and begin
//!   anew, and a peer on the same machine may ask in between (perftest's `-R` makes two connections
//!   one after the other, and its client comes to the second when it likes). So it is looked again
//!   and again whether a process has claimed the service. Few wait at a time; more are refused at
//!   once.
//! * Datagrams for another process that has no room: thousands of clients may begin at once.

use std::net::IpAddr;

use crate::port::{Datagrams, KeptPacket};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::time::Time;

/// Requests that nobody listens for that wait at most.
const CAPACITY: usize = 64;
/// Datagrams for other processes that wait at most.
const CAPACITY_FOR_OTHERS: usize = 4096;
/// From the first look to the second; then twice as long each time.
const FIRST_NS: u64 = 1_000_000;
/// The last wait. Together they are 63 ms.
const LAST_NS: u64 = 32_000_000;
/// How long another process is tried that has no room: as the others, a look each millisecond.
const PATIENCE_NS: u64 = 2 * LAST_NS;

/// A datagram that waits.
#[derive(Debug)]
pub(super) struct Parked {
    pub packet: KeptPacket,
    /// The address of the socket it came to.
    pub at: IpAddr,
    /// Somebody had claimed the service at the last look, and now he listens; or it is another
    /// process's in any case.
    pub is_claimed: bool,
    look_at: Time,
    wait_ns: u64,
    waited_ns: u64,
}

impl Parked {
    /// Whether it has waited as long as it may.
    pub fn is_last_look(&self) -> bool {
        if self.is_claimed { self.waited_ns >= PATIENCE_NS } else { self.wait_ns >= LAST_NS }
    }
}

/// Those that wait.
#[derive(Debug, Default)]
pub(super) struct Park {
    waiting: Mutex<Vec<Parked>>,
    count: AtomicUsize,
}

impl Park {
    /// Lets the only packet of `datagrams` wait, a request that nobody listens for; whether there
    /// was room.
    pub fn put(&self, now: Time, at: IpAddr, datagrams: &Datagrams<'_>) -> bool {
        self.add(now, at, datagrams, false, CAPACITY)
    }

    /// Lets the only packet of `datagrams` wait until the process that it is for has room; whether
    /// there was room here.
    pub fn put_for_other(&self, now: Time, at: IpAddr, datagrams: &Datagrams<'_>) -> bool {
        self.add(now, at, datagrams, true, CAPACITY_FOR_OTHERS)
    }

    fn add(
        &self,
        now: Time,
        at: IpAddr,
        datagrams: &Datagrams<'_>,
        is_claimed: bool,
        capacity: usize,
    ) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= capacity {
            return false;
        }
        waiting.push(Parked {
            packet: KeptPacket::new(datagrams, datagrams.bytes.into()),
            at,
            is_claimed,
            look_at: now.plus_ns(FIRST_NS),
            wait_ns: FIRST_NS,
            waited_ns: FIRST_NS,
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

    /// Those that are to be looked at.
    pub fn due(&self, now: Time) -> Vec<Parked> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut waiting = lock(&self.waiting);
        let (due, rest) =
            std::mem::take(&mut *waiting).into_iter().partition(|parked| parked.look_at <= now);
        *waiting = rest;
        self.count.store(waiting.len(), Ordering::Release);
        due
    }

    /// Lets one wait on.
    pub fn put_back(&self, now: Time, mut parked: Parked) {
        parked.wait_ns = if parked.is_claimed { FIRST_NS } else { 2 * parked.wait_ns };
        parked.waited_ns += parked.wait_ns;
        parked.look_at = now.plus_ns(parked.wait_ns);
        let mut waiting = lock(&self.waiting);
        waiting.push(parked);
        self.count.store(waiting.len(), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const AT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const DATAGRAMS: Datagrams<'_> = Datagrams {
        from: AT,
        from_port: 1,
        to: AT,
        bytes: &[7; 9],
        segment_size: 9,
        traffic_class: 0,
        hop_limit: 0,
    };

    #[test]
    fn what_another_process_has_no_room_for_is_tried_each_millisecond() {
        let park = Park::default();
        let taken = (0..10_000).filter(|_| park.put_for_other(Time::ZERO, AT, &DATAGRAMS)).count();
        assert_eq!(taken, CAPACITY_FOR_OTHERS);
        assert!(!park.put(Time::ZERO, AT, &DATAGRAMS), "the others do not wait beside so many");
        let (mut looks, mut now) = (0, Time::ZERO);
        while let Some(next) = park.next_look() {
            assert_eq!(next, now.plus_ns(FIRST_NS));
            now = next;
            looks += 1;
            park.due(now)
                .into_iter()
                .filter(|parked| !parked.is_last_look())
                .for_each(|parked| park.put_back(now, parked));
        }
        assert_eq!(looks, 64);
    }

    #[test]
    fn a_request_is_looked_at_six_times_and_few_wait() {
        let park = Park::default();
        let (at, datagrams) = (AT, DATAGRAMS);
        assert!(park.put(Time::ZERO, at, &datagrams));
        let (mut looks, mut now) = (0, Time::ZERO);
        while let Some(next) = park.next_look() {
            assert!(park.due(now).is_empty(), "too early");
            now = next;
            let parked = park.due(now).pop().unwrap();
            assert_eq!(*parked.packet.bytes, [7; 9]);
            looks += 1;
            if !parked.is_last_look() {
                park.put_back(now, parked);
            }
        }
        assert_eq!((looks, now), (6, Time::from_ns(63_000_000)));
        let taken = (0..100).filter(|_| park.put(now, at, &datagrams)).count();
        assert_eq!(taken, CAPACITY);
    }
}
