//! The data transfer of an established stream: the state machine of rsockets, its completions and
//! its requests.
//!
//! One lock protects the state. No waker runs and no thread sleeps under the lock. All requests and
//! receives complete in one queue, so that their order is known.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use urxe_rsocket::protocol::connect::ConnData;
use urxe_rsocket::protocol::message::{Control, Message, Work};
use urxe_rsocket::protocol::segment::{Iomap, Segment};
use urxe_rsocket::protocol::sender::TARGETS;
use urxe_rsocket::protocol::stream::{Bytes, ConnState, ListRead, Post, Stream as Protocol};
use urxe_stack::cq::{Completion, WcError, WcStatus};
use urxe_stack::qp::work_request::{
    Destination, Payload, PostError, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_wire::Rkey;

use super::error::StreamError;
use super::handshake::{Buffers, post_receives};
use super::mapping::{self, MapError};
use crate::blocking_wait::BlockingWait;
use crate::cm::Connection;
use crate::memory::MemoryRegion;
use crate::waker_list::{WakerList, WakerSlot, lock, poll_next};

/// The number of completions taken at a time.
const BATCH: usize = 32;
/// The sizes of the first message of a write and of each later message, in bytes
/// (`RS_OLAP_START_SIZE`, `RS_MAX_TRANSFER`). The peer can read the first bytes while this end
/// copies the others.
const FIRST_MESSAGE: usize = 2048;
const LONGEST_MESSAGE: usize = 65_536;

/// The registration of a task that reads or writes.
pub(super) type Slot = Option<WakerSlot<Arc<WakerList>>>;

/// An established connection, its memory and its state.
pub(super) struct Io {
    // This field is dropped first, so no request uses the memory when it is deregistered.
    pub connection: Connection,
    buffers: Buffers,
    wakers: Arc<WakerList>,
    state: Mutex<State>,
}

struct State {
    protocol: Protocol,
    /// The number of messages with data or with the end of this side that have not completed.
    outstanding: u32,
    /// Whether the peer sends no more data.
    has_peer_ended: bool,
    is_shut_down: bool,
    /// The control message that ends this side, until it is posted.
    control: Option<Control>,
    /// Whether a message with data failed.
    has_lost_data: bool,
    /// The first reason why the connection is unusable.
    failure: Option<StreamError>,
    /// Whether the connection must be ended as soon as the lock is released.
    must_disconnect: bool,
}

impl State {
    fn fail(&mut self, error: StreamError) {
        self.failure.get_or_insert(error);
        self.protocol.fail();
    }

    /// Returns the failure of the bytes that were sent.
    fn outcome(&self) -> Result<(), StreamError> {
        match self.failure {
            // The peer ended its stream before the connection, and has all bytes.
            Some(_) if self.has_peer_ended && !self.has_lost_data => Ok(()),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Io {
    /// Returns the stream of `connection`, whose peer has sent `peer`.
    pub fn new(connection: Connection, buffers: Buffers, peer: &ConnData) -> io::Result<Self> {
        let protocol = Protocol::new(buffers.sizes, buffers.for_peer(), peer);
        let protocol = protocol.map_err(|_| io::ErrorKind::OutOfMemory)?;
        // The queue of a stream has no channel.
        let wakers = connection.recv_cq().waiters().ok_or(io::ErrorKind::Unsupported)?;
        let wakers = Arc::clone(wakers);
        let state = Mutex::new(State {
            protocol,
            outstanding: 0,
            has_peer_ended: false,
            is_shut_down: false,
            control: None,
            has_lost_data: false,
            failure: None,
            must_disconnect: false,
        });
        let io = Self { connection, buffers, wakers, state };
        // The private data lends the first half of the receive buffer. This lends the other.
        io.with_state(|_| ());
        Ok(io)
    }

    fn peer(&self) -> SocketAddr {
        self.connection.peer_addr()
    }

    /// Polls `attempt` for a task. Wakes the task when the attempt may have a result.
    pub fn poll<T>(
        &self,
        slot: &mut Slot,
        cx: &Context<'_>,
        mut attempt: impl FnMut() -> Option<Result<T, StreamError>>,
    ) -> Poll<io::Result<T>> {
        let cq = self.connection.recv_cq();
        let take = || Ok(attempt());
        let arm = || cq.arm_for_waiters();
        let polled = poll_next(cq.device(), &self.wakers, slot, cx, take, arm);
        polled.map(|taken| Ok(taken.map_err(StreamError::Wait)??))
    }

    /// Blocks until `attempt` has a result.
    pub fn wait<T>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut() -> Option<Result<T, StreamError>>,
    ) -> io::Result<T> {
        let cq = self.connection.recv_cq();
        let wait = BlockingWait::new(cq.device(), timeout);
        let taken = wait.until(&self.wakers, || Ok(attempt()), || cq.arm_for_waiters());
        Ok(taken.map_err(StreamError::Wait)??)
    }

    /// Sends requests that wait for others to share a system call.
    pub fn flush(&self) -> Result<(), StreamError> {
        self.connection.device().inner.backend.flush_deferred();
        self.with_state(|state| state.outcome())
    }

    /// Reads up to `into.len()` bytes. Returns 0 at the end of the stream, and `None` while the
    /// peer has sent nothing.
    pub fn try_read(&self, into: &mut [u8]) -> Option<Result<usize, StreamError>> {
        self.try_copy(into, true)
    }

    /// Copies the bytes that the next read returns.
    pub fn try_peek(&self, into: &mut [u8]) -> Option<Result<usize, StreamError>> {
        self.try_copy(into, false)
    }

    fn try_copy(&self, into: &mut [u8], consume: bool) -> Option<Result<usize, StreamError>> {
        if into.is_empty() {
            return Some(Ok(0));
        }
        self.with_state(|state| {
            // Messages without bytes are no end of the stream.
            while state.protocol.receiver.has_data() {
                let mut read = 0;
                for range in state.protocol.receiver.readable(into.len()) {
                    let place = &mut into[read..read + range.len()];
                    read += place.len();
                    in_buffer(self.buffers.receive.read(range.start, place));
                }
                if consume || read == 0 {
                    state.protocol.receiver.consume(read);
                    self.send_grants(state);
                }
                if read > 0 {
                    return Some(Ok(read));
                }
            }
            match state.failure {
                _ if state.has_peer_ended => Some(Ok(0)),
                failure => failure.map(Err),
            }
        })
    }

    /// Sends the first of `bytes`, at least one. Returns `None` while the peer lends no memory.
    pub fn try_write(&self, bytes: &[u8]) -> Option<Result<usize, StreamError>> {
        self.with_state(|state| {
            if let Some(error) = self.write_error(state) {
                return Some(Err(error));
            }
            self.send(state, bytes, |protocol, wanted, _| Some(protocol.send(wanted)))
        })
    }

    /// Writes the first of `bytes`, at least one, into memory that the peer has mapped. Returns
    /// `None` while the send buffer is full.
    pub fn try_write_at(&self, offset: u64, bytes: &[u8]) -> Option<Result<usize, StreamError>> {
        self.with_state(|state| {
            let error = self.write_error(state);
            if let Some(error) = error.or_else(|| self.mapping_error(state, offset, bytes.len())) {
                return Some(Err(error));
            }
            self.send(state, bytes, |protocol, wanted, sent| {
                protocol.send_to(wanted, offset.wrapping_add(sent as u64))
            })
        })
    }

    /// Sends the first of `bytes` in messages of growing size. `next` makes each message from the
    /// number of bytes wanted and the number sent before.
    fn send(
        &self,
        state: &mut State,
        bytes: &[u8],
        next: impl Fn(&mut Protocol, u32, usize) -> Option<Post>,
    ) -> Option<Result<usize, StreamError>> {
        let (mut sent, mut longest) = (0, FIRST_MESSAGE);
        while sent < bytes.len() && state.protocol.sender.is_ready() {
            let wanted = (bytes.len() - sent).min(longest);
            let Some(post) = next(&mut state.protocol, wanted as u32, sent) else { break };
            let Bytes::Stream(transfer) = &post.bytes else { break };
            let message = &bytes[sent..sent + transfer.len as usize];
            if let Some([first, second]) = &transfer.ring {
                let (before, after) = message.split_at(first.len());
                in_buffer(self.buffers.send.write(first.start, before));
                in_buffer(self.buffers.send.write(second.start, after));
            }
            self.post(state, &post, message);
            if let Some(error) = state.failure {
                return Some(Err(error));
            }
            sent += message.len();
            longest = (longest * 2).min(LONGEST_MESSAGE);
        }
        (sent > 0 || bytes.is_empty()).then_some(Ok(sent))
    }

    /// Returns why `len` bytes from `offset` cannot be written to memory of the peer.
    fn mapping_error(&self, state: &State, offset: u64, len: usize) -> Option<StreamError> {
        let peer = self.peer();
        if self.buffers.sizes.iomaps == 0 {
            return Some(StreamError::NoPeerMappings);
        }
        match state.protocol.mapped_len(offset) {
            _ if len == 0 => None,
            None => Some(StreamError::NotMapped { peer, offset }),
            Some(mapped) if mapped < len as u64 => {
                Some(StreamError::OutsideMapping { peer, offset, len, mapped })
            }
            Some(_) => None,
        }
    }

    /// Maps memory for the peer. Returns its index and its offset.
    pub fn map(&self, memory: Segment, offset: Option<u64>) -> Result<(u16, u64), MapError> {
        let mapped = {
            // The removal of a former mapping may wait for its message. This one replaces it.
            let mut state = lock(&self.state);
            let peer = self.peer();
            if let Some(error) = self.write_error(&state) {
                return Err(error.into());
            }
            let allowed = state.protocol.remote_iomaps();
            if allowed == 0 {
                return Err(MapError::NoneAccepted { peer });
            }
            let mappings = &mut state.protocol.mappings;
            let iomap = mapping::place(memory, offset, mappings.iter())?;
            let index = mappings.add(iomap).ok_or(MapError::Full { peer, allowed })?;
            (index, iomap.offset)
        };
        self.with_state(|_| ());
        Ok(mapped)
    }

    /// Removes a mapping. The next operation of this end sends the message for the peer.
    pub fn unmap(&self, index: u16) {
        if !self.connection.device().inner.backend.is_inherited() {
            lock(&self.state).protocol.mappings.withdraw(index);
        }
    }

    fn write_error(&self, state: &State) -> Option<StreamError> {
        if state.is_shut_down {
            return Some(StreamError::ShutDown);
        }
        let ended = StreamError::Ended { peer: self.peer() };
        match state.failure {
            // After the end of the peer's stream, the end of the connection is no surprise.
            Some(StreamError::Reset { .. }) if state.has_peer_ended => Some(ended),
            Some(error) => Some(error),
            None if state.protocol.is_writable() => None,
            None => Some(ended),
        }
    }

    /// Ends this side of the stream. Returns `None` until the peer has acknowledged all bytes.
    pub fn try_shut_down(&self) -> Option<Result<(), StreamError>> {
        self.with_state(|state| {
            if !state.is_shut_down {
                state.is_shut_down = true;
                state.control = state.protocol.shutdown(Shutdown::Write);
                self.send_control(state);
            }
            if state.outstanding > 0 || state.control.is_some() && state.protocol.is_open() {
                return None;
            }
            Some(state.outcome())
        })
    }

    /// Tells the peer that this end is gone, without waiting.
    pub fn send_end(&self) {
        self.with_state(|state| {
            if state.protocol.is_open() {
                state.control = state.protocol.shutdown(Shutdown::Both);
                self.send_control(state);
            }
        });
    }

    /// Ends the connection without the end of the stream.
    pub fn abort(&self) {
        self.with_state(|state| {
            state.fail(StreamError::ShutDown);
            state.must_disconnect = true;
        });
    }

    /// Makes the queue pair of the peer acknowledge a message, so that a dead peer is detected.
    /// Returns whether the stream has not failed.
    pub fn send_keepalive(&self) -> bool {
        self.with_state(|state| {
            if let Some(post) = state.protocol.control(Control::Keepalive) {
                self.post(state, &post, &[]);
            }
            state.failure.is_none()
        })
    }

    /// Handles all completions, and calls `step` under the lock.
    fn with_state<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        let (result, must_disconnect) = {
            let mut state = lock(&self.state);
            self.progress(&mut state);
            let result = step(&mut state);
            (result, std::mem::take(&mut state.must_disconnect))
        };
        if must_disconnect {
            self.connection.disconnect();
        }
        self.connection.device().run_ready_wakers();
        result
    }

    fn progress(&self, state: &mut State) {
        let mut batch = [Completion::default(); BATCH];
        loop {
            let taken = match self.connection.recv_cq().core().poll(&mut batch) {
                Ok(taken) => taken,
                Err(error) => {
                    state.fail(StreamError::Wait(error.into()));
                    break;
                }
            };
            for completion in &batch[..taken] {
                self.complete(state, completion);
            }
            if taken < BATCH {
                break;
            }
        }
        let receives = state.protocol.take_completed_receives();
        if let Err(error) = post_receives(self.connection.qp(), receives) {
            self.refused(state, error);
        }
        self.send_grants(state);
        self.send_mappings(state);
        self.send_control(state);
    }

    fn complete(&self, state: &mut State, completion: &Completion) {
        let failed = completion.ok().err();
        match Work::of_id(completion.wr_id) {
            Work::Receive => match failed {
                Some(error) => self.failed(state, error),
                None => self.received(state, completion.imm_data()),
            },
            Work::Send(message) => {
                if counts(message) {
                    state.outstanding -= 1;
                }
                if let Some(error) = failed {
                    state.has_lost_data |= matches!(message, Message::Data(_) | Message::Write(_));
                    self.failed(state, error);
                }
                state.protocol.sent(message, failed.is_none());
            }
        }
    }

    fn received(&self, state: &mut State, imm: Option<u32>) {
        let was_open = state.protocol.is_open();
        let read = state.protocol.received(imm);
        if imm.is_none() || was_open && state.protocol.state() == ConnState::Failed {
            state.fail(StreamError::Violation { peer: self.peer() });
            state.must_disconnect = true;
        }
        let control = matches!(imm.map(Message::from_bits), Some(Message::Control(_)));
        if control && !state.protocol.is_readable() && state.failure.is_none() {
            state.has_peer_ended = true;
        }
        match read {
            ListRead::None => {}
            ListRead::Targets => self.read_targets(state),
            ListRead::Iomap(index) => self.read_iomap(state, index),
        }
    }

    fn failed(&self, state: &mut State, reason: WcError) {
        let peer = self.peer();
        state.fail(match reason.status {
            WcStatus::WrFlushErr => StreamError::Reset { peer },
            _ => StreamError::Lost { peer, reason },
        });
    }

    fn refused(&self, state: &mut State, error: PostError) {
        state.fail(match error {
            // The connection has ended; its completions may not be here yet.
            PostError::State { .. } => StreamError::Reset { peer: self.peer() },
            error => StreamError::Post(error),
        });
    }

    /// Reads the memory that the peer has lent, and marks the entries that were taken.
    fn read_targets(&self, state: &mut State) {
        let list = &self.buffers.list;
        let mut targets = [Segment::default(); TARGETS];
        for (index, segment) in targets.iter_mut().enumerate() {
            let mut bytes = [0; Segment::LEN];
            in_buffer(list.read(index * Segment::LEN, &mut bytes));
            *segment = Segment::from_bytes(&bytes);
        }
        for (index, taken) in state.protocol.update_targets(targets).into_iter().enumerate() {
            if taken {
                in_buffer(list.write(index * Segment::LEN, &[0; Segment::LEN]));
            }
        }
    }

    /// Reads a mapping of the peer.
    fn read_iomap(&self, state: &mut State, index: u16) {
        let place = TARGETS * Segment::LEN + usize::from(index) * Iomap::LEN;
        let mut bytes = [0; Iomap::LEN];
        in_buffer(self.buffers.list.read(place, &mut bytes));
        state.protocol.set_iomap(index, Iomap::from_bytes(&bytes));
    }

    /// Tells the peer of new and of removed mappings, as soon as that is possible.
    fn send_mappings(&self, state: &mut State) {
        while state.protocol.is_writable()
            && state.protocol.sender.is_ready()
            && let Some(post) = state.protocol.next_mapping()
        {
            self.post(state, &post, &[]);
        }
    }

    /// Lends the memory that is free to the peer again.
    fn send_grants(&self, state: &mut State) {
        while let Some(post) = state.protocol.grant() {
            self.post(state, &post, &[]);
        }
    }

    /// Sends the message that ends this side, if it can be sent now.
    fn send_control(&self, state: &mut State) {
        if let Some(control) = state.control
            && let Some(post) = state.protocol.control(control)
        {
            state.control = None;
            self.post(state, &post, &[]);
        }
    }

    /// Posts a request. The bytes of the program are in the send buffer, or in `inline`.
    fn post(&self, state: &mut State, post: &Post, inline: &[u8]) {
        let remote = Remote { addr: post.to.0, rkey: Rkey(post.to.1) };
        let imm = post.message.to_bits();
        let op =
            if post.has_imm { SendOp::WriteImm { remote, imm } } else { SendOp::Write { remote } };
        let piece = match &post.bytes {
            Bytes::Segment(bytes) => bytes.as_slice(),
            Bytes::Iomap(bytes) => bytes.as_slice(),
            _ => inline,
        };
        let (pieces, sges);
        let (payload, kind) = match &post.bytes {
            Bytes::None => (Payload::Sges(&[]), SendFlags::empty()),
            Bytes::Stream(transfer) if let Some(ring) = &transfer.ring => {
                sges = ring.each_ref().map(|range| sge(&self.buffers.send, range.clone()));
                let count = if ring[1].is_empty() { 1 } else { 2 };
                (Payload::Sges(&sges[..count]), SendFlags::empty())
            }
            _ => {
                pieces = [piece];
                (Payload::Inline(&pieces), SendFlags::INLINE)
            }
        };
        let request = SendRequest {
            wr_id: post.message.work_id(),
            op,
            to: Destination::Peer,
            flags: kind | SendFlags::SIGNALED,
            payload,
        };
        match self.connection.qp().post_send_without_wake(request) {
            Ok(()) => state.outstanding += u32::from(counts(post.message)),
            Err(error) => self.refused(state, error),
        }
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        if !self.connection.device().inner.backend.is_inherited() {
            self.send_end();
        }
    }
}

/// Returns whether a message has data or the end of this side. The others only let the peer send.
fn counts(message: Message) -> bool {
    match message {
        Message::Data(_) | Message::Write(_) => true,
        Message::Control(control) => control != Control::Keepalive,
        _ => false,
    }
}

fn sge(region: &MemoryRegion, range: std::ops::Range<usize>) -> Sge {
    let addr = region.iova() + range.start as u64;
    Sge { addr, length: range.len() as u32, lkey: region.lkey() }
}

/// Checks an access to a buffer of the stream. The ranges of the protocol are inside the buffers,
/// which property tests of the protocol hold.
fn in_buffer(access: Result<(), crate::BufferError>) {
    debug_assert_eq!(access, Ok(()));
}
