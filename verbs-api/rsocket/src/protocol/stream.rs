//! The state machine of a connection.
//!
//! Inputs are completions and the requests of the program. Outputs are work requests ([`Post`]) and
//! requests to read registered memory ([`ListRead`]), because this module never accesses memory.
//! The caller holds one lock for all calls.

use std::net::Shutdown;

use urxe_stack::allocate::{self, OutOfMemory};

use super::connect::{self, ConnData};
use super::mappings::Mappings;
use super::message::{Control, Message, Work};
use super::receiver::Receiver;
use super::segment::{ByteOrder, Iomap, Segment};
use super::sender::{Sender, TARGETS, Transfer};

/// Number of work requests that are reserved for grants and controls (`RS_QP_CTRL_SIZE`).
pub const CONTROLS: u32 = 4;

/// The sizes of queues and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Numbers of work requests.
    pub send_queue: u16,
    pub recv_queue: u16,
    /// Maximum number of inline bytes, and sizes of the buffers in bytes.
    pub inline: u32,
    pub send_buffer: u32,
    pub recv_buffer: u32,
    /// Number of iomappings that the peer may make.
    pub iomaps: u32,
}

impl Sizes {
    /// Returns the size of the memory that the peer writes: targets, then iomappings.
    pub const fn list_len(&self) -> usize {
        TARGETS * Segment::LEN + self.iomaps as usize * Iomap::LEN
    }
}

/// The addresses and keys of this side's memory for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalMemory {
    /// Address and key of the list that the peer writes.
    pub list: (u64, u32),
    /// Address and key of the receive buffer.
    pub recv_buffer: (u64, u32),
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnState {
    Open {
        readable: bool,
        writable: bool,
    },
    Disconnected,
    /// The queue pair failed, or the peer violated the protocol.
    Failed,
}

/// A work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// The identifier, which is also the immediate data.
    pub message: Message,
    /// Whether the request carries immediate data.
    pub has_imm: bool,
    /// Address and key of the destination.
    pub to: (u64, u32),
    pub bytes: Bytes,
}

/// The bytes of a work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bytes {
    None,
    /// Bytes of the program.
    Stream(Transfer),
    Segment([u8; Segment::LEN]),
    Iomap([u8; Iomap::LEN]),
}

/// Registered memory that must be read after a completion.
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
    /// The mappings of this side.
    pub mappings: Mappings,
    /// Number of posted grants and controls, and their maximum.
    controls: u32,
    max_controls: u32,
    /// The peer's list of targets, and the index of its next entry.
    remote_list: Segment,
    remote_target: u32,
    /// The peer's list of iomappings.
    remote_iomaps: Segment,
    iomaps: Vec<Iomap>,
    /// Number of completed receives that must be posted again.
    completed_receives: u32,
}

