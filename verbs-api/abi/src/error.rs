//! Why a verb was refused. The text is for `URXE_LOG`, the number for the program.

use urxe_stack::cma::CmaError;
use urxe_stack::cq::CqError;
use urxe_stack::device::ah::{AhFromWcError, CreateAhError, DestroyAhError};
use urxe_stack::device::multicast::{AttachMcastError, DetachMcastError};
use urxe_stack::device::{AllocParentDomainError, DeallocTdError, OpenQpError};
use urxe_stack::device::{
    CreateCqError, CreateQpError, DeallocPdError, DestroyQpError, ModifyError,
};
use urxe_stack::driver::OpenEngineError;
use urxe_stack::link::LinkError;
use urxe_stack::memory::{
    AdviseError, AllocMwError, DeallocMwError, DeregMrError, DmError, RegMrError, ReregMrError,
};
use urxe_stack::port::faults::FaultError;
use urxe_stack::qp::attr::QpType;
use urxe_stack::qp::wr::PostError;
use urxe_stack::srq::error::{CreateSrqError, DestroySrqError, ModifySrqError};
use urxe_stack::srq::xrcd::{CloseXrcdError, OpenXrcdError};

/// Why a verb was refused.
#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    /// A pointer that must point somewhere.
    #[error("{0} is NULL")]
    Null(&'static str),
    /// What this library does not offer.
    #[error("{0} is not offered")]
    Unsupported(&'static str),
    /// An argument that cannot be.
    #[error("{field} is {given}; {allowed}")]
    Value {
        /// Its name.
        field: &'static str,
        /// What was given.
        given: u64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Bits of a mask that mean nothing, or nothing here.
    #[error("{field} is {given:#x}, of which {unknown:#x} is not offered")]
    Bits {
        /// The mask's name.
        field: &'static str,
        /// What was given.
        given: u64,
        /// The part of it that is refused.
        unknown: u64,
    },
    /// A port that the device does not have.
    #[error("port {given}: the device has port 1")]
    Port {
        /// What was given.
        given: u32,
    },
    /// An index behind the end of a table.
    #[error("index {given}: the {table} table has {len} entries")]
    Index {
        /// Which table.
        table: &'static str,
        /// What was given.
        given: i64,
        /// How many entries there are.
        len: usize,
    },
    /// An empty entry of the GID table.
    #[error("entry {index} of the GID table is empty")]
    EmptyGid {
        /// Which.
        index: u32,
    },
    /// All protection domains are in use.
    #[error("the device has {max} protection domains and all are in use")]
    NoPdLeft {
        /// How many there are.
        max: u32,
    },
    /// A number that nothing has.
    #[error("the device has no {what} with the number {handle:#x}")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// The number.
        handle: u32,
    },
    /// A descriptor that does not stand for an open device.
    #[error(
        "cmd_fd is not that of a context that this process has open; engines of other processes cannot be reached"
    )]
    NoContext,
    /// A handle that nothing is behind any more.
    #[error("there is no such object ({what}): it was destroyed before, or its context was closed")]
    Gone {
        /// The kind of object.
        what: &'static str,
    },
    /// An object of another device than what it is used with.
    #[error("{0} is of another device")]
    OtherDevice(&'static str),
    /// An object of another context of the device than what it is used with.
    #[error(
        "{0} is of another context of the device: what is used together is made through one, or imported from it"
    )]
    OtherContext(&'static str),
    /// A completion channel of another context than the queue's.
    #[error("the completion channel belongs to another context than the completion queue")]
    ChannelOfOther,
    /// An entry that the P_Key table does not have.
    #[error("port {port} has no P_Key {index}; port 1 has {len}")]
    NoPkey {
        /// The port.
        port: u8,
        /// The index.
        index: i64,
        /// How many entries there are.
        len: usize,
    },
    /// Completion queues use the channel.
    #[error("{cqs} completion queues report to the channel")]
    ChannelBusy {
        /// How many.
        cqs: usize,
    },
    /// A queue pair's service does not have an operation.
    #[error("send_ops_flags {given:#x}: {qp_type} does not offer {unknown:#x}")]
    SendOps {
        /// The service.
        qp_type: QpType,
        /// What was asked for.
        given: u64,
        /// The part that is not offered.
        unknown: u64,
    },
    /// A call of the system.
    #[error("{what}: {errno}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The reason.
        errno: rustix::io::Errno,
    },
    #[error(transparent)]
    Cma(#[from] CmaError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Open(#[from] OpenEngineError),
    #[error("URXE_CAPTURE: cannot write {path}: {error}")]
    Capture {
        /// The file.
        path: String,
        /// The reason.
        error: std::io::Error,
    },
    #[error("{variable}: {error}")]
    Faults {
        /// The environment variable.
        variable: &'static str,
        /// What is wrong with it.
        error: FaultError,
    },
    #[error("{variable} is {given:?}; it is on or off")]
    Switch {
        /// The environment variable.
        variable: &'static str,
        /// What it says.
        given: String,
    },
    #[error(transparent)]
    RegMr(#[from] RegMrError),
    #[error(transparent)]
    DeregMr(#[from] DeregMrError),
    #[error(transparent)]
    DeallocPd(#[from] DeallocPdError),
    #[error(transparent)]
    CreateCq(#[from] CreateCqError),
    #[error(transparent)]
    Cq(#[from] CqError),
    #[error(transparent)]
    CreateQp(#[from] CreateQpError),
    #[error(transparent)]
    Modify(#[from] ModifyError),
    #[error(transparent)]
    DestroyQp(#[from] DestroyQpError),
    #[error(transparent)]
    CreateSrq(#[from] CreateSrqError),
    #[error(transparent)]
    ModifySrq(#[from] ModifySrqError),
    #[error(transparent)]
    DestroySrq(#[from] DestroySrqError),
    #[error(transparent)]
    AllocParentDomain(#[from] AllocParentDomainError),
    #[error(transparent)]
    DeallocTd(#[from] DeallocTdError),
    #[error(transparent)]
    ReregMr(#[from] ReregMrError),
    #[error(transparent)]
    Advise(#[from] AdviseError),
    #[error(transparent)]
    AllocMw(#[from] AllocMwError),
    #[error(transparent)]
    DeallocMw(#[from] DeallocMwError),
    #[error(transparent)]
    Dm(#[from] DmError),
    #[error(transparent)]
    CreateAh(#[from] CreateAhError),
    #[error(transparent)]
    DestroyAh(#[from] DestroyAhError),
    #[error(transparent)]
    AhFromWc(#[from] AhFromWcError),
    #[error(transparent)]
    AttachMcast(#[from] AttachMcastError),
    #[error(transparent)]
    DetachMcast(#[from] DetachMcastError),
    #[error(transparent)]
    OpenXrcd(#[from] OpenXrcdError),
    #[error(transparent)]
    CloseXrcd(#[from] CloseXrcdError),
    #[error(transparent)]
    OpenQp(#[from] OpenQpError),
    #[error(transparent)]
    Post(#[from] PostError),
}

impl VerbError {
    /// What a verb that was just called left in `errno`: `what` could not be made.
    pub fn last(what: &'static str) -> Self {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Self::System { what, errno: rustix::io::Errno::from_raw_os_error(errno) }
    }

    /// The number that the original gives in this case.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Unsupported(_) | Self::SendOps { .. } | Self::Bits { .. } => libc::EOPNOTSUPP,
            Self::Unknown { .. } | Self::NoPkey { .. } => libc::ENOENT,
            // The kernel looks for its number among those of the context.
            Self::OtherDevice(_) | Self::OtherContext(_) => libc::ENOENT,
            Self::Gone { .. } | Self::NoContext => libc::EINVAL,
            Self::Null(_) | Self::Value { .. } | Self::Port { .. } | Self::Index { .. } => {
                libc::EINVAL
            }
            Self::EmptyGid { .. } => libc::ENODATA,
            Self::NoPdLeft { .. } => libc::ENOMEM,
            Self::ChannelBusy { .. } => libc::EBUSY,
            // The kernel looks for its descriptor among those of the queue's context.
            Self::ChannelOfOther => libc::EBADF,
            Self::System { errno, .. } => errno.raw_os_error(),
            Self::Cma(error) => error.errno(),
            Self::Link(_) => libc::ENODEV,
            Self::Open(error) => error.errno(),
            Self::Capture { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
            Self::Faults { .. } | Self::Switch { .. } => libc::EINVAL,
            Self::RegMr(error) => error.errno(),
            Self::DeregMr(error) => error.errno(),
            Self::DeallocPd(error) => error.errno(),
            Self::CreateCq(error) => error.errno(),
            Self::Cq(error) => error.errno(),
            Self::CreateQp(error) => error.errno(),
            Self::Modify(error) => error.errno(),
            Self::DestroyQp(error) => error.errno(),
            Self::CreateSrq(error) => error.errno(),
            Self::ModifySrq(error) => error.errno(),
            Self::DestroySrq(error) => error.errno(),
            Self::AllocParentDomain(error) => error.errno(),
            Self::DeallocTd(error) => error.errno(),
            Self::ReregMr(error) => error.errno(),
            Self::Advise(error) => error.errno(),
            Self::AllocMw(error) => error.errno(),
            Self::DeallocMw(error) => error.errno(),
            Self::Dm(error) => error.errno(),
            Self::CreateAh(error) => error.errno(),
            Self::DestroyAh(error) => error.errno(),
            Self::AhFromWc(error) => error.errno(),
            Self::AttachMcast(error) => error.errno(),
            Self::DetachMcast(error) => error.errno(),
            Self::OpenXrcd(error) => error.errno(),
            Self::CloseXrcd(error) => error.errno(),
            Self::OpenQp(error) => error.errno(),
            Self::Post(error) => error.errno(),
        }
    }
}
