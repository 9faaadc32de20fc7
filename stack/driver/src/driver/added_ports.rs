//! Ports of addresses that the interface got while the device was open.
//!
//! The ports never move and live as long as the device, so threads that receive and send need no
//! lock to use them. If an address vanishes, its port stays: nothing arrives there and sends fail,
//! until the address comes back. Therefore a device opens ports for a limited number of added
//! addresses.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::errno::OsError;
use crate::port::sharing::{self, Member};
use crate::port::udp::{OpenPortError, UdpConfig, UdpPort};

/// The most added addresses of a device. Temporary IPv6 addresses (RFC 8981) appear about once a
/// day.
pub(super) const MAX_ADDED: usize = 32;

/// The ports of added addresses.
#[derive(Debug)]
pub(super) struct AddedPorts {
    /// The configuration of the ports that the device was opened with.
    template: UdpConfig,
    /// Boxed, so that the table is no allocation above [`LARGE`](crate::allocate::LARGE).
    ports: [OnceLock<Box<AddedPort>>; MAX_ADDED],
}

/// Why an added address has no port.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddPortError {
    #[error(transparent)]
    Port(#[from] OpenPortError),
    #[error(
        "{MAX_ADDED} addresses were added since the device was opened, which is the limit; open \
         the device again to use more"
    )]
    TooMany,
}

/// A port, and its membership if processes can share the address.
type AddedPort = (UdpPort, Option<Member>);

impl AddedPorts {
    pub fn new(template: UdpConfig) -> Self {
        Self { template, ports: [const { OnceLock::new() }; MAX_ADDED] }
    }

    fn opened(&self) -> impl Iterator<Item = &AddedPort> {
        self.ports.iter().map_while(|place| Some(&**place.get()?))
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

    /// Opens a port for an address, unless the address already has one. `slot` is the slot of this
    /// process on the other addresses.
    ///
    /// `tell` gets the configuration and the socket. It must make threads that already sleep wake
    /// up when a packet arrives there. Only one thread at a time may call this function. Returns
    /// the new membership if the address is shared.
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
            errno: OsError::of(errno),
        })?;
        Ok(place.get_or_init(|| Box::new(opened)).1.as_ref())
    }
}
