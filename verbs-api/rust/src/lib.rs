//! RDMA in userspace: RoCEv2 over plain UDP, without root and without a kernel module.
//!
//! Programs of this crate talk to each other, to hosts with the kernel's `rdma_rxe` and to RDMA
//! hardware that speaks RoCEv2. The vocabulary is that of libibverbs, the shape is Rust's: every
//! object keeps what it needs alive, so they may be dropped in any order, and safe code can neither
//! race with a peer's access to memory nor leave a peer a region that is gone.
//!
//! # A write into a peer's memory
//! ```
//! use urxe::{Access, ConnectOptions, Device, SendRequest};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two ends; here in one process, each on an address of its own. Without configuration, `Device::open("rxe0")` is 127.0.0.1.
//! let here = Device::open_address([127, 49, 10, 1])?;
//! let there = Device::open_address([127, 49, 10, 2])?;
//!
//! // Each has a protection domain, a completion queue and a queue pair.
//! let (pd, peer_pd) = (here.alloc_pd()?, there.alloc_pd()?);
//! let (cq, peer_cq) = (here.create_cq(16)?, there.create_cq(16)?);
//! let qp = pd.queue_pair(&cq).create()?;
//! let peer_qp = peer_pd.queue_pair(&peer_cq).create()?;
//!
//! // What must be told to the other end are endpoints and regions. Both have a text: send it as you like.
//! let endpoint = peer_qp.endpoint().to_string();
//! qp.connect(&endpoint.parse()?, &ConnectOptions::default())?;
//! peer_qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
//! let target = peer_pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! let target_text = target.remote().to_string();
//!
//! // Fill a region, write it, wait.
//! let source = pd.allocate(4096, Access::empty())?;
//! source.write(0, b"hello")?;
//! let remote: urxe::RemoteRegion = target_text.parse()?;
//! qp.post_send(&SendRequest::write(source.slice(..5)?, remote).wr_id(1).signaled())?;
//! let completion = cq.wait_one(None)?;
//! assert!(completion.status.is_success());
//! assert_eq!(target.read_vec(0, 5)?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Where what is
//! | wanted | see |
//! |---|---|
//! | which devices there are, options, limits, counters | [`devices`], [`Device`], [`DeviceBuilder`] |
//! | memory | [`ProtectionDomain::allocate`], [`MemoryRegion`], [`RemoteRegion`] |
//! | one protection domain in several places of a program | [`ProtectionDomain::parent_domain`], [`Device::import_pd`] |
//! | memory of files, of the device | [`ProtectionDomain::map_file`], [`DeviceMemory`] |
//! | memory of somebody else, or all of it | [`ForeignRegion`], [`ProtectionDomain::local_dma_key`] |
//! | keys for a while | [`FastRegion`], [`MemoryWindow`], [`SendRequest::invalidate`] |
//! | connecting by addresses and ports (`rdma_cm`) | [`cm::connect`], [`cm::Listener`], [`cm::Options`] |
//! | connecting by exchanging endpoints | [`QueuePairBuilder`], [`QpEndpoint`], [`QueuePair::connect`], [`ConnectOptions`] |
//! | SEND, WRITE, READ, atomics, ATOMIC WRITE, FLUSH, inline data, fences | [`SendRequest`], [`QueuePair::post_send`] |
//! | datagrams, multicast | [`QueuePair::start_datagrams`], [`AddressHandle`], [`QueuePair::attach_mcast`], [`SendRequest::to_group`] |
//! | receives | [`RecvRequest`], [`QueuePair::post_recv`] |
//! | receives that many queue pairs share | [`SharedReceiveQueue`] |
//! | one connection to many shared receive queues (XRC) | [`XrcDomain`], [`XrcTarget`], [`SendRequest::to_srq`] |
//! | completions: polling, sleeping, `async` | [`CompletionQueue`], [`Completion`] |
//! | fewer wake-ups | [`CompletionQueue::moderate`] |
//! | waiting in one's own `poll` or `epoll` | [`CompletionChannel`], [`DeviceEvents`] |
//! | what else happens, to queue pairs and to the port | [`Device::events`], [`AsyncEvent`] |
//! | tests over bad networks, in virtual time | [`sim`] |
//!
//! # Waiting
//! `async` needs no runtime: the futures' wakers are called when something comes, under no lock of
//! this crate, so they may poll at once or drop anything, the device included. Sleeping and `async`
//! leave the receiving to the device's background thread; a thread that polls in a loop receives by
//! itself, which is faster and takes a processor. Who changes from polling to sleeping waits up to
//! a millisecond once.
//!
//! # Errors
//! One `enum` a call, each variant with what was given and what is allowed, and `errno()` for what
//! libibverbs would say. What goes wrong after posting is no error of a call but the
//! [`status`](Completion::status) of a completion.
//!
//! # Features
//! `serde`: [`QpEndpoint`] and [`RemoteRegion`] are serde values, namely their texts.
#![deny(unsafe_code)]

