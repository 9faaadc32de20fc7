//! A simulation as a scenario: its seeds, what its runs showed, added up, and what every simulation
//! has to show beside its own subject: a run is its seed's alone, and a bug put in on purpose is
//! found.
//!
//! `URXE_SEED` runs one seed alone, `URXE_SIM_SEEDS` says how many of the simulation of single
//! connections there are.

use std::ops::Range;

/// One seed takes as long as so many of the simulation of single connections.
const COST: u64 = 10;

/// A simulation: devices on a bad network, what their programs do, and a judge of what comes of it.
pub trait Scenario: Sized {
    /// What runs differ in beside their seeds.
    type Kind: Copy;
    /// A bug that can be put in on purpose, to see that the judge finds it.
    type InjectedBug: Copy;
    /// What a run shows.
    type Tally: Tally + Default;

    /// Sets the devices up.
    fn new(seed: u64, kind: Self::Kind, bug: Option<Self::InjectedBug>) -> Self;

    /// Runs to the end.
    ///
    /// # Errors
    /// The first difference from what must be.
    fn run(&mut self) -> Result<(), String>;

    /// What the run showed.
    fn tally(&self) -> Self::Tally;

    /// The hash of all events: equal for equal runs.
    fn trace_hash(&self) -> u64;
}

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

    /// Runs a scenario of each seed; what all of them showed.
    ///
    /// # Panics
    /// At the first difference, with the seed that shows it again.
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

/// The same seed is the same run, another is another.
///
/// # Panics
/// If not.
pub fn assert_runs_follow_seeds<S: Scenario>(kind: S::Kind) {
    let run = |seed| {
        let mut scenario = S::new(seed, kind, None);
        assert_eq!(scenario.run(), Ok(()), "seed {seed}");
        scenario.trace_hash()
    };
    assert_eq!(run(3), run(3), "the same seed");
    assert_ne!(run(3), run(4), "another seed");
}

/// Runs with a bug put in on purpose end in a difference.
///
/// # Panics
/// If one does not.
pub fn assert_bug_is_found<S: Scenario>(kind: S::Kind, bug: S::InjectedBug) {
    for seed in 0..3 {
        let found = S::new(seed, kind, Some(bug)).run();
        assert!(found.is_err(), "seed {seed}: the bug was not found");
    }
}

/// Numbers that can be added to others of their kind. [`tally!`](crate::tally) declares a struct of
/// them.
pub trait Tally {
    /// Adds what another run showed.
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

/// Declares a struct of numbers that can be added up, of which a run begins with zeros.
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
