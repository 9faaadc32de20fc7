//! Zeroed memory of a size that a caller chooses.
//!
//! `vec![0; n]` gets pages from the system that are zero and not present yet, and ends the process
//! if there are none. [`Vec::try_reserve_exact`] reports the failure, but filling the list makes
//! all pages present. The function of this module has both properties.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;

use urxe_types::allocate::OutOfMemory;

/// Returns `len` zeroed bytes. Pages that nobody uses take no memory.
///
/// # Errors
/// [`OutOfMemory`].
pub fn zeroed(len: usize) -> Result<Box<[u8]>, OutOfMemory> {
    let error = OutOfMemory::of::<u8>(len);
    if len == 0 {
        return Ok(Box::default());
    }
    let layout = Layout::array::<u8>(len).map_err(|_| error)?;
    // SAFETY: the size of the layout is not 0.
    let bytes = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(error)?;
    let bytes = std::ptr::slice_from_raw_parts_mut(bytes.as_ptr(), len);
    // SAFETY: the allocation is new, has the layout of a boxed slice of `len` bytes, and all its
    // bytes are initialised.
    Ok(unsafe { Box::from_raw(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_zero_and_belong_to_the_caller() {
        let mut bytes = zeroed(100_000).unwrap();
        assert_eq!(bytes.len(), 100_000);
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(1);
        assert_eq!(zeroed(0).unwrap().len(), 0);
    }

    #[test]
    fn sizes_that_no_system_has_are_errors() {
        for bytes in [usize::MAX, isize::MAX as usize + 1] {
            assert_eq!(zeroed(bytes).unwrap_err(), OutOfMemory::of::<u8>(bytes));
        }
    }
}
