//! Registering memory that the table keeps alive: nothing is left for the caller to promise, so
//! this is safe.

use std::ops::Range;

use super::object::RegionObject;
use super::{Access, Buffer, Memory, Mr, PdId, RegMrError};
use urxe_types::sync::Arc;

impl Memory {
    /// Registers the bytes `range` of `buffer`, as [`register`](Self::register) does. The buffer
    /// stays mapped until the region is deregistered or the table dropped.
    ///
    /// # Errors
    /// [`RegMrError::OutsideBuffer`], and those of [`register`](Self::register).
    pub fn register_buffer(
        &self,
        pd: PdId,
        buffer: &Arc<Buffer>,
        range: Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<Mr, RegMrError> {
        let Range { start, end } = range;
        if start > end || end > buffer.len() {
            return Err(RegMrError::OutsideBuffer { start, end, len: buffer.len() });
        }
        // The range lies in the buffer, whose mapping stays as long as the object's count of it. A
        // buffer never hands out references to its bytes; its own methods copy as peers' accesses
        // do.
        let addr = buffer.addr().wrapping_add(start);
        let kept = RegionObject { kept: Some(Arc::clone(buffer)), dm: None };
        self.publish_region(pd, addr, end - start, iova, access, kept, buffer.is_guarded())
    }
}
