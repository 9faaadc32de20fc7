//! A link that loses packets: what arrived at a port is thinned out before the device sees it, at random and from a seed.
//!
//! Whoever wants to know how a program fares on a bad network, over real sockets and without a network of its own, opens
//! a device with a chance of loss. The simulated network (`sim`) does far more, in virtual time.

use super::Datagrams;
use crate::rng::{Chance, Rng};

#[cfg(test)]
mod tests;

/// The stream of the seed that losses are drawn from.
const STREAM: u64 = 0x6c6f_7373;

/// Loses packets.
#[derive(Debug)]
pub(crate) struct Loss {
    rng: Rng,
    chance: Chance,
}

impl Loss {
    /// Loses each packet with `chance`; which ones follows from `seed`. `None` if none is ever lost.
    pub fn new(chance: Chance, seed: u64) -> Option<Self> {
        (chance != Chance::NEVER).then(|| Self { rng: Rng::stream(seed, STREAM), chance })
    }

    /// Hands on what is not lost, as few and as long pieces as are left; returns how many packets were lost.
    pub fn thin<'a>(&mut self, datagrams: &Datagrams<'a>, mut hand_on: impl FnMut(&Datagrams<'a>)) -> u64 {
        let size = datagrams.segment_size.max(1);
        let len = datagrams.bytes.len();
        let (mut lost, mut start) = (0, 0);
        for at in (0..len).step_by(size) {
            if !self.rng.chance(self.chance) {
                continue;
            }
            lost += 1;
            if at > start {
                hand_on(&Datagrams { bytes: &datagrams.bytes[start..at], ..*datagrams });
            }
            start = len.min(at + size);
        }
        if start < len {
            hand_on(&Datagrams { bytes: &datagrams.bytes[start..], ..*datagrams });
        }
        lost
    }
}
