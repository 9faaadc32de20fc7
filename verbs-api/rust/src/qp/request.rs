//! Work requests.
//!
//! A request borrows its regions and its inline data until it is posted. Up to four scatter-gather
//! entries need no allocation.

use std::fmt;
use std::marker::PhantomData;

use urxe_stack::allocate::{self, OutOfMemory};
use urxe_stack::cq::SrqId;
use urxe_stack::memory::Access;
use urxe_stack::qp::work_request::{
    Destination, FlushRange, Payload, PostError, RecvRequest as CoreRecv, Remote, SendFlags,
    SendOp, SendRequest as CoreSend, Sge,
};
use urxe_wire::{PlacementType, QKey, Qpn, Rkey};

use crate::ah::AddressHandle;
use crate::device::{Device, DeviceIdentity, NamedDevices};
use crate::memory::{FastRegion, MemoryWindow, RegionSlice};

/// The number of scatter-gather entries that are stored without an allocation.
const INLINE_SGES: usize = 4;

/// A list of slices of registered memory, for gathering or scattering data.
///
/// The list is made from one [`RegionSlice`], or from an array or a slice of them.
/// [`Gather::EMPTY`] is the list of a message without data.
///
/// ```
/// use urxe::{Access, ConnectOptions, Gather, RecvRequest, SendRequest};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = urxe::sim::Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
/// # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
/// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// let source = pd.allocate(4096, Access::empty())?;
/// source.write(0, b"header")?;
/// source.write(1024, b"payload")?;
/// let target = peer_pd.allocate(64, Access::LOCAL_WRITE)?;
/// peer.post_recv(&RecvRequest::new(target.slice(..)?))?;
/// // One message from two places.
/// let pieces = Gather::from([source.slice(..6)?, source.slice(1024..1031)?]);
/// qp.post_send(&SendRequest::send(pieces))?;
/// let _received = peer_cq.wait_one(None)?;
/// assert_eq!(target.read_vec(0, 13)?, b"headerpayload");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Gather<'a> {
    inline: [Sge; INLINE_SGES],
    count: usize,
    /// All entries, if there are more than [`INLINE_SGES`]. Empty if the system has no memory for
    /// them; posting fails then.
    heap: Vec<Sge>,
    devices: NamedDevices,
    regions: PhantomData<RegionSlice<'a>>,
}

const NO_SGE: Sge = Sge { addr: 0, length: 0, lkey: urxe_wire::Lkey(0) };

impl Gather<'_> {
    /// The empty list.
    pub const EMPTY: Gather<'static> = Gather {
        inline: [NO_SGE; INLINE_SGES],
        count: 0,
        heap: Vec::new(),
        devices: NamedDevices::None,
        regions: PhantomData,
    };

    fn sges(&self) -> &[Sge] {
        if self.count > INLINE_SGES { &self.heap } else { &self.inline[..self.count] }
    }

    /// Fails if the system had no memory for the entries.
    fn check_memory(&self) -> Result<(), OutOfMemory> {
        match self.sges().len() == self.count {
            true => Ok(()),
            false => Err(OutOfMemory::of::<Sge>(self.count)),
        }
    }
}

impl fmt::Debug for Gather<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sges().fmt(f)
    }
}

impl<'a> From<RegionSlice<'a>> for Gather<'a> {
    fn from(slice: RegionSlice<'a>) -> Self {
        Self::from(&[slice])
    }
}

