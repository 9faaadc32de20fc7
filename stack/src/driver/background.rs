//! The background thread of an engine: see [`super`] for its three states.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

use super::mad_burst::MadBurstDetector;
use super::ports::Receiver;
use super::shared::Shared;
use crate::port::sharing::Member;
use crate::sync::atomic::Ordering;
use crate::sync::{try_lock, yield_now};
use crate::sys::clock;
use crate::time::Time;

/// A thread that polled within this time is taken to poll on.
const POLLED_NS: u64 = 1_000_000;
/// After packets were found that nobody had polled for, the sockets stay armed so long.
const ARMED_NS: u64 = 10_000_000;
/// How often it is looked whether processes of the same addresses ended and left packets behind.
const SWEEP_NS: u64 = 1_000_000_000;
/// Batches received in a row before looking at everything else.
const MAX_BATCHES: usize = 64;
/// So many management datagrams are handed on at once while more come.
const MADS_TOGETHER: usize = 64;
/// After a batch of a stream the sockets are found empty so often before it sleeps: the next run is
/// there sooner than a sleep and a wake-up take. Each time the processor is given away first. After
/// small messages it sleeps at once: a thread that sleeps is scheduled sooner beside one that
/// spins.
const EMPTY_LOOKS: u32 = 32;

/// Where the alarm stands among what the thread sleeps on.
const ALARM: usize = 1;

pub(super) fn run(shared: &Shared) {
    let mut armed_until = Time::ZERO;
    let hears_of_changes = shared.changes.is_some();
    let (mut waits, mut always) = waits_of(shared, true);
    let mut hears_common = true;
    // Beside the one that polling threads use.
    let mut receiver = Receiver::new();
    let mut sweep_at = Time::ZERO;
    let mut burst = MadBurstDetector::new();
    while !shared.stop.load(Ordering::Acquire) {
        let now = clock::now();
        shared.ports.drain_errors();
        shared.handle_timeouts(now);
        shared.transmit(now);
        // Timeouts complete requests and end connections: who waits for that must not wait for this
        // thread's next packet.
        shared.call_hook();
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        let polled_at = Time::from_ns(shared.polled_at_ns.load(Ordering::Relaxed));
        let polled = now.since_ns(polled_at) < POLLED_NS;
        if shared.leader.has_leader() {
            sleep_led(shared, &mut waits[ALARM..always], sweep_at);
        } else if polled && now >= armed_until {
            sleep_polled(shared, &mut waits[..always], sweep_at);
            let polled_at_ns = shared.polled_at_ns.load(Ordering::Relaxed);
            if polled_at_ns <= polled_at.as_ns() && receive(shared, &mut burst) {
                armed_until = clock::now().plus_ns(ARMED_NS);
            }
        } else {
            sleep_idle(shared, &mut waits[ALARM..], sweep_at);
            receive(shared, &mut burst);
        }
        if hears_of_changes && !waits[ALARM + 1].revents().is_empty() {
            shared.follow_changes();
            // A new address has a port.
            (waits, always) = waits_of(shared, hears_common);
        }
        let rest_is_over = shared.ports.common_rest().is_some_and(|until| clock::now() >= until);
        if rest_is_over || waits[ALARM + 1..always].iter().any(|wait| !wait.revents().is_empty()) {
            shared.ports.serve(&mut receiver, &shared.device, || shared.listing().to_cbor());
            shared.ports.receive_common(&mut receiver, &shared.device);
            let mads = shared.serve_management();
            if mads > 0 {
                burst.record(clock::now(), mads);
            }
            shared.transmit(clock::now());
        }
        if hears_common == shared.ports.common_rest().is_some() {
            hears_common = !hears_common;
            (waits, always) = waits_of(shared, hears_common);
        }
        if shared.ports.has_company() && clock::now() >= sweep_at {
            shared.ports.sweep(&mut receiver, &shared.device);
            shared.serve_management();
            sweep_at = clock::now().plus_ns(SWEEP_NS);
        }
        shared.call_hook();
        while shared.alarm.descriptor().try_take().unwrap_or(false) {}
    }
}

