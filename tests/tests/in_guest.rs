//! Runs compiled tests in a guest, as an ordinary user: `cargo xtask arm`.
//!
//! `URXE_GUEST_TESTS` names a file with a line for each test program: its name, the folder in which
//! it runs and its path, separated by tabs. `URXE_GUEST_FOLDER` is the folder with all of them,
//! which the guest has at the same place. `URXE_KERNEL_ARCH` chooses the architecture.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use libtest_mimic::{Arguments, Failed, Trial};
use urxe_tests::kernel::{Error, Guest, Machine, Series, Testbed};

/// The longest time of one program. An emulated processor is many times slower than a real one.
const LIMIT: Duration = Duration::from_secs(3600);

/// Tests that need more than the guest has: a file system on a disk.
const SKIPPED: [&str; 1] = ["a_file_that_is_mapped_shared_is_flushed_to"];

/// A test program.
struct Program {
    name: String,
    folder: String,
    path: String,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let programs = match programs() {
        Ok(programs) => programs,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let testbed = if arguments.list {
        None
    } else {
        match open() {
            Ok(testbed) => Some(Arc::new(testbed)),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    };
    let trial = |program: Program| {
        let testbed = testbed.clone();
        Trial::test(program.name.clone(), move || match testbed {
            Some(testbed) => run(&testbed.guests()[0], &program),
            None => Ok(()),
        })
    };
    libtest_mimic::run(&arguments, programs.into_iter().map(trial).collect()).exit_code()
}

/// Reads the list of the programs.
fn programs() -> Result<Vec<Program>, String> {
    let list = env::var_os("URXE_GUEST_TESTS")
        .ok_or("URXE_GUEST_TESTS names no list of test programs: run cargo xtask arm tests")?;
    let text = fs::read_to_string(&list)
        .map_err(|error| format!("URXE_GUEST_TESTS={}: {error}", list.display()))?;
    let program = |line: &str| match line.split('\t').collect::<Vec<_>>()[..] {
        [name, folder, path] => {
            let [name, folder, path] = [name, folder, path].map(str::to_owned);
            Ok(Program { name, folder, path })
        }
        _ => Err(format!("URXE_GUEST_TESTS: not a name, a folder and a path: {line}")),
    };
    text.lines().map(program).collect()
}

/// Boots a guest that has the folder of the programs at the same place.
fn open() -> Result<Testbed, Error> {
    let folder = PathBuf::from(env::var_os("URXE_GUEST_FOLDER").unwrap_or_else(|| ".".into()));
    let shared_folder = Some(folder.clone());
    let machine = Machine { memory_mib: 4096, processors: 2, shared_folder };
    let testbed = Testbed::open_with(&[Series::V6_12], &machine)?;
    let folder = folder.display();
    let guest = &testbed.guests()[0];
    guest
        .run(&format!(
            "load-module 9pnet_virtio && load-module 9p && mkdir -p '{folder}' && chmod 1777 /tmp \
             && mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host \
             '{folder}'"
        ))?
        .ok()?;
    Ok(testbed)
}

/// Runs a program as an ordinary user, in a network namespace with nothing but loopback. The
/// kernel's rxe device has the RoCE port of the other one.
fn run(guest: &Guest, Program { folder, path, .. }: &Program) -> Result<(), Failed> {
    let skips: String = SKIPPED.iter().map(|name| format!(" --skip {name}")).collect();
    let user = format!("ulimit -l 8192; cd {folder} && exec {path} --test-threads=2{skips}");
    let with_loopback = format!("ip link set lo up && exec su -s /bin/sh user -c \"{user}\"");
    let command = format!("HOME=/tmp unshare -n sh -c '{with_loopback}' 2>&1");
    let finished = guest.start(&command)?.finish(LIMIT)?;
    let closing = finished.output.lines().filter(|line| line.starts_with("test result:"));
    closing.for_each(|line| println!("{path}: {line}"));
    finished.ok()?;
    Ok(())
}
