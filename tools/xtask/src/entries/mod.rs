//! The entries, one function each.

mod abi_fuzz;
mod arm;
mod big_endian;
mod book;
mod ci;
mod clauses;
mod deep;
mod flame;
mod fuzz;
mod lint;
mod long;
mod mutants;
mod package;
mod programs;
mod recipes;
mod test;
mod tsan;

use anyhow::{Context as _, Result, bail};

use crate::run::Runner;

/// A task. Takes the arguments behind its name.
pub type Task = fn(&[String], &mut Runner) -> Result<()>;

/// All tasks, in the order of the help.
const TASKS: [(&str, Task); 37] = [
    ("fmt", lint::fmt),
    ("structure", lint::structure),
    ("clippy", lint::clippy),
    ("doc", lint::doc),
    ("book", book::book),
    ("test", test::test),
    ("sim", test::sim),
    ("loom", deep::loom),
    ("asan", deep::asan),
    ("fuzz", fuzz::fuzz),
    ("allocations", deep::allocations),
    ("budget", deep::budget),
    ("golden", test::golden),
    ("namespace", deep::namespace),
    ("programs", programs::programs),
    ("newer", programs::newer),
    ("recipes", recipes::recipes),
    ("kernel", deep::kernel),
    ("arm", arm::arm),
    ("big-endian", big_endian::big_endian),
    ("bench", deep::bench),
    ("flame", flame::flame),
    ("clauses", clauses::clauses),
    ("manual", package::manual),
    ("install", package::install),
    ("package", package::package),
    ("wheel", package::wheel),
    ("chroots", package::chroots),
    ("ci", ci::ci),
    ("abi-fuzz", abi_fuzz::abi_fuzz),
    ("tsan", tsan::tsan),
    ("forger", long::forger),
    ("sharing", long::sharing),
    ("keys", long::keys),
    ("mutants", mutants::mutants),
    ("soak", long::soak),
    ("long", long::long),
];

/// The help: a line a task, with its usual time on two processors after a first build.
pub const HELP: &str = "\
usage: cargo xtask TASK [ARGUMENT]

Before a commit:
  fmt                       2 s  the formatting (cargo fmt corrects it)
  structure [CHECK]         5 s  dependencies, sizes, language, examples of the Rust API
  clippy                  1 min  lints; a warning is an error
  doc                     1 min  the documentation; a warning is an error
  book                     10 s  the book of docs, without warnings and dead links
  test                    4 min  all tests that need neither root nor packages

By the changed part:
  sim [SEEDS]             1 min  fault simulation over 2000 seeds
  loom                    4 min  every interleaving of shared structures
  asan                    2 min  the memory module under AddressSanitizer
  fuzz [SECONDS]         15 min  each fuzz target for 60 s
  allocations              30 s  no message allocates
  budget [keep]           1 min  instructions of a message against stored counts; keep stores them
  golden                  5 min  update the golden texts

With other programs and kernels; install packages by name as root:
  namespace               1 min  packets on the wire, and several users of an address
  programs [all|speed]    3 min  Debian's programs; with all their options; their speed
  newer                  10 min  programs of Debian 13 and sid, as root
  recipes [OPTIONS] …    10 min  programs of the field (docs/recipes.md), as root
  kernel [newest] [all|…]  8 min  kernels in QEMU, as root; the newest; longer pairs; speed
  arm [STEP…] [FILTER]      2 h  AArch64: check, layout, tests in a guest, pairs with its kernel
  big-endian              5 min  the protocol core's tests on s390x, in QEMU

Measuring:
  bench                  10 min  criterion benches
  flame [PERF'S…]         3 min  a flame graph of urxe perf
  clauses                   1 s  which IBTA clauses are cited by code and tests

Delivering:
  manual                   30 s  the manual pages and completions, in target/manual
  install [--prefix P] …  2 min  build and install
  package [--built P] …   2 min  an archive and a .deb, each with another one for debuggers
  wheel [--check] …       2 min  a Python wheel; tests it with Debian's pyverbs and pytest
    --portable MACHINE           either for glibc 2.28, and for x86_64 or aarch64
  chroots [CHECK…]       20 min  package, archive, wheel and cargo install in fresh Debians, as root

Together:
  ci                     20 min  the tasks of CI; as root, installs their packages
  abi-fuzz [SEEDS]       10 min  random calls, rdma-core's tests, perftest under AddressSanitizer
  tsan [SEEDS]           20 min  the random calls of abi-fuzz under ThreadSanitizer
  forger                   2 h  100 million forged packets of each attacker
  sharing                 5 min  200 processes of one address killed
  keys                    5 min  registrations until keys return
  mutants [--in-diff]     hours  changed operators and functions, which the tests must detect
  soak [MINUTES]            2 h  traffic beside deaths, pauses and changes, as root
  long [CAMPAIGN…]        hours  the campaigns of CONTRIBUTING.md, or the named ones
";

/// Finds a task by name.
pub fn task(name: &str) -> Result<Task> {
    let found = TASKS.iter().find(|(task, _)| *task == name).map(|(_, task)| *task);
    found.with_context(|| format!("there is no task {name:?}"))
}

/// Returns the one number that an entry may be given.
fn number(arguments: &[String], default: u64) -> Result<u64> {
    match arguments {
        [] => Ok(default),
        [text] => text.parse().with_context(|| format!("{text:?} is not a number")),
        _ => bail!("unknown arguments {arguments:?}; allowed: one number, or none"),
    }
}

/// Refuses arguments.
fn none(arguments: &[String]) -> Result<()> {
    if arguments.is_empty() {
        Ok(())
    } else {
        bail!("unknown arguments {arguments:?}; this task takes none")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_a_line_for_each_task() {
        let lines = HELP.lines().filter_map(|line| line.strip_prefix("  "));
        // Lines of options have more spaces.
        let lines = lines.filter(|line| !line.starts_with(' '));
        let names: Vec<_> = lines.filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, TASKS.map(|(name, _)| name));
    }
}
