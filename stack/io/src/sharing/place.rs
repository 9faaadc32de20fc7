//! What is shared: one address and port in one network namespace, and the names that its processes
//! go by.

use std::fmt;
use std::net::IpAddr;

use urxe_wire::ROCE_PORT;

/// An address that processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The address.
    pub address: IpAddr,
    /// The interface index of a link-local address, else 0.
    pub scope_id: u32,
}

impl Place {
    /// The abstract name of the desk of `slot`. It tells the address, so that people find it in `ss
    /// -x`.
    pub(super) fn desk(self, slot: u8) -> String {
        format!("{self}/{slot}")
    }

    /// The abstract name that is held while a group is created.
    pub(super) fn creation_lock_name(self) -> String {
        format!("{self}/new")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "urxe/{ROCE_PORT}/{}", self.address)?;
        if self.scope_id != 0 {
            write!(f, "%{}", self.scope_id)?;
        }
        Ok(())
    }
}
