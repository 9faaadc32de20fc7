//! The device of this end, and addresses for the peer process.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use urxe::{
    Counter, Device, DeviceBuilder, Gid, LinkError, LinkSpec, OpenEngineError, OpenError, Source,
};
use urxe_stack::link::{self, LinkName, Origin, ParseError};
use urxe_stack::port::faults::FaultSpec;
use urxe_stack::port::udp::{OpenPortError, free_loopback_address};
use urxe_stack::sys::environment::value;

use super::error::{TrafficError, unexpected};
use crate::output;

/// The largest number of addresses that the peer process tries.
const CANDIDATES: u32 = 16;

/// The value of `--device`: a name in the list, a device (`rxe0=10.0.0.1`, `rxe0=eth0`), or an
/// address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceWord {
    /// A name in the list.
    Name(LinkName),
    /// A device in no list.
    Spec(LinkSpec),
}

impl FromStr for DeviceWord {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.contains('=') {
            return text.parse().map(Self::Spec);
        }
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(Self::Spec(at(address))),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

/// The device to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    spec: LinkSpec,
    /// Whether the address is the built-in default. If it is in use, another address may replace
    /// it.
    any_loopback: bool,
    /// The list that names the device, for errors.
    origin: Option<Origin>,
}

impl Choice {
    /// Returns the device that the user named, or else the first of the list.
    ///
    /// # Errors
    /// The list cannot be read, or has no device of this name.
    pub fn new(word: Option<&DeviceWord>) -> Result<Self, LinkError> {
        if let Some(DeviceWord::Spec(spec)) = word {
            return Ok(Self { spec: spec.clone(), any_loopback: false, origin: None });
        }
        let configured = link::configured()?;
        if let Some(DeviceWord::Name(name)) = word {
            let spec = configured.find(name)?.clone();
            return Ok(Self { spec, any_loopback: false, origin: Some(configured.origin) });
        }
        let any_loopback = configured.origin == Origin::BuiltIn;
        let spec = configured.links.into_iter().next().unwrap_or_else(LinkSpec::built_in);
        Ok(Self { spec, any_loopback, origin: Some(configured.origin) })
    }

    /// Returns a device on a free loopback address, or the built-in device if none is free.
    pub fn free_loopback() -> Self {
        let spec = free_loopback_address().map_or_else(LinkSpec::built_in, |free| at(free.into()));
        Self { spec, any_loopback: true, origin: None }
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
        opened.map_err(|error| TrafficError::Device {
            device: describe(&self.spec, self.origin.as_ref()),
            error,
        })
    }
}

/// The file that records all packets; `%p` in the name stands for the process number.
const CAPTURE: &str = "URXE_CAPTURE";
/// `on`: the capture has no payload.
const CAPTURE_HEADERS: &str = "URXE_CAPTURE_HEADERS";
/// Faults of received packets.
const FAULTS: &str = "URXE_FAULTS";

/// Returns a builder with the capture and the faults that the environment asks for.
///
/// # Errors
/// [`TrafficError::Variable`].
pub fn builder() -> Result<DeviceBuilder, TrafficError> {
    let mut builder = Device::builder();
    if let Some(path) = value(CAPTURE) {
        let path = path.to_string_lossy().replace("%p", &std::process::id().to_string());
        builder = builder.capture(path);
    }
    let wrong = |variable, error: String| TrafficError::Variable { variable, error };
    if let Some(given) = value(CAPTURE_HEADERS) {
        builder = builder.capture_headers(match given.to_str() {
            Some("on") => true,
            Some("off") => false,
            _ => return Err(wrong(CAPTURE_HEADERS, "the allowed values are on and off".into())),
        });
    }
    if let Some(faults) = value(FAULTS) {
        let faults: Result<FaultSpec, _> = faults.to_string_lossy().parse();
        builder = builder.faults(faults.map_err(|error| wrong(FAULTS, error.to_string()))?);
    }
    Ok(builder)
}

/// Refuses captures and faults for a command that opens its devices by `rdma_cm`.
///
/// # Errors
/// [`TrafficError::Variable`].
pub fn refuse_variables() -> Result<(), TrafficError> {
    for variable in [CAPTURE, FAULTS] {
        if value(variable).is_some() {
            let error = "rping, listen and connect of urxe do not read it: unset it, or use a \
                         program of rdma-core by `urxe run`";
            return Err(TrafficError::Variable { variable, error: error.into() });
        }
    }
    Ok(())
}

/// Returns the device with the list that names it, for errors: `rxe0=eth0 (URXE_DEVICES)`.
pub fn describe(spec: &LinkSpec, origin: Option<&Origin>) -> String {
    origin.map_or_else(|| spec.to_string(), |origin| format!("{spec} ({origin})"))
}

/// Returns a device on `address` that is in no list.
fn at(address: IpAddr) -> LinkSpec {
    LinkSpec { source: Source::Address(address), ..LinkSpec::built_in() }
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
    fn devices_by_name_by_source_and_by_address() {
        assert_eq!("rxe3".parse(), Ok(DeviceWord::Name("rxe3".parse().unwrap())));
        assert_eq!("r=eth0".parse(), Ok(DeviceWord::Spec("r=eth0".parse().unwrap())));
        for address in ["10.0.0.1", "::1"] {
            let DeviceWord::Spec(spec) = address.parse().unwrap() else { panic!("{address}") };
            assert_eq!(spec.source.to_string(), address);
        }
        assert!("r=".parse::<DeviceWord>().is_err());
        assert!("10.0.0".parse::<DeviceWord>().is_err());
    }

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
