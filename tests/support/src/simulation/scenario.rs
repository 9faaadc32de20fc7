//! A simulation as a scenario, with its seeds and the sums of its runs. Two properties hold for
//! every simulation: a run depends on its seed alone, and the checker finds an injected bug.
//!
//! `URXE_SEED` runs a single seed. `URXE_SIM_SEEDS` is the number of seeds of the simulation of
//! single connections, from which the numbers here follow.

use std::ops::Range;

/// The cost of one seed, in seeds of the simulation of single connections.
const COST: u64 = 10;

/// A simulation: devices on a bad network, their programs, and a checker of the outcome.
pub trait Scenario: Sized {
    /// The variant of a run, besides its seed.
    type Kind: Copy;
    /// A bug that can be injected, to test the checker.
    type InjectedBug: Copy;
    /// The numbers that a run yields.
    type Tally: Tally + Default;

    /// Creates the devices.
    fn new(seed: u64, kind: Self::Kind, bug: Option<Self::InjectedBug>) -> Self;

    /// Runs to the end.
    ///
    /// # Errors
    /// The first difference from the expected outcome.
    fn run(&mut self) -> Result<(), String>;

    /// Returns the numbers of the run.
    fn tally(&self) -> Self::Tally;

    /// Returns the hash of all events, which is equal for equal runs.
    fn trace_hash(&self) -> u64;
}

/// The seeds to try.
#[derive(Clone, Debug)]
pub struct Seeds {
    range: Range<u64>,
    usual: u64,
}

impl Seeds {
    /// Returns the seeds of the environment variables, or `usual` seeds.
    ///
    /// # Panics
    /// If an environment variable is not a number.
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

    /// Returns whether the seeds are enough for rare events to occur.
    #[must_use]
    pub fn are_many(&self) -> bool {
        self.range.end - self.range.start >= self.usual.min(21)
    }

    /// Returns whether there are at least as many seeds as usual.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.range.end - self.range.start >= self.usual
    }

    /// Runs a scenario for each seed. Returns the sum of all tallies.
    ///
    /// # Panics
    /// At the first difference, with the seed that reproduces the run.
    #[must_use]
    pub fn run<S: Scenario>(&self, kind: S::Kind) -> S::Tally {
        let mut all = S::Tally::default();
        for seed in self.range.clone() {
            let mut scenario = S::new(seed, kind, None);
            if let Err(difference) = scenario.run() {
                panic!("seed {seed}: {difference}\nagain with URXE_SEED={seed}");
            }
            all.add(&scenario.tally());
        }
        all
    }
}

/// Asserts that equal seeds give equal runs and different seeds different runs.
///
/// # Panics
/// If one of these does not hold.
pub fn assert_runs_follow_seeds<S: Scenario>(kind: S::Kind) {
    let run = |seed| {
        let mut scenario = S::new(seed, kind, None);
        assert_eq!(scenario.run(), Ok(()), "seed {seed}");
        scenario.trace_hash()
    };
    assert_eq!(run(3), run(3), "the same seed");
    assert_ne!(run(3), run(4), "another seed");
}

/// Asserts that runs with an injected bug end in a difference.
///
/// # Panics
/// If a run ends without a difference.
pub fn assert_bug_is_found<S: Scenario>(kind: S::Kind, bug: S::InjectedBug) {
    for seed in 0..3 {
        let found = S::new(seed, kind, Some(bug)).run();
        assert!(found.is_err(), "seed {seed}: the bug was not found");
    }
}

/// Numbers that can be added up. [`tally!`](crate::tally) declares a struct of such numbers.
pub trait Tally {
    /// Adds the numbers of another run.
    fn add(&mut self, other: &Self);
}

macro_rules! number {
    ($($number:ty),*) => {
        $(impl Tally for $number {
            fn add(&mut self, other: &Self) {
                *self += other;
            }
        })*
    };
}

number!(u32, u64, usize);

impl<T: Tally, const N: usize> Tally for [T; N] {
    fn add(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(all, one)| all.add(one));
    }
}

/// Declares a struct of numbers that can be added up and start at zero.
#[macro_export]
macro_rules! tally {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$comment:meta])* $inner:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $visibility struct $name {
            $($(#[$comment])* $inner $field: $type,)*
        }

        impl $crate::simulation::Tally for $name {
            fn add(&mut self, other: &Self) {
                $($crate::simulation::Tally::add(&mut self.$field, &other.$field);)*
            }
        }
    };
}
