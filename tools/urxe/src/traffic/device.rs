//! Opening the devices of this end, and addresses for the peer process.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use urxe::cm::{DefaultDevices, NoServiceError};
use urxe::{
    Counter, Device, DeviceBuilder, Gid, LinkError, LinkSpec, OpenEngineError, OpenError, Tap,
};
use urxe_stack::link::{self, Origin};
use urxe_stack::port::udp::{OpenPortError, free_loopback_address};

use super::error::{TrafficError, unexpected};
use super::selection::{DeviceArgs, at};
use super::variables;
use crate::output;

/// The largest number of addresses that the peer process tries.
const CANDIDATES: u32 = 16;

/// The device to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    spec: LinkSpec,
    /// Whether the address is the built-in default. If it is in use, another address may replace
    /// it.
    any_loopback: bool,
    /// The text of the device in errors.
    text: String,
}

impl Choice {
    /// Returns the first of the selected devices.
    ///
    /// # Errors
    /// The list cannot be read, or has no device of the given name.
    pub fn new(args: &DeviceArgs) -> Result<Self, TrafficError> {
        let selection = args.select()?;
        let any_loopback = !selection.is_named && selection.origin == Some(Origin::BuiltIn);
        let spec = selection.first();
        let text = selection.describe(std::slice::from_ref(&spec));
        Ok(Self { spec, any_loopback, text })
    }

    /// Returns a device on a free loopback address, or the built-in device if none is free.
    pub fn free_loopback() -> Self {
        let spec = free_loopback_address().map_or_else(LinkSpec::built_in, |free| at(free.into()));
        Self { text: spec.to_string(), spec, any_loopback: true }
    }

    /// Returns whether this is the built-in device, which exists without configuration.
    pub fn is_built_in(&self) -> bool {
        self.any_loopback
    }

    /// Opens the device. If the address of the built-in device is in use, opens a free loopback
    /// address.
    ///
    /// # Errors
    /// [`TrafficError::Device`].
    pub fn open(&self, builder: &DeviceBuilder) -> Result<Device, TrafficError> {
        let opened = builder.clone().open_link(&self.spec);
        let opened = match (opened, free_loopback_address()) {
            (Err(error), Some(free)) if self.any_loopback && is_taken(&error) => {
                let spec = at(free.into());
                output::note(&format!(
                    "{} is in use; this run uses {}",
                    self.spec.source, spec.source
                ));
                builder.clone().open_link(&spec)
            }
            (opened, _) => opened,
        };
        opened.map_err(|error| TrafficError::Device { device: self.text.clone(), error })
    }
}

/// The devices of connections and listeners that name none.
pub struct ConnectionDevices {
    _open: DefaultDevices,
    tap: Option<Arc<Tap>>,
}

impl ConnectionDevices {
    /// Opens the selected devices, with the capture and the faults that the environment asks for.
    /// Connections and listeners use them while the value lives.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn open(args: &DeviceArgs) -> Result<Self, TrafficError> {
        let selection = args.select()?;
        let (builder, tap) = variables::builder_with_tap()?;
        match DefaultDevices::open(&selection.links, &builder) {
            Ok(open) => Ok(Self { _open: open, tap }),
            Err(NoServiceError::Open(error)) => {
                Err(TrafficError::Device { device: selection.describe(&selection.links), error })
            }
            Err(other) => Err(TrafficError::Call(Box::new(other))),
        }
    }
}

impl Drop for ConnectionDevices {
    fn drop(&mut self) {
        // A thread that reads standard input may keep the devices open until the process ends.
        if let Some(tap) = &self.tap {
            // The capture logs its own errors.
            let _ = tap.flush();
        }
    }
}

