//! RDMA in userspace: RoCEv2 over plain UDP, without root and without a kernel module.
//!
//! Programs of this crate communicate with each other and with hosts that use the kernel's
//! `rdma_rxe`. RDMA hardware as a peer is not tested. Names follow libibverbs, so a reader of its
//! manual finds the same objects and operations here. Three properties are different:
//!
//! * Every object keeps the objects it needs alive. A program may drop them in any order.
//! * Safe code cannot race with a peer's access to memory, and cannot leave a peer access to memory
//!   that is freed. `docs/architecture/soundness.md` of the repository has the worst calls.
//! * Waits block a thread or suspend a task. Tasks need no particular runtime.
//!
//! # A first program
//! This program writes into the memory of a peer. Both ends run in one process, each on an address
//! of its own.
//!
//! ```
//! use urxe::{
//!     Access, CompletionQueue, ConnectOptions, Device, MemoryRegion, ProtectionDomain, QpEndpoint,
//!     QueuePair, RemoteRegion, SendRequest,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two devices. `Device::open("rxe0")` opens a configured device.
//! let here = Device::open_address([127, 49, 10, 1])?;
//! let there = Device::open_address([127, 49, 10, 2])?;
//!
//! // Each end has a protection domain, a completion queue and a queue pair.
//! let (pd, peer_pd): (ProtectionDomain, _) = (here.alloc_pd()?, there.alloc_pd()?);
//! let (cq, peer_cq): (CompletionQueue, _) = (here.create_cq(16)?, there.create_cq(16)?);
//! let qp: QueuePair = pd.queue_pair(&cq).create()?;
//! let peer_qp = peer_pd.queue_pair(&peer_cq).create()?;
//!
//! // The ends exchange their endpoints, here as text, and connect.
//! let text = peer_qp.endpoint().to_string();
//! let endpoint: QpEndpoint = text.parse()?;
//! qp.connect(&endpoint, &ConnectOptions::default())?;
//! peer_qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
//!
//! // The peer allocates memory and sends the address, length and key.
//! let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//! let target: MemoryRegion = peer_pd.allocate(4096, rights)?;
//! let target_text = target.remote().to_string();
//!
//! // This end fills a region, writes it to the peer, and waits.
//! let source = pd.allocate(4096, Access::empty())?;
//! source.write(0, b"hello")?;
//! let remote: RemoteRegion = target_text.parse()?;
//! qp.post_send(&SendRequest::write(source.slice(..5)?, remote).wr_id(1).signaled())?;
//! // If the WRITE had failed, this would be an error.
//! let completion = cq.wait_one(None)?;
//! assert_eq!(completion.wr_id, 1);
//! assert_eq!(target.read_vec(0, 5)?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! [`guide`] has a table of calls for readers with experience in ibverbs or sideway.
//!
//! # Examples
//! The folder `examples` of the repository has larger programs. Read the first that fits the
//! program you write; each begins with its subject and its commands.
//!
//! | to write | read first | then |
//! |---|---|---|
//! | two processes, or two hosts | `blocking_echo`; with tasks `rpc` | `stream_proxy`: beside TCP |
//! | a first program with messages | `ping_pong` | `cm_echo`: connections by address and port |
//! | RDMA without the peer's program | `one_sided` | `atomics_counter`, `persistent_log` |
//! | tasks (`async`) | `async_rpc` | `async_store`: one-sided READs |
//! | streams of bytes, HTTP | `stream_http` | the module [`stream`] |
//! | a server with many clients | `cm_echo` | `many_clients`: shared receive queues; `cm_demo` |
//! | datagrams and groups | `ud_echo` | `multicast` |
//! | a test without a network | `lossy_simulation` | `cm_simulation`: with `cm` |
//! | the patterns of kernel modules | `fast_registration` | `demo`, `krping`, `drain` |
//! | rarer services | `uc_one_sided` | `xrc_window`: XRC and memory windows |
//!
//! # Options
//! Options are builders: `Options::new().timeout(time)`. Structures of libibverbs are plain values
//! with public fields: [`QpCap`], [`SrqAttr`], [`Moderation`], [`Limits`]. A literal ends with
//! `..Default::default()`, so that new fields do not matter. A field of [`QpCap`] that a literal
//! omits is 0. The builders have a method for each of these fields, with defaults that are not 0.
//! [`QpEndpoint`] and [`RemoteRegion`] are plain values, too, and have text forms.
//!
//! # Devices
//! [`devices`] lists the configured devices, and [`Device::open`] opens one by name. A program can
//! also open a device on an address or an interface of its own choice. [`DeviceBuilder`] has the
//! options. [`Device::query`], [`Device::query_port`] and [`Device::counters`] describe the device.
//!
//! ```
//! use urxe::{Counter, Device};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! for device in urxe::devices()? {
//!     println!("{device}");
//! }
//! // A packet loss of 1 %, to test a program.
//! let device = Device::builder().faults("loss=1%".parse()?).open_address([127, 49, 10, 30])?;
//! println!("path MTU {}", device.query_port().active_mtu);
//! assert_eq!(device.counter(Counter::DropSimulated), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Memory
//! Work requests use memory that is registered in a [`ProtectionDomain`]. A [`RegionSlice`] names
//! the memory of one request, and a [`RemoteRegion`] names memory of a peer.
//!
//! | memory | type or method |
//! |---|---|
//! | new memory | [`ProtectionDomain::allocate`], [`MemoryRegion`] |
//! | a file or memfd | [`ProtectionDomain::map_file`] |
//! | memory of the device | [`DeviceMemory`], [`DeviceMemoryRegion`] |
//! | memory with another owner | [`ProtectionDomain::register`], [`ForeignRegion`] |
//! | the whole address space | [`AddressSpace`], [`ProtectionDomain::local_dma_key`] |
//! | a key for a single transfer | [`FastRegion`], [`SendRequest::register`] |
//! | a key for part of a region | [`MemoryWindow`], [`SendRequest::bind`] |
//! | other memory, domain or rights for a region | [`MemoryRegion::change`], [`RegionChange`] |
//! | a region that another library registered | [`ImportedRegion`], [`Device::import_pd`] |
//!
//! # Connections
//! There are two ways to connect:
//!
//! * [`cm`] connects by IP address and port, as `rdma_cm` does. Use [`cm::connect`] and
//!   [`cm::Listener`].
//! * [`QueuePair::connect`] connects two [`QpEndpoint`]s that the program exchanged itself.
//!   [`QueuePairBuilder`] has the options of the queue pair, [`ConnectOptions`] those of the
//!   connection.
//!
//! An [`XrcDomain`] and its [`XrcTarget`] let one connection reach many shared receive queues.
//!
//! # Work requests
//! A [`SendRequest`] is a SEND, WRITE, READ, atomic operation, ATOMIC WRITE or FLUSH. A
//! [`RecvRequest`] supplies the memory for a message. [`QueuePair::post_send`] and
//! [`QueuePair::post_recv`] post them. A [`SharedReceiveQueue`] supplies receives for many queue
//! pairs.
//!
//! ```
//! use urxe::{Access, Data, RecvRequest, SendRequest, WcFlags, WcOpcode};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let fabric = urxe::sim::Fabric::new(1);
//! # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
//! # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
//! # let (cq, peer_cq) = (a.create_cq(16)?, b.create_cq(16)?);
//! # let (qp, peer) = (pd.queue_pair(&cq).create()?, peer_pd.queue_pair(&peer_cq).create()?);
//! # qp.connect(&peer.endpoint(), &Default::default())?;
//! # peer.connect(&qp.endpoint(), &Default::default())?;
//! let inbox = peer_pd.allocate(64, Access::LOCAL_WRITE)?;
//! peer.post_recv(&RecvRequest::new(inbox.slice(..)?).wr_id(7))?;
//! // Inline data needs no registration.
//! qp.post_send(&SendRequest::send_imm(Data::inline(b"hello"), 42).signaled())?;
//! assert_eq!(cq.wait_one(None)?.opcode, WcOpcode::Send);
//! let received = peer_cq.wait_one(None)?;
//! assert_eq!((received.wr_id, received.byte_len, received.imm_data()), (7, 5, Some(42)));
//! assert!(received.flags().contains(WcFlags::WITH_IMM));
//! # Ok(())
//! # }
//! ```
//!
//! # Datagrams
//! A queue pair of type [`QpType::Ud`] sends messages to any host:
//! [`QueuePair::start_datagrams`] starts it, and [`SendRequest::to`] names the [`AddressHandle`],
//! the queue pair number and the Q_Key of the destination. [`QueuePair::attach_mcast`] joins a
//! multicast group, and [`SendRequest::to_group`] sends to a group.
//!
//! # Streams
//! A [`stream::RdmaStream`] is a stream of bytes, as of TCP, with the traits of tokio
//! and futures. C programs with rsockets are its peers, too. The module [`stream`] has examples.
//!
//! # Completions
//! A [`CompletionQueue`] receives a [`Completion`] for each receive, for each signaled send
//! request, and for each request that fails. [`Completion::ok`] turns a failed request into a
//! [`WcError`], which names the operation, the queue pair and the request.
//! [`wait_one`](CompletionQueue::wait_one) and [`next`](CompletionQueue::next) do so themselves.
//!
//! ```
//! use urxe::{Completion, Data, SendRequest, WcError};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = urxe::sim::Fabric::new(1).device([10, 0, 0, 1])?;
//! # let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
//! # let qp = pd.queue_pair(&cq).create()?;
//! # qp.connect(&qp.endpoint(), &Default::default())?;
//! # qp.post_send(&SendRequest::send(Data::EMPTY).wr_id(9))?;
//! # qp.set_error()?;
//! let mut completions = [Completion::default(); 16];
//! let count = cq.poll(&mut completions)?;
//! for completion in &completions[..count] {
//!     let checked: Result<Completion, WcError> = completion.ok();
//!     match checked {
//!         Ok(completion) => println!("{} bytes", completion.byte_len),
//!         Err(error) => println!("{error}"),
//!     }
//! }
//! # assert_eq!(completions[0].ok().unwrap_err().wr_id, 9);
//! # Ok(())
//! # }
//! ```
//!
//! A program has these ways to wait:
//!
//! | method | cost |
//! |---|---|
//! | [`poll`](CompletionQueue::poll) in a loop | occupies a processor; the fastest way |
//! | [`start_poll`](CompletionQueue::start_poll) | the same, for one completion at a time |
//! | [`wait`](CompletionQueue::wait) | blocks the thread |
//! | [`next`](CompletionQueue::next) | suspends a task of any executor |
//! | [`AsyncQueuePair`](aio::AsyncQueuePair) | each task awaits its own operation |
//! | [`CompletionChannel`] | blocks in the program's own `poll` or `epoll`, on a descriptor |
//!
//! Polling is the fastest way because the polling thread itself receives the packets. After
//! polling, the first wake-up of a task or of a descriptor can be up to 1 ms late.
//! [`CompletionQueue::moderate`] makes one wake-up serve many completions.
//!
//! A completion or an event calls the waker of a task when the calling thread holds no lock of this
//! crate. The waker may poll the task at once, or drop any object, including the device.
//!
//! # Tasks
//! The operations of an [`AsyncQueuePair`](aio::AsyncQueuePair) are futures, each of which resolves
//! with its own completion. Its completion queue is its own, so a program cannot poll it. The
//! module [`aio`] describes dropped futures, order and waiting.
//!
//! ```
//! use urxe::aio::AsyncQueuePair;
//! # use urxe::{ConnectOptions, sim::Fabric};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let fabric = Fabric::new(1);
//! # let (a, b) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
//! # let (pd, peer_pd) = (a.alloc_pd()?, b.alloc_pd()?);
//! let qp = AsyncQueuePair::builder().create(&pd)?;
//! let peer = AsyncQueuePair::builder().create(&peer_pd)?;
//! qp.connect(&peer.endpoint(), &ConnectOptions::default())?;
//! peer.connect(&qp.endpoint(), &ConnectOptions::default())?;
//! pollster::block_on(async {
//!     qp.send(b"hello").await?;
//!     assert_eq!(peer.recv().await?.to_vec(), b"hello");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # Asynchronous events
//! [`Device::events`] reports changes of queue pairs, completion queues, shared receive queues and
//! the port, each as an [`AsyncEvent`]:
//!
//! ```
//! use urxe::{AsyncEvent, CqEventType, CqId, DeviceEvents, QpEventType, SrqEventType, SrqId};
//!
//! fn log(event: &AsyncEvent) {
//!     match event {
//!         AsyncEvent::Qp(QpEventType::QpFatal, qpn) => println!("queue pair {qpn} failed"),
//!         AsyncEvent::Cq(CqEventType::CqErr, CqId(nr)) => println!("queue {nr} overran"),
//!         AsyncEvent::Srq(SrqEventType::SrqLimitReached, SrqId(nr)) => println!("{nr} is low"),
//!         other => println!("{other}"),
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let fabric = urxe::sim::Fabric::new(1);
//! # let device = fabric.device([10, 0, 0, 1])?;
//! # fabric.set_port_active(&device, false)?;
//! let events: DeviceEvents<'_> = device.events();
//! while let Some(event) = events.try_next() {
//!     log(&event);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Tests
//! The module [`sim`] has a simulated network in virtual time, with faults that a seed determines.
//! Its devices have the same types, and [`cm`] connects them, so a program can be tested without
//! changes. [`DeviceBuilder::faults`] adds faults to real sockets.
//!
//! # Logging
//! This crate emits events by [`tracing`](https://docs.rs/tracing). A program sees them by
//! installing a subscriber. Without one, an event costs a load and a branch. Typical fields are
//! `qp`, `psn`, `peer`, `device` and `error`. The only span, `process`, has the number of this
//! process as `id`. Events of received messages of connection managers are in it, because processes
//! that share an address may log to one terminal.
//!
//! | level | events |
//! |---|---|
//! | error | a background thread or a socket failed |
//! | warn | a feature is missing and its effect; injected faults; a capture that ended |
//! | info | the port or its addresses changed; a peer does not answer |
//! | debug | the reason for each dropped packet, refused request and failed completion |
//!
//! The target of an event is the path of its module, such as `urxe_io::udp`. Filters select
//! targets by their beginning:
//!
//! | target | events of |
//! |---|---|
//! | `urxe` | this crate; as a beginning, all targets of this table |
//! | `urxe_device` | queue pairs, packets, completions: each drop with its reason |
//! | `urxe_cm` | the connection manager |
//! | `urxe_io` | sockets, interfaces, processes of an address, captures |
//! | `urxe_stack` | threads and ports of a device |
//!
//! ```
//! use tracing_subscriber::EnvFilter;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let filter = EnvFilter::try_new("warn,urxe_device=debug,urxe_io=debug")?;
//! tracing_subscriber::fmt().with_env_filter(filter).init();
//! let device = urxe::Device::open_address([127, 49, 10, 31])?;
//! # let _ = device;
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//! Each operation has an error type of its own, whose variants state the given and the allowed
//! values. The method `errno` returns the number that libibverbs returns.
//!
//! ```
//! use urxe::{Access, AllocateError, CqError, CreateCqError, CreateQpError, Data, ModifyError};
//! use urxe::{ModifyQpError, PostError, QpState, RegMrError, SendRequest, sim::Fabric};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Fabric::new(1).device([10, 0, 0, 1])?;
//! let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
//! let error: CreateQpError = pd.queue_pair(&cq).max_send_sge(33).create().unwrap_err();
//! assert_eq!(error.to_string(), "max_send_sge is 33; the device allows 32");
//! let error: AllocateError = pd.allocate(4096, Access::REMOTE_WRITE).unwrap_err();
//! assert!(matches!(error, AllocateError::Register(RegMrError::NeedsLocalWrite { .. })));
//! let qp = pd.queue_pair(&cq).create()?;
//! let error: PostError = qp.post_send(&SendRequest::send(Data::EMPTY)).unwrap_err();
//! assert_eq!(error, PostError::State { state: QpState::Reset });
//! let error: CreateCqError = device.create_cq(0).unwrap_err();
//! assert!(matches!(error, CreateCqError::Cq(CqError::Capacity { requested: 0, .. })));
//! let error: ModifyError = qp.resume_send_queue().unwrap_err();
//! let ModifyError::Attributes(ModifyQpError::NoTransition { from, to, .. }) = error else {
//!     panic!("{error}")
//! };
//! assert_eq!((from, to), (QpState::Reset, QpState::Rts));
//! # Ok(())
//! # }
//! ```
//!
//! All of them implement [`ErrorNumber`]. A failed system call is an [`OsError`]. Errors that
//! contain another error name its type, so a program can match it:
//!
//! ```
//! use urxe::{
//!     AddressError, CreateQpError, CreateSrqError, DeviceName, ErrorNumber, EventObject, Inode,
//!     MemoryLimits, ModifyError, OpenXrcdError, OsError, PathMigState, PdId, PostError, Sge,
//!     SrqError, SrqSizeError, ValidGids, WaitError, XrcdError,
//! };
//! # use urxe::{Access, AdviseError, AsyncEvent, SendRequest, sim::Fabric};
//!
//! /// Describes an error as a C program would see it.
//! fn describe(error: &impl ErrorNumber) -> String {
//!     format!("{error} ({})", OsError::new(error.errno()))
//! }
//!
//! /// Says which object of a queue pair is not usable.
//! fn unusable(error: &CreateQpError) -> &'static str {
//!     match error {
//!         CreateQpError::Srq(SrqError::Destroyed | SrqError::OtherDevice { .. }) => "its SRQ",
//!         CreateQpError::Xrcd(XrcdError::Closed | XrcdError::OtherDevice) => "its XRC domain",
//!         _ => "another object",
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _ = unusable;
//! # let fabric = Fabric::new(1);
//! # let (device, other) = (fabric.device([10, 0, 0, 1])?, fabric.device([10, 0, 0, 2])?);
//! # let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
//! let error = pd.shared_receive_queue(0).create().unwrap_err();
//! let CreateSrqError::Size(SrqSizeError { field, given: 0, .. }) = error else { panic!() };
//! assert_eq!(field, "max_wr");
//! // Memory of another device.
//! let foreign = other.alloc_pd()?.allocate(64, Access::empty())?;
//! let slice = foreign.slice(..)?;
//! let Sge { length, .. } = slice.sge();
//! assert_eq!(length, 64);
//! let qp = pd.queue_pair(&cq).create()?;
//! let error = qp.post_send(&SendRequest::send(slice)).unwrap_err();
//! println!("{}", describe(&error));
//! let PostError::MemoryOfOtherDevice { memory, queue } = error else { panic!() };
//! let names: (DeviceName, DeviceName) = (memory, queue);
//! assert_eq!((names.0.as_str(), names.1.as_str()), ("sim1=10.0.0.2", "sim0=10.0.0.1"));
//! // The fields of attributes and events have public types, too.
//! let state: PathMigState = qp.query().path_mig_state;
//! let MemoryLimits { max_mr, .. } = device.query().limits.memory();
//! let object: Option<EventObject> = AsyncEvent::DeviceFatal.object();
//! assert_eq!((state, object), (PathMigState::Migrated, None));
//! assert!(max_mr > 0);
//! # fn others(error: (AddressError, OpenXrcdError, AdviseError, WaitError)) {
//! #     if let AddressError::SgidIndex { valid, .. } = error.0 { let _: ValidGids = valid; }
//! #     if let OpenXrcdError::Exists { given } = error.1 { let _: Inode = given; }
//! #     if let AdviseError::WrongPd { given, .. } = error.2 { let _: PdId = given; }
//! # }
//! # let _ = (others, |error: ModifyError| error);
//! # Ok(())
//! # }
//! ```
//!
//! A request that fails after posting is not an error of the call that posts it. Its completion has
//! the reason: see [`Completion::ok`].
//!
//! # Threads and processes
//! All types can be sent to and shared by threads, except a [`Poller`]. A child of `fork` must not
//! use the devices of its parent: it opens its own.
//!
//! Handles can cross the boundary of a library by number: [`ProtectionDomain::handle`] and
//! [`Device::import_pd`]. [`ProtectionDomain::parent_domain`] creates a second handle of a domain
//! with a [`ThreadDomain`].
//!
//! # Features
//! The default features are `capture`, `cm` and `sim`. `docs/crates.md` of the repository has the
//! packages and the build time without them.
//!
//! * `capture`: `DeviceBuilder::capture` and `Tap` write packets to a pcapng file.
//! * `cm`: the modules [`cm`] and [`stream`], `DeviceBuilder::watcher` and
//!   `DeviceBuilder::keep_alive`. Without this feature a process drops the messages of connection
//!   managers to itself. Other processes of its address still get theirs.
//! * `sim`: the module [`sim`], [`DeviceBuilder::faults`] and `DeviceBuilder::loss`.
//! * `stream`: completion queues and listeners as streams of `futures-core`: `CompletionStream`,
//!   `cm::RequestStream`, `cm::DatagramRequestStream` and `stream::AcceptStream`.
//! * `tokio`, `futures`: `AsyncRead` and `AsyncWrite` of these crates for `stream::RdmaStream`.
//! * `serde`: [`QpEndpoint`] and [`RemoteRegion`] implement the traits of serde by their text form.
//!
#![cfg_attr(not(feature = "cm"), doc = "[`cm`]: #features")]
#![cfg_attr(not(feature = "cm"), doc = "[`stream`]: #features")]
#![cfg_attr(not(feature = "cm"), doc = "[`stream::RdmaStream`]: #features")]
#![cfg_attr(not(feature = "cm"), doc = "[`cm::connect`]: #features")]
#![cfg_attr(not(feature = "cm"), doc = "[`cm::Listener`]: #features")]
#![cfg_attr(not(feature = "sim"), doc = "[`sim`]: #features")]
#![cfg_attr(not(all(feature = "cm", feature = "sim")), doc = "[`guide`]: #features")]
#![cfg_attr(not(feature = "sim"), doc = "[`DeviceBuilder::faults`]: #features")]
#![deny(unsafe_code)]
// A reader copies the examples, which the compiler accepts without a warning.
#![doc(test(attr(deny(unused_must_use))))]

