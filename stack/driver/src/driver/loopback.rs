//! Between two queue pairs of one process no socket carries the packets: the thread that sends a
//! run hands it to the other device itself, and sends what that answers.
//!
//! ```text
//!   post_send ─> transmit ─> a run for a device of this process ─> its `receive`     (under no queue pair's lock)
//!                   └──────< then, in turn: what each device that got something has to send: acknowledgements, responses
//! ```
//! So a message is in the receiver's memory, completed and acknowledged when the call that posted
//! it returns, unless it is longer than what one call may move; then the devices' threads go on. A
//! thread that sleeps is woken by its completion channel, as ever.
//!
//! Everything else stays as over a socket: the packets with their ICRCs, windows, counters,
//! captures. What is sent to the special queue pairs goes over the socket, since which process it
//! is for is a matter of all processes of the address; so does what goes to a group, from or to a
//! device whose port is down or an address that its interface lost, and to a device that has a
//! simulated bad network before it. A device is found by the process slot in the number of the
//! queue pair, by the address, and by the network namespace in which it was opened: hosts made of
//! namespaces see each other over their links only, in one process, too.
//!
//! Finding it takes no lock: each thread has a copy of the list of devices, made anew when that has
//! changed.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use urxe_wire::{Bth, Qpn};

use super::host::Namespace;
use super::shared::Shared;
use crate::cq::Wake;
use crate::device::ReceiveScratch;
use crate::device::qpn::process_slot;
use crate::port::udp::UdpPort;
use crate::port::{Datagrams, OWN_HOP_LIMIT, Run, SendOutcome, Transmit};
use crate::sync::atomic::Ordering as SharedOrdering;
use crate::sys::clock;
use crate::sys::fork::{PerProcess, ProcessId};

/// Devices that a call serves in turn before it leaves the rest to their threads: some ten
/// megabytes, or a long chain of answers.
const MAX_REPLIES: usize = 64;

/// The devices of this process. A forked child has none of its parent's.
static DEVICES: PerProcess<Mutex<Vec<Entry>>> = PerProcess::new(Mutex::default);
/// How often the list has changed.
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SCRATCH: RefCell<LoopbackScratch> = RefCell::new(LoopbackScratch::new());
}

/// A device that packets may be handed to.
#[derive(Clone)]
struct Entry {
    slot: u8,
    namespace: Namespace,
    engine: Weak<Shared>,
}

/// Lets others of this process find `engine`, if it wants that.
pub(super) fn register(engine: &Arc<Shared>) {
    let Some(namespace) = engine.namespace else { return };
    let mut devices = devices();
    devices.push(Entry { slot: engine.ports.slot(), namespace, engine: Arc::downgrade(engine) });
    CHANGES.fetch_add(1, Ordering::Release);
}

/// The engine goes.
pub(super) fn unregister(engine: &Arc<Shared>) {
    let mut devices = devices();
    devices.retain(|entry| entry.engine.as_ptr() != Arc::as_ptr(engine));
    CHANGES.fetch_add(1, Ordering::Release);
}

fn devices() -> MutexGuard<'static, Vec<Entry>> {
    DEVICES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread needs to hand packets over.
struct LoopbackScratch {
    /// The process and the state of the list that `devices` is a copy of.
    snapshot_of: Option<(ProcessId, u64)>,
    devices: Vec<Entry>,
    receive_scratch: ReceiveScratch,
    /// Devices that got something and may have to answer.
    pending_replies: Vec<Arc<Shared>>,
}

impl LoopbackScratch {
    fn new() -> Self {
        let receive_scratch = ReceiveScratch::collecting_unmatched();
        Self {
            snapshot_of: None,
            devices: Vec::new(),
            receive_scratch,
            pending_replies: Vec::new(),
        }
    }

    fn refresh(&mut self) {
        let changes = CHANGES.load(Ordering::Acquire);
        if self.snapshot_of.is_some_and(|(process, of)| of == changes && !process.is_other()) {
            return;
        }
        self.devices.clone_from(&devices());
        self.snapshot_of = Some((ProcessId::this(), changes));
    }

