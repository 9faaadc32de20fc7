//! The speed of a port in the field's own terms: lanes, and the speed of each.

/// `active_width` of `struct ibv_port_attr`: the number of lanes, as a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkWidth {
    /// One lane.
    One = 1,
    /// Four lanes.
    Four = 2,
}

/// `active_speed` of `struct ibv_port_attr`: the speed of a lane, as a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LaneSpeed {
    /// 2.5 Gb/s
    Sdr = 1,
    /// 10 Gb/s
    Fdr10 = 8,
    /// 25 Gb/s
    Edr = 32,
    /// 50 Gb/s
    Hdr = 64,
    /// 100 Gb/s
    Ndr = 128,
}

/// Lanes and speed of a lane that come closest to an Ethernet speed from above; the least if it is
/// unknown.
#[must_use]
pub fn width_and_speed(mbps: Option<u32>) -> (LinkWidth, LaneSpeed) {
    match mbps.unwrap_or(0) {
        0..=2_500 => (LinkWidth::One, LaneSpeed::Sdr),
        2_501..=10_000 => (LinkWidth::One, LaneSpeed::Fdr10),
        10_001..=25_000 => (LinkWidth::One, LaneSpeed::Edr),
        25_001..=40_000 => (LinkWidth::Four, LaneSpeed::Fdr10),
        40_001..=50_000 => (LinkWidth::One, LaneSpeed::Hdr),
        50_001..=100_000 => (LinkWidth::Four, LaneSpeed::Edr),
        100_001..=200_000 => (LinkWidth::Four, LaneSpeed::Hdr),
        _ => (LinkWidth::Four, LaneSpeed::Ndr),
    }
}
