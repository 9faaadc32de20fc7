//! The shared parts of simulations: devices on a bad network, differences as texts, seeds and
//! tallies, keys that are lent to a peer.

use std::fmt::Display;
use std::net::IpAddr;

use urxe::sim::{DeviceOptions, Fabric, LinkFaults, Probability};
use urxe::{Device, IcrcPolicy};
use urxe_types::rng::Rng;

mod lent_key;
mod scenario;

pub use self::lent_key::LentKey;
pub use self::scenario::{Scenario, Seeds, Tally, assert_bug_is_found, assert_runs_follow_seeds};

/// Returns the address of host n: 10.0.0.n, or fd00::n.
#[must_use]
pub fn address(n: u8, is_v6: bool) -> IpAddr {
    if is_v6 { [0xfd00, 0, 0, 0, 0, 0, 0, n.into()].into() } else { [10, 0, 0, n].into() }
}

/// Creates a device on the network. The device accepts only ICRCs that match a seen identification,
/// because a damaged packet would otherwise pass now and then.
///
/// # Panics
/// If the network refuses the device.
#[must_use]
pub fn device(fabric: &Fabric, address: IpAddr, mut options: DeviceOptions) -> Device {
    options.icrc_policy = IcrcPolicy::Strict;
    fabric.device_with(&[address], options).unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// Draws the rates of loss, duplication, reordering and corruption, each up to a maximum in per
/// cent.
pub fn faults(rng: &mut Rng, [loss, duplicate, reorder, corrupt]: [u8; 4]) -> LinkFaults {
    let mut up_to = |most: u8| Probability::from_percent(rng.below(u64::from(most) + 1) as u32);
    LinkFaults {
        loss: up_to(loss),
        duplicate: up_to(duplicate),
        reorder: up_to(reorder),
        corrupt: up_to(corrupt),
        ..LinkFaults::default()
    }
}

/// Draws whether an event of this probability, in per cent, occurs.
pub fn percent(rng: &mut Rng, percent: u32) -> bool {
    rng.chance(Probability::from_percent(percent))
}

/// Turns an error into the text with which a simulation fails.
///
/// # Errors
/// The error of `result`, as a text.
pub fn error_text<T, E: Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
