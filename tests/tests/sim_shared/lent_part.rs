//! A key to a connection's part of the server's memory, valid until the connection's SEND with
//! invalidate.
//!
//! A reliable connection uses windows and fast-registration regions, by its own queue pair. XRC
//! also has the SEND with invalidate (opcodes 0xb6 and 0xb7), which invalidates keys of the shared
//! receive queue's protection domain. A target has no send queue and so cannot bind a window.
//! Another queue pair of that domain registers the fast-registration region.

use std::ops::Range;

use urxe::*;
use urxe_stack::rng::Rng;
use urxe_test_support::simulation::LentKey;

/// A bit in the `wr_id` of requests that make keys valid. The lower bits are the connection's
/// number.
pub const LOCAL: u64 = 1 << 63;

/// The number of pages that the longest part touches.
const PAGES: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not valid.
    Free,
    /// The request that makes the key valid is posted.
    Posted,
    Valid,
    /// The SEND with invalidate is under way.
    Leaving,
}

/// A key with its range.
pub struct LentPart {
    key: LentKey,
    pub state: State,
    /// The shared receive queue whose protection domain contains the key.
    pub queue: usize,
    /// The bytes of the queue's region and the peer's description of them; after the invalidation,
    /// those of the last use.
    pub range: Range<usize>,
    pub remote: Option<RemoteRegion>,
}

impl LentPart {
    pub fn new(pd: &ProtectionDomain, queue: usize, is_window: bool) -> Self {
        let key = match is_window {
            true => LentKey::Window(pd.alloc_window().unwrap()),
            false => LentKey::Fast(pd.alloc_fast_region(PAGES).unwrap()),
        };
        Self { key, state: State::Free, queue, range: 0..0, remote: None }
    }

    /// Makes the key valid for some of `part`, by a work request of `by`.
    pub fn grant(
        &mut self,
        nr: usize,
        by: &QueuePair,
        region: &MemoryRegion,
        part: Range<usize>,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let start = part.start + rng.index(part.len() / 2);
        let range = start..start + 1 + rng.index(part.end - start);
        let remote = self.key.make_valid(by, region, range.clone(), LOCAL | nr as u64)?;
        let rkey = |remote: Option<RemoteRegion>| remote.map(|remote| remote.rkey);
        if rkey(remote) == rkey(self.remote) {
            return Err(format!("the key did not change: {remote:?}"));
        }
        (self.remote, self.range, self.state) = (remote, range, State::Posted);
        Ok(())
    }

    /// Returns the opcode with which that work request completes.
    pub fn opcode(&self) -> WcOpcode {
        self.key.opcode()
    }
}
