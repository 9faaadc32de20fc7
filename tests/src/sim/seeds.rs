//! The seeds of a simulation, and what every simulation has to show beside its own subject: a run
//! is its seed's alone, and a fault put in on purpose is found.
//!
//! `URXE_SEED` runs one seed alone, `URXE_SIM_SEEDS` says how many of the simulation of single
//! connections there are.

use std::fmt::Debug;
use std::ops::Range;

/// One seed takes as long as so many of the simulation of single connections.
const COST: u64 = 10;

/// Which seeds are tried.
#[derive(Clone, Debug)]
pub struct Seeds {
    range: Range<u64>,
    usual: u64,
}

impl Seeds {
    /// As the environment says, else so many.
    ///
    /// # Panics
    /// If the environment says something that is no number.
    #[must_use]
    pub fn chosen(usual: u64) -> Self {
        let number =
            |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        let range = match (number("URXE_SEED"), number("URXE_SIM_SEEDS")) {
            (Some(seed), _) => seed..seed + 1,
            (None, seeds) => 0..seeds.map_or(usual, |seeds| (seeds / COST).max(1)),
        };
        Self { range, usual }
    }

    /// Whether there are enough of them to show what usually happens.
    #[must_use]
    pub fn are_many(&self) -> bool {
        self.range.end - self.range.start >= self.usual.min(21)
    }

    /// Whether there are as many as usual, at least.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.range.end - self.range.start >= self.usual
    }

    /// Runs a world of each seed and hands it to `look`.
    ///
    /// # Panics
    /// At the first difference, with the seed that shows it again.
    pub fn each<W>(
        &self,
        new: impl Fn(u64) -> W,
        run: impl Fn(&mut W) -> Result<(), String>,
        mut look: impl FnMut(&W),
    ) {
        for seed in self.range.clone() {
            let mut world = new(seed);
            if let Err(difference) = run(&mut world) {
                panic!("seed {seed}: {difference}\nagain with URXE_SEED={seed}");
            }
            look(&world);
        }
    }
}

/// The same seed is the same run, another is another; `run` tells a run in short.
///
/// # Panics
/// If not.
pub fn assert_runs_follow_seeds<T: PartialEq + Debug>(run: impl Fn(u64) -> T) {
    assert_eq!(run(3), run(3), "the same seed");
    assert_ne!(run(3), run(4), "another seed");
}

/// Runs with a fault put in on purpose end in a difference.
///
/// # Panics
/// If one does not.
pub fn assert_fault_is_found(run: impl Fn(u64) -> Result<(), String>) {
    for seed in 0..3 {
        assert!(run(seed).is_err(), "seed {seed}: the fault was not found");
    }
}
