//! Attributes of a device, as `ibv_query_device` and `ibv_query_port` return them.
//!
//! The limits are those of the stack ([`Limits`]). The limit of an unsupported feature is 0, as in
//! libibverbs. Numbers of enumerations are those of libibverbs.

use serde_json::{Value, json};
use urxe_stack::device::Limits;
use urxe_stack::driver::limits_here;
use urxe_stack::link::{self, LaneSpeed, LinkSpec, LinkWidth, OperState, ResolvedLink};
use urxe_stack::qp::attr::PathMtu;

use crate::cmd::processes::Process;
use crate::output::Object;

/// A value of an enumeration of libibverbs: the number, and the name that `ibv_devinfo` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named(u32, &'static str);

impl From<Named> for Value {
    fn from(Named(value, name): Named) -> Self {
        json!({ "value": value, "name": name })
    }
}

/// `IBV_DEVICE_*` flags that hold for every device without a profile, with their names.
pub const DEVICE_CAP_FLAGS: [(u32, &str); 12] = [
    (1 << 1, "BAD_PKEY_CNTR"),
    (1 << 2, "BAD_QKEY_CNTR"),
    (1 << 6, "UD_AV_PORT_ENFORCE"),
    (1 << 7, "CURR_QP_STATE_MOD"),
    (1 << 10, "PORT_ACTIVE_EVENT"),
    (1 << 11, "SYS_IMAGE_GUID"),
    (1 << 12, "RC_RNR_NAK_GEN"),
    (1 << 13, "SRQ_RESIZE"),
    (1 << 17, "MEM_WINDOW"),
    (1 << 20, "XRC"),
    (1 << 21, "MEM_MGT_EXTENSIONS"),
    (1 << 24, "MEM_WINDOW_TYPE_2B"),
];

/// `device_cap_flags_ex` beyond the first 32 bits, by bit number, with their names.
pub const DEVICE_CAP_FLAGS_EX: [(u32, &str); 3] =
    [(38, "FLUSH_GLOBAL"), (39, "FLUSH_PERSISTENT"), (40, "ATOMIC_WRITE")];

/// The vendor id of `rdma_rxe`, which is assigned to no vendor.
const VENDOR_ID: u32 = 0x00ff_ffff;
/// `IBV_TRANSPORT_IB`, which RoCE uses as well.
const TRANSPORT_IB: Named = Named(0, "InfiniBand");
/// Atomicity among all queue pairs of a device and its processor (`IBV_ATOMIC_GLOB` would include
/// other devices).
const ATOMIC_HCA: Named = Named(1, "ATOMIC_HCA");
/// The time limit from a packet's arrival to its acknowledgement, 4.096 µs · 2^15, as for
/// `rdma_rxe`.
const LOCAL_CA_ACK_DELAY: u32 = 15;
/// The unit of completion time stamps is a nanosecond.
const CORE_CLOCK_KHZ: u64 = 1_000_000;
/// Pages of 4 KiB.
const PAGE_SIZE_CAP: u64 = 0xffff_f000;

/// Returns the attributes of a device on this link, and of its port, which `processes` share now.
pub fn device(link: &ResolvedLink, processes: &[Process]) -> Object {
    let limits = limits_here(link.spec.limits(Limits::default()));
    let profile = link.spec.profile;
    let flags = cap_flags(&link.spec);
    let flags_ex: u64 = DEVICE_CAP_FLAGS_EX.iter().map(|(bit, _)| 1 << bit).sum();
    let flags_ex = flags_ex & profile.map_or(u64::MAX, |nic| nic.cap_flags_ex);
    let rd_atom = u32::from(limits.max_qp_rd_atom);
    let mut device = Object::default();
    device.add("hca_id", link.spec.name.as_str());
    device.add("transport", TRANSPORT_IB);
    device.add("fw_ver", profile.map_or(env!("CARGO_PKG_VERSION"), |nic| nic.fw_ver));
    device.add("node_guid", link.node_guid.to_string());
    device.add("sys_image_guid", link.node_guid.to_string());
    device.add("vendor_id", profile.map_or(VENDOR_ID, |nic| nic.vendor_id));
    device.add("vendor_part_id", profile.map_or(0, |nic| nic.vendor_part_id));
    device.add("hw_ver", profile.map_or(0, |nic| nic.hw_ver));
    device.add("phys_port_cnt", 1);
    device.add("max_mr_size", hex(limits.max_mr_size));
    device.add("page_size_cap", hex(PAGE_SIZE_CAP));
    device.add("device_cap_flags", flags);
    device.add("device_cap_flags_ex", hex(flags_ex + u64::from(flags)));
    device.add("max_qp", limits.max_qp);
    device.add("max_qp_wr", limits.max_qp_wr);
    device.add("max_sge", limits.max_sge);
    device.add("max_sge_rd", limits.max_sge);
    device.add("max_inline_data", limits.max_inline_data);
    device.add("max_cq", limits.max_cq);
    device.add("max_cqe", limits.max_cqe);
    device.add("max_mr", limits.max_mr);
    device.add("max_mw", limits.max_mw);
    device.add("max_fast_reg_page_list_len", limits.max_fast_reg_page_list_len);
    device.add("max_dm_size", limits.max_dm_size);
    device.add("max_pd", limits.max_pd);
    device.add("max_mcast_grp", limits.max_mcast_grp);
    device.add("max_mcast_qp_attach", limits.max_mcast_qp_attach);
    device.add("max_total_mcast_qp_attach", limits.max_total_mcast_qp_attach);
    device.add("max_ah", limits.max_ah);
    device.add("max_srq", limits.max_srq);
    device.add("max_srq_wr", limits.max_srq_wr);
    device.add("max_srq_sge", limits.max_srq_sge);
    device.add("max_qp_rd_atom", rd_atom);
    device.add("max_qp_init_rd_atom", limits.max_qp_init_rd_atom);
    device.add("max_res_rd_atom", rd_atom.saturating_mul(limits.max_qp));
    device.add("atomic_cap", ATOMIC_HCA);
    device.add("max_pkeys", limits.max_pkeys);
    device.add("local_ca_ack_delay", LOCAL_CA_ACK_DELAY);
    device.add("completion_timestamp_mask", hex(u64::MAX));
    device.add("hca_core_clock_khz", CORE_CLOCK_KHZ);
    device.add("max_cq_count", u16::MAX);
    device.add("max_cq_period_us", u16::MAX);
    device.add("port", port(link, &limits, processes));
    device
}

