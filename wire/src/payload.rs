//! The payload of a received packet, wherever its bytes are.
//!
//! Most packets are in private memory. Two processes of one host can also exchange packets through
//! memory that both map, and the receiver may copy the payload from there to its destination
//! without a private copy in between. The other process can change such bytes at any time.
//! Therefore no `&[u8]` to them exists: they are atomics, and a receiver copies each byte once.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

/// The bytes of a payload.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes of this process.
    Private(&'a [u8]),
    /// Bytes that another process can change at any time.
    Shared(&'a [AtomicU8]),
}

impl<'a> Payload<'a> {
    /// Returns the number of bytes.
    #[must_use]
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Private(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.len(),
        }
    }

    /// Returns whether there are no bytes.
    #[must_use]
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of `range`.
    ///
    /// # Panics
    /// If the payload has fewer bytes.
    #[must_use]
    #[inline]
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::Private(bytes) => Self::Private(&bytes[range]),
            Self::Shared(bytes) => Self::Shared(&bytes[range]),
        }
    }

    /// Returns a copy of the bytes, or `None` if there are not exactly `N`.
    #[must_use]
    pub fn to_array<const N: usize>(self) -> Option<[u8; N]> {
        match self {
            Self::Private(bytes) => bytes.try_into().ok(),
            Self::Shared(bytes) => {
                let bytes: &'a [AtomicU8; N] = bytes.try_into().ok()?;
                Some(std::array::from_fn(|at| bytes[at].load(Ordering::Relaxed)))
            }
        }
    }

    /// Appends a copy of the bytes to `out`.
    pub fn append_to(self, out: &mut Vec<u8>) {
        match self {
            Self::Private(bytes) => out.extend_from_slice(bytes),
            Self::Shared(bytes) => {
                out.extend(bytes.iter().map(|byte| byte.load(Ordering::Relaxed)));
            }
        }
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Private(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Private(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Payload<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Private(bytes)
    }
}
