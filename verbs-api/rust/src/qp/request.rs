//! Work requests, as they are posted.
//!
//! A request borrows the regions and the inline data that it names until it is posted; nothing is
//! borrowed afterwards. Up to four pieces of memory need no allocation.

use std::marker::PhantomData;

use urxe_stack::cq::SrqId;
use urxe_stack::memory::Access;
use urxe_stack::qp::work_request::{
    Destination, FlushRange, Payload, PostError, RecvRequest as CoreRecv, Remote, SendFlags,
    SendOp, SendRequest as CoreSend, Sge,
};
use urxe_wire::{PlacementType, QKey, Qpn, Rkey};

use crate::ah::AddressHandle;
use crate::device::{Device, DeviceIdentity};
use crate::memory::{FastRegion, MemoryWindow, RegionSlice};

/// Pieces that are kept without an allocation.
const INLINE_SGES: usize = 4;

/// Pieces of registered memory: where data is gathered from or scattered to. Made from one
/// [`RegionSlice`], an array or a slice of them, or nothing ([`Gather::EMPTY`]: a message of no
/// bytes).
#[derive(Clone, Debug)]
pub struct Gather<'a> {
    inline: [Sge; INLINE_SGES],
    count: usize,
    /// All of them, if they are not inline.
    heap: Vec<Sge>,
    regions: PhantomData<RegionSlice<'a>>,
}

const NO_SGE: Sge = Sge { addr: 0, length: 0, lkey: urxe_wire::Lkey(0) };

impl Gather<'_> {
    /// No piece.
    pub const EMPTY: Gather<'static> =
        Gather { inline: [NO_SGE; INLINE_SGES], count: 0, heap: Vec::new(), regions: PhantomData };

    fn sges(&self) -> &[Sge] {
        if self.heap.is_empty() { &self.inline[..self.count] } else { &self.heap }
    }
}

impl<'a> From<RegionSlice<'a>> for Gather<'a> {
    fn from(slice: RegionSlice<'a>) -> Self {
        Self::from(&[slice])
    }
}

impl<'a> From<&[RegionSlice<'a>]> for Gather<'a> {
    fn from(slices: &[RegionSlice<'a>]) -> Self {
        let mut gather = Gather { count: slices.len(), ..Gather::EMPTY };
        if slices.len() > INLINE_SGES {
            gather.heap = slices.iter().map(|slice| slice.sge).collect();
        } else {
            for (place, slice) in gather.inline.iter_mut().zip(slices) {
                *place = slice.sge;
            }
        }
        gather
    }
}

impl<'a, const N: usize> From<&[RegionSlice<'a>; N]> for Gather<'a> {
    fn from(slices: &[RegionSlice<'a>; N]) -> Self {
        Self::from(slices.as_slice())
    }
}

impl<'a, const N: usize> From<[RegionSlice<'a>; N]> for Gather<'a> {
    fn from(slices: [RegionSlice<'a>; N]) -> Self {
        Self::from(slices.as_slice())
    }
}

/// What a SEND or WRITE carries: registered memory, or bytes that are copied when the request is
/// posted.
#[derive(Clone, Debug)]
pub enum Data<'a> {
    /// Pieces of regions, read when packets are made: keep them as they are until the request has
    /// completed.
    Registered(Gather<'a>),
    /// Bytes that need no registration (`IBV_SEND_INLINE`); as many as the queue pair was made for.
    Inline([&'a [u8]; 1]),
}

impl<'a> Data<'a> {
    /// A message of no bytes.
    pub const EMPTY: Data<'static> = Data::Registered(Gather::EMPTY);

    /// Bytes that are copied when the request is posted.
    #[must_use]
    pub const fn inline(bytes: &'a [u8]) -> Self {
        Self::Inline([bytes])
    }
}

impl<'a, T: Into<Gather<'a>>> From<T> for Data<'a> {
    fn from(pieces: T) -> Self {
        Self::Registered(pieces.into())
    }
}

/// A send work request (`struct ibv_send_wr`): what to do, with which data, and how.
///
/// ```no_run
/// # fn example(qp: urxe::QueuePair, region: urxe::MemoryRegion, there: urxe::RemoteRegion) -> Result<(), Box<dyn std::error::Error>> {
/// use urxe::SendRequest;
///
/// qp.post_send(&SendRequest::write(region.slice(..4096)?, there).wr_id(7).signaled())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct SendRequest<'a> {
    wr_id: u64,
    op: SendOp,
    to: Destination,
    /// The device of the address handle that `to` names; such a name means another peer on another
    /// device.
    ah_device: Option<DeviceIdentity>,
    flags: SendFlags,
    data: Data<'a>,
}

