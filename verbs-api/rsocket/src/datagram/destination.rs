//! Queue pairs of a SOCK_DGRAM: one for each local address from which the socket reaches peers.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use rustix::io::Errno;
use urxe_stack::allocate;
use urxe_stack::cq::Completion;
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{AddressVector, QpType};
use urxe_stack::qp::work_request::{
    AhHandle, Destination as SendTarget, Payload, RecvRequest, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_wire::mad::PortSpace;
use urxe_wire::network_header::NetworkHeader;
use urxe_wire::{Gid, Grh, QKey, Qpn};

use crate::error::{Result, errno};
use crate::iovec::GatherList;
use crate::process::{Device, Process};
use crate::protocol::datagram::{header, parse_header};
use crate::protocol::stream::Sizes;
use crate::transport::id::CmId;
use crate::transport::queues::{Queues, Region};

/// Maximum size of a datagram with its header (`RS_SNDLOWAT`).
pub const SLOT: usize = 2048;
/// The Q_Key of `RDMA_PS_UDP`.
const QKEY: QKey = QKey(0x0123_4567);
/// Marks the work request identifiers of receives.
const RECEIVE: u64 = 1 << 63;
const BATCH: usize = 32;
const HOP_LIMIT: u8 = 64;
/// Maximum size of the header of a datagram.
const LONGEST_HEADER: usize = 24;

/// A received datagram.
pub struct Arrived {
    /// The address in the header of the datagram, which its sender chose.
    pub from: SocketAddr,
    /// The sender's queue pair.
    pub qpn: u32,
    /// The offset of the receive, and the range of the data in the receive buffer.
    pub slot: usize,
    pub data: Range<usize>,
}

/// A queue pair for datagrams from one local address.
pub struct DatagramQp {
    pub local: SocketAddr,
    pub queues: Queues,
    pub qpn: u32,
    send: Region,
    pub recv: Region,
    /// Offsets in the send buffer that no pending request uses.
    free: Vec<usize>,
    slots: usize,
    /// Numbers of requests that were posted and completed. Requests complete in their order.
    posted: u64,
    completed: u64,
    /// Address handles that no further request uses, each with the number of requests posted
    /// before. A request whose handle is destroyed would fail and end the queue pair.
    retired: VecDeque<(u64, AhHandle)>,
    inline: usize,
    header: Vec<u8>,
    pub is_armed: bool,
    /// The last field, because the queues must be dropped before their identifier.
    _id: CmId,
}

impl DatagramQp {
    /// Makes a queue pair for a local address and port. The connection manager reserves the port
    /// from then on.
    pub fn new(process: &'static dyn Process, local: SocketAddr, mut sizes: Sizes) -> Result<Self> {
        let id = CmId::new(process, PortSpace::UDP, QpType::Ud)?;
        id.bind(local)?;
        let slots = |queue: u16, buffer: u32| queue.min((buffer as usize / SLOT) as u16).max(1);
        sizes.send_queue = slots(sizes.send_queue, sizes.send_buffer);
        sizes.recv_queue = slots(sizes.recv_queue, sizes.recv_buffer);
        // Without a device address, the identifier has no device, and this call fails.
        let device = id.device()?;
        sizes.inline = sizes.inline.min(device.engine.device().limits().max_inline_data);
        let queues = Queues::new(&id, QpType::Ud, &mut sizes, [1, 2])?;
        let region = |slots: u16, more, access| {
            Region::new(device, usize::from(slots) * SLOT + more, access)
        };
        let free = (0..usize::from(sizes.send_queue)).rev().map(|slot| slot * SLOT);
        let made = Self {
            local,
            qpn: queues.qp.qpn().value(),
            send: region(sizes.send_queue, 0, Access::empty())?,
            recv: region(
                sizes.recv_queue,
                usize::from(sizes.recv_queue) * Grh::LEN,
                Access::LOCAL_WRITE,
            )?,
            free: allocate::collected(free).map_err(errno)?,
            slots: sizes.send_queue.into(),
            posted: 0,
            completed: 0,
            retired: VecDeque::new(),
            inline: sizes.inline as usize,
            header: header(local),
            is_armed: false,
            queues,
            _id: id,
        };
        for slot in 0..usize::from(sizes.recv_queue) {
            made.post_receive(slot * SLOT)?;
        }
        Ok(made)
    }

    const fn device(&self) -> Device {
        self.queues.device
    }

    /// Posts the receive of a slot. The GRHs are stored behind all slots.
    pub fn post_receive(&self, slot: usize) -> Result<()> {
        let (addr, lkey) = (self.recv.address(), self.recv.mr().lkey);
        let sges = [
            Sge { addr: addr + self.grh_of(slot) as u64, length: Grh::LEN as u32, lkey },
            Sge { addr: addr + slot as u64, length: SLOT as u32, lkey },
        ];
        let receive = RecvRequest { wr_id: RECEIVE | slot as u64, sges: &sges };
        self.queues.post_recv(&[receive])
    }

    /// Returns the offset of the GRH of the datagram in a slot.
    fn grh_of(&self, slot: usize) -> usize {
        let slots = self.recv.buffer.len() / (SLOT + Grh::LEN);
        slots * SLOT + slot / SLOT * Grh::LEN
    }

    /// Returns the source address of the packet of a datagram.
    pub fn source_of(&self, arrived: &Arrived) -> Option<IpAddr> {
        let mut grh = [0; Grh::LEN];
        self.recv.buffer.read(self.grh_of(arrived.slot), &mut grh).ok()?;
        NetworkHeader::parse(&grh).ok().map(|header| header.from.to_canonical())
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns whether no request is pending.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.slots
    }

    /// Creates an address handle.
    pub fn create_ah(&self, to: IpAddr) -> Result<AhHandle> {
        let own = Gid::from_ip(self.local.ip());
        let gids = self.device().engine.gids();
        let place = gids.iter().position(|entry| entry.gid == own).unwrap_or(0);
        let vector = AddressVector {
            dgid: Gid::from_ip(to),
            sgid_index: u8::try_from(place).unwrap_or(0),
            hop_limit: HOP_LIMIT,
            port_num: 1,
            is_global: true,
            ..AddressVector::default()
        };
        let Device { engine, pd, .. } = self.device();
        engine.device().create_ah(pd, &vector).map_err(errno)
    }

    /// Destroys an address handle when all requests that use it are complete. No further request
    /// may use the handle.
    pub fn retire_ah(&mut self, ah: AhHandle) {
        self.retired.push_back((self.posted, ah));
        self.destroy_retired();
    }

    /// Destroys the retired address handles that no pending request uses.
    fn destroy_retired(&mut self) {
        let completed = self.completed;
        while let Some((_, ah)) = self.retired.pop_front_if(|(posted, _)| *posted <= completed) {
            // A removed device has removed its handles already.
            let _ = self.device().engine.device().destroy_ah(ah);
        }
    }

    /// Sends a datagram. The caller has checked that there is room.
    pub fn send(&mut self, ah: AhHandle, qpn: u32, pieces: &GatherList<'_>) -> Result<()> {
        let len = self.header.len() + pieces.len();
        if len > SLOT {
            return Err(Errno::MSGSIZE);
        }
        let slot = self.free.pop().ok_or(Errno::AGAIN)?;
        let mut bytes = [0; SLOT];
        let bytes = &mut bytes[..len];
        bytes[..self.header.len()].copy_from_slice(&self.header);
        pieces.copy_to(0, &mut bytes[self.header.len()..]);
        let whole: [&[u8]; 1] = [bytes];
        let sges = [Sge {
            addr: self.send.address() + slot as u64,
            length: len as u32,
            lkey: self.send.mr().lkey,
        }];
        let (payload, flags) = if len <= self.inline {
            (Payload::Inline(&whole), SendFlags::INLINE)
        } else {
            self.send.buffer.write(slot, whole[0]).map_err(|_| Errno::FAULT)?;
            (Payload::Sges(&sges), SendFlags::empty())
        };
        let request = SendRequest {
            wr_id: slot as u64,
            op: SendOp::Send,
            to: SendTarget::Datagram { ah, qpn: Qpn::masked(qpn), qkey: QKEY },
            flags: flags | SendFlags::SIGNALED,
            payload,
        };
        self.queues.post_send(request).inspect_err(|_| self.free.push(slot))?;
        self.posted += 1;
        Ok(())
    }

    /// Takes completions, and passes received datagrams to `arrive`.
    pub fn progress(&mut self, mut arrive: impl FnMut(&Self, Arrived)) -> Result<()> {
        let mut batch = [Completion::default(); BATCH];
        loop {
            let taken = self.queues.poll(&mut batch)?;
            for completion in &batch[..taken] {
                let slot = (completion.wr_id & !RECEIVE) as usize;
                if completion.wr_id & RECEIVE == 0 {
                    self.free.push(slot);
                    self.completed += 1;
                } else if !completion.status.is_success() {
                    // A receive that failed is not posted again, because the queue pair ends.
                } else if let Some(arrived) = self.read(slot, completion) {
                    arrive(self, arrived);
                } else {
                    self.post_receive(slot)?;
                }
            }
            if taken < BATCH {
                break;
            }
        }
        self.destroy_retired();
        self.device().deliver_events();
        Ok(())
    }

    /// Parses the header of the datagram in a slot.
    fn read(&self, slot: usize, completion: &Completion) -> Option<Arrived> {
        let len = (completion.byte_len as usize).checked_sub(Grh::LEN)?.min(SLOT);
        let mut start = [0; LONGEST_HEADER];
        let start = &mut start[..len.min(LONGEST_HEADER)];
        self.recv.buffer.read(slot, start).ok()?;
        let (from, used) = parse_header(start)?;
        let qpn = completion.src_qp.value();
        Some(Arrived { from, qpn, slot, data: slot + used..slot + len })
    }

    /// Arms the completion queue.
    pub fn arm(&mut self) {
        if !self.is_armed {
            self.queues.arm();
            self.is_armed = true;
        }
    }

    /// Takes the event of the completion queue, if there is one.
    pub fn take_event(&mut self) -> Result<()> {
        if self.queues.try_take_event()? {
            self.is_armed = false;
        }
        Ok(())
    }
}

impl Drop for DatagramQp {
    fn drop(&mut self) {
        // The queue pair ends with its pending requests.
        for (_, ah) in self.retired.drain(..) {
            let _ = self.queues.device.engine.device().destroy_ah(ah);
        }
    }
}
