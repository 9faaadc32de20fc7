//! The PCI folder of a device with a profile, in the view of sysfs.
//!
//! The folders are those of the kernel: a root, a bridge and the function, which contains the
//! device. The domain is one that no machine has, so that the folders hide none of the kernel's.
//!
//! ```text
//! /sys/devices/pci7e57:00/7e57:00:01.0/7e57:01:00.0/infiniband/mlx5_0
//! /sys/bus/pci/devices/7e57:01:00.0 -> ../../../devices/pci7e57:00/7e57:00:01.0/7e57:01:00.0
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use urxe_stack::link::Pci;

use super::sysfs::{Entry, line};

/// The PCI domain.
const DOMAIN: &str = "7e57";
/// The number of functions: a bridge has five bits for a device.
const SLOTS: usize = 31;
/// A bridge: class, subclass and programming interface.
const BRIDGE_CLASS: u32 = 0x06_0400;

/// The place of a function.
pub struct Place {
    /// The name of the function: domain, bus, device and function.
    pub address: String,
    /// The name of the bridge.
    bridge: String,
}

impl Place {
    /// Returns the place of the device with this number.
    pub fn new(index: usize) -> Self {
        let slot = index % SLOTS + 1;
        Self {
            address: format!("{DOMAIN}:{slot:02x}:00.0"),
            bridge: format!("{DOMAIN}:00:{slot:02x}.0"),
        }
    }

    /// Returns the folder of the function, relative to `/sys`.
    pub fn folder(&self) -> PathBuf {
        self.bridge_folder().join(&self.address)
    }

    fn bridge_folder(&self) -> PathBuf {
        Path::new("devices").join(format!("pci{DOMAIN}:00")).join(&self.bridge)
    }

    /// Returns the files of the function and of the bridge, relative to `/sys`.
    pub fn files(&self, pci: &Pci, netdev: &str) -> Vec<(PathBuf, Entry)> {
        let (folder, bridge) = (self.folder(), self.bridge_folder());
        let mut files: Vec<(PathBuf, Entry)> = vec![
            (
                Path::new("bus/pci/devices").join(&self.address),
                Entry::Link(Path::new("../../..").join(&folder)),
            ),
            (
                folder.join("net").join(netdev),
                Entry::Link(Path::new("/sys/class/net").join(netdev)),
            ),
            (folder.join("driver"), Entry::Link(driver(pci))),
            (folder.join("subsystem"), Entry::Link("../../../../bus/pci".into())),
            (bridge.join("class"), line(format!("{BRIDGE_CLASS:#08x}"))),
            (bridge.join("vendor"), line("0x8086")),
            (bridge.join("device"), line("0x2030")),
        ];
        for (name, value) in self.function(pci) {
            files.push((folder.join(name), line(value)));
        }
        for (name, value) in link(pci).into_iter().chain(locality()) {
            files.push((folder.join(name), line(&value)));
            files.push((bridge.join(name), line(&value)));
        }
        files
    }

    fn function(&self, pci: &Pci) -> [(&'static str, String); 11] {
        let id = |id: u16| format!("{id:#06x}");
        [
            ("vendor", id(pci.vendor)),
            ("device", id(pci.device)),
            ("subsystem_vendor", id(pci.subsystem_vendor)),
            ("subsystem_device", id(pci.subsystem_device)),
            ("class", format!("{:#08x}", pci.class)),
            ("revision", "0x00".to_owned()),
            ("enable", "1".to_owned()),
            ("irq", "0".to_owned()),
            ("resource", resource()),
            ("modalias", modalias(pci)),
            (
                "uevent",
                format!(
                    "DRIVER={}\nPCI_CLASS={:X}\nPCI_ID={:04X}:{:04X}\nPCI_SUBSYS_ID={:04X}:{:04X}\n\
                     PCI_SLOT_NAME={}",
                    pci.driver,
                    pci.class,
                    pci.vendor,
                    pci.device,
                    pci.subsystem_vendor,
                    pci.subsystem_device,
                    self.address
                ),
            ),
        ]
    }
}

fn driver(pci: &Pci) -> PathBuf {
    Path::new("../../../../bus/pci/drivers").join(pci.driver)
}

/// Returns the table of memory ranges: the function has none.
fn resource() -> String {
    let none = format!("{:#018x} {:#018x} {:#018x}", 0, 0, 0);
    [none.as_str(); 7].join("\n")
}

fn modalias(pci: &Pci) -> String {
    let (class, sub) = (pci.class >> 16, pci.class >> 8 & 0xff);
    format!(
        "pci:v{:08X}d{:08X}sv{:08X}sd{:08X}bc{class:02X}sc{sub:02X}i{:02X}",
        pci.vendor,
        pci.device,
        pci.subsystem_vendor,
        pci.subsystem_device,
        pci.class & 0xff
    )
}

fn link(pci: &Pci) -> [(&'static str, String); 4] {
    let (speed, width) = (pci.link_speed.to_owned(), pci.link_width.to_string());
    [
        ("max_link_speed", speed.clone()),
        ("current_link_speed", speed),
        ("max_link_width", width.clone()),
        ("current_link_width", width),
    ]
}

/// Returns the NUMA node and its processors: those of this machine's first node. Without nodes, all
/// processors.
fn locality() -> [(&'static str, String); 3] {
    let node = Path::new("/sys/devices/system/node/node0");
    let text = |path: PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let list = text(node.join("cpulist"));
    let number = if list.is_some() { "0" } else { "-1" };
    let list = list.or_else(|| text("/sys/devices/system/cpu/online".into()));
    let mask = text(node.join("cpumap")).unwrap_or_else(|| "ffffffff".to_owned());
    [
        ("numa_node", number.to_owned()),
        ("local_cpulist", list.unwrap_or_else(|| "0".to_owned())),
        ("local_cpus", mask),
    ]
}
