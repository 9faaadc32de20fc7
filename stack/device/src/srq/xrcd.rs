//! Extended reliable connection domains: which target queue pairs reach which shared receive queues
//! (IBTA vol. 1, A14).
//!
//! Programs that open a domain on the same file share it, as with `ibv_open_xrcd`, but within one
//! process only: queues and buffers of another process cannot be reached from here. A claim that
//! the caller brings says whether another process has the file's domain.

use std::any::Any;
use std::ops::Deref;

use crate::cq::AsyncEvents;
use urxe_types::sync::Arc;
use urxe_types::sync::atomic::{AtomicU32, Ordering};

/// A file, whatever its name and whoever opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode {
    /// The file system's device number (`st_dev`).
    pub device: u64,
    /// The file's number in it (`st_ino`).
    pub number: u64,
}

bitflags::bitflags! {
    /// How a domain is opened (`O_CREAT`, `O_EXCL` of `struct ibv_xrcd_init_attr`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct XrcdFlags: u32 {
        /// `O_CREAT`: made if the file has none.
        const CREATE = 0o100;
        /// `O_EXCL`: the file must have none.
        const EXCLUSIVE = 0o200;
    }
}

/// Keeps other processes from a file's domain, until it is dropped.
pub type Claim = Box<dyn Any + Send + Sync>;

urxe_types::errors! {
    /// Why a domain was not opened.
    #[derive(Debug, thiserror::Error)]
    pub enum OpenXrcdError {
        /// The file has none, and none was to be made.
        #[error(
            "no XRC domain was opened on this file (inode {}): give O_CREAT to make one",
            given.number
        )]
        NotThere { given: Inode } = EAGAIN,
        /// The file has one, and a new one was asked for.
        #[error(
            "an XRC domain is open on this file (inode {}) already, and O_EXCL asks for a new one",
            given.number
        )]
        Exists { given: Inode } = EINVAL,
        /// Without a file there is nothing to be found: a domain can only be made.
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
        /// It was closed as often as it was opened.
        #[error("the XRC domain was closed before")]
        NoXrcd = EINVAL,
        #[error("the XRC domain still has {users} shared receive queues and queue pairs")]
        Busy { users: u32 } = EBUSY,
    }

    /// A domain that cannot be used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum XrcdError {
        #[error("the XRC domain was closed")]
        Closed = EINVAL,
        #[error("the XRC domain belongs to another device")]
        OtherDevice = EINVAL,
    }
}

/// A domain. It is open as long as it was opened more often than closed.
#[derive(Debug)]
pub struct Xrcd {
    inode: Option<Inode>,
    /// Says whose it is.
    events: Arc<AsyncEvents>,
    /// How often it is open; changes under the device's control lock.
    opens: AtomicU32,
    /// Shared receive queues and queue pairs in it; becomes more under the device's control lock.
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

    /// The file that it is shared by.
    #[must_use]
    pub const fn inode(&self) -> Option<Inode> {
        self.inode
    }

    pub(crate) fn is_of(&self, events: &Arc<AsyncEvents>) -> bool {
        Arc::ptr_eq(&self.events, events)
    }

    /// Opens it once more. Under the device's control lock.
    pub(crate) fn open_again(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes it once; true if that was the last time. Under the device's control lock.
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

/// The hold on a domain of something that is in it.
#[derive(Debug)]
pub(crate) struct XrcdRef(Arc<Xrcd>);

impl XrcdRef {
    /// Counts one more user. Under the device's control lock.
    pub fn new(xrcd: Arc<Xrcd>) -> Result<Self, XrcdError> {
        if xrcd.opens.load(Ordering::Relaxed) == 0 {
            return Err(XrcdError::Closed);
        }
        xrcd.users.fetch_add(1, Ordering::AcqRel);
        Ok(Self(xrcd))
    }

    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether it holds this domain.
    pub fn holds(&self, xrcd: &Arc<Xrcd>) -> bool {
        Arc::ptr_eq(&self.0, xrcd)
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