impl Stream {
    /// Returns the private data of this side.
    pub fn conn_data(sizes: &Sizes, memory: &LocalMemory) -> ConnData {
        let half = Receiver::half_of(sizes.recv_buffer);
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

    /// Makes a connection from the private data of the peer.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(sizes: Sizes, memory: LocalMemory, peer: &ConnData) -> Result<Self, OutOfMemory> {
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
        Ok(Self {
            sizes,
            memory,
            order,
            state: ConnState::Open { readable: true, writable: true },
            receiver: Receiver::new(sizes.recv_buffer, sizes.recv_queue)?,
            sender: Sender::new(
                sizes.send_buffer,
                requests,
                sizes.inline,
                peer.credits,
                peer.first_target,
            ),
            mappings: Mappings::new(remote_iomaps.length),
            controls: 0,
            max_controls: CONTROLS,
            remote_list: peer.targets,
            // The private data has the first target.
            remote_target: 1,
            remote_iomaps,
            iomaps: allocate::slice(Iomap::default(), sizes.iomaps as usize)?.into_vec(),
            completed_receives: 0,
        })
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

    /// Ends the connection after the peer or the connection manager has disconnected.
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

    /// Handles a completed receive. `imm` is the immediate data; `None` if the receive failed.
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
            Message::Iomap(index) => {
                // The sender counts the message. The original never counts it as consumed, so its
                // peers lose a credit for each mapping.
                self.receiver.skip_message();
                // The key of memory that this side did not offer refuses the write.
                if usize::from(index) < self.iomaps.len() {
                    return ListRead::Iomap(index);
                }
            }
            Message::Control(Control::Disconnect) => self.disconnect(),
            Message::Control(Control::Shutdown) => match self.state {
                ConnState::Open { writable: true, .. } => {
                    self.state = ConnState::Open { readable: false, writable: true };
                }
                ConnState::Open { .. } => self.state = ConnState::Disconnected,
                _ => {}
            },
            Message::Control(_) | Message::Write(_) => {}
            Message::Reserved(_) => self.fail(),
        }
        ListRead::None
    }

    /// Handles a completed work request.
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

    /// Handles a completion.
    pub fn complete(&mut self, id: u64, imm: Option<u32>, well: bool) -> ListRead {
        match Work::of_id(id) {
            Work::Receive => self.received(imm.filter(|_| well)),
            Work::Send(message) => {
                self.sent(message, well);
                ListRead::None
            }
        }
    }

    /// Takes new entries from the list that the peer writes. Returns which entries were taken. The
    /// caller must set their lengths to 0, so that a later write of the same entry is recognized.
    pub fn update_targets(&mut self, list: [Segment; TARGETS]) -> [bool; TARGETS] {
        self.sender.update_targets(list)
    }

    /// Stores an iomapping that the peer has written.
    pub fn set_iomap(&mut self, index: u16, iomap: Iomap) {
        if let Some(place) = self.iomaps.get_mut(usize::from(index)) {
            *place = iomap;
        }
    }

    /// Returns the number of receives to post again, and resets it.
    pub fn take_completed_receives(&mut self) -> u32 {
        if self.is_open() { std::mem::take(&mut self.completed_receives) } else { 0 }
    }

    const fn can_control(&self) -> bool {
        self.controls != self.max_controls
    }

    /// Returns whether a control can be sent now, or can never be sent.
    pub const fn can_send_control(&self) -> bool {
        self.can_control() || !self.is_open()
    }

    /// Returns a grant for the peer, if one is due and can be sent.
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

    /// Returns the next message of at most `wanted` bytes. The sender must be ready.
    pub fn send(&mut self, wanted: u32) -> Post {
        let transfer = self.sender.next_message(wanted);
        Post {
            message: Message::Data(transfer.len),
            has_imm: true,
            to: (transfer.addr, transfer.key),
            bytes: Bytes::Stream(transfer),
        }
    }

    /// Returns a WRITE into memory that the peer has iomapped at `offset`, and `None` if there is
    /// none. The sender must be ready.
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

    /// Returns the number of bytes from `offset` to the end of the mapping of the peer, and `None`
    /// if the peer has mapped nothing there.
    pub fn mapped_len(&self, offset: u64) -> Option<u64> {
        self.iomaps.iter().find_map(|iomap| iomap.locate(offset)).map(|(_, left)| left)
    }

    /// Returns the number of iomappings that the peer accepts.
    pub const fn remote_iomaps(&self) -> u32 {
        self.remote_iomaps.length
    }

    /// Returns a message about memory that the peer may write. The sender must be ready, and
    /// `index` must be below [`remote_iomaps`](Self::remote_iomaps).
    pub fn map(&mut self, index: u16, iomap: Iomap) -> Post {
        self.sender.send_iomap(Iomap::LEN as u32);
        let place = u64::from(index) * Iomap::LEN as u64;
        let to = (self.remote_iomaps.addr.wrapping_add(place), self.remote_iomaps.key);
        let bytes = Bytes::Iomap(iomap.to_bytes(self.order));
        Post { message: Message::Iomap(index), has_imm: true, to, bytes }
    }

    /// Returns a message about the next mapping of this side that the peer has not received. The
    /// sender must be ready.
    pub fn next_mapping(&mut self) -> Option<Post> {
        let (index, iomap) = self.mappings.next_unsent()?;
        Some(self.map(index, iomap))
    }

    /// Shuts down one direction or both. Returns the control message for the peer.
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

    /// Returns the request that sends a control message, if it can be sent now.
    pub fn control(&mut self, control: Control) -> Option<Post> {
        if !self.is_open() || !self.can_control() {
            return None;
        }
        self.controls = self.controls.wrapping_add(1);
        let has_imm = control != Control::Keepalive;
        Some(Post { message: Message::Control(control), has_imm, to: (0, 0), bytes: Bytes::None })
    }

    /// Returns whether no request is pending, or pending requests can never complete.
    pub const fn is_idle(&self) -> bool {
        let controls = self.max_controls.wrapping_sub(self.controls);
        controls + self.sender.requests() == self.sizes.send_queue as u32 || !self.is_open()
    }
}
