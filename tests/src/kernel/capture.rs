//! What went over the bridge, kept only when a test fails.

use std::{path::PathBuf, process::Command, time::Duration};

use super::{Error, Job, network::BRIDGE};

/// A running `tcpdump` of RoCE packets on the bridge.
#[derive(Debug)]
pub struct Capture {
    dump: Job,
    file: PathBuf,
}

impl Capture {
    pub(super) fn start(file: PathBuf) -> Result<Self, Error> {
        // The whole packet, so that `urxe decode` can check its ICRC; a file as large as a few MiB
        // of traffic.
        let mut dump = Job::on_host(
            Command::new("tcpdump")
                .args(["-i", BRIDGE, "-n", "-U", "-Z", "root", "-w"])
                .arg(&file)
                .args(["udp", "port", "4791"]),
        )?;
        dump.wait_for("listening on", Duration::from_secs(20))?;
        Ok(Self { dump, file })
    }

    /// Ends it and keeps the file; its path.
    pub fn keep(self) -> PathBuf {
        // The kernel hands over what it has collected once a second at the latest.
        std::thread::sleep(Duration::from_millis(1_100));
        drop(self.dump);
        self.file
    }

    /// Ends it and removes the file.
    pub fn discard(self) {
        drop(self.dump);
        // It was never more than a convenience.
        let _ = std::fs::remove_file(self.file);
    }
}
