//! A kernel program at the other end: krping, which uses rping's protocol by verbs of the kernel,
//! with memory registered by work requests. krping is neither part of Linux nor of a package. These
//! tests run only if it was built for the guest's kernel 6.1, whose version `tests/kernel/setup.sh`
//! prints:
//!
//! ```sh
//! apt-get install linux-headers-VERSION
//! git clone https://github.com/larrystevenwise/krping
//! make -C /usr/src/linux-headers-VERSION M=$PWD/krping modules CC=gcc
//! export URXE_KRPING=$PWD/krping/rdma_krping.ko
//! cargo test --features urxe-tests/kernel-peers --test kernel_peers -- krping
//! ```
//!
//! The tests do not include 6.12, because that guest hangs at the first message to krping, from
//! urxe or from the other kernel's rping.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use urxe_tests::kernel::{Guest, HOST_V4, Job, Series, Testbed};

use crate::case::{Case, Failure, GuestBody, must_contain};
use crate::connections::start;
use crate::nodes::{Family, Node, copy_to_guest};

/// The environment variable with the path of the module.
const MODULE: &str = "URXE_KRPING";
const LIMIT: Duration = Duration::from_secs(60);
const START_DELAY: Duration = Duration::from_secs(2);
const FOLDER: &str = "/opt/krping";
/// rping's own port.
const PORT: u16 = 7174;

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let Some(module) = std::env::var_os(MODULE).map(PathBuf::from) else { return Vec::new() };
    if !both.contains(&Series::V6_1) {
        return Vec::new();
    }
    let case = |what: &str, body: GuestBody| {
        let module = module.clone();
        Case::new(format!("krping::{what}_6.1"), move |testbed| {
            let guest = testbed.guest(Series::V6_1);
            load(guest, &module)?;
            body(testbed, guest)
        })
    };
    vec![case("serves", serves), case("client_of", client), case("without_urxe", without_urxe)]
}

/// Loads the module if it is absent.
fn load(guest: &Guest, module: &Path) -> Result<(), Failure> {
    copy_to_guest(guest, module, FOLDER)?;
    guest.run(&format!("[ -e /proc/krping ] || insmod {FOLDER}/rdma_krping.ko"))?.ok()?;
    Ok(())
}

/// Runs krping, which ends with the command.
fn krping(guest: &Guest, options: &str) -> Result<Job, Failure> {
    Ok(guest.start(&format!(
        "echo '{options},port={PORT},count=5,size=4000,verbose,validate' >/proc/krping"
    ))?)
}

/// Checks the kernel's log, in which krping prints a line for each ping with the start of its data.
fn must_have_pinged(guest: &Guest, what: &str) -> Result<(), Failure> {
    must_contain("krping", &guest.dmesg()?, &format!("{what} (64B max): |rdma-ping-4:"))
}

/// The kernel serves: it READs from and WRITEs to urxe. The clients are the tool and Debian's
/// program.
fn serves(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    for is_subcommand in [true, false] {
        guest.run("dmesg -c >/dev/null")?.ok()?;
        let serving = krping(guest, &format!("server,addr={}", guest.v4()))?;
        sleep(START_DELAY);
        let words = "rping -c -v -V -C 5 -S 4000 -a";
        let client =
            start(is_subcommand, words, Family::V4, Node::Urxe(testbed), Some(guest.v4()))?;
        client.finish(LIMIT)?.ok()?;
        serving.finish(LIMIT)?;
        must_have_pinged(guest, "krping: server ping data")?;
    }
    Ok(())
}

/// The other kernel's rping as the client. A failure here is not a fault of urxe.
fn without_urxe(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    guest.run("dmesg -c >/dev/null")?.ok()?;
    let serving = krping(guest, &format!("server,addr={}", guest.v4()))?;
    sleep(START_DELAY);
    let other = testbed.guests().iter().find(|other| other.name() != guest.name());
    let Some(other) = other else { return Err(Failure::Program("one guest alone".to_owned())) };
    let words = "rping -c -v -V -C 5 -S 4000 -a";
    start(false, words, Family::V4, Node::Kernel(other), Some(guest.v4()))?.finish(LIMIT)?.ok()?;
    serving.finish(LIMIT)?;
    must_have_pinged(guest, "krping: server ping data")
}

/// The kernel is the client: it registers and invalidates the memory that urxe READs and WRITEs.
fn client(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    for is_subcommand in [true, false] {
        guest.run("dmesg -c >/dev/null")?.ok()?;
        let words = "rping -s -v -C 5 -S 4000 -a 0.0.0.0";
        let serving = start(is_subcommand, words, Family::V4, Node::Urxe(testbed), None)?;
        sleep(START_DELAY);
        krping(guest, &format!("client,addr={HOST_V4}"))?.finish(LIMIT)?;
        must_contain("rping -s", &serving.finish(LIMIT)?.output, "rdma-ping-4:")?;
        must_have_pinged(guest, "krping: ping data")?;
    }
    Ok(())
}
