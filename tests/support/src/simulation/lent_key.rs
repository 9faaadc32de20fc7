//! Keys that are made valid for a part of a region and lose it again.

use std::ops::Range;

use urxe::{
    Access, FastRegion, MemoryRegion, MemoryWindow, MwType, QueuePair, RemoteRegion, SendRequest,
    WcOpcode,
};

use super::say;

/// What a valid key grants.
const GRANTED: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

/// What has a key that a work request makes valid.
pub enum LentKey {
    /// A window.
    Window(MemoryWindow),
    /// A fast-registration region.
    Fast(FastRegion),
}

impl LentKey {
    /// Posts the work request that makes the key valid for a part of `region`. How the peer names
    /// the part; nothing, if the window is bound to nothing.
    ///
    /// # Errors
    /// What is refused, as a text.
    pub fn make_valid(
        &mut self,
        by: &QueuePair,
        region: &MemoryRegion,
        part: Range<usize>,
        wr_id: u64,
    ) -> Result<Option<RemoteRegion>, String> {
        match self {
            Self::Window(window) => {
                let slice = say(region.slice(part))?;
                let request = SendRequest::bind(window, slice, GRANTED).wr_id(wr_id).signaled();
                say(by.post_send(&request))?;
                Ok(window.remote())
            }
            Self::Fast(fast) => {
                let iova = region.iova() + part.start as u64;
                say(fast.map(region, part, iova))?;
                let request = SendRequest::register(fast, GRANTED | Access::LOCAL_WRITE);
                say(by.post_send(&request.wr_id(wr_id).signaled()))?;
                Ok(Some(fast.remote()))
            }
        }
    }

    /// The opcode with which that work request completes.
    #[must_use]
    pub fn opcode(&self) -> WcOpcode {
        match self {
            Self::Window(_) => WcOpcode::BindMw,
            Self::Fast(_) => WcOpcode::RegMr,
        }
    }

    /// Whether no peer can take the key away.
    #[must_use]
    pub fn is_type1(&self) -> bool {
        matches!(self, Self::Window(window) if window.kind() == MwType::Type1)
    }
}
