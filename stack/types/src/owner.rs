//! Processes that hold an address or a service, for error messages.

use std::fmt;
use std::net::IpAddr;

use crate::errno::OsError;
use crate::escape::Escaped;

/// The largest number of service ids that the processes of one address listen on.
pub const MAX_SERVICES: usize = 1024;

/// A process that holds an address or a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Effective user id.
    pub uid: u32,
    /// Process id, or `None` for the kernel and for a process in another PID namespace.
    pub pid: Option<i32>,
    name: [u8; 16],
}

impl Owner {
    /// Returns the description of a process. Keeps the first 16 bytes of `name`, because the kernel
    /// limits names to 15 bytes (TASK_COMM_LEN, proc(5)).
    #[must_use]
    pub fn new(uid: u32, pid: Option<i32>, name: &[u8]) -> Self {
        let mut kept = [0; 16];
        let length = name.len().min(kept.len());
        kept[..length].copy_from_slice(&name[..length]);
        Self { uid, pid, name: kept }
    }

    /// Returns the name of the process (proc(5), comm), or an empty text if unknown. A process
    /// chooses its own name, so control characters are [escaped](crate::escape).
    #[must_use]
    pub fn name(&self) -> String {
        Escaped(String::from_utf8_lossy(&self.name).trim_end_matches('\0')).to_string()
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
    /// The reason why a process cannot listen on a service.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum ListenError {
        #[error(
            "service {service_id:#x} (port {}) of {address} is in use by {}",
            service_id & 0xffff,
            match owner { Some(owner) => owner.to_string(), None => "another process".to_owned() }
        )]
        InUse { address: IpAddr, service_id: u64, owner: Option<Owner> } = EADDRINUSE,
        #[error("the processes of {address} already listen on {MAX_SERVICES} services, which is \
                 the maximum")]
        TooMany { address: IpAddr } = ENOMEM,
        #[error("cannot change the table of services of {address}: {errno}")]
        System { address: IpAddr, errno: OsError } = errno.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_name_are_escaped() {
        let owner = Owner::new(1000, Some(7), b"\x1b[31m\x07x\n");
        assert_eq!(owner.to_string(), "process 7 (\\u001b[31m\\u0007x\\u000a) of user 1000");
    }
}
