//! `urxe link show`: prints one line for each device, in the format of `rdma link`, followed by
//! addresses and path MTU. Below the device, each process that has it open has a line, with its
//! connections on request.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

use serde::Serialize;
use urxe_stack::escape::Escaped;
use urxe_stack::link::{
    self, DefaultAddress, LinkError, LinkName, LinkSpec, OperState, Origin, ResolvedLink, Source,
};
use urxe_stack::listing::Listing;

use crate::cmd::processes::{self, Connections, Process};
use crate::cmd::{CmdError, Outcome};
use crate::output;

/// Arguments of `urxe link show`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Show only the device of this name (rxe0, or rxe0/1 as in rdma)
    name: Option<String>,
    /// Print a JSON array with the keys of "rdma -j link" and more
    #[arg(long)]
    json: bool,
    /// Also show each process's connections, as in "rdma resource show cm_id", and the counters of
    /// its connection manager
    #[arg(long)]
    connections: bool,
}

impl Args {
    /// Prints the devices. A device that cannot exist on this machine is shown with the reason.
    pub fn run(self) -> Result<Outcome, CmdError> {
        let configured = link::configured()?;
        let chosen: Vec<&LinkSpec> = match &self.name {
            Some(text) => vec![configured.find(&text.trim_end_matches("/1").parse::<LinkName>()?)?],
            None => configured.links.iter().collect(),
        };
        let processes = if self.connections { processes::with_connections } else { processes::of };
        let mut rows: Vec<Row> =
            chosen.into_iter().map(|spec| Row::new(spec, link::resolve(spec), processes)).collect();
        if configured.origin == Origin::BuiltIn {
            rows.iter_mut().for_each(|row| row.explain(link::default_address()));
        }
        output::print(self.json, &rows, |out| rows.iter().try_for_each(|row| row.print(out)))?;
        let usable = rows.iter().all(|row| row.error.is_none());
        Ok(if usable || self.name.is_none() { Outcome::Done } else { Outcome::Failed })
    }
}

/// One device.
#[derive(Debug, Default, Serialize)]
struct Row {
    ifname: String,
    port: u8,
    state: &'static str,
    physical_state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    netdev: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    netdev_index: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<IpAddr>,
    /// The address for which the device's address stands, and the process that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    instead_of: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_mtu: Option<usize>,
    processes: Vec<Process>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Row {
    fn new(
        spec: &LinkSpec,
        resolved: Result<ResolvedLink, LinkError>,
        processes: fn(&ResolvedLink) -> Vec<Process>,
    ) -> Self {
        let state = resolved.as_ref().map_or(OperState::Disabled, |link| link.interface.state);
        let (state, physical_state) = states(state);
        let mut row = Self {
            ifname: spec.name.to_string(),
            port: 1,
            state,
            physical_state,
            ..Self::default()
        };
        match resolved {
            Ok(link) => {
                row.processes = processes(&link);
                row.netdev = Some(link.interface.name);
                row.netdev_index = Some(link.interface.index);
                row.addresses = link.addresses;
                row.path_mtu = Some(link.path_mtu.bytes());
            }
            Err(error) => {
                match &spec.source {
                    Source::Interface(name) => row.netdev = Some(name.clone()),
                    Source::Address(address) => row.addresses = vec![*address],
                }
                row.error = Some(error.to_string());
            }
        }
        row
    }

    /// Explains the address of the built-in device.
    fn explain(&mut self, default: DefaultAddress) {
        if default.is_substitute() {
            self.instead_of = Some(Ipv4Addr::LOCALHOST.into());
            self.taken_by = default.owner_of_localhost.map(|owner| owner.to_string());
        }
    }

    fn print(&self, out: &mut dyn Write) -> Result<(), CmdError> {
        let Self { ifname, port, state, physical_state, .. } = self;
        write!(out, "link {ifname}/{port} state {state} physical_state {physical_state}")?;
        if let Some(netdev) = &self.netdev {
            write!(out, " netdev {netdev}")?;
        }
        for address in &self.addresses {
            write!(out, " address {address}")?;
        }
        if let Some(path_mtu) = self.path_mtu {
            write!(out, " mtu {path_mtu}")?;
        }
        if let Some(error) = &self.error {
            write!(out, " error: {error}")?;
        }
        writeln!(out)?;
        if let Some(address) = self.instead_of {
            match &self.taken_by {
                Some(owner) => writeln!(out, "    instead of {address}, which {owner} has")?,
                None => writeln!(out, "    instead of {address}, which another user had")?,
            }
        }
        for process in &self.processes {
            writeln!(out, "    process address {} {process}", process.address)?;
            match &process.connections {
                None => {}
                Some(Connections::Listed(listing)) => print_listing(out, listing)?,
                Some(Connections::Unavailable { error }) => {
                    writeln!(out, "        error: {error}")?
                }
            }
        }
        Ok(())
    }
}

/// Prints a line for each identifier, a line of communications by state, and a line of counters.
/// The words are those of the other process.
pub fn print_listing(out: &mut dyn Write, listing: &Listing) -> Result<(), CmdError> {
    for id in &listing.ids {
        write!(out, "        cm-idn {} lqpn {}", id.cm_idn, id.lqpn)?;
        if let Some(rqpn) = id.rqpn {
            write!(out, " rqpn {rqpn}")?;
        }
        write!(out, " qp-type {} state {}", Escaped(&id.qp_type), Escaped(&id.state))?;
        if let Some(state) = &id.cm_state {
            write!(out, " cm-state {}", Escaped(state))?;
        }
        write!(out, " ps {}", Escaped(&id.ps))?;
        for (key, address) in [("src-addr", id.src_addr), ("dst-addr", id.dst_addr)] {
            if let Some(address) = address {
                write!(out, " {key} {address}")?;
            }
        }
        writeln!(out)?;
    }
    for (what, counts) in
        [("communications", &listing.communications), ("counters", &listing.counters)]
    {
        if !counts.is_empty() {
            write!(out, "        {what}")?;
            for (name, value) in counts {
                write!(out, " {} {value}", Escaped(name))?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// Returns the port state and physical state in the words of `rdma link`, as `rdma_rxe` chooses
/// them.
fn states(state: OperState) -> (&'static str, &'static str) {
    match state {
        OperState::Up => ("ACTIVE", "LINK_UP"),
        OperState::NoCarrier => ("DOWN", "POLLING"),
        OperState::Disabled => ("DOWN", "DISABLED"),
    }
}
