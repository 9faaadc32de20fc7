//! XRC domains: opening and closing, with or without a file, and the members that keep a domain
//! open (IBTA vol. 1, A14; `ibv_open_xrcd(3)`, `ibv_open_qp(3)`). Errors have the numbers of the
//! kernel's `ib_uverbs_open_xrcd` and `ib_dealloc_xrcd_user`.

use rustix::io::Errno;
use urxe_stack::qp::attr::QpType;

use super::{Model, OmittedRule};
use crate::operation::{QPS, SRQS, XrcCall};

/// A domain, which exists while it was opened more often than closed.
#[derive(Clone, Copy, Debug)]
pub struct Domain {
    pub device: usize,
    pub file: Option<u64>,
    pub opens: u32,
}

/// A shared receive queue or a target queue pair of a domain.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub domain: usize,
    pub is_srq: bool,
    /// The number of opens; 0 after removal.
    pub opens: u32,
}

impl Member {
    /// Returns the members of the scenario's first domain, which stay: its shared receive queues
    /// and its target.
    pub fn of_the_scenario() -> Vec<Self> {
        let queues = SRQS.iter().filter(|plan| plan.is_xrc).map(|_| true);
        let targets = QPS.iter().filter(|plan| plan.qp_type == QpType::XrcRecv).map(|_| false);
        queues.chain(targets).map(|is_srq| Self { domain: 0, is_srq, opens: 1 }).collect()
    }
}

impl Model {
    /// Executes a call. Returns the index of the opened domain or created member, or the error.
    pub fn xrc(&mut self, call: &XrcCall) -> Result<usize, Errno> {
        let outcome = match *call {
            XrcCall::Open { device, file, create, exclusive } => {
                self.open_domain(device, file, create, exclusive)
            }
            XrcCall::Close { domain } => self.close_domain(domain),
            XrcCall::Make { domain, is_srq } => {
                if self.domains[domain].opens == 0 {
                    return Err(Errno::INVAL);
                }
                self.members.push(Member { domain, is_srq, opens: 1 });
                Ok(self.members.len() - 1)
            }
            XrcCall::OpenTarget { domain, member } => {
                let target = &mut self.members[member];
                if target.domain != domain {
                    self.count("XRC: no target of that domain");
                    return Err(Errno::INVAL);
                }
                target.opens += 1;
                Ok(member)
            }
            XrcCall::Destroy { member } => {
                let gone = &mut self.members[member];
                let omitted = self.omitted == Some(OmittedRule::Opens);
                gone.opens = if omitted { 0 } else { gone.opens - 1 };
                Ok(member)
            }
        };
        self.count(match (&outcome, call) {
            (Ok(_), XrcCall::Open { .. }) => "XRC: a domain opened",
            (Ok(_), XrcCall::Close { .. }) => "XRC: a domain closed",
            (Ok(_), XrcCall::Make { .. }) => "XRC: a member made",
            (Ok(_), XrcCall::OpenTarget { .. }) => "XRC: a target opened again",
            (Ok(_), XrcCall::Destroy { .. }) => "XRC: a member destroyed",
            (Err(Errno::BUSY), _) => "XRC: a domain in use",
            (Err(Errno::AGAIN), _) => "XRC: the file has no domain",
            (Err(_), XrcCall::Open { file: None, .. }) => "XRC: without a file, and not to be made",
            (Err(_), XrcCall::Open { .. }) => "XRC: the file has a domain",
            (Err(_), _) => "XRC: a domain that was closed",
        });
        outcome
    }

    fn open_domain(
        &mut self,
        device: usize,
        file: Option<u64>,
        create: bool,
        exclusive: bool,
    ) -> Result<usize, Errno> {
        let is_same = |domain: &Domain| {
            domain.opens > 0 && domain.device == device && file.is_some() && domain.file == file
        };
        match self.domains.iter().position(is_same) {
            Some(_) if exclusive => return Err(Errno::INVAL),
            Some(found) if self.omitted != Some(OmittedRule::Files) => {
                self.count("XRC: a domain shared by its file");
                self.domains[found].opens += 1;
                return Ok(found);
            }
            None if !create => {
                return Err(if file.is_some() { Errno::AGAIN } else { Errno::INVAL });
            }
            _ => {}
        }
        self.domains.push(Domain { device, file, opens: 1 });
        Ok(self.domains.len() - 1)
    }

    fn close_domain(&mut self, nr: usize) -> Result<usize, Errno> {
        let is_used = self.members.iter().any(|member| member.opens > 0 && member.domain == nr);
        let domain = &mut self.domains[nr];
        match domain.opens {
            0 => return Err(Errno::INVAL),
            1 if is_used && self.omitted != Some(OmittedRule::Members) => return Err(Errno::BUSY),
            _ => domain.opens -= 1,
        }
        Ok(nr)
    }
}
