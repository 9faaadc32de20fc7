//! The background thread of an engine: see [`super`] for its two states.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::engine::Shared;
use crate::sync::atomic::Ordering;
use crate::sync::try_lock;
use crate::sys::clock;
use crate::time::Time;

/// While some thread polls, this one wakes so often. Shorter costs throughput (50 µs: a fifth), longer delays
/// the answers of a program that stops polling.
const TICK_NS: u64 = 1_000_000;
/// After packets were found that nobody had polled for, the sockets stay armed so long.
const ARMED_NS: u64 = 10_000_000;
/// Batches received in a row before looking at everything else.
const MAX_BATCHES: usize = 64;

pub(super) fn run(shared: &Shared) {
    let mut armed_until = Time::ZERO;
    let alarm = PollFd::from_borrowed_fd(shared.alarm.descriptor().as_fd(), PollFlags::IN);
    let sockets = shared.ports.iter().map(|port| PollFd::from_borrowed_fd(port.as_fd(), PollFlags::IN));
    // The alarm first.
    let mut waits: Vec<PollFd<'_>> = std::iter::once(alarm).chain(sockets).collect();
    while !shared.stop.load(Ordering::Acquire) {
        let now = clock::now();
        shared.ports.drain_errors();
        shared.device.handle_timeouts(now);
        shared.transmit(now);
        let polled_at = Time::from_ns(shared.polled_at_ns.load(Ordering::Relaxed));
        let polled = now.since_ns(polled_at) < TICK_NS;
        if polled && now >= armed_until {
            sleep_polled(shared, &mut waits[..1]);
            let polled_again = shared.polled_at_ns.load(Ordering::Relaxed) > polled_at.as_ns();
            if !polled_again && receive(shared) {
                armed_until = clock::now().plus_ns(ARMED_NS);
            }
        } else {
            sleep_idle(shared, &mut waits);
            receive(shared);
        }
        if let Some(after_progress) = &shared.after_progress {
            after_progress();
        }
        while shared.alarm.descriptor().try_take().unwrap_or(false) {}
    }
}

/// Receives what waits, unless another thread is at it. Whether there was anything.
fn receive(shared: &Shared) -> bool {
    let Some(mut receiver) = try_lock(&shared.receiver) else { return false };
    let mut any = false;
    for _ in 0..MAX_BATCHES {
        if shared.ports.receive(&mut receiver, &shared.device, true) == 0 {
            break;
        }
        any = true;
        shared.transmit(clock::now());
    }
    any
}

/// Sleeps a tick, or until the next deadline, or until it is woken.
fn sleep_polled(shared: &Shared, waits: &mut [PollFd<'_>]) {
    let now = clock::now();
    let deadline = shared.device.next_deadline().unwrap_or(Time::NEVER);
    wait(waits, Some(deadline.since_ns(now).min(TICK_NS)));
}

/// Sleeps until a packet comes, or until the next deadline, or until it is woken.
fn sleep_idle(shared: &Shared, waits: &mut [PollFd<'_>]) {
    let last_look = || {
        let now = clock::now();
        shared.transmit(now);
        shared.device.next_deadline().map(|deadline| deadline.since_ns(now))
    };
    shared.alarm.sleep(last_look, |timeout_ns| wait(waits, timeout_ns));
    // An error in a socket's queue makes it readable without a packet: it must be taken, or this never sleeps again.
    let failed =
        waits.iter().skip(1).zip(shared.ports.iter()).filter(|(w, _)| w.revents().contains(PollFlags::ERR));
    for (_, port) in failed {
        port.drain_errors(|_| ());
    }
}

fn wait(waits: &mut [PollFd<'_>], timeout_ns: Option<u64>) {
    let timeout = timeout_ns.map(|ns| Timespec {
        tv_sec: (ns / 1_000_000_000).try_into().unwrap_or(i64::MAX),
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    // Interrupted or failed: the loop looks at everything anyway.
    let _ = poll(waits, timeout.as_ref());
}
