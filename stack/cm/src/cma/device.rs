//! What the core asks of devices and of the system it runs on.

use std::net::{IpAddr, SocketAddr};

use urxe_wire::Gid;
use urxe_wire::mad::ServiceId;

use urxe_types::attr::PathMtu;
use urxe_types::owner::ListenError;

/// What a device says of itself, and does for the port spaces.
pub trait LocalDevice: Send + Sync {
    /// Its GID table as it is now.
    fn gids(&self) -> Vec<Gid>;

    /// The largest path MTU of its port.
    fn path_mtu(&self) -> PathMtu;

    /// The index of its network interface.
    fn interface(&self) -> u32;

    /// Claims a service id among the processes of `address`, or of all the device's addresses.
    ///
    /// # Errors
    /// [`ListenError`].
    fn claim(&self, address: Option<IpAddr>, service: ServiceId) -> Result<(), ListenError>;

    /// Gives it back.
    fn release(&self, address: Option<IpAddr>, service: ServiceId);
}

/// What only the system knows.
pub trait System {
    /// The address that packets to `to` leave this host from; `from` if that is given and there is
    /// a way.
    ///
    /// # Errors
    /// The system's error number: there is no way.
    fn source_for(&self, from: Option<IpAddr>, to: SocketAddr) -> Result<IpAddr, i32>;

    /// The index of the interface that has an address; `None` if this host does not have it.
    fn interface_of(&self, address: IpAddr) -> Option<u32>;

    /// Whether who is bound to all of IPv6 is not to be reached by IPv4 (`net.ipv6.bindv6only`).
    fn binds_v6_only(&self) -> bool;
}
