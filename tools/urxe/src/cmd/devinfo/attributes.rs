//! What `ibv_query_device` and `ibv_query_port` say of a device.
//!
//! Limits come from the stack ([`Limits`]); what it does not offer is 0, as libibverbs has it.
//! Numbers of enumerations are libibverbs'.

use serde::{Serialize, Serializer};
use urxe_stack::device::Limits;
use urxe_stack::driver::limits_here;
use urxe_stack::link::{self, LaneSpeed, LinkWidth, OperState, ResolvedLink};
use urxe_stack::qp::attr::PathMtu;

use crate::cmd::processes::{self, Process};

/// A value of an enumeration of libibverbs: number and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Named {
    /// The number.
    pub value: u32,
    /// The name, as `ibv_devinfo` prints it.
    pub name: &'static str,
}

const fn named(value: u32, name: &'static str) -> Named {
    Named { value, name }
}

/// `IBV_DEVICE_*` flags that hold for every device, with their names.
pub const DEVICE_CAP_FLAGS: [Named; 12] = [
    named(1 << 1, "BAD_PKEY_CNTR"),
    named(1 << 2, "BAD_QKEY_CNTR"),
    named(1 << 6, "UD_AV_PORT_ENFORCE"),
    named(1 << 7, "CURR_QP_STATE_MOD"),
    named(1 << 10, "PORT_ACTIVE_EVENT"),
    named(1 << 11, "SYS_IMAGE_GUID"),
    named(1 << 12, "RC_RNR_NAK_GEN"),
    named(1 << 13, "SRQ_RESIZE"),
    named(1 << 17, "MEM_WINDOW"),
    named(1 << 20, "XRC"),
    named(1 << 21, "MEM_MGT_EXTENSIONS"),
    named(1 << 24, "MEM_WINDOW_TYPE_2B"),
];

/// `device_cap_flags_ex` beyond the first 32 bits, by bit number, with their names.
pub const DEVICE_CAP_FLAGS_EX: [(u32, &str); 3] =
    [(38, "FLUSH_GLOBAL"), (39, "FLUSH_PERSISTENT"), (40, "ATOMIC_WRITE")];

/// The vendor of `rdma_rxe`, which is nobody.
const VENDOR_ID: u32 = 0x00ff_ffff;
/// `IBV_TRANSPORT_IB`, which RoCE is, too.
const TRANSPORT_IB: Named = named(0, "InfiniBand");
/// Atomicity among all queue pairs of a device and its processor (`IBV_ATOMIC_GLOB` would be among
/// devices).
const ATOMIC_HCA: Named = named(1, "ATOMIC_HCA");
/// 4.096 µs · 2^15 between a packet's arrival and its acknowledgement at the latest, as `rdma_rxe`
/// promises.
const LOCAL_CA_ACK_DELAY: u32 = 15;
/// Completions are stamped in nanoseconds.
const CORE_CLOCK_KHZ: u64 = 1_000_000;
/// Pages of 4 KiB.
const PAGE_SIZE_CAP: u64 = 0xffff_f000;

/// Attributes of a device and its port.
#[derive(Debug, Serialize)]
pub struct Attributes {
    pub hca_id: String,
    pub transport: Named,
    pub fw_ver: &'static str,
    pub node_guid: String,
    pub sys_image_guid: String,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub phys_port_cnt: u32,
    #[serde(serialize_with = "hex")]
    pub max_mr_size: u64,
    #[serde(serialize_with = "hex")]
    pub page_size_cap: u64,
    pub device_cap_flags: u32,
    #[serde(serialize_with = "hex")]
    pub device_cap_flags_ex: u64,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_sge_rd: u32,
    pub max_inline_data: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mw: u32,
    pub max_fast_reg_page_list_len: u32,
    pub max_dm_size: u64,
    pub max_pd: u32,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub max_total_mcast_qp_attach: u32,
    pub max_ah: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_qp_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub atomic_cap: Named,
    pub max_pkeys: u32,
    pub local_ca_ack_delay: u32,
    #[serde(serialize_with = "hex")]
    pub completion_timestamp_mask: u64,
    pub hca_core_clock_khz: u64,
    pub max_cq_count: u16,
    pub max_cq_period_us: u16,
    pub port: PortAttributes,
}

