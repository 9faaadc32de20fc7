//! The bytes that a copy overwrites, in private memory or in memory of two processes.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::copy::copy_private;

/// Bytes that a copy overwrites. They are private to the caller, or another process can read and
/// change them at any time. Therefore they are atomics, and can only be written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOnly<'a>(&'a [AtomicU8]);

impl<'a> WriteOnly<'a> {
    /// Returns the number of bytes.
    #[must_use]
    #[inline]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no bytes.
    #[must_use]
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of `range`.
    ///
    /// # Panics
    /// If there are fewer bytes.
    #[must_use]
    #[inline]
    pub fn slice(self, range: Range<usize>) -> Self {
        Self(&self.0[range])
    }

    /// Copies `src` here.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_from(self, src: &[u8]) {
        copy_private(src, self.0);
    }

    /// Stores the same value in each byte.
    pub fn fill(self, value: u8) {
        self.0.iter().for_each(|byte| byte.store(value, Ordering::Relaxed));
    }

    /// Returns the bytes.
    pub(crate) fn atomics(self) -> &'a [AtomicU8] {
        self.0
    }

    /// Returns the address of the first byte.
    pub(crate) fn as_mut_ptr(self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }
}

impl<'a> From<&'a [AtomicU8]> for WriteOnly<'a> {
    fn from(bytes: &'a [AtomicU8]) -> Self {
        Self(bytes)
    }
}

impl<'a> From<&'a mut [u8]> for WriteOnly<'a> {
    #[inline]
    fn from(bytes: &'a mut [u8]) -> Self {
        Self(crate::copy::as_atomics(bytes))
    }
}

impl<'a> From<&'a mut Vec<u8>> for WriteOnly<'a> {
    fn from(bytes: &'a mut Vec<u8>) -> Self {
        bytes.as_mut_slice().into()
    }
}

impl<'a, const N: usize> From<&'a mut [u8; N]> for WriteOnly<'a> {
    fn from(bytes: &'a mut [u8; N]) -> Self {
        bytes.as_mut_slice().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_shared_bytes_are_written_alike() {
        let mut private = [1; 8];
        let shared = [const { AtomicU8::new(1) }; 8];
        for to in [WriteOnly::from(&mut private), WriteOnly::from(&shared[..])] {
            assert_eq!((to.len(), to.is_empty()), (8, false));
            to.slice(2..5).copy_from(b"abc");
            to.slice(6..8).fill(9);
            to.slice(3..3).copy_from(b"");
            assert!(to.slice(8..8).is_empty());
        }
        assert_eq!(private, [1, 1, b'a', b'b', b'c', 1, 9, 9]);
        assert_eq!(shared.map(AtomicU8::into_inner), private);
    }

    #[test]
    #[should_panic = "a copy of another length"]
    fn a_copy_of_another_length_panics() {
        WriteOnly::from(&mut [0; 3]).copy_from(b"ab");
    }
}
