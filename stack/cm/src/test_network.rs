//! A network for tests that loses, repeats and delays MADs, at a fixed MAD or at random.

use std::collections::BTreeMap;
use std::fmt::Debug;

use urxe_wire::mad::MAD_LEN;

use crate::cm::{CmPath, CmTransmit};
use urxe_types::rng::{Probability, Rng};
use urxe_types::time::Time;

pub const SECOND_NS: u64 = 1_000_000_000;
pub const LATENCY_NS: u64 = 20_000;

/// The treatment of a MAD by the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Deliver,
    Lose,
    /// The MAD arrives twice.
    Again {
        after_ns: u64,
    },
    Delay {
        ns: u64,
    },
}

/// Returns every fault of one MAD. A repeated or delayed MAD arrives after the following MAD
/// (`behind_ns`), after a retry, or after the connection ended.
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

/// The MADs in flight between two sides.
#[derive(Default)]
pub struct Network {
    /// Number of MADs sent so far.
    pub sent: usize,
    /// Largest number of MADs in flight at the same time.
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

    /// Removes the next MAD. Returns its receiver and its path as the receiver sees the path.
    pub fn arrive(&mut self) -> (usize, CmPath, [u8; MAD_LEN]) {
        let (_, (to, CmTransmit { path, mad, .. })) = self.in_flight.pop_first().unwrap();
        (to, CmPath { local: path.remote, remote: path.local }, mad)
    }
}

/// Runs every script with every fault at every MAD, and returns the number of runs with a fault.
///
/// `play` returns the number of MADs sent. A fault causes more MADs, which are hit in later runs,
/// until a run sends no MAD with that number.
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

/// Random faults with probabilities that depend on a seed.
pub struct RandomFaults {
    rng: Rng,
    chances: [Probability; 3],
}

impl RandomFaults {
    /// Returns faults whose probabilities of loss, repetition and delay are below `most` percent.
    /// `rng` selects the probabilities, and `faults` selects the treatment of each MAD.
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

/// Runs `play` with all seeds below `count`, or with the seed in `URXE_SEED`.
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
