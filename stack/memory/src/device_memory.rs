//! Device memory (`ibv_alloc_dm`): memory of the device, which the program accesses only by
//! copying. Here, device memory is memory of the process, and programs that use device memory run
//! unchanged.

use super::slot::RegionContent;
use super::table::Dm;
use super::{Access, Buffer, BufferError, DmId, Memory, Mr, PdId, RegMrError};
use std::ops::Range;
use urxe_types::sync::{Arc, lock};

/// Maximum alignment (log2), which is the alignment of mappings.
const MAX_LOG_ALIGN: u32 = 12;

/// Size in bytes of the words in which programs copy.
const WORD: usize = 4;

urxe_types::errors! {
    /// An error of device memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum DmError {
        #[error("length 0: device memory has at least one byte")]
        ZeroLength = EINVAL,
        /// `given`: base-2 logarithm of the alignment.
        #[error(
            "the alignment is 2^{given} bytes; at most 2^{allowed} is allowed",
            allowed = MAX_LOG_ALIGN
        )]
        Alignment { given: u32 } = EINVAL,
        /// `allowed`: the `max_dm_size` of the device.
        #[error("the device has {left} of {allowed} bytes of device memory left, not {given}")]
        TooMuch { given: u64, left: u64, allowed: u64 } = ENOMEM,
        #[error("cannot allocate memory of the process: error {errno}")]
        Memory { errno: i32 } = *errno,
        #[error("no such device memory: it was freed")]
        Unknown = EINVAL,
        #[error("{regions} memory regions of the device memory are registered: deregister them \
                 first")]
        Busy { regions: u32 } = EBUSY,
        #[error("{len} bytes at offset {offset} are not inside the {dm_len} bytes of device \
                 memory")]
        OutOfBounds { offset: usize, len: usize, dm_len: usize } = EFAULT,
        #[error(
            "{len} bytes at offset {offset}: device memory is copied in words of {word} bytes",
            word = WORD
        )]
        Unaligned { offset: usize, len: usize } = EINVAL,
        /// The access flags lack `ZERO_BASED`, but device memory has no address in the program.
        #[error("access flags {given:?}: a region of device memory needs ZERO_BASED")]
        NotZeroBased { given: Access } = EINVAL,
        /// The registration of the region failed.
        #[error(transparent)] Register(#[from] RegMrError),
    }
}

impl Memory {
    /// Allocates `len` zeroed bytes of device memory, aligned to 2^`log_align` bytes
    /// (`ibv_alloc_dm`).
    ///
    /// # Errors
    /// [`DmError`].
    pub fn alloc_dm(&self, len: usize, log_align: u32) -> Result<DmId, DmError> {
        if len == 0 {
            return Err(DmError::ZeroLength);
        }
        if log_align > MAX_LOG_ALIGN {
            return Err(DmError::Alignment { given: log_align });
        }
        let (given, allowed) = (len as u64, self.limits().max_dm);
        let mut state = lock(self.dm());
        let left = allowed - state.used;
        if given > left {
            return Err(DmError::TooMuch { given, left, allowed });
        }
        let buffer = Buffer::new(len).map_err(|error| DmError::Memory {
            errno: error.raw_os_error().unwrap_or(libc::ENOMEM),
        })?;
        state.used += given;
        let id = loop {
            let id = DmId(state.next);
            state.next = state.next.wrapping_add(1);
            if !state.live.contains_key(&id) {
                break id;
            }
        };
        state.live.insert(id, Dm { buffer: Arc::new(buffer), len, regions: 0 });
        Ok(id)
    }

    /// Frees device memory (`ibv_free_dm`).
    ///
    /// # Errors
    /// [`DmError::Unknown`], [`DmError::Busy`].
    pub fn free_dm(&self, id: DmId) -> Result<(), DmError> {
        let mut state = lock(self.dm());
        let dm = state.live.get(&id).ok_or(DmError::Unknown)?;
        if dm.regions != 0 {
            return Err(DmError::Busy { regions: dm.regions });
        }
        let dm = state.live.remove(&id);
        state.used -= dm.as_ref().map_or(0, |dm| dm.len as u64);
        drop(state);
        drop(dm);
        Ok(())
    }

