//! Prints attributes as text, with the tabs of `ibv_devinfo`.

use std::fmt::Display;
use std::io::{self, Write};

use serde_json::Value;
use urxe_stack::link::LinkSpec;

use super::attributes::{DEVICE_CAP_FLAGS, DEVICE_CAP_FLAGS_EX};
use crate::cmd::processes::Process;
use crate::output::Object;

/// Columns of a tab.
const TAB: usize = 8;
/// The column of values of a device and of a port.
const DEVICE_VALUES: usize = 40;
const PORT_VALUES: usize = 48;

/// Prints the devices' names.
pub fn list(out: &mut dyn Write, devices: &[LinkSpec]) -> io::Result<()> {
    let plural = if devices.len() == 1 { "" } else { "s" };
    writeln!(out, "{} HCA{plural} found:", devices.len())?;
    for device in devices {
        writeln!(out, "\t{}", device.name)?;
    }
    writeln!(out)
}

/// The limits of a device, in the order of `ibv_devinfo`.
const LIMITS: [&str; 31] = [
    "max_mr_size",
    "page_size_cap",
    "max_qp",
    "max_qp_wr",
    "device_cap_flags",
    "max_sge",
    "max_sge_rd",
    "max_inline_data",
    "max_cq",
    "max_cqe",
    "max_mr",
    "max_pd",
    "max_qp_rd_atom",
    "max_res_rd_atom",
    "max_qp_init_rd_atom",
    "atomic_cap",
    "max_mw",
    "max_mcast_grp",
    "max_mcast_qp_attach",
    "max_total_mcast_qp_attach",
    "max_ah",
    "max_srq",
    "max_srq_wr",
    "max_srq_sge",
    "max_fast_reg_page_list_len",
    "max_dm_size",
    "device_cap_flags_ex",
    "max_pkeys",
    "local_ca_ack_delay",
    "completion_timestamp_mask",
    "hca_core_clock_khz",
];

/// Prints a device: the short form, or every attribute.
pub fn device(
    out: &mut dyn Write,
    (device, processes): &(Object, Vec<Process>),
    verbose: bool,
) -> io::Result<()> {
    writeln!(out, "hca_id:\t{}", text(&device["hca_id"]))?;
    let mut rows = Rows { out: &mut *out, tabs: 1, values: DEVICE_VALUES };
    for key in ["transport", "fw_ver", "node_guid", "sys_image_guid"] {
        rows.row(key, text(&device[key]))?;
    }
    rows.row("vendor_id", hex(&device["vendor_id"], 4))?;
    rows.row("vendor_part_id", text(&device["vendor_part_id"]))?;
    rows.row("hw_ver", hex(&device["hw_ver"], 1))?;
    rows.row("phys_port_cnt", text(&device["phys_port_cnt"]))?;
    if verbose {
        limits(&mut rows, device)?;
    }
    port(out, &device["port"], processes, verbose)?;
    writeln!(out)
}

fn limits(rows: &mut Rows<'_>, device: &Object) -> io::Result<()> {
    for key in LIMITS {
        let value = &device[key];
        match key {
            "device_cap_flags" => rows.row(key, hex(value, 8))?,
            "completion_timestamp_mask" => rows.row("completion timestamp_mask", text(value))?,
            "hca_core_clock_khz" => rows.row("hca_core_clock", format_args!("{value}kHZ"))?,
            _ => rows.row(key, text(value))?,
        }
        for name in flag_names(key, value) {
            writeln!(rows.out, "\t\t\t\t\t{name}")?;
        }
    }
    writeln!(rows.out, "\n\tcq moderation caps:")?;
    writeln!(rows.out, "\t\tmax_cq_count:\t{}", device["max_cq_count"])?;
    writeln!(rows.out, "\t\tmax_cq_period:\t{} us\n", device["max_cq_period_us"])
}

/// Returns the names of the flags that are set, if the value consists of flags.
fn flag_names(key: &str, value: &Value) -> Vec<&'static str> {
    let set = match value {
        Value::String(hex) => u64::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap_or(0),
        other => other.as_u64().unwrap_or(0),
    };
    let names = |flags: &[(u32, &'static str)], is_set: &dyn Fn(u32) -> bool| {
        flags.iter().filter(|(flag, _)| is_set(*flag)).map(|(_, name)| *name).collect()
    };
    match key {
        "device_cap_flags" => names(&DEVICE_CAP_FLAGS, &|flag| set & u64::from(flag) != 0),
        "device_cap_flags_ex" => names(&DEVICE_CAP_FLAGS_EX, &|bit| set >> bit & 1 == 1),
        _ => Vec::new(),
    }
}

fn port(out: &mut dyn Write, port: &Value, processes: &[Process], verbose: bool) -> io::Result<()> {
    writeln!(out, "\t\tport:\t{}", port["number"])?;
    let mut rows = Rows { out: &mut *out, tabs: 3, values: PORT_VALUES };
    for key in ["state", "max_mtu", "active_mtu"] {
        rows.row(key, text(&port[key]))?;
    }
    rows.row("sm_lid", 0)?;
    rows.row("port_lid", 0)?;
    rows.row("port_lmc", "0x00")?;
    rows.row("link_layer", text(&port["link_layer"]))?;
    if verbose {
        details(&mut rows, port)?;
    }
    for process in processes {
        rows.row("process", format_args!("{} {process}", process.address))?;
    }
    Ok(())
}

fn details(rows: &mut Rows<'_>, port: &Value) -> io::Result<()> {
    rows.row("max_msg_sz", hex(&port["max_msg_sz"], 1))?;
    rows.row("pkey_tbl_len", text(&port["pkey_tbl_len"]))?;
    rows.row("gid_tbl_len", text(&port["gid_tbl_len"]))?;
    let width = &port["active_width"];
    rows.row("active_width", format_args!("{}X ({})", text(&width["name"]), width["value"]))?;
    for key in ["active_speed", "phys_state", "netdev"] {
        rows.row(key, text(&port[key]))?;
    }
    for gid in port["gids"].as_array().into_iter().flatten() {
        let assigned = gid["assigned"] == true;
        let note = if assigned { "" } else { " (not an address of this machine: unreachable)" };
        let index = gid["index"].as_u64().unwrap_or_default();
        let (value, kind) = (text(&gid["gid"]), text(&gid["type"]));
        writeln!(rows.out, "\t\t\tGID[{index:3}]:\t\t{value}, {kind}{note}")?;
    }
    Ok(())
}

/// Returns a value as text: of an enumeration's value, its name and its number.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(named) => format!("{} ({})", text(&named["name"]), named["value"]),
        other => other.to_string(),
    }
}

/// Returns a number in hexadecimal, with at least `digits` digits.
fn hex(value: &Value, digits: usize) -> String {
    format!("0x{:0digits$x}", value.as_u64().unwrap_or_default())
}

/// Lines of key and value.
struct Rows<'a> {
    out: &'a mut dyn Write,
    /// Tabs before the key.
    tabs: usize,
    /// The column of the values.
    values: usize,
}

impl Rows<'_> {
    fn row(&mut self, key: &str, value: impl Display) -> io::Result<()> {
        let end_of_key = self.tabs * TAB + key.len() + 1;
        let gap = self.values.saturating_sub(end_of_key).div_ceil(TAB).max(1);
        writeln!(self.out, "{}{key}:{}{value}", "\t".repeat(self.tabs), "\t".repeat(gap))
    }
}
