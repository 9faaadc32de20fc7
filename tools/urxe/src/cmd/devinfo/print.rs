//! Attributes as text, laid out with tabs like `ibv_devinfo`'s.

use std::fmt::Display;
use std::io::{self, Write};

use urxe_stack::link::LinkSpec;

use super::attributes::{Attributes, DEVICE_CAP_FLAGS, DEVICE_CAP_FLAGS_EX, Named, PortAttributes};

/// Columns of a tab.
const TAB: usize = 8;
/// The column of values of a device and of a port.
const DEVICE_VALUES: usize = 40;
const PORT_VALUES: usize = 48;

/// Prints the devices' names.
pub fn list(out: &mut dyn Write, devices: &[&LinkSpec]) -> io::Result<()> {
    let plural = if devices.len() == 1 { "" } else { "s" };
    writeln!(out, "{} HCA{plural} found:", devices.len())?;
    for device in devices {
        writeln!(out, "\t{}", device.name)?;
    }
    writeln!(out)
}

/// Prints a device: the short form, or every attribute.
pub fn device(out: &mut dyn Write, device: &Attributes, verbose: bool) -> io::Result<()> {
    writeln!(out, "hca_id:\t{}", device.hca_id)?;
    let mut rows = Rows { out: &mut *out, tabs: 1, values: DEVICE_VALUES };
    rows.named("transport", device.transport)?;
    rows.row("fw_ver", device.fw_ver)?;
    rows.row("node_guid", &device.node_guid)?;
    rows.row("sys_image_guid", &device.sys_image_guid)?;
    rows.row("vendor_id", format_args!("0x{:04x}", device.vendor_id))?;
    rows.row("vendor_part_id", device.vendor_part_id)?;
    rows.row("hw_ver", format_args!("0x{:X}", device.hw_ver))?;
    rows.row("phys_port_cnt", device.phys_port_cnt)?;
    if verbose {
        limits(&mut rows, device)?;
    }
    port(out, &device.port, verbose)?;
    writeln!(out)
}

fn limits(rows: &mut Rows<'_>, device: &Attributes) -> io::Result<()> {
    rows.row("max_mr_size", format_args!("{:#x}", device.max_mr_size))?;
    rows.row("page_size_cap", format_args!("{:#x}", device.page_size_cap))?;
    rows.row("max_qp", device.max_qp)?;
    rows.row("max_qp_wr", device.max_qp_wr)?;
    rows.row("device_cap_flags", format_args!("0x{:08x}", device.device_cap_flags))?;
    for flag in DEVICE_CAP_FLAGS {
        writeln!(rows.out, "\t\t\t\t\t{}", flag.name)?;
    }
    rows.row("max_sge", device.max_sge)?;
    rows.row("max_sge_rd", device.max_sge_rd)?;
    rows.row("max_inline_data", device.max_inline_data)?;
    rows.row("max_cq", device.max_cq)?;
    rows.row("max_cqe", device.max_cqe)?;
    rows.row("max_mr", device.max_mr)?;
    rows.row("max_pd", device.max_pd)?;
    rows.row("max_qp_rd_atom", device.max_qp_rd_atom)?;
    rows.row("max_res_rd_atom", device.max_res_rd_atom)?;
    rows.row("max_qp_init_rd_atom", device.max_qp_init_rd_atom)?;
    rows.named("atomic_cap", device.atomic_cap)?;
    rows.row("max_mw", device.max_mw)?;
    rows.row("max_mcast_grp", device.max_mcast_grp)?;
    rows.row("max_mcast_qp_attach", device.max_mcast_qp_attach)?;
    rows.row("max_total_mcast_qp_attach", device.max_total_mcast_qp_attach)?;
    rows.row("max_ah", device.max_ah)?;
    rows.row("max_srq", device.max_srq)?;
    rows.row("max_srq_wr", device.max_srq_wr)?;
    rows.row("max_srq_sge", device.max_srq_sge)?;
    rows.row("max_fast_reg_page_list_len", device.max_fast_reg_page_list_len)?;
    rows.row("max_dm_size", device.max_dm_size)?;
    rows.row("device_cap_flags_ex", format_args!("{:#x}", device.device_cap_flags_ex))?;
    for (_, name) in DEVICE_CAP_FLAGS_EX {
        writeln!(rows.out, "\t\t\t\t\t{name}")?;
    }
    rows.row("max_pkeys", device.max_pkeys)?;
    rows.row("local_ca_ack_delay", device.local_ca_ack_delay)?;
    rows.row(
        "completion timestamp_mask",
        format_args!("{:#018x}", device.completion_timestamp_mask),
    )?;
    rows.row("hca_core_clock", format_args!("{}kHZ", device.hca_core_clock_khz))?;
    writeln!(rows.out, "\n\tcq moderation caps:")?;
    writeln!(rows.out, "\t\tmax_cq_count:\t{}", device.max_cq_count)?;
    writeln!(rows.out, "\t\tmax_cq_period:\t{} us\n", device.max_cq_period_us)
}

fn port(out: &mut dyn Write, port: &PortAttributes, verbose: bool) -> io::Result<()> {
    writeln!(out, "\t\tport:\t{}", port.number)?;
    let mut rows = Rows { out: &mut *out, tabs: 3, values: PORT_VALUES };
    rows.named("state", port.state)?;
    rows.named("max_mtu", port.max_mtu)?;
    rows.named("active_mtu", port.active_mtu)?;
    rows.row("sm_lid", 0)?;
    rows.row("port_lid", 0)?;
    rows.row("port_lmc", "0x00")?;
    rows.row("link_layer", port.link_layer)?;
    if verbose {
        details(&mut rows, port)?;
    }
    for process in &port.processes {
        rows.row("process", format_args!("{} {process}", process.address))?;
    }
    Ok(())
}

fn details(rows: &mut Rows<'_>, port: &PortAttributes) -> io::Result<()> {
    rows.row("max_msg_sz", format_args!("{:#x}", port.max_msg_sz))?;
    rows.row("pkey_tbl_len", port.pkey_tbl_len)?;
    rows.row("gid_tbl_len", port.gid_tbl_len)?;
    rows.row(
        "active_width",
        format_args!("{}X ({})", port.active_width.name, port.active_width.value),
    )?;
    rows.named("active_speed", port.active_speed)?;
    rows.named("phys_state", port.phys_state)?;
    rows.row("netdev", &port.netdev)?;
    for gid in &port.gids {
        let note = if gid.assigned { "" } else { " (not an address of this machine: unreachable)" };
        writeln!(rows.out, "\t\t\tGID[{:3}]:\t\t{}, {}{note}", gid.index, gid.gid, gid.gid_type)?;
    }
    Ok(())
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

    fn named(&mut self, key: &str, value: Named) -> io::Result<()> {
        self.row(key, format_args!("{} ({})", value.name, value.value))
    }
}
