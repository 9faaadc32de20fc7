//! RDMA in userspace: RoCEv2 over plain UDP, without root and without a kernel module.
#![deny(unsafe_code)]

mod cq;
mod device;
mod endpoint;
mod events;
mod memory;
mod node;
mod pd;
mod qp;
pub mod sim;
mod text;
mod wait;
mod waiters;

pub use cq::{ChannelError, CompletionChannel, CompletionQueue, CqEvent, Drain, Next, WaitError};
pub use device::{Device, DeviceAttr, DeviceBuilder, DeviceInfo, OpenError, PortAttr, devices};
pub use endpoint::{EndpointParseError, QpEndpoint};
pub use events::{DeviceEvents, NextEvent};
pub use memory::{
    AllocateError, ForeignRegion, MemoryRegion, RegionSlice, RemoteParseError, RemoteRegion,
    RemoteSliceError, SliceError,
};
pub use pd::{AllocPdError, ProtectionDomain};
pub use qp::{
    BatchError, ConnectOptions, Data, Gather, QueuePair, QueuePairBuilder, RecvRequest, SendRequest,
};

pub use urxe_stack::cq::{
    ArmKind, AsyncEvent, AsyncEventType, Completion, CqError, CqEventType, CqId, PortEventType, QpEventType,
    WcFlags, WcOpcode, WcStatus,
};
pub use urxe_stack::device::counters::Counter;
pub use urxe_stack::device::{CreateCqError, CreateQpError, IcrcPolicy, Limits, ModifyError};
pub use urxe_stack::driver::OpenEngineError;
pub use urxe_stack::link::{GidEntry, Guid, LinkError, LinkSpec, ResolvedLink, Source};
pub use urxe_stack::memory::{Access, BufferError, RegMrError};
pub use urxe_stack::port::tap::Tap;
pub use urxe_stack::qp::attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType};
pub use urxe_stack::qp::transition::ModifyQpError;
pub use urxe_stack::qp::wr::{PostError, Remote, SendFlags};
pub use urxe_wire::{Gid, Lkey, Psn, Qpn, Rkey};
