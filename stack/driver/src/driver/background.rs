//! The background thread of an engine. It repeats a round: do the work that is due, sleep, handle
//! the arrivals. [`decision`] defines how it sleeps and which threads count as polling or leading.
//!
//! | in | decided by | out |
//! |---|---|---|
//! | errors of the sockets | `UdpPort::drain_errors` | counters, log lines, `path_errors` |
//! | deadlines | `Shared::handle_timeouts` | packets, completions, MADs |
//! | packets that other threads left | `Shared::transmit` | packets |
//! | completions, ended connections | `Shared::call_hook` | a call of the hook of the engine |
//! | threads that poll or lead | [`decision`] | a sleep on a part of the [`poll_set`] |
//! | a thread polls | `PollWatchdog` | an armed watchdog for the time of the sleep |
//! | readable sockets | [`decision`] | a series of reads, and the packets sent in reply |
//! | requests close to each other | [`spin`] | further reads instead of a sleep |
//! | changed interfaces | `Shared::refresh_port_state` | ports, a new [`poll_set`] |
//! | joining processes, forwarded packets | `Ports::serve_others` | replies, received packets |
//! | wanted offers, connections of rings | `Rings::serve` | rings, or sockets in their place |
//! | the common sockets, their backoff | `Ports::receive_common` | packets to the device |
//! | sockets of ended processes | `Ports::clean_up_orphans`, once a second | MADs, drops |
//! | MADs in the inbox | `Shared::serve_management` | MADs to the connection manager |
//! | the number of MADs in a series | `MadBurstDetector` | the scheduling policy of this thread |

mod decision;
mod poll_set;
mod spin;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::decision::{Burst, Due, NextRead, Situation, Wait};
use self::poll_set::{Entry, PollSet};
use self::spin::Spin;
use super::mad_burst::MadBurstDetector;
use super::ports::{ReceiveScope, Receiver};
use super::shared::Shared;
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, try_lock, yield_now};
use crate::sys::{affinity, clock};
use crate::time::Time;

/// Nanoseconds for which the thread sleeps on the sockets after a polling thread left packets in
/// them.
const WATCHED_NS: u64 = 10_000_000;
/// Nanoseconds between two clean-ups of the sockets of ended processes.
const ORPHAN_CLEANUP_NS: u64 = 1_000_000_000;
/// The number of MADs in the inbox at which they are handed on before more packets are read.
const MAD_BATCH: usize = 64;

/// Nanoseconds of a look for packets after which the thread lets others use its processor.
const YIELD_NS: u64 = 5_000;

/// The number of panics after which the thread ends.
const MAX_PANICS: usize = 8;

/// Runs the background thread until the engine stops.
///
/// A panic is a fault of the stack or of a hook. The device then fails: programs get the event
/// DEVICE_FATAL and flushed completions, and none waits for ever. The thread goes on, because other
/// queue pairs of the process may be created again.
///
/// `common_receiver` reads the common sockets and the sockets of ended processes, and takes
/// forwarded packets. Polling threads use `Shared::receiver` at the same time.
pub(super) fn run(shared: &Shared, common_receiver: &mut Receiver) {
    for _ in 0..MAX_PANICS {
        if let Some(()) = without_panic(|| run_rounds(shared, common_receiver)) {
            return;
        }
        tracing::error!(
            "the background thread panicked: the device fails, and its queue pairs move to the \
             error state"
        );
        without_panic(|| shared.device.fail(clock::now()));
    }
    tracing::error!("the background thread ends after {MAX_PANICS} panics: close the device");
}

/// Returns the result of `run`, or `None` if it panicked. Locks that were held stay usable
/// ([`lock`](crate::sync::lock)).
fn without_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

fn run_rounds(shared: &Shared, common_receiver: &mut Receiver) {
    let mut thread = BackgroundThread {
        shared,
        poll_set: PollSet::new(shared, shared.ports.common_backoff().is_none()),
        common_receiver,
        mad_burst: MadBurstDetector::new(),
        spin: Spin::new(shared.spin_share, affinity::processors().unwrap_or(1)),
        watched_until: Time::ZERO,
        is_taken: false,
        cleanup_at: Time::ZERO,
    };
    while !shared.stop.load(Ordering::Acquire) {
        thread.round();
    }
}

/// A look for packets that the thread does instead of sleeping.
struct Look {
    from: Time,
    until: Time,
    /// The time at which the thread last let others use its processor.
    yielded_at: Time,
}

struct BackgroundThread<'a> {
    shared: &'a Shared,
    poll_set: PollSet<'a>,
    /// See [`run`].
    common_receiver: &'a mut Receiver,
    mad_burst: MadBurstDetector,
    spin: Spin,
    /// The time until which the thread sleeps on the sockets although a thread polls.
    watched_until: Time,
    /// Whether another thread was receiving when this thread last tried to.
    is_taken: bool,
    /// The time of the next clean-up of the sockets of ended processes.
    cleanup_at: Time,
}