impl<'a> From<&[RegionSlice<'a>]> for Gather<'a> {
    fn from(slices: &[RegionSlice<'a>]) -> Self {
        let devices = slices.iter().fold(NamedDevices::None, |all, slice| all.and(slice.device));
        let mut gather = Gather { count: slices.len(), devices, ..Gather::EMPTY };
        if slices.len() > INLINE_SGES {
            let sges = allocate::collected(slices.iter().map(|slice| slice.sge));
            gather.heap = sges.unwrap_or_default();
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

/// The data of a SEND or WRITE: registered memory, or bytes that are copied when the request is
/// posted.
///
/// ```
/// use urxe::{Access, Data, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pd = Fabric::new(1).device([10, 0, 0, 1])?.alloc_pd()?;
/// let region = pd.allocate(4096, Access::empty())?;
/// assert!(matches!(Data::from(region.slice(..)?), Data::Registered(_)));
/// assert!(matches!(Data::inline(b"copied"), Data::Inline(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Data<'a> {
    /// Slices of regions. The device reads them when it builds packets, so the program must not
    /// change them until the request has completed.
    Registered(Gather<'a>),
    /// Bytes that need no registration (`IBV_SEND_INLINE`), up to the limit of the queue pair
    /// ([`QueuePairBuilder::max_inline_data`](crate::QueuePairBuilder::max_inline_data)).
    Inline([&'a [u8]; 1]),
}

impl<'a> Data<'a> {
    /// The data of a message without bytes.
    pub const EMPTY: Data<'static> = Data::Registered(Gather::EMPTY);

    /// Returns data that is copied when the request is posted.
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

/// A send work request (`struct ibv_send_wr`): an operation, its data and its flags.
///
/// ```
/// use urxe::{Access, ConnectOptions, SendRequest, WcOpcode};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let fabric = urxe::sim::Fabric::new(1);
/// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
/// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
/// # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
/// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
/// # qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
/// # peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// let source = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
/// let rights = Access::LOCAL_WRITE | remote;
/// let target = peer_pd.allocate(4096, rights)?;
/// let there = target.remote();
/// source.write(0, b"request")?;
/// // WRITE, then READ after the WRITE, then an atomic operation.
/// qp.post_send(&SendRequest::write(source.slice(..7)?, there).wr_id(1).signaled())?;
/// qp.post_send(&SendRequest::read(source.slice(8..15)?, there).wr_id(2).signaled())?;
/// let counter = there.slice(64..72)?;
/// let old = source.slice(16..24)?;
/// qp.post_send(&SendRequest::fetch_add(old, counter, 5).wr_id(3).fenced().signaled())?;
/// for opcode in [WcOpcode::RdmaWrite, WcOpcode::RdmaRead, WcOpcode::FetchAdd] {
///     assert_eq!(cq.wait_one(None)?.opcode, opcode);
/// }
/// assert_eq!(source.read_vec(8, 7)?, b"request");
/// assert_eq!(target.load_u64(64)?, 5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a request does nothing until it is posted"]
pub struct SendRequest<'a> {
    wr_id: u64,
    op: SendOp,
    to: Destination,
    /// The device of the address handle in `to`.
    ah_device: NamedDevices,
    /// The devices of the window, region or fast-registration region in `op`.
    op_devices: NamedDevices,
    flags: SendFlags,
    data: Data<'a>,
}

impl<'a> SendRequest<'a> {
    /// A SEND without data.
    pub(super) const EMPTY: SendRequest<'static> = SendRequest {
        wr_id: 0,
        op: SendOp::Send,
        to: Destination::Peer,
        ah_device: NamedDevices::None,
        op_devices: NamedDevices::None,
        flags: SendFlags::empty(),
        data: Data::EMPTY,
    };

    fn new(op: SendOp, data: impl Into<Data<'a>>) -> Self {
        Self { op, data: data.into(), ..SendRequest::EMPTY }
    }

    /// Returns a SEND, which fills the next receive of the peer. The completion there has the
    /// opcode [`Recv`](crate::WcOpcode::Recv) and the length in `byte_len`. If the peer has posted
    /// no receive, the device repeats the SEND as often as `rnr_retry` of the connection allows.
    pub fn send(data: impl Into<Data<'a>>) -> Self {
        Self::new(SendOp::Send, data)
    }

    /// Returns a SEND with four bytes of immediate data, which
    /// [`imm_data`](crate::Completion::imm_data) of the peer's completion returns as this number.
    /// Otherwise the request is as [`send`](Self::send).
    pub fn send_imm(data: impl Into<Data<'a>>, imm: u32) -> Self {
        Self::new(SendOp::SendImm { imm }, data)
    }

    /// Returns a SEND that also invalidates one key of the peer.
    pub fn send_invalidate(data: impl Into<Data<'a>>, rkey: Rkey) -> Self {
        Self::new(SendOp::SendInvalidate { rkey }, data)
    }

    /// Returns a WRITE into memory of the peer.
    pub fn write(data: impl Into<Data<'a>>, remote: impl Into<Remote>) -> Self {
        Self::new(SendOp::Write { remote: remote.into() }, data)
    }

    /// Returns a WRITE that also completes one receive of the peer, with four bytes of immediate
    /// data. So the program of the peer learns that the data is in its memory.
    ///
    /// The receiver gets one completion in its receive queue, after all bytes are written:
    ///
    /// | field | value |
    /// |---|---|
    /// | `opcode` | [`RecvRdmaWithImm`](crate::WcOpcode::RecvRdmaWithImm) |
    /// | `wr_id` | that of the receive, which is used up |
    /// | `byte_len` | the number of written bytes |
    /// | [`imm_data`](crate::Completion::imm_data) | `Some(imm)`, the same number |
    ///
    /// The memory of the receive stays unchanged, so a receive of [`Gather::EMPTY`] is enough. The
    /// completion does not name the place of the data. If the peer has posted no receive, the
    /// device repeats the request as it repeats a [`send`](Self::send).
    ///
    /// ```
    /// use urxe::{Access, Data, Gather, RecvRequest, SendRequest, WcOpcode};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let fabric = urxe::sim::Fabric::new(1);
    /// # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
    /// # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
    /// # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
    /// # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
    /// # qp.connect(&peer.endpoint(), &Default::default())?;
    /// # peer.connect(&qp.endpoint(), &Default::default())?;
    /// let log = peer_pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// peer.post_recv(&RecvRequest::new(Gather::EMPTY).wr_id(7))?;
    /// qp.post_send(&SendRequest::write_imm(Data::inline(b"record"), log.remote(), 42))?;
    /// let received = peer_cq.wait_one(None)?;
    /// assert_eq!(received.opcode, WcOpcode::RecvRdmaWithImm);
    /// assert_eq!((received.wr_id, received.byte_len, received.imm_data()), (7, 6, Some(42)));
    /// assert_eq!(log.read_vec(0, 6)?, b"record");
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_imm(data: impl Into<Data<'a>>, remote: impl Into<Remote>, imm: u32) -> Self {
        Self::new(SendOp::WriteImm { remote: remote.into(), imm }, data)
    }

    /// Returns a READ of memory of the peer. Its length is the length of `into`.
    pub fn read(into: impl Into<Gather<'a>>, remote: impl Into<Remote>) -> Self {
        Self::new(SendOp::Read { remote: remote.into() }, into)
    }

    /// Returns an atomic COMPARE AND SWAP of 8 bytes of the peer: if they equal `compare`, they
    /// become `swap`. The former value is stored in the 8 bytes of `old`, in the byte order of this
    /// host. The request succeeds whether or not it changed the memory: compare the former value.
    ///
    /// # Errors
    /// As of [`fetch_add`](Self::fetch_add).
    pub fn compare_swap(
        old: impl Into<Gather<'a>>,
        remote: impl Into<Remote>,
        compare: u64,
        swap: u64,
    ) -> Self {
        Self::new(SendOp::CompareSwap { remote: remote.into(), compare, swap }, old)
    }

    /// Returns an atomic FETCH AND ADD, which adds `add` to 8 bytes of the peer and wraps. The
    /// former value is stored in the 8 bytes of `old`, in the byte order of this host.
    ///
    /// The peer treats its 8 bytes as a number in its own byte order, as
    /// [`MemoryRegion::load_u64`](crate::MemoryRegion::load_u64) reads it. The packets have
    /// big-endian numbers, so hosts of different byte order agree.
    ///
    /// The queue pair sends at most `max_rd_atomic` READs and atomics at a time
    /// ([`ConnectOptions::max_rd_atomic`](crate::ConnectOptions::max_rd_atomic), by default 16).
    /// More of them may be posted; they wait for earlier ones. Atomic operations of all queue pairs
    /// of the peer's device exclude each other, and those of
    /// [`MemoryRegion::fetch_add_u64`](crate::MemoryRegion::fetch_add_u64) there.
    ///
    /// # Errors
    /// Posting fails with [`PostError`](crate::PostError):
    ///
    /// * `AtomicAlignment`: the remote address is not a multiple of 8.
    /// * `AtomicLength`: `old` has not 8 bytes.
    /// * `NoReadDepth`: `max_rd_atomic` is 0.
    /// * `Unsupported`: the queue pair is not a reliable connection.
    ///
    /// The completion fails with these statuses:
    ///
    /// * `RemAccessErr`: the region of the peer lacks
    ///   [`REMOTE_ATOMIC`](crate::Access::REMOTE_ATOMIC), or the key or the range is wrong.
    /// * `RemInvReqErr`: [`access`](crate::ConnectOptions::access) of the peer's connection lacks
    ///   `REMOTE_ATOMIC`, or `max_rd_atomic` exceeds `max_dest_rd_atomic` of the peer.
    /// * `LocProtErr`: the region of `old` lacks [`LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    pub fn fetch_add(old: impl Into<Gather<'a>>, remote: impl Into<Remote>, add: u64) -> Self {
        Self::new(SendOp::FetchAdd { remote: remote.into(), add }, old)
    }

    /// Sets the destination of a datagram: a host, a queue pair there and its Q_Key.
    ///
    /// Every SEND of a datagram queue pair ([`QpType::Ud`](crate::QpType::Ud)) needs a destination.
    /// A Q_Key whose highest bit is set stands for the Q_Key of the sending queue pair. The handle
    /// must belong to the protection domain of the queue pair, otherwise posting fails.
    pub fn to(mut self, ah: &AddressHandle, qpn: Qpn, qkey: QKey) -> Self {
        self.to = Destination::Datagram { ah: ah.core(), qpn, qkey };
        self.ah_device = NamedDevices::None.and(ah.device().identity());
        self
    }

    /// Sets the destination of a datagram to a multicast group: all queue pairs that are attached
    /// ([`attach_mcast`](crate::QueuePair::attach_mcast)) and have this Q_Key.
    pub fn to_group(self, ah: &AddressHandle, qkey: QKey) -> Self {
        self.to(ah, Qpn::MULTICAST, qkey)
    }

    /// Returns a request that binds a window to part of a region (`IBV_WR_BIND_MW`). The region
    /// needs [`Access::MW_BIND`].
    ///
    /// A window of type 2 grants access to the peer of this queue pair. A window of type 1 grants
    /// access to the peers of all queue pairs in the protection domain. The request sends no
    /// packet. Later requests may send the [`remote`](MemoryWindow::remote) region to the peer at
    /// once.
    ///
    /// The call changes the window's [`rkey`](MemoryWindow::rkey). If the request fails or is not
    /// posted, the new key gives no access, and the window can be bound again.
    pub fn bind(window: &mut MemoryWindow, part: RegionSlice<'a>, access: Access) -> Self {
        let op_devices = NamedDevices::None.and(window.pd().device().identity()).and(part.device);
        let op = SendOp::BindMw(window.bind(&part, access));
        Self { op_devices, ..Self::new(op, Data::EMPTY) }
    }

    /// Returns a request that unbinds a type 1 window by binding no bytes. A type 2 window refuses
    /// this with `MwBindErr` and must be [invalidated](Self::invalidate) instead.
    pub fn unbind(window: &mut MemoryWindow) -> Self {
        let op_devices = NamedDevices::None.and(window.pd().device().identity());
        Self { op_devices, ..Self::new(SendOp::BindMw(window.unbind()), Data::EMPTY) }
    }

    /// Returns a request that registers a fast-registration region (`IB_WR_REG_MR`).
    ///
    /// The request makes the memory that was mapped last accessible under the region's
    /// [`rkey`](FastRegion::rkey). It sends no packet. Later requests may send the
    /// [`remote`](FastRegion::remote) region to the peer at once.
    pub fn register(region: &FastRegion, access: Access) -> Self {
        let op_devices = NamedDevices::None.and(region.pd().device().identity());
        let op = SendOp::RegMr { key: region.rkey(), access };
        Self { op_devices, ..Self::new(op, Data::EMPTY) }
    }

    /// Returns a request that invalidates the key of a window or a fast-registration region
    /// (`IBV_WR_LOCAL_INV`).
    ///
    /// The request starts when all earlier requests have completed and sends no packet. After its
    /// completion the key gives no access. The key may be that of any window or region of the
    /// protection domain, because an invalidation only ends access.
    pub fn invalidate(rkey: Rkey) -> Self {
        Self::new(SendOp::LocalInv { rkey }, Data::EMPTY)
    }

    /// Returns an ATOMIC WRITE of 8 bytes. A reader of the peer's memory sees all 8 bytes or none,
    /// and sees them after all earlier writes. The address must be a multiple of 8, and the region
    /// must grant [`Access::REMOTE_WRITE`].
    pub fn atomic_write(data: impl Into<Data<'a>>, remote: impl Into<Remote>) -> Self {
        Self::new(SendOp::AtomicWrite { remote: remote.into() }, data)
    }

    /// Returns a FLUSH, which completes when earlier writes to `len` bytes have reached the given
    /// placement.
    ///
    /// The placement is visibility for all processors of the peer, or persistence over a power
    /// failure. The queue pair and the region must grant it by
    /// [`Access::FLUSH_GLOBAL`](crate::Access::FLUSH_GLOBAL) or
    /// [`Access::FLUSH_PERSISTENT`](crate::Access::FLUSH_PERSISTENT).
    ///
    /// ```
    /// use urxe::{Access, ConnectOptions, Data, Device, PlacementType, SendRequest};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let here = Device::open_address([127, 49, 10, 3])?;
    /// # let there = Device::open_address([127, 49, 10, 4])?;
    /// # let (pd, peer_pd) = (here.alloc_pd()?, there.alloc_pd()?);
    /// # let (cq, peer_cq) = (here.create_cq(16)?, there.create_cq(16)?);
    /// # let qp = pd.queue_pair(&cq).create()?;
    /// # let peer_qp = peer_pd.queue_pair(&peer_cq).create()?;
    /// # qp.connect(&peer_qp.endpoint(), &ConnectOptions::default())?;
    /// # peer_qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::FLUSH_GLOBAL;
    /// let log = peer_pd.allocate(4096, rights)?;
    /// let there = log.remote();
    /// // The commit mark is written when every processor of the peer can see the record.
    /// qp.post_send(&SendRequest::write(Data::inline(b"record"), there))?;
    /// qp.post_send(&SendRequest::flush(there, 6, PlacementType::GLOBAL_VISIBILITY))?;
    /// let mark = there.slice(64..72)?;
    /// let one = 1u64.to_ne_bytes();
    /// let commit = SendRequest::atomic_write(Data::inline(&one), mark);
    /// qp.post_send(&commit.signaled())?;
    /// let _committed = cq.wait_one(None)?;
    /// assert_eq!((log.load_u64(64)?, log.read_vec(0, 6)?), (1, b"record".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn flush(remote: impl Into<Remote>, len: u32, placement: PlacementType) -> Self {
        let range = FlushRange::Bytes(len);
        Self::new(SendOp::Flush { remote: remote.into(), placement, range }, Data::EMPTY)
    }

    /// Returns a FLUSH of the whole region of the peer.
    pub fn flush_region(remote: impl Into<Remote>, placement: PlacementType) -> Self {
        let range = FlushRange::Region;
        Self::new(SendOp::Flush { remote: remote.into(), placement, range }, Data::EMPTY)
    }

    /// Sets the identifier that the completion returns. The default is 0.
    pub const fn wr_id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }

    /// Sets the shared receive queue of the peer's XRC domain, by its number at the peer. Every
    /// request of an [`XrcSend`](crate::QpType::XrcSend) queue pair needs it; other queue pairs
    /// refuse it.
    pub const fn to_srq(mut self, srq: SrqId) -> Self {
        self.to = Destination::XrcSrq { srq };
        self.ah_device = NamedDevices::None;
        self
    }

    /// Requests a completion. Without this flag, only a failed request creates one.
    ///
    /// The flag also decides when the entries of the send queue are free again:
    ///
    /// * By default, an acknowledged request frees its entry, signaled or not, as in `rdma_rxe`.
    ///   1,000 requests without the flag fit one after another into a queue of four entries.
    /// * With [strict queues](crate::DeviceBuilder::strict_queues) and on NICs, entries are freed
    ///   when the program polls a completion: that of the entry itself or of a later one. A program
    ///   must signal at least one request for each queue length there, and poll.
    ///
    /// A program that may run over a NIC signals at least one request for each queue length.
    pub fn signaled(mut self) -> Self {
        self.flags |= SendFlags::SIGNALED;
        self
    }

    /// Sets the solicited flag, which wakes a peer that armed its queue with
    /// [`ArmKind::Solicited`](crate::ArmKind::Solicited).
    pub fn solicited(mut self) -> Self {
        self.flags |= SendFlags::SOLICITED;
        self
    }

    /// Starts the request only when all earlier READs, atomics, ATOMIC WRITEs and FLUSHes of this
    /// queue pair have completed (`IBV_SEND_FENCE`).
    pub fn fenced(mut self) -> Self {
        self.flags |= SendFlags::FENCE;
        self
    }

    /// Returns the request for `device`. Fails if the address handle or the memory of the request
    /// belongs to another device, or if the system had no memory for the request.
    pub(super) fn core_on(&self, device: &Device) -> Result<CoreSend<'_>, PostError> {
        let data = match &self.data {
            Data::Registered(gather) => {
                gather.check_memory()?;
                gather.devices
            }
            Data::Inline(_) => NamedDevices::None,
        };
        let own = device.identity();
        if let Some(other) = self.ah_device.other_than(own) {
            return Err(PostError::AhOfOtherDevice { ah: other.name(), queue: own.name() });
        }
        match data.other_than(own).or(self.op_devices.other_than(own)) {
            Some(other) => Err(memory_of(other, own)),
            None => Ok(self.as_core()),
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

impl fmt::Debug for SendRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wr_id, op, to, flags, data, .. } = self;
        let mut request = f.debug_struct("SendRequest");
        request.field("wr_id", wr_id).field("op", op).field("to", to);
        request.field("flags", flags).field("data", data).finish()
    }
}

