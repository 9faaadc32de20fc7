//! Domains of extended reliable connections (XRC). A domain determines which target queue pairs may
//! use which shared receive queues (IBTA vol. 1, annex A14).
//!
//! Programs that open a domain on the same file share that domain, as with `ibv_open_xrcd`, but
//! only within one process. The queues and buffers of another process cannot be reached. The caller
//! passes a lock in that keeps other processes from the domain of the file.

use std::any::Any;
use std::ops::Deref;

use crate::cq::AsyncEvents;
use urxe_types::sync::Arc;
use urxe_types::sync::atomic::{AtomicU32, Ordering};

/// The identity of a file, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode {
    /// The device number of the file system (`st_dev`).
    pub device: u64,
    /// The number of the file in its file system (`st_ino`).
    pub number: u64,
}

bitflags::bitflags! {
    /// The mode of opening a domain (`O_CREAT`, `O_EXCL` of `struct ibv_xrcd_init_attr`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct XrcdFlags: u32 {
        /// `O_CREAT`: makes a domain if the file has none.
        const CREATE = 0o100;
        /// `O_EXCL`: fails if the file has a domain.
        const EXCLUSIVE = 0o200;
    }
}

/// A lock on the domain of a file against other processes. Dropping it releases the lock.
pub type Claim = Box<dyn Any + Send + Sync>;

urxe_types::errors! {
    /// Why a domain was not opened.
    #[derive(Debug, thiserror::Error)]
    pub enum OpenXrcdError {
        /// The file has no domain, and the call did not ask for a new one.
        #[error(
            "no XRC domain was opened on this file (inode {}): give O_CREAT to make one",
            given.number
        )]
        NotThere { given: Inode } = EAGAIN,
        /// The file has a domain, and the call asked for a new one.
        #[error(
            "an XRC domain is open on this file (inode {}) already, and O_EXCL asks for a new one",
            given.number
        )]
        Exists { given: Inode } = EINVAL,
        /// Without a file, no existing domain can be found.
        #[error("an XRC domain without a file is always a new one: give O_CREAT")]
        NoFile = EINVAL,
        #[error(
            "another process has the XRC domain of this file (inode {}): domains are shared within \
             one process only, since queues and buffers live in it",
            given.number
        )]
        OtherProcess { given: Inode } = EOPNOTSUPP,
        #[error("the XRC domain's file cannot be claimed: {0}")]
        Claim(#[from] std::io::Error) => |error| error.raw_os_error().unwrap_or(EIO),
        #[error("the device has {allowed} XRC domains and all are in use")]
        NoneLeft { allowed: u32 } = ENOMEM,
    }

    /// Why a domain was not closed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum CloseXrcdError {
        /// The domain was closed as often as it was opened.
        #[error("the XRC domain was closed before")]
        NoXrcd = EINVAL,
        #[error("the XRC domain still has {users} shared receive queues and queue pairs")]
        Busy { users: u32 } = EBUSY,
    }

    /// Why a domain cannot be used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum XrcdError {
        #[error("the XRC domain was closed")]
        Closed = EINVAL,
        #[error("the XRC domain belongs to another device")]
        OtherDevice = EINVAL,
    }
}

/// An XRC domain. Open while it was opened more often than closed.
#[derive(Debug)]
pub struct Xrcd {
    inode: Option<Inode>,
    /// The event queue of the device, which identifies the device.
    events: Arc<AsyncEvents>,
    /// The number of opens that were not closed. Changes under the control lock of the device.
    opens: AtomicU32,
    /// The number of shared receive queues and queue pairs in the domain. Grows under the
    /// control lock of the device only.
    users: AtomicU32,
    _claim: Option<Claim>,
}

impl Xrcd {
    pub(crate) fn new(
        inode: Option<Inode>,
        events: Arc<AsyncEvents>,
        claim: Option<Claim>,
    ) -> Self {
        Self { inode, events, opens: AtomicU32::new(1), users: AtomicU32::new(0), _claim: claim }
    }

    /// Returns the file of the domain.
    #[must_use]
    pub const fn inode(&self) -> Option<Inode> {
        self.inode
    }

    pub(crate) fn is_of(&self, events: &Arc<AsyncEvents>) -> bool {
        Arc::ptr_eq(&self.events, events)
    }

    /// Opens the domain once more. The caller holds the control lock of the device.
    pub(crate) fn open_again(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the domain once. Returns whether that was the last time. The caller holds the control
    /// lock of the device.
    pub(crate) fn close(&self) -> Result<bool, CloseXrcdError> {
        match self.opens.load(Ordering::Relaxed) {
            0 => Err(CloseXrcdError::NoXrcd),
            1 => {
                let users = self.users.load(Ordering::Acquire);
                if users != 0 {
                    return Err(CloseXrcdError::Busy { users });
                }
                self.opens.store(0, Ordering::Relaxed);
                Ok(true)
            }
            more => {
                self.opens.store(more - 1, Ordering::Relaxed);
                Ok(false)
            }
        }
    }
}

/// A reference to the domain by an object inside.
#[derive(Debug)]
pub(crate) struct XrcdRef(Arc<Xrcd>);

impl XrcdRef {
    /// Adds one user. The caller holds the control lock of the device.
    pub fn new(xrcd: Arc<Xrcd>) -> Result<Self, XrcdError> {
        if xrcd.opens.load(Ordering::Relaxed) == 0 {
            return Err(XrcdError::Closed);
        }
        xrcd.users.fetch_add(1, Ordering::AcqRel);
        Ok(Self(xrcd))
    }

    /// Returns whether this is a reference to `xrcd`.
    pub fn holds(&self, xrcd: &Xrcd) -> bool {
        std::ptr::eq(&*self.0, xrcd)
    }
}

impl Deref for XrcdRef {
    type Target = Xrcd;

    fn deref(&self) -> &Xrcd {
        &self.0
    }
}

impl Drop for XrcdRef {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}
