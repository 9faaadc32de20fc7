//! The entries, one function each.

mod ci;
mod deep;
mod flame;
mod fuzz;
mod lint;
mod package;
mod programs;
mod test;

use crate::step::Failure;
use crate::tally::Tally;

/// What an entry's function is given: the arguments behind its name, and where to count.
pub type Run = fn(&[String], &mut Tally) -> Result<(), Failure>;

/// An entry of the task file.
pub struct Entry {
    /// What to type.
    pub name: &'static str,
    /// The argument it takes, if it takes one.
    pub argument: &'static str,
    /// What it does, for the help.
    pub says: &'static str,
    /// Does it.
    pub run: Run,
}

/// Makes the table readable.
const fn entry(name: &'static str, argument: &'static str, says: &'static str, run: Run) -> Entry {
    Entry { name, argument, says, run }
}

/// All entries, in the order of the help.
pub const ENTRIES: &[Entry] = &[
    entry("fmt", "", "check the formatting (cargo fmt mends it)", lint::fmt),
    entry("clippy", "", "lint everything; a warning is an error", lint::clippy),
    entry("doc", "", "build the documentation; a warning is an error", lint::doc),
    entry(
        "test",
        "",
        "unit, integration and documentation tests: needs neither root nor packages",
        test::test,
    ),
    entry(
        "golden",
        "",
        "write golden texts anew; look at the difference before you commit it",
        test::golden,
    ),
    entry("sim", "[SEEDS]", "the fault simulation over this many seeds (2000)", test::sim),
    entry("loom", "", "every interleaving of the shared protocols", deep::loom),
    entry("asan", "", "memory tests under AddressSanitizer (nightly toolchain)", deep::asan),
    entry("bench", "", "criterion benches", deep::bench),
    entry(
        "flame",
        "[PERF'S…]",
        "a flame graph of a run of urxe perf, in target/flame.svg: installs linux-perf and inferno",
        flame::flame,
    ),
    entry(
        "fuzz",
        "[SECONDS]",
        "each fuzz target, from its kept inputs, for this long (60) (nightly toolchain)",
        fuzz::fuzz,
    ),
    entry("allocations", "", "no message on its way allocates", deep::allocations),
    entry(
        "budget",
        "[keep]",
        "a message costs no more instructions than are kept, or keep what it costs: installs valgrind",
        deep::budget,
    ),
    entry(
        "namespace",
        "",
        "what goes over the wire, and who shares an address, in a network namespace",
        deep::namespace,
    ),
    entry(
        "programs",
        "[all|speed]",
        "Debian's programs over urxe, all their options, or their speed: installs packages by name",
        programs::programs,
    ),
    entry(
        "newer",
        "",
        "Debian 13's programs and the tests of its rdma-core over urxe: needs root, fetches packages by name",
        programs::newer,
    ),
    entry(
        "kernel",
        "[all|speed]",
        "pairs with real kernels in QEMU, the longer ones, or whose connections are faster: needs root, installs packages by name",
        deep::kernel,
    ),
    entry(
        "install",
        "[--prefix P] …",
        "build and install the command and its libraries (/usr/local), beside the system's libibverbs",
        package::install,
    ),
    entry(
        "package",
        "",
        "a relocatable archive and a Debian package, in target/packages",
        package::package,
    ),
    entry(
        "ci",
        "",
        "all of the above but golden, bench, flame, newer, install and package; as root, installs what it needs",
        ci::ci,
    ),
];

/// The one number that an entry may be given.
fn number(arguments: &[String], default: u64, usage: &'static str) -> Result<u64, Failure> {
    match arguments {
        [] => Ok(default),
        [text] => text.parse().map_err(|_| Failure::Usage(usage)),
        _ => Err(Failure::Usage(usage)),
    }
}

/// Refuses arguments.
fn none(arguments: &[String], usage: &'static str) -> Result<(), Failure> {
    if arguments.is_empty() { Ok(()) } else { Err(Failure::Usage(usage)) }
}