/// Returns `device_cap_flags` of a device.
pub fn cap_flags(spec: &LinkSpec) -> u32 {
    let all: u32 = DEVICE_CAP_FLAGS.iter().map(|(flag, _)| flag).sum();
    all & spec.profile.map_or(u32::MAX, |nic| nic.cap_flags)
}

fn port(link: &ResolvedLink, limits: &Limits, processes: &[Process]) -> Value {
    let (state, phys_state) = match link.interface.state {
        OperState::Up => (Named(4, "PORT_ACTIVE"), Named(5, "LINK_UP")),
        OperState::NoCarrier => (Named(1, "PORT_DOWN"), Named(2, "POLLING")),
        OperState::Disabled => (Named(1, "PORT_DOWN"), Named(3, "DISABLED")),
    };
    let (active_width, active_speed) = width_and_speed(link.interface.speed_mbps);
    let gids = link.gids.iter().enumerate().map(|(index, entry)| {
        json!({
            "index": index,
            // The form of inet_ntop, in which ibv_devinfo shows the GIDs of RoCE v2.
            "gid": std::net::Ipv6Addr::from(entry.gid.0).to_string(),
            "type": "RoCE v2",
            // Whether this machine has the address. Otherwise peers cannot reach it.
            "assigned": entry.assigned,
        })
    });
    json!({
        "number": 1,
        "state": Value::from(state),
        "max_mtu": Value::from(mtu(limits.max_mtu)),
        "active_mtu": Value::from(mtu(link.path_mtu.min(limits.max_mtu))),
        "link_layer": "Ethernet",
        "max_msg_sz": limits.max_msg_sz,
        "pkey_tbl_len": limits.max_pkeys,
        "gid_tbl_len": link.gids.len(),
        "active_width": Value::from(active_width),
        "active_speed": Value::from(active_speed),
        "phys_state": Value::from(phys_state),
        "netdev": link.interface.name,
        "gids": gids.collect::<Value>(),
        "processes": processes,
    })
}

fn mtu(mtu: PathMtu) -> Named {
    let name = match mtu {
        PathMtu::Mtu256 => "256",
        PathMtu::Mtu512 => "512",
        PathMtu::Mtu1024 => "1024",
        PathMtu::Mtu2048 => "2048",
        PathMtu::Mtu4096 => "4096",
    };
    Named(mtu.number().into(), name)
}

/// Returns the width and speed with the names of `ibv_devinfo`.
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
    (Named(width as u32, lanes), Named(speed as u32, of_a_lane))
}

/// Returns a 64-bit value as text, because many readers of JSON keep only 53 bits.
fn hex(value: u64) -> String {
    format!("{value:#x}")
}

#[cfg(test)]
mod tests {
    //! Attributes of the built-in device, and of speeds.

    use super::*;

    #[test]
    fn the_built_in_device() {
        let resolved = link::resolve(&LinkSpec::built_in()).unwrap();
        let device = device(&resolved, &[]);
        for (key, value) in [
            ("hca_id", Value::from("rxe0")),
            ("node_guid", "0000:5efe:7f00:0001".into()),
            ("max_sge", Limits::default().max_sge.into()),
            ("device_cap_flags", 0x0132_3cc6.into()),
            ("device_cap_flags_ex", "0x1c001323cc6".into()),
            ("max_mw", 524_287.into()),
            ("max_fast_reg_page_list_len", 512.into()),
            ("max_dm_size", (1 << 20).into()),
            ("max_srq", (1 << 16).into()),
            ("max_srq_wr", (1 << 20).into()),
            ("max_srq_sge", 32.into()),
        ] {
            assert_eq!(device[key], value, "{key}");
        }
        assert_eq!(device["port"]["state"], Value::from(Named(4, "PORT_ACTIVE")));
        let gids = device["port"]["gids"].as_array().unwrap();
        let gids: Vec<_> = gids.iter().map(|gid| &gid["gid"]).collect();
        assert_eq!(gids, ["::ffff:127.0.0.1"; 4]);
    }

    #[test]
    fn a_port_without_carrier() {
        let mut resolved = link::resolve(&LinkSpec::built_in()).unwrap();
        resolved.interface.state = OperState::NoCarrier;
        resolved.path_mtu = PathMtu::Mtu1024;
        let port = device(&resolved, &[])["port"].clone();
        assert_eq!(port["state"]["name"], "PORT_DOWN");
        assert_eq!(port["phys_state"]["name"], "POLLING");
        assert_eq!(port["active_mtu"], Value::from(Named(3, "1024")));
        resolved.interface.state = OperState::Disabled;
        assert_eq!(device(&resolved, &[])["port"]["phys_state"]["value"], 3);
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
            assert_eq!((width.1, speed.1), (lanes, per_lane), "{mbps:?}");
        }
    }
}
