//! A device with live queue pairs against any peer: the input is a plan of packets, calls and waits.
//!
//! Two thirds of the packets are nearly right: for a live queue pair, with a PSN near the expected one, keys and addresses near real
//! ones, or even the right answer to a request that was sent. All carry a right ICRC unless the plan breaks it.
//!
//! ```text
//! buffer | gap | FULL | gap | READ_ONLY | gap | LOCAL | gap | OTHER_PD | gap | WRITE_ONLY | gap |
//! ```
//! What must hold: nothing panics; gaps, READ_ONLY and OTHER_PD never change; completions come once each, in order, errors only
//! followed by flushes; nothing stays charged to a window when everything is destroyed; what is sent parses with a right ICRC.

mod judge;
mod packets;
mod plan;
mod world;

use arbitrary::{Arbitrary, Unstructured};

pub use self::plan::Plan;

/// One input.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    if let Ok(plan) = Plan::arbitrary(&mut input) {
        world::World::new(&plan.setup).play(&plan.steps);
    }
}