mod ah;
pub mod aio;
mod backend;
mod blocking_wait;
#[cfg(feature = "cm")]
pub mod cm;
mod cq;
mod device;
mod domain;
mod endpoint;
mod events;
#[cfg(all(feature = "cm", feature = "sim"))]
pub mod guide;
pub mod link;
mod memory;
#[cfg(not(feature = "cm"))]
mod no_cm;
#[cfg(not(feature = "sim"))]
mod no_sim;
mod pd;
mod qp;
#[cfg(feature = "sim")]
pub mod sim;
mod srq;
#[cfg(feature = "cm")]
pub mod stream;
mod waker_list;
mod xrc;

/// The program of the readme is a test.
#[cfg(all(doctest, feature = "cm"))]
#[doc = include_str!("../../../README.md")]
mod readme {}

#[cfg(not(feature = "cm"))]
use no_cm as cm;
#[cfg(not(feature = "sim"))]
use no_sim as sim;

pub use ah::{AddressHandle, AnswerError, GRH_LEN};
#[cfg(feature = "stream")]
pub use cq::CompletionStream;
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
    RemoteBytesError, RemoteParseError, RemoteRegion, RemoteSliceError, SliceError,
};
pub use pd::{AllocPdError, ProtectionDomain};
pub use qp::{
    BatchError, ConnectOptions, Data, Gather, QueuePair, QueuePairBuilder, RecvRequest, SendRequest,
};
pub use srq::{SharedReceiveQueue, SrqBuilder};
pub use xrc::{XrcDomain, XrcTarget};

