//! Multicast groups: who is attached, and what a device counts of datagrams.

use rustix::io::Errno;
use urxe_wire::Gid;

use super::Scenario;
use super::host::{address, group_address};

/// A group's name; for none, a host's.
fn mgid(group: Option<usize>) -> Gid {
    Gid::from_ip(group.map_or(address(0), group_address))
}

impl Scenario {
    pub(super) fn attach(&mut self, qp: usize, group: Option<usize>) -> Result<(), String> {
        let told = self.device_of(qp).attach_mcast(self.qps[qp], mgid(group));
        let told = told.map_err(|error| Errno::from_raw_os_error(error.errno()));
        let expected = self.model.attach(qp, group);
        if told == expected { Ok(()) } else { Err(format!("attached: {told:?}, not {expected:?}")) }
    }

    pub(super) fn detach(&mut self, qp: usize, group: Option<usize>) -> Result<(), String> {
        let told = self.device_of(qp).detach_mcast(self.qps[qp], mgid(group));
        let told = told.map_err(|error| Errno::from_raw_os_error(error.errno()));
        let expected = self.model.detach(qp, group);
        if told == expected { Ok(()) } else { Err(format!("detached: {told:?}, not {expected:?}")) }
    }

    pub(super) fn compare_groups(&self) -> Result<(), String> {
        for (nr, host) in self.hosts.iter().enumerate() {
            let mut told = host.device.mcast_groups();
            told.sort();
            let expected: Vec<_> = self.model.groups[nr]
                .iter()
                .enumerate()
                .filter(|(_, members)| !members.is_empty())
                .map(|(group, members)| (group_address(group), members.len()))
                .collect();
            if told != expected {
                return Err(format!("device {nr} has the groups {told:?}, not {expected:?}"));
            }
            let (_, violations) = host.device.port_violations();
            if violations != self.model.violations[nr] {
                let expected = self.model.violations[nr];
                return Err(format!(
                    "device {nr} counts {violations} Q_Key violations, not {expected}"
                ));
            }
        }
        Ok(())
    }
}
