//! The state machine of a connection.
//!
//! Completions and the program's wishes go in; work requests ([`Post`]) come out, and two requests
//! to look at registered memory ([`ListRead`]), which this module never touches. All of it is under one
//! lock of the caller's.

use std::net::Shutdown;

use super::connect::{self, ConnData};
use super::message::{Control, Message, Work};
use super::receiver::Receiver;
use super::segment::{ByteOrder, Iomap, Segment};
use super::sender::{Sender, TARGETS, Transfer};

/// Work requests that are kept for grants and controls (`RS_QP_CTRL_SIZE`).
pub const CONTROLS: u32 = 4;

/// How large things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Work requests.
    pub send_queue: u16,
    pub recv_queue: u16,
    /// Bytes that go with a request, and bytes of each buffer.
    pub inline: u32,
    pub send_buffer: u32,
    pub recv_buffer: u32,
    /// Iomappings that the peer may make.
    pub iomaps: u32,
}

impl Sizes {
    /// Bytes of the memory in which the peer writes: targets, then iomappings.
    pub const fn list_len(&self) -> usize {
        TARGETS * Segment::LEN + self.iomaps as usize * Iomap::LEN
    }
}

/// This side's memory as the peer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalMemory {
    /// The list that the peer writes: address and key.
    pub list: (u64, u32),
    /// The receive buffer.
    pub recv_buffer: (u64, u32),
}

/// How a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnState {
    Open {
        readable: bool,
        writable: bool,
    },
    Disconnected,
    /// The queue pair failed, or the peer broke the protocol.
    Failed,
}

/// A work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Its name, which is also its immediate data.
    pub message: Message,
    /// Whether the peer hears of it.
    pub has_imm: bool,
    /// Where the bytes go: address and key.
    pub to: (u64, u32),
    pub bytes: Bytes,
}

/// Bytes of a work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bytes {
    None,
    /// Of the program.
    Stream(Transfer),
    Segment([u8; Segment::LEN]),
    Iomap([u8; Iomap::LEN]),
}

/// Registered memory that is to be read because of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListRead {
    None,
    /// The targets, for [`Stream::update_targets`].
    Targets,
    /// An iomapping, for [`Stream::set_iomap`].
    Iomap(u16),
}

/// A connection.
#[derive(Debug)]
pub struct Stream {
    sizes: Sizes,
    memory: LocalMemory,
    order: ByteOrder,
    state: ConnState,
    pub receiver: Receiver,
    pub sender: Sender,
    /// Grants and controls posted, and how many may be.
    controls: u32,
    max_controls: u32,
    /// The peer's list of targets, and the next entry of it.
    remote_list: Segment,
    remote_target: u32,
    /// The peer's list of iomappings.
    remote_iomaps: Segment,
    iomaps: Vec<Iomap>,
    /// Receives that completed and are to be posted anew.
    completed_receives: u32,
}

impl Stream {
    /// How this side introduces itself.
    pub fn conn_data(sizes: &Sizes, memory: &LocalMemory) -> ConnData {
        let half = Receiver::new(sizes.recv_buffer, sizes.recv_queue).half();
        let segment = |(addr, key): (u64, u32), length| Segment { addr, key, length };
        ConnData {
            version: connect::VERSION,
            network_order: cfg!(target_endian = "big"),
            has_iomaps: true,
            credits: sizes.recv_queue,
            iomaps: connect::encode_iomaps(sizes.iomaps),
            targets: segment(memory.list, TARGETS as u32),
            first_target: segment(memory.recv_buffer, half),
        }
    }

    /// A connection to who introduced itself so.
    pub fn new(sizes: Sizes, memory: LocalMemory, peer: &ConnData) -> Self {
        let requests = u32::from(sizes.send_queue).saturating_sub(CONTROLS);
        let own = cfg!(target_endian = "big");
        let order = if peer.network_order == own { ByteOrder::Native } else { ByteOrder::Swapped };
        let mut remote_iomaps = Segment::default();
        if peer.has_iomaps {
            let behind = u64::from(peer.targets.length) * Segment::LEN as u64;
            remote_iomaps = Segment {
                addr: peer.targets.addr.wrapping_add(behind),
                key: peer.targets.key,
                length: connect::decode_iomaps(peer.iomaps),
            };
        }
        Self {
            sizes,
            memory,
            order,
            state: ConnState::Open { readable: true, writable: true },
            receiver: Receiver::new(sizes.recv_buffer, sizes.recv_queue),
            sender: Sender::new(
                sizes.send_buffer,
                requests,
                sizes.inline,
                peer.credits,
                peer.first_target,
            ),
            controls: 0,
            max_controls: CONTROLS,
            remote_list: peer.targets,
            // The first was in the private data.
            remote_target: 1,
            remote_iomaps,
            iomaps: vec![Iomap::default(); sizes.iomaps as usize],
            completed_receives: 0,
        }
    }

