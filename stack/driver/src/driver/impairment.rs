//! The simulated impairment of the packets that an engine receives. In a build without the feature
//! `sim`, `no_impairment` has these names.

use std::net::IpAddr;

use super::config::EngineConfig;
use crate::link::ResolvedLink;
use crate::port::faults::FaultSpec;

pub(super) use crate::port::faults::Impairment;

/// Returns the impairment that the configuration asks for, if any. Devices of one seed differ by
/// address and slot.
pub(super) fn of(
    config: &EngineConfig,
    seed: u64,
    link: &ResolvedLink,
    slot: u8,
) -> Option<Impairment> {
    let faults = &config.faults;
    if faults.is_harmless() {
        return None;
    }
    let faults = FaultSpec { seed: Some(faults.seed.unwrap_or(seed)), ..faults.clone() };
    tracing::warn!(device = %link.spec, slot, "received packets are impaired: {faults}");
    let low = |address: &IpAddr| match address {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits() as u64,
    };
    let stream = link.addresses.first().map_or(0, low).rotate_left(8) ^ u64::from(slot);
    Some(Impairment::new(faults.link, faults.seed.unwrap_or(seed), stream))
}
