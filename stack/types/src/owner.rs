//! Processes that hold an address or a service, as errors name them.

use std::fmt;
use std::net::IpAddr;

use rustix::io::Errno;

/// The most service ids that the processes of one address listen on.
pub const MAX_SERVICES: usize = 1024;

/// A process that has an address, as far as it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its effective user.
    pub uid: u32,
    /// Its number; `None` if it is in another process namespace, or is the kernel.
    pub pid: Option<i32>,
    name: [u8; 16],
}

impl Owner {
    /// Describes a process; of `name`, the first 16 bytes are kept (the kernel's own limit is 15
    /// bytes: TASK_COMM_LEN, proc(5)).
    #[must_use]
    pub fn new(uid: u32, pid: Option<i32>, name: &[u8]) -> Self {
        let mut kept = [0; 16];
        let length = name.len().min(kept.len());
        kept[..length].copy_from_slice(&name[..length]);
        Self { uid, pid, name: kept }
    }

    /// The process's name (proc(5), comm); empty if it cannot be told.
    #[must_use]
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.name).trim_end_matches('\0').to_owned()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) if self.name[0] != 0 => write!(f, "process {pid} ({})", self.name())?,
            Some(pid) => write!(f, "process {pid}")?,
            None if self.uid == 0 => return f.write_str("user 0 or the kernel's rdma_rxe"),
            None => f.write_str("a process")?,
        }
        write!(f, " of user {}", self.uid)
    }
}

crate::errors! {
    /// Why a service cannot be listened on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum ListenError {
        #[error(
            "service {service_id:#x} (port {}) of {address} is taken by {}",
            service_id & 0xffff,
            match owner { Some(owner) => owner.to_string(), None => "another process".to_owned() }
        )]
        InUse { address: IpAddr, service_id: u64, owner: Option<Owner> } = EADDRINUSE,
        #[error("the processes of {address} listen on {MAX_SERVICES} services, which is as many as \
                 there can be")]
        TooMany { address: IpAddr } = ENOMEM,
        #[error("cannot change the table of services of {address}: {errno}")]
        System { address: IpAddr, errno: Errno } = errno.raw_os_error(),
    }
}