/// A receive work request (`struct ibv_recv_wr`): the memory for one message.
///
/// ```
/// use urxe::{Access, RecvRequest, sim::Fabric};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Fabric::new(1).device([10, 0, 0, 1])?;
/// let pd = device.alloc_pd()?;
/// let srq = pd.shared_receive_queue(8).create()?;
/// let buffers = pd.allocate(4 * 1024, Access::LOCAL_WRITE)?;
/// for nr in 0..4 {
///     let buffer = buffers.slice(nr * 1024..(nr + 1) * 1024)?;
///     srq.post_recv(&RecvRequest::new(buffer).wr_id(nr as u64))?;
/// }
/// assert_eq!(srq.len(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is posted"]
pub struct RecvRequest<'a> {
    wr_id: u64,
    into: Gather<'a>,
}

impl<'a> RecvRequest<'a> {
    /// Returns a receive into these slices, whose regions need `LOCAL_WRITE`.
    pub fn new(into: impl Into<Gather<'a>>) -> Self {
        Self { wr_id: 0, into: into.into() }
    }

    /// Sets the identifier that the completion returns. The default is 0.
    pub const fn wr_id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }

    /// Returns the request for `device`. Fails if its memory belongs to another device, or if the
    /// system had no memory for the request.
    pub(crate) fn core_on(&self, device: &Device) -> Result<CoreRecv<'_>, PostError> {
        self.into.check_memory()?;
        let own = device.identity();
        match self.into.devices.other_than(own) {
            Some(other) => Err(memory_of(other, own)),
            None => Ok(CoreRecv { wr_id: self.wr_id, sges: self.into.sges() }),
        }
    }
}

/// Returns the error of a request with memory of another device than `own`.
#[cold]
pub(super) fn memory_of(other: DeviceIdentity, own: DeviceIdentity) -> PostError {
    PostError::MemoryOfOtherDevice { memory: other.name(), queue: own.name() }
}
