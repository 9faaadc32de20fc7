//! NVMe over RDMA: a disk of a kernel's target (nvmet), which the initiator of PyPI's package
//! `nvmeof` writes and reads over urxe. The initiator compares the data.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use urxe_tests::kernel::{Guest, HOST_V4, HostCommand, Series, Testbed};

use crate::case::{Case, Failure, GuestBody, must_contain};
use crate::nodes::urxe;

/// The name of the subsystem.
const NAME: &str = "nqn.2026-11.test:disk";
/// Loads the target, and offers a file of 64 MiB as a disk. A file in memory has no direct I/O
/// before Linux 6.6.
const SET_UP: &str = "\
set -e
load-module nvmet_rdma
test -d /sys/kernel/config/nvmet || mount -t configfs configfs /sys/kernel/config
dd if=/dev/zero of=/disk bs=1M count=0 seek=64 2>/dev/null
cd /sys/kernel/config/nvmet
mkdir -p subsystems/$name/namespaces/1 ports/1
echo 1 >subsystems/$name/attr_allow_any_host
echo 0 >subsystems/$name/namespaces/1/enable
printf /disk >subsystems/$name/namespaces/1/device_path
echo 1 >subsystems/$name/namespaces/1/buffered_io
echo 1 >subsystems/$name/namespaces/1/enable
cd ports/1
echo ipv4 >addr_adrfam; echo rdma >addr_trtype; echo $address >addr_traddr; echo 4420 >addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/$name subsystems/$name
";
/// Ends the service of the port, which disconnects all initiators.
const TAKE_DOWN: &str = "rm /sys/kernel/config/nvmet/ports/1/subsystems/$name";
/// The target's connections.
const CONNECTIONS: &str = "rdma resource show cm_id | grep -c 'state CONNECT .*:4420'";
const LIMIT: Duration = Duration::from_secs(120);
/// The longest time until the target has no connection of a killed initiator.
const END_LIMIT: Duration = Duration::from_secs(5);

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let bodies: [(&str, GuestBody); 4] = [
        ("a_disk", |testbed, guest| verified(testbed, guest, None)),
        ("a_disk_with_loss", |testbed, guest| {
            verified(testbed, guest, Some("loss=1%,reorder=1%,duplicate=1%,seed=7"))
        }),
        ("a_killed_initiator", killed_initiator),
        ("a_target_that_starts_again", target_again),
    ];
    let mut cases = Vec::new();
    for series in both {
        for (what, body) in bodies {
            cases.push(Case::with_guest(format!("nvmet::{what}_{}", series.name()), series, body));
        }
    }
    // They need a package of PyPI.
    cases.into_iter().map(Case::long).collect()
}

/// A target whose port is taken down at the end.
struct Target<'a>(&'a Guest);

impl<'a> Target<'a> {
    fn start(guest: &'a Guest) -> Result<Self, Failure> {
        let target = Self(guest);
        target.run(SET_UP)?;
        Ok(target)
    }

    /// Runs a script in the guest, and returns its output.
    fn run(&self, script: &str) -> Result<String, Failure> {
        let variables = format!("name={NAME} address={}\n", self.0.v4());
        Ok(self.0.run(&format!("{variables}{script}"))?.ok()?)
    }

    /// Returns the number of connections. `grep` fails without any.
    fn connections(&self) -> Result<usize, Failure> {
        let count = self.run(&format!("{CONNECTIONS} || true"))?;
        count.trim().parse().map_err(|_| Failure::Program(format!("{CONNECTIONS}: {count}")))
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        // The guest may have died.
        let _ = self.run(TAKE_DOWN);
    }
}

/// Returns the initiator, which verifies so many rounds.
fn initiator(testbed: &Testbed, guest: &Guest, rounds: u32) -> Result<HostCommand, Failure> {
    let python = std::env::var_os("URXE_NVMEOF").map_or_else(default_python, PathBuf::from);
    if !python.exists() {
        return Err(Failure::Program(format!(
            "no Python with the package nvmeof at {}: run `cargo xtask recipes --install nvmeof`, \
             or set URXE_NVMEOF",
            python.display()
        )));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/recipes/nvmeof_disk.py");
    testbed.install(&script)?;
    let command = urxe(testbed, HOST_V4).env("URXE_LOG", "warn").words("run --").arg(python);
    let command = command.arg(testbed.installed("nvmeof_disk.py"));
    Ok(command.words(&format!("{} {NAME} {rounds}", guest.v4())))
}

/// Returns the interpreter that `cargo xtask recipes --install nvmeof` makes.
fn default_python() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    // The test is target/debug/deps/kernel_peers-HASH.
    let target = program.ancestors().nth(3).unwrap_or(Path::new("target"));
    target.join("recipes/nvmeof/bin/python")
}

fn verified(testbed: &Testbed, guest: &Guest, faults: Option<&str>) -> Result<(), Failure> {
    let _target = Target::start(guest)?;
    let mut command = initiator(testbed, guest, 2)?;
    if let Some(faults) = faults {
        command = command.env("URXE_FAULTS", faults);
    }
    must_contain("nvmeof_disk.py", &command.start()?.finish(LIMIT)?.ok()?, "disk verified")
}

/// The target frees the connections of a killed initiator, and serves the next one.
fn killed_initiator(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let target = Target::start(guest)?;
    let mut killed = initiator(testbed, guest, 1_000_000)?.start()?;
    killed.wait_for("round 1 verified", LIMIT)?;
    if target.connections()? == 0 {
        return Err(Failure::Program("the target shows no connection of its initiator".into()));
    }
    drop(killed);
    let end = Instant::now() + END_LIMIT;
    while target.connections()? > 0 {
        if Instant::now() > end {
            return Err(Failure::Program(format!(
                "the target has {} connections of a killed initiator",
                target.connections()?
            )));
        }
        sleep(Duration::from_millis(200));
    }
    let next = initiator(testbed, guest, 1)?.start()?.finish(LIMIT)?.ok()?;
    must_contain("nvmeof_disk.py", &next, "disk verified")
}

/// An initiator ends with an error when the target disconnects it. The next one finds the target
/// that starts again.
fn target_again(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let target = Target::start(guest)?;
    let mut first = initiator(testbed, guest, 1_000_000)?.start()?;
    first.wait_for("round 1 verified", LIMIT)?;
    drop(target);
    let ended = first.finish(LIMIT)?;
    if ended.status == 0 || ended.output.contains("bytes differ") {
        return Err(Failure::Program(format!("the initiator noticed nothing: {}", ended.output)));
    }
    let _target = Target::start(guest)?;
    let next = initiator(testbed, guest, 1)?.start()?.finish(LIMIT)?.ok()?;
    must_contain("nvmeof_disk.py", &next, "disk verified")
}