    /// Copies `src` into device memory (`ibv_memcpy_to_dm`), whole words of four bytes.
    ///
    /// # Errors
    /// [`DmError::Unknown`], [`DmError::Unaligned`], [`DmError::OutOfBounds`].
    pub fn copy_to_dm(&self, id: DmId, offset: usize, src: &[u8]) -> Result<(), DmError> {
        in_words(offset, src.len())?;
        self.dm_buffer(id)?
            .write(offset, src)
            .map_err(|error| out_of_bounds(error, offset, src.len()))
    }

    /// Copies device memory into `dst` (`ibv_memcpy_from_dm`), whole words of four bytes.
    ///
    /// # Errors
    /// [`DmError::Unknown`], [`DmError::Unaligned`], [`DmError::OutOfBounds`].
    pub fn copy_from_dm(&self, id: DmId, offset: usize, dst: &mut [u8]) -> Result<(), DmError> {
        let len = dst.len();
        in_words(offset, len)?;
        self.dm_buffer(id)?.read(offset, dst).map_err(|error| out_of_bounds(error, offset, len))
    }

    /// Registers the bytes `range` of device memory. Work requests and peers name them by addresses
    /// from 0 on (`ibv_reg_dm_mr`).
    ///
    /// # Errors
    /// [`DmError`].
    pub fn register_dm(
        &self,
        pd: PdId,
        id: DmId,
        range: Range<usize>,
        access: Access,
    ) -> Result<Mr, DmError> {
        if !access.contains(Access::ZERO_BASED) {
            return Err(DmError::NotZeroBased { given: access });
        }
        let Range { start, end } = range;
        let buffer = {
            let mut state = lock(self.dm());
            let dm = state.live.get_mut(&id).ok_or(DmError::Unknown)?;
            if start > end || end > dm.len {
                let len = end.saturating_sub(start);
                return Err(DmError::OutOfBounds { offset: start, len, dm_len: dm.len });
            }
            dm.regions += 1;
            Arc::clone(&dm.buffer)
        };
        let addr = buffer.addr().wrapping_add(start);
        let content = RegionContent { kept: Some(buffer), dm: Some(id) };
        let registered = self.publish_region(pd, addr, end - start, 0, access, content, false);
        if registered.is_err() {
            self.release_dm(id);
        }
        Ok(registered?)
    }

    /// Notes that a region of the device memory was deregistered.
    pub(super) fn release_dm(&self, id: DmId) {
        if let Some(dm) = lock(self.dm()).live.get_mut(&id) {
            dm.regions -= 1;
        }
    }

    fn dm_buffer(&self, id: DmId) -> Result<Arc<Buffer>, DmError> {
        lock(self.dm()).live.get(&id).map(|dm| Arc::clone(&dm.buffer)).ok_or(DmError::Unknown)
    }
}

/// Refuses copies that are not whole words. Device memory of hardware also requires whole words, so
/// programs that run here also run there.
fn in_words(offset: usize, len: usize) -> Result<(), DmError> {
    if offset.is_multiple_of(WORD) && len.is_multiple_of(WORD) {
        Ok(())
    } else {
        Err(DmError::Unaligned { offset, len })
    }
}

fn out_of_bounds(error: BufferError, offset: usize, len: usize) -> DmError {
    match error {
        BufferError::OutOfBounds { buffer_len, .. } => {
            DmError::OutOfBounds { offset, len, dm_len: buffer_len }
        }
        BufferError::Misaligned { .. } | BufferError::Gone { .. } | BufferError::NoMemory(_) => {
            DmError::OutOfBounds { offset, len, dm_len: 0 }
        }
    }
}
