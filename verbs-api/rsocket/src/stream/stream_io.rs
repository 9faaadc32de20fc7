//! Data transfer of an established connection.
//!
//! One lock ([`StreamIo::inner`]) protects the protocol state. No thread holds the lock while it
//! sleeps or copies. Sending threads take turns, and so do receiving threads. One sender and one
//! receiver may sleep for the same completion queue; one of them takes its event.

use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use urxe_stack::cq::Completion;
use urxe_stack::qp::work_request::{
    Destination, Payload, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_stack::sync::lock;
use urxe_wire::Rkey;

use super::endpoint::Endpoint;
use super::iomap::Iomaps;
use crate::config::Config;
use crate::error::{Result, errno};
use crate::iovec::{GatherList, ScatterList};
use crate::options::Wait;
use crate::poll_waiters;
use crate::protocol::connect::ConnData;
use crate::protocol::message::Control;
use crate::protocol::segment::{Iomap, Segment};
use crate::protocol::sender::TARGETS;
use crate::protocol::stream::{Bytes, ConnState, ListRead, Post, Stream as Protocol};

/// Number of completions taken at a time.
const BATCH: usize = 32;
/// Maximum size of the first message and of each later message (`RS_OLAP_START_SIZE`,
/// `RS_MAX_TRANSFER`). The peer's program can begin with the first bytes while the others are
/// copied.
const FIRST_MESSAGE: usize = 2048;
const LONGEST_MESSAGE: usize = 65_536;
/// Maximum number of inline bytes of a work request.
pub const MAX_INLINE: usize = 1024;

/// A connection.
pub struct StreamIo {
    pub endpoint: Endpoint,
    inner: Mutex<Inner>,
    /// Held by the thread that takes the event of the completion queue.
    waiting: Mutex<()>,
    pub sending: Mutex<Iomaps>,
    receiving: Mutex<()>,
}

/// The protocol state, and whether the completion queue is armed and its event not yet taken.
pub struct Inner {
    pub protocol: Protocol,
    is_armed: bool,
}

impl StreamIo {
    /// Makes the connection of `endpoint` to `peer`.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(endpoint: Endpoint, peer: &ConnData) -> Result<Self> {
        let protocol = Protocol::new(endpoint.sizes, endpoint.local_memory(), peer);
        let protocol = protocol.map_err(errno)?;
        Ok(Self {
            endpoint,
            inner: Mutex::new(Inner { protocol, is_armed: false }),
            waiting: Mutex::new(()),
            sending: Mutex::default(),
            receiving: Mutex::new(()),
        })
    }

    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Returns a descriptor that becomes readable when the completion queue has an event.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.endpoint.queues.as_fd()
    }

    /// Posts a work request. The program's bytes are in the send buffer, or in `inline`.
    pub fn post(&self, post: &Post, inline: &[u8]) -> Result<()> {
        let remote = Remote { addr: post.to.0, rkey: Rkey(post.to.1) };
        let imm = post.message.to_bits();
        let op =
            if post.has_imm { SendOp::WriteImm { remote, imm } } else { SendOp::Write { remote } };
        let mut sges = ArrayVec::<Sge, 2>::new();
        let pieces;
        let payload = match &post.bytes {
            Bytes::None => Payload::Sges(&[]),
            Bytes::Segment(bytes) => {
                pieces = [bytes.as_slice()];
                Payload::Inline(&pieces)
            }
            Bytes::Iomap(bytes) => {
                pieces = [bytes.as_slice()];
                Payload::Inline(&pieces)
            }
            Bytes::Stream(transfer) => match &transfer.ring {
                None => {
                    pieces = [inline];
                    Payload::Inline(&pieces)
                }
                Some(ring) => {
                    let region = &self.endpoint.send;
                    sges.extend(ring.iter().filter(|range| !range.is_empty()).map(|range| Sge {
                        addr: region.address() + range.start as u64,
                        length: range.len() as u32,
                        lkey: region.mr().lkey,
                    }));
                    Payload::Sges(&sges)
                }
            },
        };
        let flags = if matches!(payload, Payload::Inline(_)) {
            SendFlags::INLINE
        } else {
            SendFlags::empty()
        };
        let request = SendRequest {
            wr_id: post.message.work_id(),
            op,
            to: Destination::Peer,
            flags: flags | SendFlags::SIGNALED,
            payload,
        };
        self.endpoint.queues.post_send(request)
    }

    /// Sends a grant to the peer, if one is due.
    fn grant(&self, inner: &mut Inner) {
        while let Some(post) = inner.protocol.grant() {
            if self.post(&post, &[]).is_err() {
                inner.protocol.fail();
            }
        }
    }

    /// Takes completions.
    fn take_completions(&self, inner: &mut Inner) -> Result<()> {
        let queues = &self.endpoint.queues;
        let mut batch = [Completion::default(); BATCH];
        loop {
            let taken = queues.poll(&mut batch)?;
            for completion in &batch[..taken] {
                let well = completion.status.is_success();
                match inner.protocol.complete(completion.wr_id, completion.imm_data(), well) {
                    ListRead::None => {}
                    ListRead::Targets => self.read_targets(inner)?,
                    ListRead::Iomap(index) => self.read_iomap(inner, index)?,
                }
            }
            if taken < BATCH {
                break;
            }
        }
        queues.device.deliver_events();
        let spent = inner.protocol.take_completed_receives();
        if spent > 0 && self.endpoint.post_receives(spent).is_err() {
            inner.protocol.fail();
        }
        Ok(())
    }

    /// Reads the targets that the peer has lent, and marks the entries that were taken.
    fn read_targets(&self, inner: &mut Inner) -> Result<()> {
        let buffer = &self.endpoint.list.buffer;
        let mut list = [Segment::default(); TARGETS];
        for (index, segment) in list.iter_mut().enumerate() {
            let mut bytes = [0; Segment::LEN];
            buffer.read(index * Segment::LEN, &mut bytes).map_err(|_| Errno::FAULT)?;
            *segment = Segment::from_bytes(&bytes);
        }
        for (index, taken) in inner.protocol.update_targets(list).into_iter().enumerate() {
            if taken {
                buffer.write(index * Segment::LEN, &[0; Segment::LEN]).map_err(|_| Errno::FAULT)?;
            }
        }
        Ok(())
    }

    fn read_iomap(&self, inner: &mut Inner, index: u16) -> Result<()> {
        let mut bytes = [0; Iomap::LEN];
        let place = TARGETS * Segment::LEN + usize::from(index) * Iomap::LEN;
        self.endpoint.list.buffer.read(place, &mut bytes).map_err(|_| Errno::FAULT)?;
        inner.protocol.set_iomap(index, Iomap::from_bytes(&bytes));
        Ok(())
    }

    /// Handles all completions and pending messages; does not sleep.
    pub fn progress(&self) -> Result<()> {
        let mut inner = self.inner();
        self.progress_locked(&mut inner)
    }

    fn progress_locked(&self, inner: &mut Inner) -> Result<()> {
        self.grant(inner);
        self.take_completions(inner)?;
        self.grant(inner);
        Ok(())
    }

    /// Arms the completion queue, and then handles the completions from before.
    pub fn arm(&self) -> Result<()> {
        let mut inner = self.inner();
        if !inner.is_armed {
            self.endpoint.queues.arm();
            inner.is_armed = true;
        }
        self.progress_locked(&mut inner)
    }

    /// Takes the event of the completion queue, if there is one.
    pub fn take_event(&self) -> Result<()> {
        let _turn = lock(&self.waiting);
        if self.endpoint.queues.try_take_event()? {
            self.note_event();
        }
        Ok(())
    }

    fn note_event(&self) {
        self.inner().is_armed = false;
        poll_waiters::wake_all();
    }

    /// Sleeps for the event of the completion queue, unless another thread has taken it.
    fn sleep(&self) -> Result<()> {
        let _turn = lock(&self.waiting);
        if self.inner().is_armed {
            self.endpoint.queues.take_event()?;
            self.note_event();
        }
        Ok(())
    }

    /// Waits until `is_done` returns true for the protocol state. The state stays locked.
    pub fn wait_until(
        &self,
        wait: Wait,
        is_done: impl Fn(&Protocol) -> bool,
    ) -> Result<MutexGuard<'_, Inner>> {
        let mut started = None;
        loop {
            let mut inner = self.inner();
            self.progress_locked(&mut inner)?;
            if is_done(&inner.protocol) {
                return Ok(inner);
            }
            if wait == Wait::Never {
                return Err(Errno::AGAIN);
            }
            if started.get_or_insert_with(Instant::now).elapsed() < Config::get().polling_time {
                continue;
            }
            let was_armed = inner.is_armed;
            drop(inner);
            // Completions from before the queue was armed cause no event.
            if was_armed { self.sleep()? } else { self.arm()? }
        }
    }

    /// Sends at least a part of `pieces`.
    pub fn send(&self, pieces: &GatherList<'_>, wait: Wait) -> Result<usize> {
        let mut turn = lock(&self.sending);
        self.send_pending_iomaps(&mut turn, wait)?;
        self.send_each(pieces, wait, |protocol, wanted, _| Ok(Some(protocol.send(wanted))))
    }

    /// Sends in messages of growing size. `next` makes each message from the number of bytes wanted
    /// and the number sent before; `None` ends the loop.
    pub fn send_each(
        &self,
        pieces: &GatherList<'_>,
        wait: Wait,
        next: impl Fn(&mut Protocol, u32, usize) -> Result<Option<Post>>,
    ) -> Result<usize> {
        let (total, mut sent, mut longest) = (pieces.len(), 0, FIRST_MESSAGE);
        while sent < total {
            match self.send_one(pieces, sent, longest, wait, &next) {
                Ok(0) => break,
                Ok(bytes) => sent += bytes,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
            longest = (longest * 2).min(LONGEST_MESSAGE);
        }
        Ok(sent)
    }

    fn send_one(
        &self,
        pieces: &GatherList<'_>,
        sent: usize,
        longest: usize,
        wait: Wait,
        next: impl Fn(&mut Protocol, u32, usize) -> Result<Option<Post>>,
    ) -> Result<usize> {
        let mut inner = self.inner();
        if !inner.protocol.sender.is_ready() || !inner.protocol.is_writable() {
            drop(inner);
            inner = self.wait_until(wait, |protocol| {
                protocol.sender.is_ready() || !protocol.is_writable()
            })?;
        }
        if !inner.protocol.is_writable() {
            return Err(Errno::CONNRESET);
        }
        let wanted = (pieces.len() - sent).min(longest) as u32;
        let Some(post) = next(&mut inner.protocol, wanted, sent)? else { return Ok(0) };
        // Other threads may take completions while the bytes are copied.
        drop(inner);
        let Bytes::Stream(transfer) = &post.bytes else { return Ok(0) };
        let mut inline = [0; MAX_INLINE];
        let len = transfer.len as usize;
        let posted = match &transfer.ring {
            None => {
                pieces.copy_to(sent, &mut inline[..len]);
                self.post(&post, &inline[..len])
            }
            Some(ring) => {
                self.fill(ring, pieces, sent)?;
                self.post(&post, &[])
            }
        };
        posted.inspect_err(|_| self.inner().protocol.fail())?;
        Ok(len)
    }

    /// Copies the program's bytes to the send buffer.
    fn fill(
        &self,
        ring: &[Range<usize>; 2],
        pieces: &GatherList<'_>,
        mut from: usize,
    ) -> Result<()> {
        for range in ring {
            let mut to = range.start;
            pieces.each(from, range.len(), |bytes| {
                let written = self.endpoint.send.buffer.write(to, bytes);
                to += bytes.len();
                written.map_err(|_| Errno::FAULT)
            })?;
            from += range.len();
        }
        Ok(())
    }

    /// Receives into `places` at least one byte, unless the peer has ended; fills them all if
    /// `fills`.
    pub fn receive(
        &self,
        places: &mut ScatterList<'_>,
        wait: Wait,
        peeks: bool,
        fills: bool,
    ) -> Result<usize> {
        let _turn = lock(&self.receiving);
        let wanted = places.len();
        let mut got = 0;
        loop {
            let mut inner = self.inner();
            if !inner.protocol.receiver.has_data() {
                drop(inner);
                let waited = self.wait_until(wait, |protocol| {
                    protocol.receiver.has_data() || !protocol.is_readable()
                });
                inner = match waited {
                    Ok(inner) => inner,
                    Err(error) if got == 0 => return Err(error),
                    Err(_) => return Ok(got),
                };
            }
            let ranges = inner.protocol.receiver.readable(wanted - got);
            let is_readable = inner.protocol.is_readable();
            // Only the thread with the turn of the receiver takes bytes, so these bytes stay in
            // place.
            drop(inner);
            let before = got;
            for range in ranges {
                let len = range.len();
                places.fill(&self.endpoint.recv.buffer, range, got)?;
                got += len;
            }
            if peeks {
                return Ok(got);
            }
            let mut inner = self.inner();
            inner.protocol.receiver.consume(got - before);
            // The bytes that were taken may be lent again.
            self.grant(&mut inner);
            if got == wanted || !fills || !is_readable {
                return Ok(got);
            }
        }
    }

    /// Shuts down one direction or both: sends a control message, and waits until everything is
    /// sent.
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        let mut inner = self.inner();
        let control = inner.protocol.shutdown(how);
        if let Some(control) = control {
            // The message goes before completions are taken. The end of the peer may be one of
            // them, after which no message can be sent.
            let mut posted = inner.protocol.control(control);
            if posted.is_none() {
                drop(inner);
                inner = self.wait_until(Wait::Here, Protocol::can_send_control)?;
                posted = inner.protocol.control(control);
            }
            if let Some(post) = posted {
                self.post(&post, &[])?;
            }
        }
        drop(inner);
        if control.is_some() || how == Shutdown::Both {
            drop(self.wait_until(Wait::Here, Protocol::is_idle)?);
        }
        Ok(())
    }

    /// Makes the peer's queue pair acknowledge a message, so that a lost peer is detected.
    pub fn send_keepalive(&self) {
        let mut inner = self.inner();
        if let Some(post) = inner.protocol.control(Control::Keepalive)
            && self.post(&post, &[]).is_err()
        {
            inner.protocol.fail();
        }
    }

    /// Returns the state, and `None` if another thread holds the lock.
    pub fn try_state(&self) -> Option<ConnState> {
        self.inner.try_lock().ok().map(|inner| inner.protocol.state())
    }

    pub fn state(&self) -> ConnState {
        self.inner().protocol.state()
    }
}
