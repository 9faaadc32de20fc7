//! The entries, one function each.

mod ci;
mod clauses;
mod deep;
mod flame;
mod fuzz;
mod lint;
mod long;
mod package;
mod programs;
mod structure;
mod test;

use anyhow::{Context as _, Result, bail};

use crate::run::Runner;

/// An entry of the task file.
pub struct Entry {
    /// What to type.
    pub name: &'static str,
    /// The arguments it takes, if it takes any.
    pub argument: &'static str,
    /// What it does, for the help.
    pub says: &'static str,
    /// How long it takes on two processors after a first build, for the help.
    pub takes: &'static str,
    /// Does it. Takes the arguments behind its name.
    pub run: fn(&[String], &mut Runner) -> Result<()>,
}

/// Makes the table readable.
const fn task(
    name: &'static str,
    argument: &'static str,
    takes: &'static str,
    says: &'static str,
    run: fn(&[String], &mut Runner) -> Result<()>,
) -> Entry {
    Entry { name, argument, says, takes, run }
}

/// All entries, by group, in the order of the help.
pub const GROUPS: &[(&str, &[Entry])] = &[
    (
        "Before a commit",
        &[
            task("fmt", "", "2 s", "the formatting (cargo fmt mends it)", lint::fmt),
            task(
                "structure",
                "[CHECK]",
                "5 s",
                "dependencies, sizes of files and lines, and the language",
                structure::structure,
            ),
            task("clippy", "", "1 min", "lints; a warning is an error", lint::clippy),
            task("doc", "", "1 min", "the documentation; a warning is an error", lint::doc),
            task("test", "", "4 min", "all tests that need neither root nor packages", test::test),
        ],
    ),
    (
        "By what was touched",
        &[
            task("sim", "[SEEDS]", "1 min", "fault simulation over 2000 seeds", test::sim),
            task("loom", "", "4 min", "every interleaving of shared structures", deep::loom),
            task("asan", "", "2 min", "the memory module under AddressSanitizer", deep::asan),
            task("fuzz", "[SECONDS]", "8 min", "each fuzz target for 60 s", fuzz::fuzz),
            task("allocations", "", "30 s", "no message allocates", deep::allocations),
            task(
                "budget",
                "[keep]",
                "1 min",
                "a message costs no more instructions than are kept; keep what it costs",
                deep::budget,
            ),
            task("golden", "", "5 min", "write the golden texts anew", test::golden),
        ],
    ),
    (
        "With other programs and kernels; install packages by name as root",
        &[
            task(
                "namespace",
                "",
                "1 min",
                "packets on the wire, and several users of an address",
                deep::namespace,
            ),
            task(
                "programs",
                "[all|speed]",
                "3 min",
                "Debian's programs; with all their options; their speed",
                programs::programs,
            ),
            task("newer", "", "10 min", "Debian 13's programs, as root", programs::newer),
            task(
                "kernel",
                "[all|speed]",
                "8 min",
                "real kernels in QEMU, as root; the longer pairs; their speed",
                deep::kernel,
            ),
        ],
    ),
    (
        "Measuring",
        &[
            task("bench", "", "10 min", "criterion benches", deep::bench),
            task("flame", "[PERF'S…]", "3 min", "a flame graph of urxe perf", flame::flame),
            task(
                "clauses",
                "",
                "1 s",
                "which IBTA clauses are cited by code and tests",
                clauses::clauses,
            ),
        ],
    ),
    (
        "Delivering",
        &[
            task("install", "[--prefix P] …", "2 min", "build and install", package::install),
            task("package", "[--built P] …", "2 min", "an archive and a .deb", package::package),
        ],
    ),
    (
        "Together",
        &[
            task("ci", "", "20 min", "what CI runs; as root, installs what it needs", ci::ci),
            task("sharing", "", "5 min", "200 processes of one address killed", long::sharing),
            task(
                "long",
                "[CAMPAIGN…]",
                "hours",
                "sim, fuzz, sharing, programs, newer and kernel at length",
                long::long,
            ),
        ],
    ),
];

/// Finds an entry by name.
pub fn entry(name: &str) -> Result<&'static Entry> {
    let mut entries = GROUPS.iter().flat_map(|(_, entries)| *entries);
    entries.find(|entry| entry.name == name).with_context(|| format!("no task {name:?}"))
}

/// Returns the one number that an entry may be given.
fn number(arguments: &[String], default: u64) -> Result<u64> {
    match arguments {
        [] => Ok(default),
        [text] => text.parse().with_context(|| format!("{text:?} is no number")),
        _ => bail!("expected one number or nothing"),
    }
}

/// Refuses arguments.
fn none(arguments: &[String]) -> Result<()> {
    if arguments.is_empty() { Ok(()) } else { bail!("it takes no arguments") }
}
