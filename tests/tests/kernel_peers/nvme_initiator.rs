//! NVMe over RDMA: a kernel's initiator (nvme-rdma) writes and reads the disk of SPDK's target,
//! which runs over urxe. The guest compares the data.

use std::path::{Path, PathBuf};
use std::time::Duration;

use urxe_tests::kernel::{Guest, HOST_V4, Job, Series, Testbed};

use crate::case::{Case, Failure, GuestBody, must_contain};
use crate::nodes::urxe;

/// The name of the subsystem of `spdk.sh`.
const NAME: &str = "nqn.2016-06.io.spdk:cnode1";
/// Connects the initiator, and waits for the disk. The controller's name is in `/nvme`. After a
/// lost connection the initiator tries again each second for a minute.
const CONNECT: &str = "\
set -e
load-module nvme_rdma
id=f14cd4a7-9b5b-4c2c-8f5d-6f0d3f7e0a01
exec 3<>/dev/nvme-fabrics
printf %s \"transport=rdma,traddr=$address,trsvcid=4420,nqn=$name,nr_io_queues=2,\\
hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id,hostid=$id,\\
keep_alive_tmo=5,reconnect_delay=1,ctrl_loss_tmo=60\" >&3
read -r answer <&3
instance=${answer#*instance=}
echo nvme${instance%%,*} >/nvme
tries=0
until ls /sys/class/nvme-subsystem/*/nvme*n1 >/dev/null 2>&1; do
	tries=$((tries + 1)); test $tries -lt 100; sleep 0.1
done
";
/// Writes random data to the disk with each size of a request, and compares it, `$rounds` times.
/// Direct I/O bypasses the page cache.
const VERIFY: &str = "\
set -e
for disk in /sys/class/nvme-subsystem/*/nvme*n1; do disk=/dev/${disk##*/}; done
round=0
while test $round -lt $rounds; do
	round=$((round + 1))
	for size in 4k 64k 1M; do
		dd if=/dev/urandom of=/written bs=1M count=4 2>/dev/null
		dd if=/written of=$disk bs=$size oflag=direct 2>/dev/null
		dd if=$disk of=/read bs=$size count=$((4194304 / $(numeric $size))) iflag=direct 2>/dev/null
		cmp /written /read
	done
	echo round $round verified
done
";
/// Ends the connection.
const DISCONNECT: &str = "echo 1 >/sys/class/nvme/$(cat /nvme)/delete_controller";
const LIMIT: Duration = Duration::from_secs(120);
/// The time limit with losses. An initiator repeats a lost request after up to 2.2 s, and a round
/// takes a minute. Linux 6.1 may not repeat a request after a sequence NAK. The NVMe layer then
/// connects again after 30 s.
const LOSS_LIMIT: Duration = Duration::from_secs(300);

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let bodies: [(&str, GuestBody); 3] = [
        ("a_disk", |testbed, guest| verified(testbed, guest, None)),
        ("a_disk_with_loss", |testbed, guest| {
            verified(testbed, guest, Some("loss=1%,reorder=1%,duplicate=1%,seed=7"))
        }),
        ("a_killed_target", killed_target),
    ];
    let mut cases = Vec::new();
    for series in both {
        for (what, body) in bodies {
            let name = format!("nvme_initiator::{what}_{}", series.name());
            cases.push(Case::with_guest(name, series, body));
        }
    }
    // They need SPDK, which no package offers.
    cases.into_iter().map(Case::long).collect()
}

/// Starts SPDK's target with the disk of the test's user.
fn target(testbed: &Testbed, faults: Option<&str>) -> Result<Job, Failure> {
    let Some(spdk) = std::env::var_os("URXE_SPDK").map(PathBuf::from) else {
        return Err(Failure::Program("set URXE_SPDK to the folder of a built SPDK".into()));
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/recipes/spdk.sh");
    testbed.install(&script)?;
    let mut command = urxe(testbed, HOST_V4).env("URXE_LOG", "warn");
    command = command.env("SPDK_ADDRESS", HOST_V4.to_string()).env("SPDK_DISK", "disk.img");
    if let Some(faults) = faults {
        command = command.env("URXE_FAULTS", faults);
    }
    let command = command.words("run -- sh").arg(testbed.installed("spdk.sh"));
    let mut target = command.arg("target").arg(spdk).start()?;
    target.wait_for("ready", LIMIT)?;
    Ok(target)
}

/// An initiator that is disconnected at the end.
struct Initiator<'a>(&'a Guest);

impl<'a> Initiator<'a> {
    fn connect(guest: &'a Guest) -> Result<Self, Failure> {
        let initiator = Self(guest);
        initiator.0.run(&initiator.script(CONNECT, 0))?.ok()?;
        Ok(initiator)
    }

    /// Writes and reads the disk in the background.
    fn verify(&self, rounds: u32) -> Result<Job, Failure> {
        Ok(self.0.start(&self.script(VERIFY, rounds))?)
    }

    fn script(&self, body: &str, rounds: u32) -> String {
        let numeric = "numeric() { case $1 in *k) echo $((${1%k} * 1024));; \
                       *M) echo $((${1%M} * 1048576));; esac; }";
        format!("name={NAME} address={HOST_V4} rounds={rounds}\n{numeric}\n{body}")
    }
}

impl Drop for Initiator<'_> {
    fn drop(&mut self) {
        // The guest may have died.
        let _ = self.0.run(DISCONNECT);
    }
}

fn verified(testbed: &Testbed, guest: &Guest, faults: Option<&str>) -> Result<(), Failure> {
    let _target = target(testbed, faults)?;
    let initiator = Initiator::connect(guest)?;
    let limit = if faults.is_some() { LOSS_LIMIT } else { LIMIT };
    let output = initiator.verify(2)?.finish(limit)?.ok()?;
    must_contain("the initiator", &output, "round 2 verified")
}

/// An initiator connects again to a target that was killed, and completes its requests. No data of
/// the disk is lost.
fn killed_target(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let killed = target(testbed, None)?;
    let initiator = Initiator::connect(guest)?;
    let mut requests = initiator.verify(20)?;
    requests.wait_for("round 2 verified", LIMIT)?;
    drop(killed);
    let _target = target(testbed, None)?;
    let output = requests.finish(LIMIT)?.ok()?;
    must_contain("the initiator", &output, "round 20 verified")
}
