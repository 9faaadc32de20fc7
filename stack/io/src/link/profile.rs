//! Identity profiles: devices that look like a common NIC.
//!
//! Programs branch on the vendor, the part, the name and the PCI folder of a device. A profile
//! gives a device this identity, so that these branches can be tested. The data path stays that of
//! urxe: a profile lowers limits and removes capability flags, and adds none that the stack does
//! not have. A vendor's own interface (mlx5dv) reports that it does not support the device.
//!
//! [`PROFILES`] is the table. Another NIC is another row.

use std::fmt;

use urxe_types::limits::Limits;

/// The profiles.
pub static PROFILES: [Profile; 1] = [MLX5];

/// NVIDIA ConnectX-5, with the values of its driver `mlx5_core` and firmware.
const MLX5: Profile = Profile {
    name: "mlx5",
    device_name: "mlx5_0",
    vendor_id: 0x02c9,
    vendor_part_id: 4119,
    hw_ver: 0,
    fw_ver: "16.35.4030",
    hca_type: "MT4119",
    board_id: "MT_0000000008",
    speed_mbps: 100_000,
    // BAD_PKEY_CNTR, BAD_QKEY_CNTR, AUTO_PATH_MIG, CHANGE_PHY_PORT, PORT_ACTIVE_EVENT,
    // SYS_IMAGE_GUID, RC_RNR_NAK_GEN, MEM_WINDOW, UD_IP_CSUM, XRC, MEM_MGT_EXTENSIONS,
    // MEM_WINDOW_TYPE_2B, RAW_IP_CSUM, MANAGED_FLOW_STEERING.
    cap_flags: 0x2536_1c36,
    cap_flags_ex: 0,
    bounds: Bounds {
        max_msg_sz: 1 << 30,
        max_qp: 1 << 17,
        max_qp_wr: 1 << 15,
        max_sge: 30,
        max_cqe: (1 << 22) - 1,
        max_srq_wr: (1 << 15) - 1,
        max_srq_sge: 31,
        max_dm_size: 128 << 10,
        max_qp_rd_atom: 16,
        max_mcast_qp_attach: 240,
    },
    pci: Pci {
        vendor: 0x15b3,
        device: 0x1017,
        subsystem_vendor: 0x15b3,
        subsystem_device: 0x0008,
        class: 0x02_0000,
        driver: "mlx5_core",
        link_speed: "8.0 GT/s PCIe",
        link_width: 16,
    },
};

/// The identity of a NIC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// The word after `profile=`.
    pub name: &'static str,
    /// The name of a device for which the user chooses none.
    pub device_name: &'static str,
    /// `vendor_id` of `ibv_query_device`: the vendor's OUI.
    pub vendor_id: u32,
    /// `vendor_part_id`.
    pub vendor_part_id: u32,
    /// `hw_ver`.
    pub hw_ver: u32,
    /// The firmware version.
    pub fw_ver: &'static str,
    /// The type of the adapter in sysfs.
    pub hca_type: &'static str,
    /// The board in sysfs.
    pub board_id: &'static str,
    /// Speed in Mb/s, whatever the interface has.
    pub speed_mbps: u32,
    /// The flags of `device_cap_flags` that the NIC has. A device reports those of them that the
    /// stack has, too.
    pub cap_flags: u32,
    /// The same for the flags of `device_cap_flags_ex` above bit 31.
    pub cap_flags_ex: u64,
    /// Upper bounds of limits.
    pub bounds: Bounds,
    /// The PCI function.
    pub pci: Pci,
}

/// Limits of a NIC. A device has the smaller of the NIC's and the stack's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of `Limits`")]
pub struct Bounds {
    pub max_msg_sz: u64,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_cqe: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_dm_size: u64,
    pub max_qp_rd_atom: u8,
    pub max_mcast_qp_attach: u32,
}

/// A PCI function, as its folder in sysfs shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pci {
    /// The vendor id.
    pub vendor: u16,
    /// The device id.
    pub device: u16,
    /// The vendor id of the board.
    pub subsystem_vendor: u16,
    /// The device id of the board.
    pub subsystem_device: u16,
    /// Class, subclass and programming interface.
    pub class: u32,
    /// The kernel's driver.
    pub driver: &'static str,
    /// The speed of a lane, in sysfs' words.
    pub link_speed: &'static str,
    /// The number of lanes.
    pub link_width: u8,
}

impl Profile {
    /// Returns the profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// Returns the limits of a device with this profile, of which none is above that of the stack.
    #[must_use]
    pub fn restrict(&self, limits: Limits) -> Limits {
        let bounds = &self.bounds;
        Limits {
            max_msg_sz: limits.max_msg_sz.min(bounds.max_msg_sz),
            max_qp: limits.max_qp.min(bounds.max_qp),
            max_qp_wr: limits.max_qp_wr.min(bounds.max_qp_wr),
            max_sge: limits.max_sge.min(bounds.max_sge),
            max_cqe: limits.max_cqe.min(bounds.max_cqe),
            max_srq_wr: limits.max_srq_wr.min(bounds.max_srq_wr),
            max_srq_sge: limits.max_srq_sge.min(bounds.max_srq_sge),
            max_dm_size: limits.max_dm_size.min(bounds.max_dm_size),
            max_qp_rd_atom: limits.max_qp_rd_atom.min(bounds.max_qp_rd_atom),
            max_qp_init_rd_atom: limits.max_qp_init_rd_atom.min(bounds.max_qp_rd_atom),
            max_mcast_qp_attach: limits.max_mcast_qp_attach.min(bounds.max_mcast_qp_attach),
            ..limits
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_above_that_of_the_stack() {
        let stack = Limits { max_sge: 4, max_qp_rd_atom: 8, ..Limits::default() };
        for profile in &PROFILES {
            let limits = profile.restrict(stack);
            assert_eq!((limits.max_sge, limits.max_qp_rd_atom), (4, 8), "{profile}");
            assert_eq!(limits.max_mcast_qp_attach, stack.max_mcast_qp_attach, "{profile}");
            assert!(limits.max_qp_wr < stack.max_qp_wr && limits.max_msg_sz < stack.max_msg_sz);
        }
    }

    #[test]
    fn names_are_unique_and_begin_device_names() {
        for (at, profile) in PROFILES.iter().enumerate() {
            assert_eq!(Profile::named(profile.name), Some(profile));
            assert!(PROFILES[..at].iter().all(|other| other.name != profile.name));
            assert!(profile.device_name.parse::<super::super::LinkName>().is_ok());
        }
        assert_eq!(Profile::named("mlx4"), None);
    }
}
