//! The life of memory keys, with a model. The input is a plan of registrations, posted requests and
//! the ends of keys.
//!
//! ```text
//! peer a ── WRITE, READ, atomics, SEND with invalidate ──> owner b: regions, fast-registration
//!                                                          regions, memory windows
//! ```
//! Requests of either side wait until a step executes them, so a key may end between. Requests name
//! any key that ever existed, or one with another low byte. There are two protection domains and
//! three connections.
//!
//! Properties: nothing panics. A request succeeds if and only if the model finds a valid key with
//! the domain, the queue pair, the right and the bounds that it needs. Its bytes go to the model's
//! place, and all other memory is unchanged. A new key differs from all former keys.

mod model;
mod scenario;

use arbitrary::{Arbitrary, Unstructured};

/// An input. Every value is valid.
#[derive(Arbitrary, Debug)]
struct Plan {
    steps: Vec<Step>,
}

/// A step of a plan.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    /// Registers part of the memory.
    Register { pd: bool, place: Place, access: u8 },
    /// Changes a region, which keeps its key.
    Reregister { key: Key, place: Option<Place>, pd: Option<bool>, access: Option<u8> },
    /// Allocates a fast-registration region.
    AllocateFast { pd: bool },
    /// Maps part of the memory to a fast-registration region.
    MapFast { key: Key, place: Place },
    /// Allocates a window.
    AllocateWindow { pd: bool, is_type_2: bool, by_handle: bool },
    /// Deregisters a region.
    Deregister { key: Key },
    /// Deallocates a window.
    Deallocate { key: Key },
    /// Posts a request that makes a fast-registration region valid.
    RegisterFast { qp: u8, key: Key, low: u8, access: u8 },
    /// Posts a request that binds a window.
    Bind { qp: u8, window: Key, low: u8, region: Key, at: u16, length: u16, access: u8 },
    /// Posts a request that invalidates a key.
    Invalidate { qp: u8, key: Key },
    /// Posts a request of the owner with bytes of a region.
    Local { qp: u8, key: Key, reads: bool, at: u16, length: u16 },
    /// Posts a request of the peer.
    Remote { qp: u8, op: u8, key: Key, at: u16, length: u16 },
    /// Executes all posted requests.
    Execute,
}

/// A part of the memory, in units of eight bytes.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Place {
    offset: u16,
    length: u16,
}

/// A key of the past or of the present.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Key {
    /// The key, counted back from the newest.
    nth: u8,
    /// Changes the low byte of the key, if large.
    change: u8,
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    if let Ok(plan) = Plan::arbitrary(&mut Unstructured::new(bytes)) {
        scenario::Scenario::new().run(&plan.steps);
    }
}
