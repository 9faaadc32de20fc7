//! XRC domains with their queues and target queue pairs; multicast groups with their members and a
//! device's datagram counters.

use std::sync::Arc;

use rustix::io::Errno;
use urxe_stack::cq::SrqId;
use urxe_stack::device::{Device, QpHandle};
use urxe_stack::srq::xrcd::{Inode, XrcdFlags};
use urxe_stack::srq::{Srq, SrqAttr, SrqInit, XrcSrqInit};
use urxe_wire::Gid;

use super::host::{address, group_address};
use super::{Scenario, errno, expect_equal};
use crate::operation::XrcCall;

/// A member of a domain.
#[derive(Clone)]
pub enum Member {
    /// A member that exists from the start.
    OfTheScenario,
    Srq(Arc<Srq>),
    Target(QpHandle),
}

impl Member {
    pub fn srq(&self) -> Option<SrqId> {
        if let Self::Srq(srq) = self { Some(srq.id()) } else { None }
    }
}

pub fn inode(file: Option<u64>) -> Option<Inode> {
    file.map(|number| Inode { device: 1, number })
}

/// Returns a group's GID, or a host's if there is no group.
fn mgid(group: Option<usize>) -> Gid {
    Gid::from_ip(group.map_or(address(0), group_address))
}

impl Scenario {
    pub(super) fn xrc(&mut self, call: &XrcCall) -> Result<(), String> {
        let actual = self.call_xrc(call);
        expect_equal(&format!("{call:?}"), actual, self.model.xrc(call))?;
        for (nr, member) in self.members.iter().enumerate() {
            let Member::Target(target) = member else { continue };
            let expected = self.model.members[nr];
            let device = self.device_with(expected.domain);
            let is_there = device.query_qp(*target).is_some();
            expect_equal(&format!("{call:?}: target {nr} is there"), is_there, expected.opens > 0)?;
        }
        Ok(())
    }

    /// Returns the device of an XRC domain.
    fn device_with(&self, domain: usize) -> &Device {
        &self.hosts[self.model.domains[domain].device].device
    }

    /// Executes a call. Returns the index of the opened domain or created member, as in the model.
    fn call_xrc(&mut self, call: &XrcCall) -> Result<usize, Errno> {
        match *call {
            XrcCall::Open { device, file, create, exclusive } => {
                let mut flags = XrcdFlags::empty();
                flags.set(XrcdFlags::CREATE, create);
                flags.set(XrcdFlags::EXCLUSIVE, exclusive);
                let opened = self.hosts[device].device.open_xrcd(inode(file), flags, |_| Ok(None));
                let xrcd = opened.map_err(|error| errno(error.errno()))?;
                let known = self.domains.iter().position(|known| Arc::ptr_eq(known, &xrcd));
                Ok(known.unwrap_or_else(|| {
                    self.domains.push(xrcd);
                    self.domains.len() - 1
                }))
            }
            XrcCall::Close { domain } => {
                let device = self.device_with(domain);
                let closed = device.close_xrcd(&self.domains[domain]);
                closed.map(|()| domain).map_err(|error| errno(error.errno()))
            }
            XrcCall::Make { domain, is_srq } => {
                let host = &self.hosts[self.model.domains[domain].device];
                let xrcd = Arc::clone(&self.domains[domain]);
                let member = if is_srq {
                    let attr = SrqAttr { max_wr: 1, max_sge: 1, srq_limit: 0 };
                    let xrc = Some(XrcSrqInit { xrcd, cq: Arc::clone(&host.idle_cq) });
                    let init = SrqInit { pd: host.pds[0], attr, xrc, context: 0 };
                    let made = host.device.create_srq(&init);
                    Member::Srq(made.map_err(|error| errno(error.errno()))?)
                } else {
                    let made = host.device.create_xrc_target(&xrcd);
                    Member::Target(made.map_err(|error| errno(error.errno()))?)
                };
                self.members.push(member);
                Ok(self.members.len() - 1)
            }
            XrcCall::OpenTarget { domain, member } => {
                let Member::Target(target) = self.members[member] else { return Err(Errno::BADF) };
                let device = self.device_with(domain);
                let opened = device.open_xrc_target(&self.domains[domain], target.qpn());
                match opened.map_err(|error| errno(error.errno()))? == target {
                    true => Ok(member),
                    false => Err(Errno::BADF),
                }
            }
            XrcCall::Destroy { member } => {
                let device = self.device_with(self.model.members[member].domain);
                let gone = match &self.members[member] {
                    Member::OfTheScenario => return Err(Errno::BADF),
                    Member::Srq(srq) => device.destroy_srq(srq).map_err(|error| error.errno()),
                    Member::Target(target) => {
                        device.destroy_qp(self.fabric.now(), *target).map_err(|error| error.errno())
                    }
                };
                gone.map(|()| member).map_err(errno)
            }
        }
    }

    pub(super) fn attach(&mut self, qp: usize, group: Option<usize>) -> Result<(), String> {
        let actual = self.device_of(qp).attach_mcast(self.qps[qp], mgid(group));
        let actual = actual.map_err(|error| errno(error.errno()));
        expect_equal("attached", actual, self.model.attach(qp, group))
    }

    pub(super) fn detach(&mut self, qp: usize, group: Option<usize>) -> Result<(), String> {
        let actual = self.device_of(qp).detach_mcast(self.qps[qp], mgid(group));
        let actual = actual.map_err(|error| errno(error.errno()));
        expect_equal("detached", actual, self.model.detach(qp, group))
    }

    pub(super) fn compare_groups(&self) -> Result<(), String> {
        for (nr, host) in self.hosts.iter().enumerate() {
            let mut actual = host.device.mcast_groups();
            actual.sort();
            let expected: Vec<_> = self.model.groups[nr]
                .iter()
                .enumerate()
                .filter(|(_, members)| !members.is_empty())
                .map(|(group, members)| (group_address(group), members.len()))
                .collect();
            expect_equal(&format!("groups of device {nr}"), actual, expected)?;
            let (_, violations) = host.device.port_violations();
            expect_equal("Q_Key violations", violations, self.model.violations[nr])?;
        }
        Ok(())
    }
}
