//! Allocations that return an error if the system has no memory.
//!
//! The allocator of Rust ends the process if a small allocation fails. An allocation of more than
//! [`LARGE`] bytes, and each whose size a program chooses, goes through this module instead. Its
//! failure becomes `ENOMEM` of the call that needs the memory.
//!
//! ```
//! use urxe_types::allocate;
//!
//! assert_eq!(*allocate::slice(7_u8, 3)?, [7, 7, 7]);
//! assert_eq!(allocate::collected((1..4).map(|n| n * 2))?, [2, 4, 6]);
//! // More than an address space has.
//! let error = allocate::vec::<u64>(usize::MAX).unwrap_err();
//! assert_eq!(error.errno(), libc::ENOMEM);
//! # Ok::<(), allocate::OutOfMemory>(())
//! ```

use std::collections::TryReserveError;

use crate::errno::ErrorNumber;

/// The largest number of bytes that one allocation may have without a check for failure.
pub const LARGE: usize = 4096;

/// The system has no memory for an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the system has no memory for {bytes} bytes: close other programs, or raise their limits \
         (ulimit -v, cgroup memory.max)"
)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The requested bytes, or `usize::MAX` if their number overflows.
    pub bytes: usize,
}

impl OutOfMemory {
    /// Returns the error for `count` values of `T`.
    #[must_use]
    pub const fn of<T>(count: usize) -> Self {
        Self { bytes: count.saturating_mul(size_of::<T>()) }
    }

    /// Returns `ENOMEM`.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        libc::ENOMEM
    }
}

impl ErrorNumber for OutOfMemory {
    fn errno(&self) -> i32 {
        Self::errno(self)
    }
}

/// Returns an empty list with room for `capacity` values.
///
/// # Errors
/// [`OutOfMemory`].
pub fn vec<T>(capacity: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut values = Vec::new();
    reserved(values.try_reserve_exact(capacity), || OutOfMemory::of::<T>(capacity))?;
    Ok(values)
}

/// Returns a list of the values of `items`.
///
/// # Errors
/// [`OutOfMemory`].
pub fn collected<I>(items: I) -> Result<Vec<I::Item>, OutOfMemory>
where
    I: IntoIterator,
    I::IntoIter: ExactSizeIterator,
{
    let items = items.into_iter();
    let mut values = vec(items.len())?;
    // An iterator that returns more items than it promised must not allocate.
    values.extend(items.take(values.capacity()));
    Ok(values)
}

/// Returns `count` copies of `value`.
///
/// # Errors
/// [`OutOfMemory`].
pub fn slice<T: Clone>(value: T, count: usize) -> Result<Box<[T]>, OutOfMemory> {
    let mut values = vec(count)?;
    values.resize(count, value);
    Ok(values.into_boxed_slice())
}

/// Returns a copy of `from`.
///
/// # Errors
/// [`OutOfMemory`].
pub fn copied<T: Copy>(from: &[T]) -> Result<Vec<T>, OutOfMemory> {
    let mut values = vec(from.len())?;
    values.extend_from_slice(from);
    Ok(values)
}

/// Makes room for `more` values behind those of `values`, and usually for several more.
///
/// # Errors
/// [`OutOfMemory`]; `values` is unchanged.
pub fn reserve<T>(values: &mut Vec<T>, more: usize) -> Result<(), OutOfMemory> {
    reserved(values.try_reserve(more), || OutOfMemory::of::<T>(values.len().saturating_add(more)))
}

/// Returns the error of a reservation that a collection refused.
///
/// # Errors
/// `error`, if `outcome` is an error.
pub fn reserved(
    outcome: Result<(), TryReserveError>,
    error: impl FnOnce() -> OutOfMemory,
) -> Result<(), OutOfMemory> {
    outcome.map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_exactly_the_requested_room() {
        assert_eq!(vec::<u32>(5).unwrap().capacity(), 5);
        assert_eq!(slice(9_u16, 0).unwrap().len(), 0);
        assert_eq!(copied(&[1, 2, 3]).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn impossible_sizes_are_errors_and_change_nothing() {
        let most = usize::MAX / 2;
        assert_eq!(vec::<u8>(most).unwrap_err(), OutOfMemory { bytes: most });
        assert_eq!(slice(0_u64, most).unwrap_err(), OutOfMemory { bytes: usize::MAX });
        let mut values = vec![1, 2];
        assert_eq!(reserve(&mut values, most).unwrap_err().errno(), libc::ENOMEM);
        assert_eq!(values, [1, 2]);
    }
}