pub use urxe_stack::allocate::OutOfMemory;
pub use urxe_stack::cq::{
    ArmKind, AsyncEvent, AsyncEventType, Completion, CqError, CqEventType, CqId, EventObject,
    Moderation, PortEventType, QpEventType, SrqEventType, SrqId, WcError, WcFlags, WcOpcode,
    WcStatus,
};
pub use urxe_stack::device::ah::{AhFromWcError, CreateAhError};
pub use urxe_stack::device::counters::Counter;
pub use urxe_stack::device::multicast::{AttachMcastError, DetachMcastError};
pub use urxe_stack::device::{
    AddressError, AllocParentDomainError, CreateCqError, CreateQpError, IcrcPolicy, Limits,
    ModifyError, OpenQpError, ValidGids,
};
pub use urxe_stack::driver::OpenEngineError;
pub use urxe_stack::errno::{ErrorNumber, OsError};
pub use urxe_stack::files::OutputFileError;
pub use urxe_stack::link::{GidEntry, Guid, LinkError, LinkSpec, ResolvedLink, Source};
pub use urxe_stack::memory::{
    Access, AdviseError, AllocMrError, AllocMwError, BufferError, DmError, FileError, MapError,
    MemoryLimits, MwType, PdId, RegMrError, ReregMrError,
};
pub use urxe_stack::names::DeviceName;
#[cfg(feature = "sim")]
pub use urxe_stack::port::faults::{FaultError, FaultSpec};
pub use urxe_stack::port::groups::JoinError;
#[cfg(feature = "capture")]
pub use urxe_stack::port::tap::Tap;
pub use urxe_stack::qp::attr::{
    AddressVector, PathMigState, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType,
};
pub use urxe_stack::qp::transition::ModifyQpError;
pub use urxe_stack::qp::work_request::{PostError, Remote, Sge};
pub use urxe_stack::srq::SrqAttr;
pub use urxe_stack::srq::error::{CreateSrqError, ModifySrqError, SrqError, SrqSizeError};
pub use urxe_stack::srq::xrcd::{Inode, OpenXrcdError, XrcdError, XrcdFlags};
pub use urxe_wire::{
    AckTimeout, FlushIcrc, Gid, Lkey, PlacementType, Psn, QKey, Qpn, Rkey, RnrTimer,
};
