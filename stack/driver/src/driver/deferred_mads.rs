//! Holds MADs for some milliseconds that cannot be delivered yet.
//!
//! | MAD | waits for | finally | retries | capacity |
//! |---|---|---|---|---|
//! | request to a service without listener | a listener | rejected | 1, 2, 4 … 32 ms apart | 64 |
//! | MAD for another process without room | room | dropped | 1 ms apart, for 64 ms | 4096 |
//!
//! If other processes share the address, a request without a listener is not rejected at once. A
//! program may stop listening and start again, and a peer on the same machine may send its request
//! in between. For example, perftest with `-R` makes two connections one after the other, and its
//! client may send the second request at any moment. For the same reason, a request waits for a
//! program that has bound its port and not listened yet. A kernel rejects both requests.
//!
//! Another process may lack room because thousands of clients can start at once.

use std::net::IpAddr;

use crate::port::{Datagrams, StoredPacket};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};
use crate::time::Time;

/// The most deferred requests without a listener.
const CAPACITY: usize = 64;
/// The most deferred MADs from which no MAD for another process is deferred.
const CAPACITY_FOR_OTHERS: usize = 4096;
/// Nanoseconds to the first retry. Each further delay is twice as long.
const FIRST_DELAY_NS: u64 = 1_000_000;
/// The last delay in nanoseconds. All delays together are 63 ms.
const LAST_DELAY_NS: u64 = 32_000_000;
/// Nanoseconds for which a MAD waits for room in its process, with a retry every millisecond.
const RETRY_TIMEOUT_NS: u64 = 2 * LAST_DELAY_NS;

/// A deferred MAD.
#[derive(Debug)]
pub(super) struct DeferredMad {
    pub packet: StoredPacket,
    /// The address of the socket where the MAD arrived.
    pub at: IpAddr,
    /// Whether its service had a listener at the last retry, or the MAD is for another process
    /// anyway.
    pub has_listener: bool,
    retry_at: Time,
    delay_ns: u64,
    waited_ns: u64,
}

impl DeferredMad {
    /// Returns whether the MAD has waited as long as allowed.
    pub fn is_expired(&self) -> bool {
        if self.has_listener {
            self.waited_ns >= RETRY_TIMEOUT_NS
        } else {
            self.delay_ns >= LAST_DELAY_NS
        }
    }
}

/// The deferred MADs of a device.
#[derive(Debug, Default)]
pub(super) struct DeferredMads {
    waiting: Mutex<Vec<DeferredMad>>,
    count: AtomicUsize,
}

impl DeferredMads {
    /// Defers the only packet of `datagrams`, a request without a listener. Returns whether there
    /// was room.
    pub fn defer(&self, now: Time, at: IpAddr, datagrams: &Datagrams<'_>) -> bool {
        self.add(now, at, datagrams, false, CAPACITY)
    }

    /// Defers the only packet of `datagrams` until its process has room. Returns whether there was
    /// room here.
    pub fn defer_for_process(&self, now: Time, at: IpAddr, datagrams: &Datagrams<'_>) -> bool {
        self.add(now, at, datagrams, true, CAPACITY_FOR_OTHERS)
    }

    fn add(
        &self,
        now: Time,
        at: IpAddr,
        datagrams: &Datagrams<'_>,
        has_listener: bool,
        capacity: usize,
    ) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= capacity {
            return false;
        }
        waiting.push(DeferredMad {
            packet: StoredPacket::new(datagrams, datagrams.bytes.into()),
            at,
            has_listener,
            retry_at: now.plus_ns(FIRST_DELAY_NS),
            delay_ns: FIRST_DELAY_NS,
            waited_ns: FIRST_DELAY_NS,
        });
        self.count.store(waiting.len(), Ordering::Release);
        true
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns the time of the next retry.
    pub fn next_retry(&self) -> Option<Time> {
        if self.is_empty() {
            return None;
        }
        lock(&self.waiting).iter().map(|mad| mad.retry_at).min()
    }

    /// Takes out the MADs whose retry is due.
    pub fn due(&self, now: Time) -> Vec<DeferredMad> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut waiting = lock(&self.waiting);
        let (due, rest) =
            std::mem::take(&mut *waiting).into_iter().partition(|mad| mad.retry_at <= now);
        *waiting = rest;
        self.count.store(waiting.len(), Ordering::Release);
        due
    }

    /// Defers a MAD again.
    pub fn defer_again(&self, now: Time, mut mad: DeferredMad) {
        mad.delay_ns = if mad.has_listener { FIRST_DELAY_NS } else { 2 * mad.delay_ns };
        mad.waited_ns += mad.delay_ns;
        mad.retry_at = now.plus_ns(mad.delay_ns);
        let mut waiting = lock(&self.waiting);
        waiting.push(mad);
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

    /// Retries the only MAD of `deferred` until it expires. Returns the times of the retries.
    fn looks(deferred: &DeferredMads) -> Vec<Time> {
        let mut looks = Vec::new();
        let mut now = Time::ZERO;
        while let Some(next) = deferred.next_retry() {
            assert!(deferred.due(now).is_empty(), "too early");
            now = next;
            looks.push(now);
            let mad = deferred.due(now).remove(0);
            assert_eq!(*mad.packet.bytes, [7; 9]);
            if !mad.is_expired() {
                deferred.defer_again(now, mad);
            }
        }
        looks
    }

    #[test]
    fn what_another_process_has_no_room_for_is_tried_each_millisecond() {
        let deferred = DeferredMads::default();
        assert!(deferred.defer_for_process(Time::ZERO, AT, &DATAGRAMS));
        let each_ms: Vec<_> = (1..=64).map(|ms| Time::from_ns(ms * FIRST_DELAY_NS)).collect();
        assert_eq!(looks(&deferred), each_ms);
        let defer = |_: &i32| deferred.defer_for_process(Time::ZERO, AT, &DATAGRAMS);
        assert_eq!((0..10_000).filter(defer).count(), CAPACITY_FOR_OTHERS);
        assert!(
            !deferred.defer(Time::ZERO, AT, &DATAGRAMS),
            "the others do not wait beside so many"
        );
    }

    #[test]
    fn a_request_is_looked_at_six_times_and_few_wait() {
        let deferred = DeferredMads::default();
        assert!(deferred.defer(Time::ZERO, AT, &DATAGRAMS));
        let looks = looks(&deferred);
        assert_eq!((looks.len(), looks[5]), (6, Time::from_ns(63_000_000)));
        let taken = (0..100).filter(|_| deferred.defer(Time::ZERO, AT, &DATAGRAMS)).count();
        assert_eq!(taken, CAPACITY);
    }
}
