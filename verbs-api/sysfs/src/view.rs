//! Reads the files of the replacement directory, for the modules that answer questions about the
//! devices by other ways than files: [`crate::netlink`] and [`crate::interfaces`].
//!
//! The caller may use heap memory here: no function of this module runs in a signal handler.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::path::root;

/// Maximum number of devices and of GIDs that are read.
const READ_MAX: u32 = 256;

fn folder(inside: &str) -> Option<PathBuf> {
    Some(Path::new(OsStr::from_bytes(root()?)).join(inside))
}

fn line(path: PathBuf) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

/// Returns the name of the device with this index, which is the number of its `uverbs` entry and
/// the result of `ibv_get_device_index`.
pub fn name(index: u32) -> Option<String> {
    line(folder(&format!("sys/class/infiniband_verbs/uverbs{index}/ibdev"))?)
}

/// Returns the names of all devices, by index.
pub fn names() -> Vec<String> {
    (0..READ_MAX).map_while(name).collect()
}

/// Returns the line of a file of a device.
pub fn attribute(device: &str, file: &str) -> Option<String> {
    line(folder("sys/class/infiniband")?.join(device).join(file))
}

/// Returns the IP addresses of a device with the names of their interfaces, each once.
pub fn addresses(device: &str) -> Vec<(IpAddr, String)> {
    let mut found: Vec<(IpAddr, String)> = Vec::new();
    for index in 0..READ_MAX {
        let Some(gid) = attribute(device, &format!("ports/1/gids/{index}")) else { break };
        let Ok(gid) = gid.parse::<Ipv6Addr>() else { continue };
        let address = gid.to_canonical();
        let interface = attribute(device, &format!("ports/1/gid_attrs/ndevs/{index}"));
        if let Some(interface) = interface
            && found.iter().all(|(other, _)| *other != address)
        {
            found.push((address, interface));
        }
    }
    found
}