/// Attributes of a port.
#[derive(Debug, Serialize)]
pub struct PortAttributes {
    pub number: u8,
    pub state: Named,
    pub max_mtu: Named,
    pub active_mtu: Named,
    pub link_layer: &'static str,
    pub max_msg_sz: u64,
    pub pkey_tbl_len: u32,
    pub gid_tbl_len: usize,
    pub active_width: Named,
    pub active_speed: Named,
    pub phys_state: Named,
    pub netdev: String,
    pub gids: Vec<GidAttributes>,
    /// Who has a device on the port's addresses now.
    pub processes: Vec<Process>,
}

/// A line of the GID table.
#[derive(Debug, Serialize)]
pub struct GidAttributes {
    pub index: usize,
    pub gid: String,
    #[serde(rename = "type")]
    pub gid_type: &'static str,
    /// Whether the machine has this address, so that peers can reach it.
    pub assigned: bool,
}

impl Attributes {
    /// The attributes of a device on this link.
    pub fn new(link: &ResolvedLink) -> Self {
        let limits = limits_here(Limits::default());
        let rd_atom = u32::from(limits.max_qp_rd_atom);
        Self {
            hca_id: link.spec.name.to_string(),
            transport: TRANSPORT_IB,
            fw_ver: env!("CARGO_PKG_VERSION"),
            node_guid: link.node_guid.to_string(),
            sys_image_guid: link.node_guid.to_string(),
            vendor_id: VENDOR_ID,
            vendor_part_id: 0,
            hw_ver: 0,
            phys_port_cnt: 1,
            max_mr_size: limits.max_mr_size,
            page_size_cap: PAGE_SIZE_CAP,
            device_cap_flags: DEVICE_CAP_FLAGS.iter().map(|flag| flag.value).sum(),
            device_cap_flags_ex: DEVICE_CAP_FLAGS_EX.iter().map(|(bit, _)| 1 << bit).sum::<u64>()
                + DEVICE_CAP_FLAGS.iter().map(|flag| u64::from(flag.value)).sum::<u64>(),
            max_qp: limits.max_qp,
            max_qp_wr: limits.max_qp_wr,
            max_sge: limits.max_sge,
            max_sge_rd: limits.max_sge,
            max_inline_data: limits.max_inline_data,
            max_cq: limits.max_cq,
            max_cqe: limits.max_cqe,
            max_mr: limits.max_mr,
            max_mw: limits.max_mw,
            max_fast_reg_page_list_len: limits.max_fast_reg_page_list_len,
            max_dm_size: limits.max_dm_size,
            max_pd: limits.max_pd,
            max_mcast_grp: limits.max_mcast_grp,
            max_mcast_qp_attach: limits.max_mcast_qp_attach,
            max_total_mcast_qp_attach: limits.max_total_mcast_qp_attach,
            max_ah: limits.max_ah,
            max_srq: limits.max_srq,
            max_srq_wr: limits.max_srq_wr,
            max_srq_sge: limits.max_srq_sge,
            max_qp_rd_atom: rd_atom,
            max_qp_init_rd_atom: limits.max_qp_init_rd_atom.into(),
            max_res_rd_atom: rd_atom.saturating_mul(limits.max_qp),
            atomic_cap: ATOMIC_HCA,
            max_pkeys: limits.max_pkeys.into(),
            local_ca_ack_delay: LOCAL_CA_ACK_DELAY,
            completion_timestamp_mask: u64::MAX,
            hca_core_clock_khz: CORE_CLOCK_KHZ,
            max_cq_count: u16::MAX,
            max_cq_period_us: u16::MAX,
            port: PortAttributes::new(link, &limits),
        }
    }
}

impl PortAttributes {
    fn new(link: &ResolvedLink, limits: &Limits) -> Self {
        let (state, phys_state) = match link.interface.state {
            OperState::Up => (named(4, "PORT_ACTIVE"), named(5, "LINK_UP")),
            OperState::NoCarrier => (named(1, "PORT_DOWN"), named(2, "POLLING")),
            OperState::Disabled => (named(1, "PORT_DOWN"), named(3, "DISABLED")),
        };
        let (active_width, active_speed) = width_and_speed(link.interface.speed_mbps);
        let gids = link.gids.iter().enumerate().map(|(index, entry)| GidAttributes {
            index,
            // As inet_ntop writes it, which is how ibv_devinfo shows the GIDs of RoCE v2.
            gid: std::net::Ipv6Addr::from(entry.gid.0).to_string(),
            gid_type: "RoCE v2",
            assigned: entry.assigned,
        });
        Self {
            number: 1,
            state,
            max_mtu: mtu(limits.max_mtu),
            active_mtu: mtu(link.path_mtu.min(limits.max_mtu)),
            link_layer: "Ethernet",
            max_msg_sz: limits.max_msg_sz,
            pkey_tbl_len: limits.max_pkeys.into(),
            gid_tbl_len: link.gids.len(),
            active_width,
            active_speed,
            phys_state,
            netdev: link.interface.name.clone(),
            processes: processes::of(link),
            gids: gids.collect(),
        }
    }
}

