//! The network namespace in which a device was opened.
//!
//! The state that an engine's threads share holds it, and the loopback path compares it. It stands
//! apart so that neither of the two needs the other for it.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A network namespace, identified by device and inode of its file in /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    device: u64,
    inode: u64,
}

impl Namespace {
    /// Returns the namespace of the calling thread; `None` where /proc does not show it (proc(5)).
    pub fn current() -> Option<Self> {
        let file = fs::metadata("/proc/thread-self/ns/net").ok()?;
        Some(Self { device: file.dev(), inode: file.ino() })
    }
}
