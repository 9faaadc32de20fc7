//! `ibv_devices`, `ibv_devinfo`, `ibstat`, `ibstatus` and `show_gids`.
//!
//! The system's `ibv_devices` and `ibv_devinfo` show urxe's devices, because `urxe run` replaces
//! their library. They run if they are installed. The other commands read sysfs or `/dev`, and are
//! always urxe's, in the form of rdma-core's `infiniband-diags` and of NVIDIA's `show_gids`.

use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::process::ExitCode;

use clap::Parser;
use urxe_stack::link::{GidEntry, OperState};

use super::devices::{self, Device};
use super::{AppletError, Call, system};
use crate::cmd::run::{CAP_MASK, rate};
use crate::cmd::{Outcome, devinfo};
use crate::output;

/// The exit code of `ibstat` and `ibstatus` after an error.
const PANIC: u8 = 255;

/// `ibv_devices`
pub fn ibv_devices(call: &Call) -> Result<ExitCode, AppletError> {
    if system::find(call.name.as_ref()).is_some() {
        return system::pass_on(call);
    }
    let mut out = output::stdout();
    writeln!(out, "    device          \t   node GUID\n    ------          \t----------------")?;
    for device in devices::all()?.iter().filter(|device| device.link.is_some()) {
        writeln!(out, "    {:<16}\t{}", device.name(), device.guid_digits())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// `ibv_devinfo`
#[derive(Debug, Parser)]
#[command(name = "ibv_devinfo")]
struct DevinfoCli {
    #[command(flatten)]
    args: devinfo::Args,
}

/// `ibv_devinfo`
pub fn ibv_devinfo(call: &Call) -> Result<ExitCode, AppletError> {
    if system::find(call.name.as_ref()).is_some() {
        return system::pass_on(call);
    }
    let words = std::iter::once(call.name.into()).chain(call.arguments.iter().cloned());
    match DevinfoCli::parse_from(words).args.run() {
        Ok(Outcome::Done) => Ok(ExitCode::SUCCESS),
        Ok(Outcome::Failed) => Ok(ExitCode::FAILURE),
        Err(error) => Err(AppletError::Command(Box::new(error))),
    }
}

/// `ibstat [-l | -s | -p] [DEVICE [PORT]]`
pub fn ibstat(call: &Call) -> Result<ExitCode, AppletError> {
    const EXPECTED: &str = "expected ibstat [-l | -s | -p] [DEVICE [PORT]]";
    let words = call.words();
    let (options, names): (Vec<&str>, Vec<&str>) =
        words.iter().map(String::as_str).partition(|word| word.starts_with('-'));
    let has = |short: char, long: &str| {
        options
            .iter()
            .any(|word| *word == long || (!word.starts_with("--") && word.contains(short)))
    };
    let is_unknown = |word: &&&str| {
        !word.starts_with("--") && !matches!(word.get(..2), Some("-l" | "-s" | "-p" | "-d" | "-v"))
    };
    if let Some(word) = options.iter().find(is_unknown) {
        return Err(AppletError::Usage { given: (*word).to_owned(), expected: EXPECTED });
    }
    let all = devices::all()?;
    let mut out = output::stdout();
    if has('l', "--list_of_cas") {
        for device in &all {
            writeln!(out, "{}", device.name())?;
        }
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen: Vec<&Device> = all
        .iter()
        .filter(|device| names.first().is_none_or(|name| device.name() == *name))
        .collect();
    if let ([], Some(name)) = (&chosen[..], names.first()) {
        output::error_line(&format!("ibstat: '{name}' IB device can't be found"));
        return Ok(ExitCode::from(PANIC));
    }
    for device in chosen {
        if has('p', "--port_list") {
            writeln!(out, "0x{}", device.guid_digits())?;
            continue;
        }
        match names.get(1) {
            None => {
                writeln!(out, "CA '{}'", device.name())?;
                channel_adapter(&mut out, device)?;
                if !has('s', "--short") {
                    writeln!(out, "\tPort 1:")?;
                    port(&mut out, device, "\t\t")?;
                }
            }
            Some(&"1" | &"0") => {
                writeln!(out, "CA: '{}'\nPort 1:", device.name())?;
                port(&mut out, device, "")?;
            }
            Some(_) => return Ok(ExitCode::from(PANIC)),
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn channel_adapter(out: &mut dyn Write, device: &Device) -> io::Result<()> {
    let guid = device.guid_digits();
    let profile = device.spec.profile;
    let kind = profile.map_or("", |nic| nic.hca_type);
    let firmware = profile.map_or(env!("CARGO_PKG_VERSION"), |nic| nic.fw_ver);
    let hardware = profile.map_or(String::new(), |nic| nic.hw_ver.to_string());
    writeln!(
        out,
        "\tCA type: {kind}\n\tNumber of ports: 1\n\tFirmware version: {firmware}\n\tHardware \
         version: {hardware}\n\tNode GUID: 0x{guid}\n\tSystem image GUID: 0x{guid}"
    )
}

fn port(out: &mut dyn Write, device: &Device, indent: &str) -> io::Result<()> {
    let (state, physical) = states(device);
    let rate = rate_of(device);
    let rate = rate.split(' ').next().unwrap_or_default();
    let (capabilities, guid) = (format!("{CAP_MASK:#010x}"), format!("0x{}", device.guid_digits()));
    for (key, value) in [
        ("State", state),
        ("Physical state", physical),
        ("Rate", rate),
        ("Base lid", "0"),
        ("LMC", "0"),
        ("SM lid", "0"),
        ("Capability mask", &capabilities),
        ("Port GUID", &guid),
        ("Link layer", "Ethernet"),
    ] {
        writeln!(out, "{indent}{key}: {value}")?;
    }
    Ok(())
}

fn states(device: &Device) -> (&'static str, &'static str) {
    match device.state() {
        OperState::Up => ("Active", "LinkUp"),
        OperState::NoCarrier => ("Down", "Polling"),
        OperState::Disabled => ("Down", "Disabled"),
    }
}

fn rate_of(device: &Device) -> String {
    rate(device.link.as_ref().and_then(|link| link.interface.speed_mbps))
}

/// `ibstatus [DEVICE[:PORT]]…`
pub fn ibstatus(call: &Call) -> Result<ExitCode, AppletError> {
    const EXPECTED: &str = "expected ibstatus [DEVICE[:PORT]]";
    let words = call.words();
    if let Some(word) = words.iter().find(|word| word.starts_with('-')) {
        return Err(AppletError::Usage { given: word.clone(), expected: EXPECTED });
    }
    let all = devices::all()?;
    let names: Vec<&str> = match &words[..] {
        [] => all.iter().map(Device::name).collect(),
        words => words.iter().map(|word| word.split(':').next().unwrap_or_default()).collect(),
    };
    let mut out = output::stdout();
    for name in names {
        let Some(device) = all.iter().find(|device| device.name() == name) else {
            out.flush()?;
            output::error_line(&format!("Fatal error:  device '{name}': sys files not found"));
            return Ok(ExitCode::from(PANIC));
        };
        let (state, physical) = match device.state() {
            OperState::Up => ("4: ACTIVE", "5: LinkUp"),
            OperState::NoCarrier => ("1: DOWN", "2: Polling"),
            OperState::Disabled => ("1: DOWN", "3: Disabled"),
        };
        let gid = device.link.as_ref().and_then(|link| link.gids.first()).map(full);
        writeln!(out, "Infiniband device '{name}' port 1 status:")?;
        writeln!(out, "\tdefault gid:\t {}", gid.unwrap_or_else(|| "unknown".to_owned()))?;
        writeln!(out, "\tbase lid:\t 0x0\n\tsm lid:\t\t 0x0\n\tstate:\t\t {state}")?;
        writeln!(out, "\tphys state:\t {physical}\n\trate:\t\t {}", rate_of(device))?;
        writeln!(out, "\tlink_layer:\t Ethernet\n")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a GID as sysfs shows it, with all digits.
fn full(entry: &GidEntry) -> String {
    let pairs = entry.gid.0.chunks_exact(2);
    pairs.map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect::<Vec<_>>().join(":")
}

/// `show_gids [DEVICE]`
pub fn show_gids(call: &Call) -> Result<ExitCode, AppletError> {
    let words = call.words();
    let mut out = output::stdout();
    writeln!(out, "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV")?;
    writeln!(out, "---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---")?;
    let mut count = 0;
    for device in devices::all()? {
        let Some(link) = &device.link else { continue };
        if words.first().is_some_and(|name| name != device.name()) {
            continue;
        }
        for (index, entry) in link.gids.iter().enumerate() {
            let v4 = Ipv6Addr::from(entry.gid.0).to_ipv4_mapped();
            let v4 = v4.map_or_else(|| "\t\t".to_owned(), |address| format!("{address}  \t"));
            let (name, netdev) = (device.name(), &link.interface.name);
            writeln!(out, "{name}\t1\t{index}\t{}\t{v4}v2\t{netdev}", full(entry))?;
            count += 1;
        }
    }
    writeln!(out, "n_gids_found={count}")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