    pub const fn state(&self) -> ConnState {
        self.state
    }

    pub const fn is_open(&self) -> bool {
        matches!(self.state, ConnState::Open { .. })
    }

    pub const fn is_readable(&self) -> bool {
        matches!(self.state, ConnState::Open { readable: true, .. })
    }

    pub const fn is_writable(&self) -> bool {
        matches!(self.state, ConnState::Open { writable: true, .. })
    }

    /// The peer, or the connection manager, says that it is over.
    pub fn disconnect(&mut self) {
        if self.is_open() {
            self.state = ConnState::Disconnected;
        }
    }

    pub fn fail(&mut self) {
        if self.is_open() {
            self.state = ConnState::Failed;
        }
    }

    /// A receive completed: well, with this immediate data, or not.
    pub fn received(&mut self, imm: Option<u32>) -> ListRead {
        let Some(imm) = imm else { return ListRead::None };
        self.completed_receives += 1;
        match Message::from_bits(imm) {
            Message::Data(bytes) => {
                if self.receiver.push(bytes).is_err() {
                    self.fail();
                }
            }
            Message::Grant(credits) => {
                self.sender.set_credits(credits);
                return ListRead::Targets;
            }
            Message::Iomap(index) if usize::from(index) < self.iomaps.len() => {
                return ListRead::Iomap(index);
            }
            Message::Control(Control::Disconnect) => self.disconnect(),
            Message::Control(Control::Shutdown) => match self.state {
                ConnState::Open { writable: true, .. } => {
                    self.state = ConnState::Open { readable: false, writable: true };
                }
                ConnState::Open { .. } => self.state = ConnState::Disconnected,
                _ => {}
            },
            // Of memory that this side did not offer, its key refused the write.
            Message::Control(_) | Message::Iomap(_) | Message::Write(_) => {}
            Message::Reserved(_) => self.fail(),
        }
        ListRead::None
    }

    /// A work request completed.
    pub fn sent(&mut self, message: Message, well: bool) {
        match message {
            Message::Grant(_) => self.max_controls = self.max_controls.wrapping_add(1),
            Message::Control(control) => {
                self.max_controls = self.max_controls.wrapping_add(1);
                if control == Control::Disconnect {
                    self.disconnect();
                }
            }
            Message::Iomap(_) => self.sender.complete(Iomap::LEN as u32),
            Message::Data(bytes) | Message::Write(bytes) => self.sender.complete(bytes),
            Message::Reserved(_) => {}
        }
        if !well {
            self.fail();
        }
    }

    /// A completion, whosever it is.
    pub fn complete(&mut self, id: u64, imm: Option<u32>, well: bool) -> ListRead {
        match Work::of_id(id) {
            Work::Receive => self.received(imm.filter(|_| well)),
            Work::Send(message) => {
                self.sent(message, well);
                ListRead::None
            }
        }
    }

    /// The list as the peer has written it; says which entries were taken, whose lengths are now to
    /// be written 0, so that the same entry written once more is seen.
    pub fn update_targets(&mut self, list: [Segment; TARGETS]) -> [bool; TARGETS] {
        self.sender.update_targets(list)
    }

    /// An iomapping that the peer has written.
    pub fn set_iomap(&mut self, index: u16, iomap: Iomap) {
        if let Some(place) = self.iomaps.get_mut(usize::from(index)) {
            *place = iomap;
        }
    }

    /// Receives to be posted anew.
    pub fn take_completed_receives(&mut self) -> u32 {
        if self.is_open() { std::mem::take(&mut self.completed_receives) } else { 0 }
    }

    const fn can_control(&self) -> bool {
        self.controls != self.max_controls
    }

    /// Whether a control can go, or never will.
    pub const fn can_send_control(&self) -> bool {
        self.can_control() || !self.is_open()
    }

