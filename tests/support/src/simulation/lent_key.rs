//! Keys that are valid for a part of a region until they are revoked.

use std::ops::Range;

use urxe::{
    Access, FastRegion, MemoryRegion, MemoryWindow, MwType, QueuePair, RemoteRegion, SendRequest,
    WcOpcode,
};

use super::error_text;

/// The rights of a valid key.
const GRANTED: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

/// The object that owns the key.
pub enum LentKey {
    /// A memory window.
    Window(MemoryWindow),
    /// A fast-registration region.
    Fast(FastRegion),
}

impl LentKey {
    /// Posts the work request that makes the key valid for a part of `region`. Returns that part as
    /// the peer addresses it, or `None` for a window that is not bound.
    ///
    /// # Errors
    /// The refusal, as a text.
    pub fn make_valid(
        &mut self,
        by: &QueuePair,
        region: &MemoryRegion,
        part: Range<usize>,
        wr_id: u64,
    ) -> Result<Option<RemoteRegion>, String> {
        match self {
            Self::Window(window) => {
                let slice = error_text(region.slice(part))?;
                let request = SendRequest::bind(window, slice, GRANTED).wr_id(wr_id).signaled();
                error_text(by.post_send(&request))?;
                Ok(window.remote())
            }
            Self::Fast(fast) => {
                let iova = region.iova() + part.start as u64;
                error_text(fast.map(region, part, iova))?;
                let request = SendRequest::register(fast, GRANTED | Access::LOCAL_WRITE);
                error_text(by.post_send(&request.wr_id(wr_id).signaled()))?;
                Ok(Some(fast.remote()))
            }
        }
    }

    /// Returns the opcode of that work request's completion.
    #[must_use]
    pub fn opcode(&self) -> WcOpcode {
        match self {
            Self::Window(_) => WcOpcode::BindMw,
            Self::Fast(_) => WcOpcode::RegMr,
        }
    }

    /// Returns whether the key is of a type 1 window, which a peer cannot invalidate.
    #[must_use]
    pub fn is_type1(&self) -> bool {
        matches!(self, Self::Window(window) if window.kind() == MwType::Type1)
    }
}
