//! Whether this machine tells of changes of its interfaces and addresses.

use super::{Outcome, Probe};
use crate::link::Changes;

const NAME: &str = "interface changes";

pub(super) fn probe() -> Probe {
    match Changes::watch() {
        Ok(_) => Probe::new(
            NAME,
            Outcome::Works,
            "netlink tells of interfaces and addresses",
            "an open device's port and GID table follow them, and its events tell of it",
        ),
        Err(error) => Probe::new(
            NAME,
            Outcome::Limited,
            format!("netlink is refused: {error}"),
            "an open device's port and GID table stay as they were when it was opened, and no event tells of changes",
        )
        .advise("allow sockets of family AF_NETLINK (seccomp filter, RestrictAddressFamilies= of systemd)"),
    }
}
