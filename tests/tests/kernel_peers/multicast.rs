//! Multicast between urxe and each kernel, in both roles and IP versions, and with rdma-core's
//! `mckey`, which joins by the kernel's own connection manager.

use std::time::Duration;

use urxe_tests::kernel::{Guest, HostCommand, Job, Series, Testbed};

use crate::{
    case::{Case, Failure, output_with},
    nodes::{Family, Node},
};

const START_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(40);
const MESSAGES: u32 = 32;

/// The options of `group`.
#[derive(Clone, Copy)]
struct Session {
    family: Family,
    size: u32,
    /// Receiving queue pairs at each listener.
    queue_pairs: u32,
}

impl Session {
    fn group(self) -> &'static str {
        match self.family {
            Family::V4 => "239.77.1.2",
            Family::V6 => "ff0e::77:1",
        }
    }

    fn start(self, node: Node<'_>, role: &str) -> Result<Job, Failure> {
        let Self { size, queue_pairs, .. } = self;
        let options =
            format!("-m {} -n {MESSAGES} -s {size} -q {queue_pairs} {role}", self.group());
        match node {
            Node::Kernel(guest) => {
                let gid = guest.gid_index(node.address(self.family))?;
                Ok(guest.start(&format!("group -d rxe0 -g {gid} {options}"))?)
            }
            Node::Urxe(testbed) => Ok(group(testbed, node, self.family).words(&options).start()?),
        }
    }

    /// Runs one sender and several listeners. Each listener prints the sender of all messages.
    fn once(self, sender: Node<'_>, listeners: &[Node<'_>]) -> Result<(), Failure> {
        let mut listening = Vec::new();
        for &node in listeners {
            let mut job = self.start(node, "-l")?;
            job.wait_for("joined", START_LIMIT)?;
            listening.push(job);
        }
        self.start(sender, "")?.finish(END_LIMIT)?.ok()?;
        let wanted =
            format!("OK {} from {}", MESSAGES * self.queue_pairs, sender.address(self.family));
        for job in listening {
            output_with(job.finish(END_LIMIT)?, &[&wanted])?;
        }
        Ok(())
    }
}

fn group(testbed: &Testbed, node: Node<'_>, family: Family) -> HostCommand {
    let address = node.address(family).to_string();
    testbed.unprivileged(testbed.installed("urxe-group")).args(["--address", &address])
}

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let mut cases = Vec::new();
    for family in Family::ALL {
        let name = family.name();
        cases.push(Case::new(format!("multicast::urxe_sends::{name}"), move |testbed| {
            let listeners = both.map(|series| Node::Kernel(testbed.guest(series)));
            each_size(family, Node::Urxe(testbed), &listeners)
        }));
        for series in both {
            // The other guest has not joined the group.
            cases.push(Case::new(
                format!("multicast::{}_sends::{name}", series.name()),
                move |testbed| {
                    each_size(family, Node::Kernel(testbed.guest(series)), &[Node::Urxe(testbed)])
                },
            ));
        }
    }
    for series in both {
        let name = format!("multicast::mckey_of_{}", series.name());
        cases.push(Case::with_guest(format!("{name}_sends"), series, mckey_sends));
        cases.push(Case::with_guest(format!("{name}_listens"), series, mckey_listens));
    }
    cases
}

/// Sends an empty message, one of odd length, and one as long as the path MTU, also to several
/// queue pairs on the group.
fn each_size(family: Family, sender: Node<'_>, listeners: &[Node<'_>]) -> Result<(), Failure> {
    for (size, queue_pairs) in [(0, 1), (101, 3), (4096, 2)] {
        Session { family, size, queue_pairs }.once(sender, listeners)?;
    }
    Ok(())
}

/// `mckey` sends messages of 100 bytes.
const MCKEY: &str = "-m 239.77.3.4 -s 100 --mckey";

/// `mckey` ends after its post, and its queue pair with it. So only the first of several messages
/// is sure to leave.
fn mckey_sends(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let urxe = Node::Urxe(testbed);
    let mut listening = group(testbed, urxe, Family::V4).words(MCKEY).words("-n 1 -l").start()?;
    listening.wait_for("joined", START_LIMIT)?;
    let mckey = guest.start(&format!("mckey -m 239.77.3.4 -b {} -C 1 -s", guest.v4()))?;
    output_with(listening.finish(END_LIMIT)?, &[&format!("OK 1 from {}", guest.v4())])?;
    mckey.finish(END_LIMIT)?.ok()?;
    Ok(())
}

/// `mckey` waits for ten messages without reporting when it is ready. So the sender repeats its
/// messages.
fn mckey_listens(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let urxe = Node::Urxe(testbed);
    let mut mckey = guest.start(&format!("mckey -m 239.77.3.4 -b {}", guest.v4()))?;
    // When its queue pair is attached, the interface accepts this Ethernet address.
    let attached = "for i in $(seq 300); do \
                    grep -q 3333ef4d0304 /proc/net/dev_mcast && exit 0; usleep 50000; done; exit 1";
    guest.start(attached)?.finish(START_LIMIT)?.ok()?;
    for _ in 0..8 {
        let sending = group(testbed, urxe, Family::V4).words(MCKEY).words("-n 10").start()?;
        sending.finish(END_LIMIT)?.ok()?;
        if mckey.wait_for("data transfers complete\n", Duration::from_secs(5)).is_ok() {
            break;
        }
    }
    mckey.finish(END_LIMIT)?.ok()?;
    Ok(())
}
