//! Congestion notifications to a kernel, which does not support them. Its packets are ECN-capable
//! if the program requests such a type of service. urxe finds them marked and sends notifications,
//! and the kernel continues unaffected.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use urxe_tests::kernel::{Guest, HOST_V4, Series, Testbed};

use crate::case::{Case, Failure};
use crate::nodes::urxe;

const LIMIT: Duration = Duration::from_secs(60);
const START_DELAY: Duration = Duration::from_secs(1);
/// Messages of twenty packets, with an IP header that contains ECT(0).
const MESSAGES: &str = "-c 1 -C 100 -S 20000";
const ECT_0: &str = "-t 2";

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let case = |series: Series| {
        let name = format!("congestion::notifications_to_{}", series.name());
        Case::with_guest(name, series, notifications)
    };
    both.map(case).into()
}

fn notifications(testbed: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let capture = testbed.capture(&format!("notifications-{}", guest.name()))?;
    let before = guest.counters()?;
    let server = format!("run --fault mark=50%,seed=1 -- ucmatose -b 0.0.0.0 {MESSAGES}");
    let server = urxe(testbed, HOST_V4).words(&server).start()?;
    sleep(START_DELAY);
    let client = format!("ucmatose {ECT_0} {MESSAGES} -s {HOST_V4}");
    let ends = [guest.start(&client)?.finish(LIMIT)?.ok()?, server.finish(LIMIT)?.ok()?];
    let file = capture.keep();
    let notified = count(&file, &format!("dst host {} and udp[8] = 0x81", guest.v4()));
    let capable = count(&file, &format!("src host {} and ip[1] & 3 = 2", guest.v4()));
    // The capture served only for these counts.
    let _ = std::fs::remove_file(file);
    if capable == 0
        || notified == 0
        || ends.iter().any(|output| !output.contains("return status 0"))
    {
        let ends = ends.join("\n");
        return Err(Failure::Program(format!(
            "{notified} notifications for {capable} packets\n{ends}"
        )));
    }
    let moved = guest.counters()?.since(&before);
    // Duplicates are not checked, because urxe probes an emulated kernel that is late.
    match moved.value("completer_retry_err") + moved.value("out_of_seq_request") {
        0 => Ok(()),
        _ => Err(Failure::Faults { counters: moved.faults().to_string() }),
    }
}

/// Counts the packets of a capture that match a filter.
fn count(file: &Path, filter: &str) -> usize {
    let mut tcpdump = Command::new("tcpdump");
    let output = tcpdump.args(["-n", "-r"]).arg(file).arg(filter).output();
    output.map_or(0, |output| String::from_utf8_lossy(&output.stdout).lines().count())
}