/// What the thread sleeps on. First the watch, which counts only while some thread polls; then what
/// is looked at even then, up to the place that is returned: the alarm, changes, and what all
/// processes of an address read, unless that is left to the others; then the sockets.
fn waits_of(shared: &Shared, hears_common: bool) -> (Vec<PollFd<'_>>, usize) {
    let on = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
    let alarm = on(shared.alarm.descriptor().as_fd());
    let members = shared.ports.members();
    let shared_ones = members.flat_map(|member| {
        [member.desk(), member.common().filter(|_| hears_common).map(AsFd::as_fd)]
    });
    let changes = shared.changes.as_ref().map(|changes| on(changes.as_fd()));
    let watch = on(shared.watchdog.as_fd());
    let mut waits: Vec<PollFd<'_>> =
        [watch, alarm].into_iter().chain(changes).chain(shared_ones.flatten().map(on)).collect();
    let always = waits.len();
    waits.extend(shared.ports.iter().map(|port| on(port.as_fd())));
    waits.push(on(shared.ports.groups.descriptor()));
    (waits, always)
}

/// Receives what waits and what follows it closely, unless another thread is at it. Whether there
/// was anything.
fn receive(shared: &Shared, burst: &mut MadBurstDetector) -> bool {
    let Some(mut receiver) = try_lock(&shared.receiver) else { return false };
    let polled_at_ns = shared.polled_at_ns.load(Ordering::Relaxed);
    let (mut batches, mut mads) = (0, 0);
    let mut empty_looks = 0;
    while batches < MAX_BATCHES {
        if shared.ports.receive(&mut receiver, &shared.device, true) > 0 {
            batches += 1;
            empty_looks = 0;
            // Those that come together are told together.
            if shared.ports.inbox.len() >= MADS_TOGETHER {
                mads += shared.serve_management();
            }
            shared.transmit(clock::now());
            continue;
        }
        // Who polls or waits receives, and must not find this thread at it.
        let is_polled = shared.polled_at_ns.load(Ordering::Relaxed) != polled_at_ns;
        let is_over = !receiver.is_streaming() || empty_looks == EMPTY_LOOKS;
        if batches == 0 || is_over || is_polled || shared.leader.has_leader() {
            break;
        }
        empty_looks += 1;
        yield_now();
    }
    drop(receiver);
    mads += shared.serve_management();
    if batches > 0 {
        burst.record(clock::now(), mads);
    }
    batches > 0
}

/// Sleeps beside a thread that polls: until it stops, until something is due that it does not do,
/// or until somebody wakes this one.
fn sleep_polled(shared: &Shared, waits: &mut [PollFd<'_>], sweep_at: Time) {
    let now = clock::now();
    shared.watchdog.arm(now, shared.next_wake());
    // What no polling thread looks for.
    let sweep = shared.ports.has_company().then(|| sweep_at.since_ns(now));
    wait(waits, sweep);
    shared.watchdog.disarm();
}

/// Does what is left to do; how long nothing is due, `held` packets included.
fn last_look(shared: &Shared, sweep_at: Time, held: Option<Time>) -> Option<u64> {
    let now = clock::now();
    shared.transmit(now);
    let sweep = shared.ports.has_company().then_some(sweep_at);
    let deadline = shared.next_deadline().into_iter().chain(sweep).chain(held).min();
    deadline.map(|deadline| deadline.since_ns(now))
}

/// Sleeps until the next deadline, or until it is woken, as it is when the leader goes.
fn sleep_led(shared: &Shared, waits: &mut [PollFd<'_>], sweep_at: Time) {
    let last_look =
        || if shared.leader.has_leader() { last_look(shared, sweep_at, None) } else { Some(0) };
    shared.alarm.sleep(last_look, |timeout_ns| wait(waits, timeout_ns));
}

/// Sleeps until a packet comes, or until the next deadline, or until it is woken.
fn sleep_idle(shared: &Shared, waits: &mut [PollFd<'_>], sweep_at: Time) {
    let last_look = || last_look(shared, sweep_at, shared.ports.next_due());
    shared.alarm.sleep(last_look, |timeout_ns| wait(waits, timeout_ns));
    // An error in a socket's queue makes it readable without a packet: it must be taken, or this
    // never sleeps again.
    if waits.iter().any(|wait| wait.revents().contains(PollFlags::ERR)) {
        let common = shared.ports.members().filter_map(Member::common);
        for port in shared.ports.iter().chain(common) {
            port.drain_errors(|_| ());
        }
    }
}

fn wait(waits: &mut [PollFd<'_>], timeout_ns: Option<u64>) {
    // Interrupted or failed: the loop looks at everything anyway.
    let _ = poll(waits, timeout_ns.map(clock::timespec).as_ref());
}