mod ah;
mod backend;
mod blocking_wait;
pub mod cm;
mod cq;
mod device;
mod domain;
mod endpoint;
mod events;
mod memory;
mod pd;
mod qp;
pub mod sim;
mod srq;
mod waker_list;
mod xrc;

pub use ah::{AddressHandle, AnswerError, GRH_LEN};
pub use cq::{
    ChannelError, CompletionChannel, CompletionQueue, CqEvent, Drain, Next, Poller, WaitError,
};
pub use device::{Device, DeviceAttr, DeviceBuilder, DeviceInfo, OpenError, PortAttr, devices};
pub use domain::{AllocTdError, ImportError, ImportedRegion, ThreadDomain};
pub use endpoint::{EndpointParseError, QpEndpoint};
pub use events::{DeviceEvents, NextEvent};
pub use memory::{
    AddressSpace, AllocateError, ChangeRegionError, DeviceMemory, DeviceMemoryRegion, FastRegion,
    ForeignRegion, MapFileError, MemoryRegion, MemoryWindow, RegionChange, RegionSlice,
    RemoteParseError, RemoteRegion, RemoteSliceError, SliceError,
};
pub use pd::{AllocPdError, ProtectionDomain};
pub use qp::{
    BatchError, ConnectOptions, Data, Gather, QueuePair, QueuePairBuilder, RecvRequest, SendRequest,
};
pub use srq::{SharedReceiveQueue, SrqBuilder};
pub use xrc::{XrcDomain, XrcTarget};

pub use urxe_stack::cq::{
    ArmKind, AsyncEvent, AsyncEventType, Completion, CqError, CqEventType, CqId, Moderation,
    PortEventType, QpEventType, SrqEventType, SrqId, WcFlags, WcOpcode, WcStatus,
};
pub use urxe_stack::device::ah::{AhFromWcError, CreateAhError};
pub use urxe_stack::device::counters::Counter;
pub use urxe_stack::device::multicast::{AttachMcastError, DetachMcastError};
pub use urxe_stack::device::{
    AllocParentDomainError, CreateCqError, CreateQpError, IcrcPolicy, Limits, ModifyError,
    OpenQpError,
};
pub use urxe_stack::driver::OpenEngineError;
pub use urxe_stack::link::{GidEntry, Guid, LinkError, LinkSpec, ResolvedLink, Source};
pub use urxe_stack::memory::{
    Access, AdviseError, AllocMrError, AllocMwError, BufferError, DmError, FileError, MapError,
    MwType, RegMrError, ReregMrError,
};
pub use urxe_stack::port::faults::{FaultError, FaultSpec};
pub use urxe_stack::port::groups::JoinError;
#[cfg(feature = "capture")]
pub use urxe_stack::port::tap::Tap;
pub use urxe_stack::qp::attr::{
    AddressVector, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType,
};
pub use urxe_stack::qp::transition::ModifyQpError;
pub use urxe_stack::qp::work_request::{PostError, Remote, SendFlags};
pub use urxe_stack::srq::SrqAttr;
pub use urxe_stack::srq::error::{CreateSrqError, ModifySrqError};
pub use urxe_stack::srq::xrcd::{OpenXrcdError, XrcdFlags};
pub use urxe_wire::{FlushIcrc, Gid, Lkey, PlacementType, Psn, QKey, Qpn, Rkey};