/// Opens the first of `links` whose address no other process uses.
///
/// # Errors
/// [`TrafficError`].
pub fn open_first(links: &[String], builder: &DeviceBuilder) -> Result<Device, TrafficError> {
    let mut taken = TrafficError::NoPeerAddress;
    for link in links {
        let spec: LinkSpec = link.parse().map_err(|_| unexpected(link))?;
        match builder.clone().open_link(&spec) {
            Err(error) if is_taken(&error) => taken = error.into(),
            opened => return Ok(opened?),
        }
    }
    Err(taken)
}

/// Returns a device's link, as text.
pub fn link_of(device: &Device) -> String {
    device.link().map_or_else(|| device.name().to_owned(), |link| link.spec.to_string())
}

/// Returns the address that a device sends from.
///
/// # Errors
/// [`TrafficError::NoAddress`].
pub fn address_of(device: &Device) -> Result<IpAddr, TrafficError> {
    let gid = device.gid(device.default_gid_index()).map(Gid::to_ip);
    gid.ok_or_else(|| TrafficError::NoAddress { device: device.name().to_owned() })
}

/// Returns the retransmissions of a device.
pub fn retries_of(device: &Device) -> u64 {
    device.counter(Counter::CompleterRetryErr)
}

/// Returns whether another process has the address.
fn is_taken(error: &OpenError) -> bool {
    let OpenError::Engine(OpenEngineError::Port(error)) = error else { return false };
    matches!(error, OpenPortError::AddressInUse { .. } | OpenPortError::TooManyProcesses { .. })
}

/// Returns at least one device, as text, that a peer process on this machine can open to reach the
/// one at `address`.
///
/// # Errors
/// [`TrafficError`], [`TrafficError::NoPeerAddress`].
pub fn peer_links(address: IpAddr) -> Result<Vec<String>, TrafficError> {
    let links: Vec<_> = peers_of(address)?.iter().map(ToString::to_string).collect();
    if links.is_empty() { Err(TrafficError::NoPeerAddress) } else { Ok(links) }
}

/// Returns devices other than the one at `address`. For IPv4 these are the loopback addresses after
/// `address`, or from 127.0.0.2 on. For IPv6 these are the other addresses of this machine.
fn peers_of(address: IpAddr) -> Result<Vec<LinkSpec>, LinkError> {
    match address {
        IpAddr::V4(v4) => {
            let start = if v4.is_loopback() { v4 } else { Ipv4Addr::LOCALHOST };
            Ok(loopback_after(start).map(|next| at(next.into())).collect())
        }
        IpAddr::V6(_) => {
            let interfaces = link::interface::interfaces()?;
            let addresses =
                interfaces.iter().flat_map(|interface| &interface.addresses).map(|ip| ip.address);
            let usable = |other: &IpAddr| match other {
                IpAddr::V6(v6) => *other != address && !v6.is_unicast_link_local(),
                IpAddr::V4(_) => false,
            };
            Ok(addresses.filter(usable).map(at).collect())
        }
    }
}

/// Returns the loopback addresses after `start`, without those that end in 0 or 255.
fn loopback_after(start: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> {
    let low = start.to_bits() & 0xff_ffff;
    (1..=CANDIDATES)
        .map(move |step| Ipv4Addr::from_bits((127 << 24) | ((low + step) & 0xff_ffff)))
        .filter(|address| !matches!(address.octets()[3], 0 | 255))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_loopback_device_stands_beside_it() {
        let texts = |address: &str| -> Vec<String> {
            let peers = peers_of(address.parse().unwrap()).unwrap();
            peers.iter().map(|spec| spec.source.to_string()).collect()
        };
        assert_eq!(texts("127.0.0.1")[..2], ["127.0.0.2", "127.0.0.3"]);
        assert_eq!(texts("10.1.2.3")[0], "127.0.0.2");
        assert_eq!(texts("127.8.9.253")[..2], ["127.8.9.254", "127.8.10.1"]);
        assert_eq!(texts("127.255.255.254")[0], "127.0.0.1");
        assert!(!texts("::1").contains(&"::1".to_owned()));
    }
}