impl BackgroundThread<'_> {
    /// Does the work that is due, sleeps, and handles the arrivals.
    fn round(&mut self) {
        let shared = self.shared;
        let now = clock::now();
        // Takes the errors that a call for an address socket returned, on any thread. `sleep` takes
        // the errors that only `poll` reported, and those of the common sockets.
        shared.ports.drain_errors();
        shared.handle_timeouts(now);
        shared.transmit(now);
        // Timeouts complete requests and end connections. A thread that waits for that must not
        // wait until this thread receives its next packet.
        shared.call_hook();
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let polled_at = shared.polled_at();
        let wait = Wait::choose(&Situation {
            now,
            has_leader: shared.leader.has_leader(),
            polled_at,
            watched_until: self.watched_until,
            is_taken: std::mem::take(&mut self.is_taken),
        });
        self.sleep(wait);
        let was_polled = shared.polled_at() > polled_at;
        let found = wait.receives(was_polled) && self.receive();
        if found && wait == Wait::Polled {
            // The polling thread left packets.
            self.watched_until = clock::now().plus_ns(WATCHED_NS);
        }
        if self.poll_set.is_ready(Entry::Changes) {
            shared.refresh_port_state();
            // A new address has a port.
            self.poll_set = PollSet::new(shared, self.poll_set.has_common);
            // No sleep has used the new set yet, so `is_ready` is false for `Entry::Shared` below.
            // A descriptor that still has data ends the next sleep at once.
        }
        self.serve_shared();
        self.clean_up_orphans();
        shared.call_hook();
        // No wake-up is lost: a thread leaves its work before it wakes this thread. The next round
        // looks for work, and does so again after other threads see this thread asleep.
        while shared.waker.descriptor().try_take().unwrap_or(false) {}
    }

    fn sleep(&mut self, wait: Wait) {
        let Self { shared, poll_set, cleanup_at, spin, .. } = self;
        let timeout_ns = |now: Time| {
            let due = Due {
                protocol: shared.next_deadline(),
                orphan_cleanup: shared.ports.is_shared().then_some(*cleanup_at),
                delayed: shared.ports.next_due(),
            };
            let has_leader = shared.leader.has_leader();
            wait.deadline(&due, has_leader).map(|deadline| deadline.since_ns(now))
        };
        if wait == Wait::Polled {
            // Threads that leave packets do not wake this one, because the polling thread sends
            // them. The waker's descriptor still ends the sleep when the engine stops and when the
            // loopback path leaves packets. The watchdog expires at most 1 ms after it was
            // armed or extended. A polling thread that extends it passes the deadlines of that
            // moment.
            let now = clock::now();
            shared.watchdog.arm(now, shared.watchdog_deadline());
            poll_set.sleep(wait.entries(), timeout_ns(now));
            shared.watchdog.disarm();
        } else {
            let last_look = || {
                let now = clock::now();
                shared.transmit(now);
                // A device of this process may have replied to the packets that this thread sent.
                // Other threads wake this one for the hook, and this one must not sleep.
                let looks_on = wait == Wait::Idle && spin.until(now).is_some();
                if looks_on || shared.is_hook_due() { Some(0) } else { timeout_ns(now) }
            };
            // Only an idle thread sleeps on the sockets, and on the rings.
            let rings = shared.ports.rings().filter(|_| wait == Wait::Idle);
            let has_records = rings.is_some_and(|rings| rings.incoming.fall_asleep());
            shared.waker.sleep(last_look, |timeout_ns| {
                poll_set.sleep(wait.entries(), if has_records { Some(0) } else { timeout_ns });
            });
            if let Some(rings) = rings {
                rings.incoming.wake_up(poll_set.is_ready(Entry::Socket));
            }
        }
        // A queued error makes a socket readable without a packet. If this thread did not take the
        // error, every later sleep would end at once. `Ports::drain_errors` takes errors only after
        // a call has failed, and does not know the common sockets. They get ICMP errors too,
        // because the kernel picks the socket of an error by a hash. So this loop takes the errors
        // of all sockets that `poll` may have reported.
        if poll_set.has_socket_error(wait.entries()) {
            shared.ports.drain_all_errors();
        }
    }

    /// Receives the waiting packets and those close behind them, unless another thread receives.
    /// Returns whether there were any.
    fn receive(&mut self) -> bool {
        let shared = self.shared;
        let receiver = try_lock(&shared.receiver);
        self.is_taken = receiver.is_none();
        let Some(receiver) = receiver else {
            // The other thread reads what is in the sockets.
            self.watched_until = Time::ZERO;
            return false;
        };
        let (batches, mut mads) = Self::receive_burst(shared, receiver, &mut self.spin);
        mads += shared.serve_management();
        if batches > 0 {
            self.mad_burst.record(clock::now(), mads);
        }
        batches > 0
    }

    /// Receives the waiting packets and those close behind them, and looks for others as long as
    /// `spin` allows. Returns the number of batches, and the number of MADs that the connection
    /// manager got.
    fn receive_burst<'s>(
        shared: &'s Shared,
        mut receiver: MutexGuard<'s, Receiver>,
        spin: &mut Spin,
    ) -> (usize, usize) {
        let polled_at = shared.polled_at();
        let (mut burst, mut mads, mut look) = (Burst::default(), 0, None);
        loop {
            let received = shared.ports.receive(&mut receiver, &shared.device, ReceiveScope::All);
            if received > 0 {
                // The MADs of a burst go to the connection manager together.
                if shared.ports.inbox.len() >= MAD_BATCH {
                    mads += shared.serve_management();
                }
                let now = clock::now();
                shared.transmit(now);
                if let Some(Look { from, .. }) = look.take() {
                    spin.on_look(from, now, true);
                }
                spin.on_arrival(now, receiver.is_streaming(), shared.last_poll());
            }
            let is_taken = shared.polled_at() != polled_at || shared.leader.has_leader();
            let next = match burst.next(received, receiver.is_streaming(), is_taken) {
                NextRead::Stop if received == 0 && !is_taken => {
                    Self::look_on(shared, spin, &mut look)
                }
                next => next,
            };
            match next {
                NextRead::Again => {}
                NextRead::Yield => {
                    // Another thread may receive before this one runs again.
                    drop(receiver);
                    let from = clock::now();
                    yield_now();
                    if look.is_some() && spin.on_yield(from, clock::now()) {
                        break;
                    }
                    receiver = match try_lock(&shared.receiver) {
                        Some(receiver) => receiver,
                        None => break,
                    };
                }
                NextRead::Stop => break,
            }
        }
        if let Some(Look { from, .. }) = look {
            spin.on_look(from, clock::now(), false);
        }
        (burst.batches, mads)
    }

    /// Returns whether to look for packets once more instead of sleeping.
    fn look_on(shared: &Shared, spin: &mut Spin, look: &mut Option<Look>) -> NextRead {
        let now = clock::now();
        let look = match look {
            Some(look) => look,
            None => {
                let Some(until) = spin.until(now) else { return NextRead::Stop };
                let until = shared.next_deadline().map_or(until, |deadline| deadline.min(until));
                look.insert(Look { from: now, until, yielded_at: now })
            }
        };
        // Other threads do not wake this thread while it looks.
        let has_work = shared.is_hook_due()
            || shared.device.has_pending()
            || shared.stop.load(Ordering::Acquire);
        if now >= look.until || has_work {
            NextRead::Stop
        } else if now.since_ns(look.yielded_at) >= YIELD_NS {
            look.yielded_at = now;
            NextRead::Yield
        } else {
            NextRead::Again
        }
    }

    /// Serves other processes and reads the common sockets, if one is readable or the backoff is
    /// over.
    fn serve_shared(&mut self) {
        let Self { shared, poll_set, common_receiver: receiver, .. } = self;
        let ports = &shared.ports;
        let is_over = ports.common_backoff().is_some_and(|until| clock::now() >= until);
        if let Some(rings) = ports.rings()
            && (rings.is_offer_wanted() || poll_set.is_ready(Entry::Shared))
        {
            rings.serve();
        }
        if is_over || poll_set.is_ready(Entry::Shared) {
            ports.serve_others(receiver, &shared.device, || shared.listing().to_cbor());
            ports.receive_common(receiver, &shared.device);
            let mads = shared.serve_management();
            if mads > 0 {
                self.mad_burst.record(clock::now(), mads);
            }
            shared.transmit(clock::now());
        }
        let has_common = ports.common_backoff().is_none();
        if poll_set.has_common != has_common {
            *poll_set = PollSet::new(shared, has_common);
        }
    }

    /// Cleans up the sockets of ended processes, if that is due.
    fn clean_up_orphans(&mut self) {
        let Self { shared, common_receiver: receiver, cleanup_at, .. } = self;
        if shared.ports.is_shared() && clock::now() >= *cleanup_at {
            shared.ports.clean_up_orphans(receiver, &shared.device);
            // Not recorded as a burst: these MADs arrived over the last second, and waited.
            shared.serve_management();
            *cleanup_at = clock::now().plus_ns(ORPHAN_CLEANUP_NS);
        }
    }
}
