//! The C ABI under AddressSanitizer: random calls, rdma-core's tests and perftest over a
//! `liburxe.so` that checks each access to memory.
//!
//! rustc links the sanitizer's runtime only into executables. So the programs, which are not built
//! here, load gcc's `libasan.so` first. Leaks are not reported: Python and the programs leave
//! memory behind, and `programs::lifetimes` checks leaks with valgrind.
//!
//! [`tsan`](super::tsan) runs the same random calls under ThreadSanitizer.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context as _, Result, bail};

use super::number;
use crate::machine::{need_nightly, need_packages};
use crate::run::{Runner, cargo, target_folder};

/// The runs of a seed: steps or rounds, and the mode.
const RUNS: [&[&str]; 4] = [&["20000"], &["2", "threads"], &["4", "cm"], &["4", "sockets"]];
/// Options of the sanitizer. A cancelled thread unwinds frames without a notice to the sanitizer,
/// which would then take its own signal stack for an overflow. An allocation that is too large
/// fails, as without the sanitizer.
const OPTIONS: &str =
    "detect_leaks=0:use_sigaltstack=0:abort_on_error=1:allocator_may_return_null=1";
/// rdma-core's tests, which Debian compresses.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
/// Programs of perftest, each with its options.
const PERFTEST: [&str; 5] = [
    "ib_write_bw -n 500 -s 65536",
    "ib_read_bw -n 500 -q 4",
    "ib_send_bw -n 500 -b",
    "ib_send_lat -n 500 -c UD",
    "ib_atomic_bw -n 500",
];

/// Runs random calls of a number of seeds, then rdma-core's tests and perftest, over a library with
/// AddressSanitizer.
pub fn abi_fuzz(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let seeds = number(arguments, 20)?;
    need_nightly(runner)?;
    let packages = ["gcc", "libibverbs-dev", "librdmacm-dev", "perftest", "python3-pyverbs"];
    need_packages(&packages, runner)?;
    let checked = Checked::build(runner)?;
    for seed in 1..=seeds {
        let seed = seed.to_string();
        for run in RUNS {
            runner.run(checked.command(&checked.fuzzer, 51).arg(&seed).args(run))?;
        }
    }
    for words in PERFTEST {
        checked.pair(words, runner)?;
    }
    checked.suite(runner)
}

/// A library with the sanitizer, and the programs.
struct Checked {
    folder: PathBuf,
    fuzzer: PathBuf,
    runtime: OsString,
}

impl Checked {
    fn build(runner: &mut Runner) -> Result<Self> {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let built = target_folder().join("asan");
        // With a target named, build scripts and procedural macros are built without the sanitizer.
        let mut build = cargo(["+nightly", "build", "-p", "urxe-abi", "--target", &target]);
        // The runtime defines the sanitizer's functions when a program loads the library.
        build.env("RUSTFLAGS", "-Zsanitizer=address -Clink-arg=-Wl,-z,undefs");
        build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
        runner.run(build.env("CARGO_TARGET_DIR", &built))?;
        let folder = built.join("programs");
        fs::create_dir_all(&folder)?;
        fs::copy(built.join(&target).join("debug/liburxe.so"), folder.join("liburxe.so"))?;
        for name in ["libibverbs.so.1", "librdmacm.so.1"] {
            match symlink("liburxe.so", folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        let fuzzer = folder.join("abi_fuzz");
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-o"]).arg(&fuzzer);
        let libraries = ["-Wl,--as-needed", "-libverbs", "-lrdmacm", "-pthread"];
        runner.run(gcc.arg("tests/programs/abi_fuzz.c").args(libraries))?;
        let found = Command::new("gcc").arg("-print-file-name=libasan.so").output()?;
        let library = String::from_utf8(found.stdout)?;
        let runtime = fs::canonicalize(library.trim()).context("gcc has no libasan.so")?;
        Ok(Self { folder, fuzzer, runtime: runtime.into() })
    }

    /// Returns a command over the library, with the device `rxe0` at 127.79.0.`host`. It ends after
    /// twenty minutes.
    fn command(&self, program: &Path, host: u8) -> Command {
        let mut command = Command::new("timeout");
        // `env` sets the runtime for the program alone.
        command.args(["1200", "env"]).arg(
            [&OsString::from("LD_PRELOAD="), &self.runtime]
                .map(|part| part.clone().into_string().expect("paths of gcc are UTF-8"))
                .concat(),
        );
        command.arg(program).env("ASAN_OPTIONS", OPTIONS).env("LD_LIBRARY_PATH", &self.folder);
        command.env("URXE_DEVICES", format!("rxe0=127.79.0.{host}"));
        command
    }

    /// Runs rdma-core's tests. Tests that need sysfs, which `urxe run` shows, are skipped.
    fn suite(&self, runner: &mut Runner) -> Result<()> {
        if !Path::new(SUITE).is_dir() {
            bail!("{SUITE} is not there: install python3-pyverbs where /usr/share/doc is kept");
        }
        let place = self.folder.join("suite");
        fs::create_dir_all(&place)?;
        runner.run(Command::new("cp").args(["-rLT", SUITE]).arg(place.join("tests")))?;
        runner.run(Command::new("gunzip").arg("-rf").arg(place.join("tests")))?;
        // Debian's, which has the package.
        let mut tests = self.command(Path::new("/usr/bin/python3"), 53);
        tests.args(["-B", "tests/programs/suite/run.py"]).arg(&place).args(["--dev", "rxe0"]);
        runner.run(&mut tests)
    }

    /// Runs a program of perftest as server and as client.
    fn pair(&self, words: &str, runner: &mut Runner) -> Result<()> {
        let mut words = words.split(' ');
        let program = Path::new(words.next().unwrap_or_default());
        let options: Vec<&str> = words.collect();
        let mut server = self.command(program, 54).args(&options).spawn()?;
        std::thread::sleep(std::time::Duration::from_secs(3));
        let client = runner.run(self.command(program, 55).args(&options).arg("127.0.0.1"));
        if client.is_err() {
            server.kill()?;
        }
        let status = server.wait()?;
        client?;
        if !status.success() {
            bail!("the server of {} failed: {status}", program.display());
        }
        Ok(())
    }
}