    /// The peer hears that it may send more, if it should and can.
    pub fn grant(&mut self) -> Option<Post> {
        if !self.is_open() || !self.can_control() || !self.receiver.is_grant_due() {
            return None;
        }
        self.controls = self.controls.wrapping_add(1);
        let (credits, lent) = self.receiver.grant();
        let message = Message::Grant(credits);
        let Some(offset) = lent else {
            return Some(Post { message, has_imm: true, to: (0, 0), bytes: Bytes::None });
        };
        let (addr, key) = self.memory.recv_buffer;
        let half = Segment { addr: addr + u64::from(offset), key, length: self.receiver.half() };
        let entry = u64::from(self.remote_target) * Segment::LEN as u64;
        self.remote_target += 1;
        if self.remote_target >= self.remote_list.length {
            self.remote_target = 0;
        }
        let to = (self.remote_list.addr.wrapping_add(entry), self.remote_list.key);
        Some(Post { message, has_imm: true, to, bytes: Bytes::Segment(half.to_bytes(self.order)) })
    }

    /// The next message of at most `wanted` bytes of the program; only when the sender is ready.
    pub fn send(&mut self, wanted: u32) -> Post {
        let transfer = self.sender.next_message(wanted);
        Post {
            message: Message::Data(transfer.len),
            has_imm: true,
            to: (transfer.addr, transfer.key),
            bytes: Bytes::Stream(transfer),
        }
    }

    /// The same into memory that the peer has iomapped at `offset`; `None` if it has none there.
    pub fn send_to(&mut self, wanted: u32, offset: u64) -> Option<Post> {
        let found = self
            .iomaps
            .iter()
            .find_map(|iomap| iomap.locate(offset).map(|place| (place, iomap.memory.key)));
        let ((addr, left), key) = found?;
        let transfer = self.sender.next_iomapped(wanted, addr, left, key);
        Some(Post {
            message: Message::Write(transfer.len),
            has_imm: false,
            to: (addr, key),
            bytes: Bytes::Stream(transfer),
        })
    }

    /// Whether the peer has iomapped something at `offset`.
    pub fn has_mapped(&self, offset: u64) -> bool {
        self.iomaps.iter().any(|iomap| iomap.locate(offset).is_some())
    }

    /// How many iomappings the peer takes.
    pub const fn remote_iomaps(&self) -> u32 {
        self.remote_iomaps.length
    }

    /// Tells the peer of memory that it may write; only when the sender is ready, and for an index
    /// below [`remote_iomaps`](Self::remote_iomaps).
    pub fn map(&mut self, index: u16, iomap: Iomap) -> Post {
        self.sender.send_iomap(Iomap::LEN as u32);
        let place = u64::from(index) * Iomap::LEN as u64;
        let to = (self.remote_iomaps.addr.wrapping_add(place), self.remote_iomaps.key);
        let bytes = Bytes::Iomap(iomap.to_bytes(self.order));
        Post { message: Message::Iomap(index), has_imm: true, to, bytes }
    }

    /// Shuts a direction, or both; what the peer is to hear of it.
    pub fn shutdown(&mut self, how: Shutdown) -> Option<Control> {
        let ConnState::Open { readable, writable } = &mut self.state else { return None };
        match how {
            Shutdown::Both => {
                (*readable, *writable) = (false, false);
                Some(Control::Disconnect)
            }
            Shutdown::Write => {
                *writable = false;
                Some(if *readable { Control::Shutdown } else { Control::Disconnect })
            }
            Shutdown::Read => {
                *readable = false;
                (!*writable).then_some(Control::Disconnect)
            }
        }
    }

    /// The peer hears of it, if that can go now.
    pub fn control(&mut self, control: Control) -> Option<Post> {
        if !self.is_open() || !self.can_control() {
            return None;
        }
        self.controls = self.controls.wrapping_add(1);
        let has_imm = control != Control::Keepalive;
        Some(Post { message: Message::Control(control), has_imm, to: (0, 0), bytes: Bytes::None })
    }

    /// Whether nothing is under way, or never will arrive.
    pub const fn is_idle(&self) -> bool {
        let controls = self.max_controls.wrapping_sub(self.controls);
        controls + self.sender.requests() == self.sizes.send_queue as u32 || !self.is_open()
    }
}
