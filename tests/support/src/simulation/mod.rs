//! What simulations have in common: devices on a bad network, differences as texts, seeds and
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

/// The address of a host: 10.0.0.n, or fd00::n.
#[must_use]
pub fn address(n: u8, is_v6: bool) -> IpAddr {
    if is_v6 { [0xfd00, 0, 0, 0, 0, 0, 0, n.into()].into() } else { [10, 0, 0, n].into() }
}

/// A device on the network. It takes no packet whose ICRC fits only an identification that nobody
/// has seen: a damaged one would pass for that now and then.
///
/// # Panics
/// If the network refuses it.
#[must_use]
pub fn device(fabric: &Fabric, address: IpAddr, options: DeviceOptions) -> Device {
    let options = DeviceOptions { icrc_policy: IcrcPolicy::Strict, ..options };
    fabric.device_with(&[address], options).unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// How often packets are lost, doubled, overtaken and damaged: each up to so many times of a
/// hundred.
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

/// Whether something happens that does so many times of a hundred.
pub fn percent(rng: &mut Rng, percent: u32) -> bool {
    rng.chance(Probability::from_percent(percent))
}

/// What was refused, as the text that a simulation fails with.
///
/// # Errors
/// That of `result`.
pub fn say<T, E: Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
