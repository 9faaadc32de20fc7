//! Moves packets between devices of one process without a socket. The thread that sends a run calls
//! `receive` of the other device itself, and then sends the replies of that device.
//!
//! ```text
//!   post_send ─> transmit ─> run for a device of this process ─> its `receive`
//!                   └──────< then the acknowledgements and responses of each device that received
//! ```
//! When the call that posted a message returns, the message is in the receiver's memory, completed
//! and acknowledged. If the message is longer than one call may move, the background threads of the
//! devices continue. A sleeping thread is woken by its completion channel.
//!
//! Packets, ICRCs, windows, counters and captures are the same as over a socket. These packets
//! still use the socket:
//!
//! - packets to QP0 and QP1, because all processes of the address must agree which of them gets the
//!   packet;
//! - packets to a multicast group;
//! - packets from or to a device whose port is down, or an address that its interface lost;
//! - packets to a device with a simulated impairment.
//!
//! A device is found by the process slot in the queue pair number, by the address, and by the
//! network namespace in which the device was opened. Hosts that are made of namespaces see each
//! other only over their links, even in one process.
//!
//! Finding a device takes no lock: each thread has a copy of the list of devices and refreshes it
//! when the list changed.

use std::cell::RefCell;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use urxe_wire::{Bth, Qpn};

use super::shared::Shared;
use crate::cq::Wake;
use crate::device::ReceiveScratch;
use crate::device::qpn::process_slot;
use crate::port::udp::UdpPort;
use crate::port::{DEFAULT_HOP_LIMIT, Datagrams, Run, SendOutcome, Transmit};
use crate::sync::atomic::Ordering as SharedOrdering;
use crate::sys::clock;
use crate::sys::fork::{PerProcess, ProcessId};

/// The most devices whose replies one call sends before it leaves the rest to their threads: about
/// ten megabytes, or a long chain of replies.
const MAX_REPLIES: usize = 64;

/// The devices of this process. A forked child has none of its parent's.
static DEVICES: PerProcess<Mutex<Vec<Entry>>> = PerProcess::new(Mutex::default);
/// The number of changes of the list.
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SCRATCH: RefCell<LoopbackScratch> = RefCell::new(LoopbackScratch::new());
}

/// A network namespace, identified by device and inode of its file in /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    device: u64,
    inode: u64,
}

impl Namespace {
    /// Returns the namespace of the calling thread; `None` if /proc does not show it (proc(5)).
    pub fn current() -> Option<Self> {
        let file = std::fs::metadata("/proc/thread-self/ns/net").ok()?;
        Some(Self { device: file.dev(), inode: file.ino() })
    }
}

/// A device that packets may be passed to.
#[derive(Clone)]
struct Entry {
    slot: u8,
    namespace: Namespace,
    engine: Weak<Shared>,
}

/// Lets other devices of this process find `engine`, if it allows that.
pub(super) fn register(engine: &Arc<Shared>) {
    let Some(namespace) = engine.namespace else { return };
    let mut devices = devices();
    devices.push(Entry { slot: engine.ports.slot(), namespace, engine: Arc::downgrade(engine) });
    CHANGES.fetch_add(1, Ordering::Release);
}

/// Removes an engine from the list.
pub(super) fn unregister(engine: &Arc<Shared>) {
    let mut devices = devices();
    devices.retain(|entry| entry.engine.as_ptr() != Arc::as_ptr(engine));
    CHANGES.fetch_add(1, Ordering::Release);
}

fn devices() -> MutexGuard<'static, Vec<Entry>> {
    DEVICES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The buffers and the list of devices of a thread.
struct LoopbackScratch {
    /// The process and the number of changes for which `devices` is a copy of the list.
    snapshot_of: Option<(ProcessId, u64)>,
    devices: Vec<Entry>,
    receive_scratch: ReceiveScratch,
    /// Devices that received a packet and may have to reply.
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

    /// Passes `run` to its device, if that is one of this process. Returns whether it did.
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
            let hop_limit = if run.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { run.hop_limit };
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

/// Returns the process slot of the first packet of `run`; `None` if the packet is for QP0, QP1 or a
/// group.
fn slot_of(run: &Run<'_>) -> Option<u8> {
    let qpn = Bth::dest_qp_of(run.bytes)?;
    let is_usual =
        qpn.value() > Qpn::QP1.value() && qpn != Qpn::MULTICAST && !run.to.is_multicast();
    is_usual.then(|| process_slot(qpn))
}

/// Returns the port of `engine` where a packet arrives that `sender` sends to the address of `run`.
fn receiver_of<'e>(engine: &'e Shared, sender: &UdpPort, run: &Run<'_>) -> Option<&'e UdpPort> {
    let is_open = engine.device.is_port_active()
        && !engine.ports.is_impaired()
        && !engine.stop.load(SharedOrdering::Acquire);
    let has_address = |port: &&UdpPort| {
        // A link-local address is valid on one interface only.
        let is_same_link = port.scope_id() == 0 || port.scope_id() == sender.scope_id();
        port.address() == run.to && is_same_link && !port.is_address_missing()
    };
    engine.ports.iter().find(has_address).filter(|_| is_open)
}

/// Takes the next device that may have to reply.
fn take_pending_reply() -> Option<Arc<Shared>> {
    SCRATCH.try_with(|scratch| scratch.try_borrow_mut().ok()?.pending_replies.pop()).ok().flatten()
}

impl Shared {
    /// Sends the replies of the devices that this thread passed packets to, and the replies to
    /// those.
    pub(super) fn flush_loopback(&self) {
        if self.namespace.is_none() {
            return;
        }
        for _ in 0..MAX_REPLIES {
            let Some(engine) = take_pending_reply() else { return };
            engine.device.transmit_pending(clock::now(), &*engine);
            // The engine's own thread must call its hook, unless this thread calls the same hook
            // anyway.
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
            // A thread that ends has lost its scratch.
            if SCRATCH.try_with(deliver).unwrap_or(false) {
                return SendOutcome::Sent;
            }
        }
        if self.ports.rings().is_some()
            && self.device.is_port_active()
            && let Some(slot) = slot_of(run)
            && let Some(outcome) = self.ports.transmit_in_memory(slot, run)
        {
            return outcome;
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