    /// Hands `run` over, if it is for a device of this process; whether it was.
    fn deliver(&mut self, from: &Shared, namespace: Namespace, run: &Run<'_>) -> bool {
        let Some(slot) = slot_of(run) else { return false };
        let Some(sender) = from.ports.iter().find(|port| port.address() == run.from) else {
            return false;
        };
        self.refresh();
        let Self { devices, receive_scratch, pending_replies, .. } = self;
        for entry in
            devices.iter().filter(|entry| entry.slot == slot && entry.namespace == namespace)
        {
            let Some(to) = entry.engine.upgrade() else { continue };
            let Some(receiver) = receiver_of(&to, sender, run) else { continue };
            if !sender.record_sent(run) {
                return false;
            }
            let hop_limit = if run.hop_limit == 0 { OWN_HOP_LIMIT } else { run.hop_limit };
            let Run { from, from_port, to: at, bytes, segment_size, traffic_class, .. } = *run;
            let datagrams = Datagrams {
                from,
                from_port,
                to: at,
                bytes,
                segment_size,
                traffic_class,
                hop_limit,
            };
            receiver.record_received(&datagrams);
            to.ports.dispatch(clock::now(), run.to, &datagrams, &to.device, receive_scratch);
            if !pending_replies.iter().any(|engine| Arc::ptr_eq(engine, &to)) {
                pending_replies.push(to);
            }
            return true;
        }
        false
    }
}

/// The process slot that the first packet of `run` is for; `None` if it is for one of the special
/// queue pairs or for a group.
fn slot_of(run: &Run<'_>) -> Option<u8> {
    let qpn = Bth::dest_qp_of(run.bytes)?;
    let is_usual =
        qpn.value() > Qpn::QP1.value() && qpn != Qpn::MULTICAST && !run.to.is_multicast();
    is_usual.then(|| process_slot(qpn))
}

/// The port of `engine` where what `sender` sends to the address of `run` arrives, if it is there.
fn receiver_of<'e>(engine: &'e Shared, sender: &UdpPort, run: &Run<'_>) -> Option<&'e UdpPort> {
    let is_open = engine.device.is_port_active()
        && !engine.ports.is_impaired()
        && !engine.stop.load(SharedOrdering::Acquire);
    let has_address = |port: &&UdpPort| {
        // Without an interface a link-local address means nothing.
        let is_same_link = port.scope_id() == 0 || port.scope_id() == sender.scope_id();
        port.address() == run.to && is_same_link && !port.is_address_missing()
    };
    engine.ports.iter().find(has_address).filter(|_| is_open)
}

/// The next device that has to be asked what it answers.
fn take_pending_reply() -> Option<Arc<Shared>> {
    SCRATCH.try_with(|scratch| scratch.try_borrow_mut().ok()?.pending_replies.pop()).ok().flatten()
}

impl Shared {
    /// Sends what the devices of this process answer to what was handed to them by this thread, and
    /// what is answered to that.
    pub(super) fn flush_loopback(&self) {
        if self.namespace.is_none() {
            return;
        }
        for _ in 0..MAX_REPLIES {
            let Some(engine) = take_pending_reply() else { return };
            engine.device.transmit_pending(clock::now(), &*engine);
            // Its own thread has to call what waits to be called, but for what the caller here
            // calls in any case.
            let is_callers = self.shares_hook_with(&engine);
            if !is_callers && engine.is_hook_due() || engine.has_management() {
                engine.waker.descriptor().wake();
            }
        }
        while let Some(engine) = take_pending_reply() {
            engine.waker.descriptor().wake();
        }
    }
}

impl Transmit for Shared {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        if let Some(namespace) = self.namespace
            && self.device.is_port_active()
        {
            let deliver = |scratch: &RefCell<LoopbackScratch>| {
                scratch
                    .try_borrow_mut()
                    .is_ok_and(|mut scratch| scratch.deliver(self, namespace, run))
            };
            // At the end of a thread it has no scratch any more.
            if SCRATCH.try_with(deliver).unwrap_or(false) {
                return SendOutcome::Sent;
            }
        }
        self.ports.transmit(run)
    }

    fn is_receiver_congested(&self, to: IpAddr, peer_slot: u8) -> bool {
        self.ports.is_receiver_congested(to, peer_slot)
    }

    fn max_run_segments(&self) -> usize {
        self.ports.max_run_segments()
    }
}
