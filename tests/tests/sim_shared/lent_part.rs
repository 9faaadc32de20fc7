//! A key to a connection's part of the server's memory, lent until the connection's SEND with
//! invalidate takes it away.
//!
//! A reliable connection lends windows and fast-registration regions, by its own queue pair. XRC
//! has the SEND with invalidate as well (opcodes 0xb6 and 0xb7), which takes keys of the shared
//! receive queue's protection domain away; but a target has no send queue, so it can bind no window
//! for its peer, and the fast-registration region is registered by another queue pair of that
//! domain.

use std::ops::Range;

use urxe::*;
use urxe_stack::rng::Rng;
use urxe_test_support::simulation::LentKey;

/// Completions of queue pairs that make keys valid have it in their `wr_id`; the connection's
/// number is below.
pub const LOCAL: u64 = 1 << 63;

/// As many as the longest part touches.
const PAGES: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not valid.
    Free,
    /// About to be valid.
    Asked,
    Valid,
    /// The SEND with invalidate is on its way.
    Leaving,
}

/// A key and what it stands for.
pub struct LentPart {
    key: LentKey,
    pub state: State,
    /// The shared receive queue in whose protection domain it is.
    pub queue: usize,
    /// Which bytes of the queue's region it is for, and as what the peer names them; those that it
    /// was for last.
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
            return Err(format!("the key is what it was before: {remote:?}"));
        }
        (self.remote, self.range, self.state) = (remote, range, State::Asked);
        Ok(())
    }

    /// The opcode with which the request that makes it valid completes.
    pub fn opcode(&self) -> WcOpcode {
        self.key.opcode()
    }
}
