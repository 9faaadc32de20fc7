//! Ports of addresses that the interface got while the device was open.
//!
//! They never move and stay as long as the device, so that threads that receive and send need no
//! lock for them. The port of an address that vanished is harmless: nothing comes there, what is
//! sent from it fails, and it works again when the address comes back. So there is a limit to how
//! many addresses a device follows.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::port::sharing::{self, Member};
use crate::port::udp::{OpenPortError, UdpConfig, UdpPort};

/// Temporary IPv6 addresses (RFC 8981) come one a day.
pub(super) const MAX_ADDED: usize = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct AddedPorts {
    /// What the ports of the others were opened with.
    template: UdpConfig,
    ports: [OnceLock<(UdpPort, Option<Member>)>; MAX_ADDED],
}

/// Why an added address has no port.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddPortError {
    #[error(transparent)]
    Port(#[from] OpenPortError),
    #[error("{MAX_ADDED} addresses came since the device was opened, and it follows no more")]
    TooMany,
}

impl AddedPorts {
    pub fn new(template: UdpConfig) -> Self {
        Self { template, ports: [const { OnceLock::new() }; MAX_ADDED] }
    }

    fn opened(&self) -> impl Iterator<Item = &(UdpPort, Option<Member>)> {
        self.ports.iter().map_while(OnceLock::get)
    }

    pub fn is_empty(&self) -> bool {
        self.ports[0].get().is_none()
    }

    pub fn at(&self, place: usize) -> Option<&UdpPort> {
        Some(&self.ports.get(place)?.get()?.0)
    }

    pub fn iter(&self) -> impl Iterator<Item = &UdpPort> {
        self.opened().map(|(port, _)| port)
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.opened().filter_map(|(_, member)| member.as_ref())
    }

    /// Opens a port for an address, unless it has one from an earlier time, and has `tell`, which
    /// is given how it was opened, wake the threads that sleep already when something comes there.
    /// `slot` is the process's on the other addresses. One thread at a time. Its member, if the
    /// address is shared and new.
    pub fn open(
        &self,
        address: IpAddr,
        slot: u8,
        random: u64,
        tell: impl FnOnce(&UdpConfig, BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<Option<&Member>, AddPortError> {
        if self.iter().any(|port| port.address() == address) {
            return Ok(None);
        }
        let place =
            self.ports.iter().find(|place| place.get().is_none()).ok_or(AddPortError::TooMany)?;
        let UdpConfig { address, scope_id, interface, .. } =
            UdpConfig::on(self.template.interface, address);
        let config = UdpConfig { address, scope_id, interface, ..self.template.clone() };
        let opened = sharing::join_late(&config, slot, random)?;
        tell(&config, opened.0.as_fd()).map_err(|errno| OpenPortError::System {
            address,
            call: "epoll_ctl",
            errno,
        })?;
        Ok(place.get_or_init(|| opened).1.as_ref())
    }
}