fn mtu(mtu: PathMtu) -> Named {
    let name = match mtu {
        PathMtu::Mtu256 => "256",
        PathMtu::Mtu512 => "512",
        PathMtu::Mtu1024 => "1024",
        PathMtu::Mtu2048 => "2048",
        PathMtu::Mtu4096 => "4096",
    };
    named(mtu.number().into(), name)
}

/// The names that `ibv_devinfo` gives them.
fn width_and_speed(mbps: Option<u32>) -> (Named, Named) {
    let (width, speed) = link::width_and_speed(mbps);
    let lanes = match width {
        LinkWidth::One => "1",
        LinkWidth::Four => "4",
    };
    let of_a_lane = match speed {
        LaneSpeed::Sdr => "2.5 Gbps",
        LaneSpeed::Fdr10 => "10.0 Gbps",
        LaneSpeed::Edr => "25.0 Gbps",
        LaneSpeed::Hdr => "50.0 Gbps",
        LaneSpeed::Ndr => "100.0 Gbps",
    };
    (named(width as u32, lanes), named(speed as u32, of_a_lane))
}

/// 64 bits are text in JSON: many readers keep 53.
fn hex<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:#x}"))
}

#[cfg(test)]
mod tests {
    //! Attributes of the built-in device, and of speeds.

    use urxe_stack::link::{self, LinkSpec};

    use super::*;

    #[test]
    fn the_built_in_device() {
        let resolved = link::resolve(&LinkSpec::built_in()).unwrap();
        let attributes = Attributes::new(&resolved);
        assert_eq!(attributes.hca_id, "rxe0");
        assert_eq!(attributes.node_guid, "0000:5efe:7f00:0001");
        assert_eq!(attributes.port.state, named(4, "PORT_ACTIVE"));
        let gids: Vec<&str> = attributes.port.gids.iter().map(|gid| gid.gid.as_str()).collect();
        assert_eq!(gids, ["::ffff:127.0.0.1"; 2]);
        assert_eq!(attributes.max_sge, Limits::default().max_sge);
        assert_eq!(attributes.device_cap_flags, 0x0132_3cc6);
        assert_eq!(attributes.device_cap_flags_ex, 0x1c0_0132_3cc6);
        assert_eq!(
            (attributes.max_mw, attributes.max_fast_reg_page_list_len, attributes.max_dm_size),
            (524_287, 512, 1 << 20)
        );
        assert_eq!(
            (attributes.max_srq, attributes.max_srq_wr, attributes.max_srq_sge),
            (1 << 16, 1 << 20, 32)
        );
    }

    #[test]
    fn a_port_without_carrier() {
        let mut resolved = link::resolve(&LinkSpec::built_in()).unwrap();
        resolved.interface.state = OperState::NoCarrier;
        resolved.path_mtu = PathMtu::Mtu1024;
        let port = Attributes::new(&resolved).port;
        assert_eq!((port.state.name, port.phys_state.name), ("PORT_DOWN", "POLLING"));
        assert_eq!(port.active_mtu, named(3, "1024"));
        resolved.interface.state = OperState::Disabled;
        assert_eq!(Attributes::new(&resolved).port.phys_state.value, 3);
    }

    #[test]
    fn lanes_times_speed_reach_the_interface() {
        for (mbps, lanes, per_lane) in [
            (None, "1", "2.5 Gbps"),
            (Some(1_000), "1", "2.5 Gbps"),
            (Some(10_000), "1", "10.0 Gbps"),
            (Some(25_000), "1", "25.0 Gbps"),
            (Some(40_000), "4", "10.0 Gbps"),
            (Some(100_000), "4", "25.0 Gbps"),
            (Some(400_000), "4", "100.0 Gbps"),
        ] {
            let (width, speed) = width_and_speed(mbps);
            assert_eq!((width.name, speed.name), (lanes, per_lane), "{mbps:?}");
        }
    }
}
