//! Errors of verbs. The text is for `URXE_LOG`, the number for the program.

use std::path::PathBuf;

use urxe_stack::allocate::OutOfMemory;
use urxe_stack::cma::CmaError;
use urxe_stack::cq::CqError;
use urxe_stack::device::ah::{AhFromWcError, CreateAhError, DestroyAhError};
use urxe_stack::device::multicast::{AttachMcastError, DetachMcastError};
use urxe_stack::device::{AllocParentDomainError, DeallocTdError, OpenQpError};
use urxe_stack::device::{
    CreateCqError, CreateQpError, DeallocPdError, DestroyQpError, ModifyError,
};
use urxe_stack::driver::OpenEngineError;
use urxe_stack::files::OutputFileError;
use urxe_stack::link::LinkError;
use urxe_stack::memory::{
    AdviseError, AllocMwError, DeallocMwError, DeregMrError, DmError, RegMrError, ReregMrError,
};
use urxe_stack::port::faults::FaultError;
use urxe_stack::qp::attr::QpType;
use urxe_stack::qp::work_request::PostError;
use urxe_stack::srq::error::{CreateSrqError, DestroySrqError, ModifySrqError};
use urxe_stack::srq::xrcd::{CloseXrcdError, OpenXrcdError};

urxe_stack::errors! {
    /// Why a verb was refused.
    #[derive(Debug, thiserror::Error)]
    pub enum VerbError {
        #[error("{0} is NULL")]
        Null(&'static str) = EINVAL,
        /// The process has two copies of libibverbs or librdmacm: see `load_check`.
        #[error(
            "{} and {} are both loaded; a process can have one libibverbs.so.1 and \
             librdmacm.so.1, which are links to one liburxe.so: take the other one's folder out of \
             the library path, the program's DT_RPATH or dlopen",
            this.display(),
            other.display()
        )]
        OtherLibrary { this: PathBuf, other: PathBuf } = EBUSY,
        #[error("{0} is not supported")]
        Unsupported(&'static str) = EOPNOTSUPP,
        #[error("{field} is {given}; {allowed}")]
        Value { field: &'static str, given: u64, allowed: &'static str } = EINVAL,
        /// A mask has bits that are unknown or unsupported.
        #[error("{field} is {given:#x}: the bits {unknown:#x} are not supported")]
        Bits { field: &'static str, given: u64, unknown: u64 } = EOPNOTSUPP,
        #[error("port {given}: the device has port 1")]
        Port { given: u32 } = EINVAL,
        #[error("index {given}: the {table} table has {len} entries")]
        Index { table: &'static str, given: i64, len: usize } = EINVAL,
        #[error("entry {index} of the GID table is empty")]
        EmptyGid { index: u32 } = ENODATA,
        #[error("the device has {max} protection domains and all are in use")]
        NoPdLeft { max: u32 } = ENOMEM,
        #[error("the device has no {what} with the number {handle:#x}")]
        Unknown { what: &'static str, handle: u32 } = ENOENT,
        /// A descriptor that belongs to no open context.
        #[error("cmd_fd belongs to no context that this process has open; objects of other \
                 processes cannot be imported")]
        NoContext = EINVAL,
        #[error("no such object ({what}): the program destroyed the object before, or closed its \
                 context")]
        Gone { what: &'static str } = EINVAL,
        /// The object and the object that it is used with belong to different devices.
        // The kernel looks for the object's number among those of the context: ENOENT.
        #[error("{0} belongs to another device")]
        OtherDevice(&'static str) = ENOENT,
        /// The object and the object that it is used with belong to different contexts of the
        /// device.
        // ENOENT for the same reason.
        #[error("{0} belongs to another context of the device: make both objects through one \
                 context, or import the object")]
        OtherContext(&'static str) = ENOENT,
        // The kernel looks for the channel's descriptor among those of the queue's context.
        #[error("the completion channel belongs to another context than the completion queue")]
        ChannelOfOther = EBADF,
        #[error("port {port} has no P_Key {index}; port 1 has {len}")]
        NoPkey { port: u8, index: i64, len: usize } = ENOENT,
        #[error("{cqs} completion queues report to the channel")]
        ChannelBusy { cqs: usize } = EBUSY,
        #[error("send_ops_flags is {given:#x}: {qp_type} queue pairs do not support {unknown:#x}")]
        SendOps { qp_type: QpType, given: u64, unknown: u64 } = EOPNOTSUPP,
        #[error("{what}: {errno}")]
        System { what: &'static str, errno: rustix::io::Errno } = errno.raw_os_error(),
        #[error(transparent)] Cma(#[from] CmaError),
        #[error(transparent)] Link(#[from] LinkError),
        #[error(transparent)] Open(#[from] OpenEngineError),
        #[error("URXE_CAPTURE: {0}")]
        Capture(OutputFileError),
        #[error("{variable}: {error}")]
        Faults { variable: &'static str, error: FaultError } = error.errno(),
        #[error("{variable} is {given:?}; the allowed values are on and off")]
        Switch { variable: &'static str, given: String } = EINVAL,
        #[error("URXE_STRICT is {given:?}; the allowed value is queues")]
        Strict { given: String } = EINVAL,
        #[error("{variable}={given:?} is no time: give whole seconds, from 1 to 86400")]
        Seconds { variable: &'static str, given: String } = EINVAL,
        #[error("{variable}={given:?} is no share: give a whole number of percent, from 0 to 100")]
        Percent { variable: &'static str, given: String } = EINVAL,
        #[error(transparent)] RegMr(#[from] RegMrError),
        #[error(transparent)] DeregMr(#[from] DeregMrError),
        #[error(transparent)] DeallocPd(#[from] DeallocPdError),
        #[error(transparent)] CreateCq(#[from] CreateCqError),
        #[error(transparent)] Cq(#[from] CqError),
        #[error(transparent)] CreateQp(#[from] CreateQpError),
        #[error(transparent)] Modify(#[from] ModifyError),
        #[error(transparent)] DestroyQp(#[from] DestroyQpError),
        #[error(transparent)] CreateSrq(#[from] CreateSrqError),
        #[error(transparent)] ModifySrq(#[from] ModifySrqError),
        #[error(transparent)] DestroySrq(#[from] DestroySrqError),
        #[error(transparent)] AllocParentDomain(#[from] AllocParentDomainError),
        #[error(transparent)] DeallocTd(#[from] DeallocTdError),
        #[error(transparent)] ReregMr(#[from] ReregMrError),
        #[error(transparent)] Advise(#[from] AdviseError),
        #[error(transparent)] AllocMw(#[from] AllocMwError),
        #[error(transparent)] DeallocMw(#[from] DeallocMwError),
        #[error(transparent)] Dm(#[from] DmError),
        #[error(transparent)] CreateAh(#[from] CreateAhError),
        #[error(transparent)] DestroyAh(#[from] DestroyAhError),
        #[error(transparent)] AhFromWc(#[from] AhFromWcError),
        #[error(transparent)] AttachMcast(#[from] AttachMcastError),
        #[error(transparent)] DetachMcast(#[from] DetachMcastError),
        #[error(transparent)] OpenXrcd(#[from] OpenXrcdError),
        #[error(transparent)] CloseXrcd(#[from] CloseXrcdError),
        #[error(transparent)] OpenQp(#[from] OpenQpError),
        #[error(transparent)] Post(#[from] PostError),
        #[error(transparent)] NoMemory(#[from] OutOfMemory),
    }
}

impl VerbError {
    /// Returns the error for a field with a value that is not allowed.
    pub fn value(field: &'static str, given: impl Into<u64>, allowed: &'static str) -> Self {
        Self::Value { field, given: given.into(), allowed }
    }

    /// Returns the error of a failed system call. `what` names the object of the call.
    pub const fn system(what: &'static str, errno: rustix::io::Errno) -> Self {
        Self::System { what, errno }
    }

    /// Returns the error that the verb called last left in `errno`. `what` names the object that
    /// was not created.
    pub fn last(what: &'static str) -> Self {
        let errno = std::io::Error::last_os_error().raw_os_error();
        let errno = errno.filter(|errno| *errno > 0).unwrap_or(libc::EIO);
        Self::System { what, errno: rustix::io::Errno::from_raw_os_error(errno) }
    }
}
