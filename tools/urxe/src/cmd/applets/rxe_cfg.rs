//! `rxe_cfg`: the command of old rdma-core (before 28) that adds devices, without `rdma`.
//!
//! | words | does |
//! |---|---|
//! | `[status]` | a table of the interfaces and their devices |
//! | `start` | nothing: there is no module to load |
//! | `stop` | deletes the user's devices |
//! | `add INTERFACE` | adds the device `rxeN` with the first free number |
//! | `remove INTERFACE`, `remove NAME` | deletes the device |
//! | `persistent` | the interfaces that have a device |

use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;

use urxe_stack::link::interface::{Interface, interfaces};
use urxe_stack::link::{self, LinkName, LinkSpec, OperState, Origin, Source};

use super::{AppletError, Call, devices};
use crate::output;

const EXPECTED: &str =
    "expected status, start, stop, add INTERFACE, remove INTERFACE|NAME or persistent";
const HEADS: [&str; 8] = ["Name", "Link", "Driver", "Speed", "NMTU", "IPv4_addr", "RDEV", "RMTU"];

/// `rxe_cfg`
pub fn run(call: &Call) -> Result<ExitCode, AppletError> {
    let words: Vec<String> = call.words();
    let mut words = words.iter().map(String::as_str).filter(|word| !word.starts_with('-'));
    match (words.next(), words.next()) {
        (None | Some("status"), None) => status()?,
        // A protocol may follow.
        (Some("start"), _) => {}
        (Some("stop"), None) => devices::remove_all()?,
        (Some("add"), Some(interface)) => add(interface)?,
        (Some("remove"), Some(word)) => devices::remove(&name_of(word)?)?,
        (Some("persistent"), None) => {
            let mut out = output::stdout();
            for (_, device) in configured()? {
                writeln!(out, "{device}")?;
            }
            out.flush()?;
        }
        (first, _) => {
            let given = first.unwrap_or_default().to_owned();
            return Err(AppletError::Usage { given, expected: EXPECTED });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the devices of interfaces in the user's list: name and interface.
fn configured() -> Result<Vec<(LinkName, String)>, AppletError> {
    let configured = link::configured()?;
    let of = |spec: LinkSpec| match spec.source {
        Source::Interface(interface) => Some((spec.name, interface)),
        Source::Address(_) => None,
    };
    Ok(configured.links.into_iter().filter_map(of).collect())
}

fn add(interface: &str) -> Result<(), AppletError> {
    let listed = link::configured()?;
    let is_free = |name: &LinkName| {
        listed.origin == Origin::BuiltIn || listed.links.iter().all(|spec| spec.name != *name)
    };
    let name = (0..).filter_map(|number| format!("rxe{number}").parse().ok()).find(is_free);
    let name = name.expect("the list is finite");
    devices::add(&LinkSpec::new(name, interface.parse()?))
}

/// Returns the name of the device of this name or on this interface.
fn name_of(word: &str) -> Result<LinkName, AppletError> {
    let on = configured()?.into_iter().find(|(_, interface)| interface == word);
    Ok(on.map_or_else(|| word.parse(), |(name, _)| Ok(name))?)
}

fn status() -> Result<(), AppletError> {
    let devices = devices::all()?;
    let mut rows = vec![HEADS.map(str::to_owned)];
    for interface in interfaces()?.iter().filter(|interface| !interface.loopback) {
        let device = devices.iter().find(|device| {
            device.link.as_ref().is_some_and(|link| link.interface.index == interface.index)
        });
        rows.push(row(interface, device));
    }
    let mut out = output::stdout();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(out.flush()?)
}

fn row(interface: &Interface, device: Option<&devices::Device>) -> [String; 8] {
    let driver = std::fs::read_link(format!("/sys/class/net/{}/device/driver", interface.name));
    let driver =
        driver.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let address = interface.addresses.iter().map(|ip| ip.address).find(IpAddr::is_ipv4);
    let mtu = device.and_then(|device| device.link.as_ref()).map(|link| link.path_mtu);
    [
        interface.name.clone(),
        if interface.state == OperState::Up { "yes" } else { "no" }.to_owned(),
        driver.unwrap_or_default(),
        interface.speed_mbps.map(speed).unwrap_or_default(),
        interface.mtu_bytes.to_string(),
        address.map(|address| address.to_string()).unwrap_or_default(),
        device.map(|device| device.name().to_owned()).unwrap_or_default(),
        mtu.map(|mtu| format!("{}  ({})", mtu.bytes(), mtu.number())).unwrap_or_default(),
    ]
}

fn speed(mbps: u32) -> String {
    if mbps.is_multiple_of(1000) { format!("{}GigE", mbps / 1000) } else { format!("{mbps}Mb/s") }
}