impl<'a> SendRequest<'a> {
    /// A SEND of nothing.
    pub(super) const EMPTY: SendRequest<'static> = SendRequest {
        wr_id: 0,
        op: SendOp::Send,
        to: Destination::Peer,
        ah_device: None,
        flags: SendFlags::empty(),
        data: Data::EMPTY,
    };

    fn new(op: SendOp, data: impl Into<Data<'a>>) -> Self {
        Self { op, data: data.into(), ..SendRequest::EMPTY }
    }

    /// A message into the peer's next receive.
    pub fn send(data: impl Into<Data<'a>>) -> Self {
        Self::new(SendOp::Send, data)
    }

    /// A message with four bytes of immediate data, which the peer's completion shows.
    pub fn send_imm(data: impl Into<Data<'a>>, imm: u32) -> Self {
        Self::new(SendOp::SendImm { imm }, data)
    }

    /// A message that also invalidates one of the peer's keys.
    pub fn send_invalidate(data: impl Into<Data<'a>>, rkey: Rkey) -> Self {
        Self::new(SendOp::SendInvalidate { rkey }, data)
    }

    /// A write into the peer's memory.
    pub fn write(data: impl Into<Data<'a>>, remote: impl Into<Remote>) -> Self {
        Self::new(SendOp::Write { remote: remote.into() }, data)
    }

    /// A write that then completes one of the peer's receives, with immediate data.
    pub fn write_imm(data: impl Into<Data<'a>>, remote: impl Into<Remote>, imm: u32) -> Self {
        Self::new(SendOp::WriteImm { remote: remote.into(), imm }, data)
    }

    /// A read of the peer's memory, as many bytes as `into` has.
    pub fn read(into: impl Into<Gather<'a>>, remote: impl Into<Remote>) -> Self {
        Self::new(SendOp::Read { remote: remote.into() }, into)
    }

    /// If the peer's 8 bytes are `compare`, `swap` takes their place. What was there arrives in
    /// `old`, 8 bytes, in the host's byte order.
    pub fn compare_swap(
        old: impl Into<Gather<'a>>,
        remote: impl Into<Remote>,
        compare: u64,
        swap: u64,
    ) -> Self {
        Self::new(SendOp::CompareSwap { remote: remote.into(), compare, swap }, old)
    }

    /// Adds `add` to the peer's 8 bytes, wrapping. What was there arrives in `old`, 8 bytes, in the
    /// host's byte order.
    pub fn fetch_add(old: impl Into<Gather<'a>>, remote: impl Into<Remote>, add: u64) -> Self {
        Self::new(SendOp::FetchAdd { remote: remote.into(), add }, old)
    }

    /// Sends it as a datagram: to this host, this queue pair there, with its Q_Key. For SENDs of a
    /// datagram queue pair ([`QpType::Ud`](crate::QpType::Ud)), which have no peer of their own. A
    /// Q_Key with the highest bit set stands for the sending queue pair's own. The handle is of the
    /// queue pair's protection domain, or the request is refused.
    pub fn to(mut self, ah: &AddressHandle, qpn: Qpn, qkey: QKey) -> Self {
        self.to = Destination::Datagram { ah: ah.core(), qpn, qkey };
        self.ah_device = Some(ah.device().identity());
        self
    }

    /// Sends it as a datagram to a multicast group: to every queue pair that is attached
    /// ([`attach_mcast`](crate::QueuePair::attach_mcast)) and has this Q_Key.
    pub fn to_group(self, ah: &AddressHandle, qkey: QKey) -> Self {
        self.to(ah, Qpn::MULTICAST, qkey)
    }

    /// Binds a window to part of a region, which was registered with [`Access::MW_BIND`]: of type 2
    /// for this queue pair's peer, of type 1 for those of all queue pairs in the domain. Nothing is
    /// sent; requests behind it may tell the peer its [`remote`](MemoryWindow::remote) at once.
    ///
    /// The window's [`rkey`](MemoryWindow::rkey) is the next one from now on, which is nobody's if
    /// this request fails or is not posted. Another bind can follow all the same.
    pub fn bind(window: &mut MemoryWindow, part: RegionSlice<'a>, access: Access) -> Self {
        Self::new(SendOp::BindMw(window.bind(&part, access)), Data::EMPTY)
    }

    /// Takes the binding of a type 1 window away, by binding no bytes. One of type 2 refuses that
    /// with `MwBindErr`: it is [invalidated](Self::invalidate).
    pub fn unbind(window: &mut MemoryWindow) -> Self {
        Self::new(SendOp::BindMw(window.unbind()), Data::EMPTY)
    }

    /// Makes a fast-registration region valid for what was mapped to it last, under its
    /// [`rkey`](FastRegion::rkey). Nothing is sent; requests behind it may tell the peer its
    /// [`remote`](FastRegion::remote) at once.
    pub fn register(region: &FastRegion, access: Access) -> Self {
        Self::new(SendOp::RegMr { key: region.rkey(), access }, Data::EMPTY)
    }

    /// Takes the key of a window or of a fast-registration region away (`IBV_WR_LOCAL_INV`), once
    /// everything before has completed. Nothing is sent. When it has completed, nothing goes
    /// through the key any more.
    pub fn invalidate(rkey: Rkey) -> Self {
        Self::new(SendOp::LocalInv { rkey }, Data::EMPTY)
    }

    /// Writes 8 bytes as one (ATOMIC WRITE): who looks at the peer's memory sees all of them or
    /// none, after everything that was written before. The address is a multiple of 8, and the
    /// right is that to write.
    pub fn atomic_write(data: impl Into<Data<'a>>, remote: impl Into<Remote>) -> Self {
        Self::new(SendOp::AtomicWrite { remote: remote.into() }, data)
    }

    /// Completes when everything that was written before to the first `len` bytes there has got as
    /// far as asked (FLUSH): all of the peer's processors see it, or it survives a power failure.
    /// Queue pair and region must grant the same by
    /// [`Access::FLUSH_GLOBAL`](crate::Access::FLUSH_GLOBAL) or
    /// [`Access::FLUSH_PERSISTENT`](crate::Access::FLUSH_PERSISTENT).
    ///
    /// ```
    /// use urxe::{Access, ConnectOptions, Data, Device, PlacementType, SendRequest};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (Device::open_address([127, 49, 10, 3])?, Device::open_address([127, 49, 10, 4])?);
    /// # let (pd, peer_pd) = (here.alloc_pd()?, there.alloc_pd()?);
    /// # let (cq, peer_cq) = (here.create_cq(16)?, there.create_cq(16)?);
    /// # let qp = pd.queue_pair(&cq).create()?;
    /// # let peer_qp = peer_pd.queue_pair(&peer_cq).create()?;
    /// # qp.connect(&peer_qp.endpoint(), &ConnectOptions::default())?;
    /// # peer_qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// let log = peer_pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::FLUSH_GLOBAL)?;
    /// let there = log.remote();
    /// // The record, then, once every processor can see it, its commit mark.
    /// qp.post_send(&SendRequest::write(Data::inline(b"record"), there))?;
    /// qp.post_send(&SendRequest::flush(there, 6, PlacementType::GLOBAL_VISIBILITY))?;
    /// let mark = there.slice(64..72)?;
    /// qp.post_send(&SendRequest::atomic_write(Data::inline(&1u64.to_ne_bytes()), mark).signaled())?;
    /// assert!(cq.wait_one(None)?.status.is_success());
    /// assert_eq!((log.load_u64(64)?, log.read_vec(0, 6)?), (1, b"record".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn flush(remote: impl Into<Remote>, len: u32, placement: PlacementType) -> Self {
        let range = FlushRange::Bytes(len);
        Self::new(SendOp::Flush { remote: remote.into(), placement, range }, Data::EMPTY)
    }

    /// The same, of all of the peer's region.
    pub fn flush_region(remote: impl Into<Remote>, placement: PlacementType) -> Self {
        let range = FlushRange::Region;
        Self::new(SendOp::Flush { remote: remote.into(), placement, range }, Data::EMPTY)
    }

    /// What its completion shows. 0 if not given.
    pub const fn wr_id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }

    /// For this shared receive queue of the peer's XRC domain, by its number there; on an
    /// [`XrcSend`](crate::QpType::XrcSend) queue pair only, and there always.
    pub const fn to_srq(mut self, srq: SrqId) -> Self {
        self.to = Destination::XrcSrq { srq };
        self.ah_device = None;
        self
    }

    /// Makes a completion when it is done. Without, only a failure makes one. At least one request
    /// of each full queue must be signaled, or its places are never known to be free.
    pub fn signaled(mut self) -> Self {
        self.flags |= SendFlags::SIGNALED;
        self
    }

    /// Wakes a peer that armed its completion queue for solicited completions.
    pub fn solicited(mut self) -> Self {
        self.flags |= SendFlags::SOLICITED;
        self
    }

    /// Starts only when all earlier READs, atomics, ATOMIC WRITEs and FLUSHes of this queue pair
    /// have completed.
    pub fn fenced(mut self) -> Self {
        self.flags |= SendFlags::FENCE;
        self
    }

    /// Refuses a message over an address handle of another device than the queue pair's.
    pub(super) fn check_device(&self, device: &Device) -> Result<(), PostError> {
        match self.ah_device.is_none_or(|of| of == device.identity()) {
            true => Ok(()),
            false => Err(PostError::AhOfOtherDevice),
        }
    }

    pub(super) fn as_core(&self) -> CoreSend<'_> {
        let Self { wr_id, op, to, flags, ref data, .. } = *self;
        match data {
            Data::Registered(gather) => {
                CoreSend { wr_id, op, to, flags, payload: Payload::Sges(gather.sges()) }
            }
            Data::Inline(bytes) => CoreSend {
                wr_id,
                op,
                to,
                flags: flags | SendFlags::INLINE,
                payload: Payload::Inline(bytes),
            },
        }
    }
}

/// A receive work request (`struct ibv_recv_wr`): where a message goes.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct RecvRequest<'a> {
    wr_id: u64,
    into: Gather<'a>,
}

impl<'a> RecvRequest<'a> {
    /// A receive into these pieces, which need `LOCAL_WRITE`.
    pub fn new(into: impl Into<Gather<'a>>) -> Self {
        Self { wr_id: 0, into: into.into() }
    }

    /// What its completion shows. 0 if not given.
    pub const fn wr_id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }

    pub(crate) fn as_core(&self) -> CoreRecv<'_> {
        CoreRecv { wr_id: self.wr_id, sges: self.into.sges() }
    }
}
