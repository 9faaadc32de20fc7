//! A network for tests: it loses, repeats and delays MADs, at one place or by seed.

use std::collections::BTreeMap;
use std::fmt::Debug;

use urxe_wire::mad::MAD_LEN;

use crate::cm::{CmPath, CmTransmit};
use urxe_types::rng::{Probability, Rng};
use urxe_types::time::Time;

pub const SECOND_NS: u64 = 1_000_000_000;
pub const LATENCY_NS: u64 = 20_000;

/// What the network does to one MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Deliver,
    Lose,
    /// It comes twice, so much apart.
    Again {
        after_ns: u64,
    },
    Delay {
        ns: u64,
    },
}

/// Every fault of one MAD. What is repeated or delayed comes after what follows (`behind_ns`),
/// after a repetition, or after the connection.
pub const fn faults(behind_ns: u64) -> [Fate; 8] {
    [
        Fate::Lose,
        Fate::Again { after_ns: 0 },
        Fate::Again { after_ns: behind_ns },
        Fate::Again { after_ns: 6 * SECOND_NS },
        Fate::Again { after_ns: 700 * SECOND_NS },
        Fate::Delay { ns: behind_ns },
        Fate::Delay { ns: 6 * SECOND_NS },
        Fate::Delay { ns: 700 * SECOND_NS },
    ]
}

/// MADs on their way to one of two sides.
#[derive(Default)]
pub struct Network {
    /// MADs sent so far.
    pub sent: usize,
    /// MADs on their way at a time at most.
    pub max_in_flight: usize,
    in_flight: BTreeMap<(Time, usize), (usize, CmTransmit)>,
    copies: usize,
}

impl Network {
    pub fn send(&mut self, now: Time, to: usize, transmit: CmTransmit, fate: Fate) {
        self.sent += 1;
        let delays: &[u64] = match fate {
            Fate::Deliver => &[0],
            Fate::Lose => &[],
            Fate::Again { after_ns } => &[0, after_ns],
            Fate::Delay { ns } => &[ns],
        };
        for ns in delays {
            self.copies += 1;
            let key = (now.plus_ns(LATENCY_NS + ns), self.copies);
            self.in_flight.insert(key, (to, transmit));
            self.max_in_flight = self.max_in_flight.max(self.in_flight.len());
        }
    }

    pub fn next_arrival(&self) -> Option<Time> {
        self.in_flight.keys().next().map(|key| key.0)
    }

    /// The next MAD to arrive: at which side, and over which path as it is seen there.
    pub fn arrive(&mut self) -> (usize, CmPath, [u8; MAD_LEN]) {
        let (_, (to, CmTransmit { path, mad, .. })) = self.in_flight.pop_first().unwrap();
        (to, CmPath { local: path.remote, remote: path.local }, mad)
    }
}

/// Plays every script with every fault at every MAD; `play` returns how many MADs were sent. A
/// fault makes more MADs, which are hit as well, until there is none of that number. Returns the
/// number of runs with a fault.
pub fn one_fault_at_every_mad<S: Copy + Debug>(
    scripts: &[S],
    faults: &[Fate],
    play: impl Fn(S, &str, &mut dyn FnMut(usize) -> Fate) -> usize,
) -> usize {
    let mut runs = 0;
    for &script in scripts {
        for &fault in faults {
            for hit in 0.. {
                let context = format!("{script:?} with {fault:?} of MAD {hit}");
                let mut fate = |number| if number == hit { fault } else { Fate::Deliver };
                if play(script, &context, &mut fate) <= hit {
                    break;
                }
                runs += 1;
            }
        }
    }
    runs
}

/// Faults of any MAD, with chances that a seed decides.
pub struct RandomFaults {
    rng: Rng,
    chances: [Probability; 3],
}

impl RandomFaults {
    /// `rng` decides about the chances of loss, repetition and delay, which are below `most`
    /// percent, and `faults` about each MAD.
    pub fn new(rng: &mut Rng, most: [u64; 3], faults: Rng) -> Self {
        let chances = most.map(|most| Probability::from_percent(rng.below(most) as u32));
        Self { rng: faults, chances }
    }

    pub fn fate(&mut self) -> Fate {
        let ns = self.rng.pick(&[0, 25_000, SECOND_NS, 9 * SECOND_NS, 100 * SECOND_NS]);
        let [loss, duplication, delay] = self.chances;
        if self.rng.chance(loss) {
            Fate::Lose
        } else if self.rng.chance(duplication) {
            Fate::Again { after_ns: ns }
        } else if self.rng.chance(delay) {
            Fate::Delay { ns }
        } else {
            Fate::Deliver
        }
    }
}

/// Plays with the seeds below `count`, or with the one in `URXE_SEED`.
pub fn by_seed(count: u64, play: impl Fn(u64)) {
    let play = |seed| {
        println!("seed {seed}: URXE_SEED={seed} replays it");
        play(seed);
    };
    match std::env::var("URXE_SEED") {
        Ok(seed) => play(seed.parse().expect("URXE_SEED is a number")),
        Err(_) => (0..count).for_each(play),
    }
}
