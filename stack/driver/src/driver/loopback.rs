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
//! Packets, windows, counters and captures are the same as over a socket. Nothing can damage the
//! packets, so they have no ICRC. Captures compute it. These packets still use the socket:
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

use urxe_wire::Bth;

use super::shared::Shared;
use crate::cq::Wake;
use crate::device::ReceiveScratch;
use crate::device::qpn::{MANAGEMENT_SLOT, peer_slot};
use crate::port::udp::UdpPort;
use crate::port::{DEFAULT_HOP_LIMIT, Datagrams, Run, SendInMemory, SendOutcome, Transmit};
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

    /// Returns the device of this process that has `slot` and where packets arrive that `sender`
    /// sends to address `to`.
    fn find(
        &mut self,
        namespace: Namespace,
        sender: &UdpPort,
        to: IpAddr,
        slot: u8,
    ) -> Option<Arc<Shared>> {
        self.refresh();
        let is_it = |entry: &&Entry| entry.slot == slot && entry.namespace == namespace;
        self.devices.iter().filter(is_it).find_map(|entry| {
            let engine = entry.engine.upgrade()?;
            receiver_of(&engine, sender, to).is_some().then_some(engine)
        })
    }

    /// Passes `run` to the device with `slot`, if that is one of this process. Returns whether it
    /// did.
    fn deliver(&mut self, namespace: Namespace, sender: &UdpPort, slot: u8, run: &Run<'_>) -> bool {
        let Some(engine) = self.find(namespace, sender, run.to, slot) else { return false };
        let Some(receiver) = engine.ports.port_at(run.to) else { return false };
        if !sender.record_sent(run) {
            return false;
        }
        let hop_limit = if run.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { run.hop_limit };
        let Run { from, from_port, to, bytes, segment_size, traffic_class, .. } = *run;
        let datagrams =
            Datagrams { from, from_port, to, bytes, segment_size, traffic_class, hop_limit };
        receiver.record_received(&datagrams);
        engine.ports.receive_in_memory(
            clock::now(),
            &datagrams,
            &engine.device,
            &mut self.receive_scratch,
        );
        if !self.pending_replies.iter().any(|known| Arc::ptr_eq(known, &engine)) {
            self.pending_replies.push(engine);
        }
        true
    }
}

/// Returns whether packets to a slot of an address are for one process.
fn is_one_process(to: IpAddr, peer_slot: u8) -> bool {
    peer_slot != MANAGEMENT_SLOT && !to.is_multicast()
}

/// Returns the port of `engine` where a packet arrives that `sender` sends to address `to`.
fn receiver_of<'e>(engine: &'e Shared, sender: &UdpPort, to: IpAddr) -> Option<&'e UdpPort> {
    let is_open = engine.device.is_port_active()
        && !engine.ports.is_impaired()
        && !engine.stop.load(SharedOrdering::Acquire);
    let has_address = |port: &&UdpPort| {
        // A link-local address is valid on one interface only.
        let is_same_link = port.scope_id() == 0 || port.scope_id() == sender.scope_id();
        port.address() == to && is_same_link && !port.is_address_missing()
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

/// Calls `act` with the scratch of this thread. Returns `None` if the thread ends and has lost it,
/// or if the thread uses it already.
fn with_scratch<R>(act: impl FnOnce(&mut LoopbackScratch) -> R) -> Option<R> {
    SCRATCH.try_with(|scratch| scratch.try_borrow_mut().ok().map(|mut own| act(&mut own))).ok()?
}

impl Shared {
    /// Sends a run without a socket, if its path allows that.
    fn send_in_memory(&self, run: &Run<'_>) -> Option<SendOutcome> {
        let slot = peer_slot(Bth::dest_qp_of(run.bytes)?);
        if !is_one_process(run.to, slot) || !self.device.is_port_active() {
            return None;
        }
        let sender = self.ports.port_at(run.from)?;
        if let Some(namespace) = self.namespace
            && with_scratch(|own| own.deliver(namespace, sender, slot, run)).unwrap_or(false)
        {
            return Some(SendOutcome::Sent);
        }
        self.ports.rings()?.transmit(sender, slot, run)
    }
}

impl Transmit for Shared {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        self.send_in_memory(run).unwrap_or_else(|| self.ports.transmit(run))
    }

    fn with_memory(
        &self,
        &from: &IpAddr,
        &to: &IpAddr,
        peer_slot: u8,
        send: &mut dyn for<'m> FnMut(&mut (dyn SendInMemory<'m> + 'm)),
    ) -> bool {
        if !is_one_process(to, peer_slot) || !self.device.is_port_active() {
            return false;
        }
        let Some(sender) = self.ports.port_at(from) else { return false };
        let is_here = |namespace| {
            with_scratch(|own| own.find(namespace, sender, to, peer_slot).is_some())
                .unwrap_or(false)
        };
        if self.namespace.is_some_and(is_here) {
            send(&mut OneProcess { engine: self, to, peer_slot });
            return true;
        }
        self.ports.rings().is_some_and(|rings| rings.with_ring(sender, to, peer_slot, send))
    }

    fn is_receiver_congested(&self, to: IpAddr, peer_slot: u8) -> bool {
        self.ports.is_receiver_congested(to, peer_slot)
    }

    fn max_run_segments(&self) -> usize {
        self.ports.max_run_segments()
    }
}

/// A path to a device of this process.
struct OneProcess<'m> {
    engine: &'m Shared,
    to: IpAddr,
    peer_slot: u8,
}

impl<'m> SendInMemory<'m> for OneProcess<'m> {
    fn transmit(&mut self, run: &Run<'_>) -> SendOutcome {
        self.engine.send_in_memory(run).unwrap_or(SendOutcome::Dropped)
    }

    fn is_receiver_congested(&mut self) -> bool {
        self.engine.ports.is_receiver_congested(self.to, self.peer_slot)
    }
}
