//! Creates the folder that programs see as `/sys/class/infiniband` (`urxe run`).
//!
//! The files are those of the kernel's `rdma_rxe` (`drivers/infiniband/core/sysfs.c`), with the
//! attributes of a device when it is opened. In addition, `device/net` contains the interface,
//! where programs look for it. Each `urxe run` creates a new folder, named by its contents, so that
//! running programs keep theirs.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use urxe_stack::device::counters::Counter;
use urxe_stack::link::{LaneSpeed, LinkError, LinkSpec, LinkWidth, OperState, ResolvedLink};
use urxe_stack::link::{configured, resolve, width_and_speed};

use super::library::LibraryError;

/// `IB_PORT_CM_SUP`, `IB_PORT_IP_BASED_GIDS`, as in `ibv_query_port`.
const CAP_MASK: u32 = 1 << 16 | 1 << 26;
/// The version of the kernel's verbs interface that programs expect.
const VERBS_ABI: u32 = 6;
/// The age limit of the kernel's counters, in milliseconds. Here each read returns the current
/// value.
const LIFESPAN_MS: u32 = 10;
/// Counters of InfiniBand ports that a device provides as well.
pub const PORT_COUNTERS: [&str; 2] = ["port_rcv_packets", "port_xmit_packets"];

/// Errors while the folder is created.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// The devices cannot be listed.
    #[error("cannot list the devices")]
    Links(#[from] LinkError),
    /// There is no place for the files.
    #[error(transparent)]
    Place(#[from] LibraryError),
    /// The files cannot be written.
    #[error("cannot write the view of sysfs in {}", folder.display())]
    Write {
        folder: PathBuf,
        #[source]
        error: io::Error,
    },
}

/// An entry of the folder, by path.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Entry {
    /// A file of one line.
    Line(String),
    /// A symbolic link.
    Link(PathBuf),
    /// A folder that may be empty.
    Folder,
}

type Tree = BTreeMap<PathBuf, Entry>;

/// Creates the folder inside `place` for these devices, or for the configured devices if `links` is
/// empty. Returns its path.
pub fn folder(links: &[LinkSpec], place: &Path) -> Result<PathBuf, SysfsError> {
    let links = if links.is_empty() { configured()?.links } else { links.to_vec() };
    // The library reports devices that this machine does not have.
    let devices: Vec<ResolvedLink> = links.iter().filter_map(|spec| resolve(spec).ok()).collect();
    let tree = tree(&devices);
    let mut hasher = DefaultHasher::new();
    tree.hash(&mut hasher);
    let folder = place.join(format!("{:016x}", hasher.finish()));
    let failed = |error| SysfsError::Write { folder: folder.clone(), error };
    if !folder.is_dir() {
        write(&tree, &folder, place).map_err(failed)?;
    }
    Ok(folder)
}

/// Writes the folder beside its final place and renames it, because other processes may do the
/// same.
fn write(tree: &Tree, folder: &Path, place: &Path) -> io::Result<()> {
    let fresh = place.join(format!(".{}", std::process::id()));
    let _left_by_one_that_was_killed = fs::remove_dir_all(&fresh);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&fresh)?;
    for (path, entry) in tree {
        let path = fresh.join(path);
        let parent = path.parent().unwrap_or(&fresh);
        fs::create_dir_all(parent)?;
        match entry {
            Entry::Line(text) => fs::write(&path, format!("{text}\n"))?,
            Entry::Link(target) => symlink(target, &path)?,
            Entry::Folder => fs::create_dir_all(&path)?,
        }
    }
    match fs::rename(&fresh, folder) {
        // Another process was faster, with the same contents.
        Err(_) if folder.is_dir() => fs::remove_dir_all(&fresh),
        moved => moved,
    }
}

fn tree(devices: &[ResolvedLink]) -> Tree {
    let mut tree = Tree::new();
    let verbs = Path::new("sys/class/infiniband_verbs");
    tree.insert("sys/class/infiniband".into(), Entry::Folder);
    tree.insert(verbs.join("abi_version"), line(VERBS_ABI));
    for (index, device) in devices.iter().enumerate() {
        let name = device.spec.name.as_str();
        let uverbs = format!("uverbs{index}");
        let (sys, up) = (Path::new("sys"), Path::new("../.."));
        let here = Path::new("devices/virtual/infiniband").join(name);
        tree.insert(Path::new("sys/class/infiniband").join(name), Entry::Link(up.join(&here)));
        for (file, entry) in device_files(device) {
            tree.insert(sys.join(&here).join(file), entry);
        }
        let there = Path::new("devices/virtual/infiniband_verbs").join(&uverbs);
        tree.insert(verbs.join(&uverbs), Entry::Link(up.join(&there)));
        tree.insert(sys.join(&there).join("ibdev"), line(name));
        tree.insert(sys.join(&there).join("abi_version"), line(1));
        // UCX checks that this device file exists and that it may open the file. `liburxe.so` does
        // not use the file.
        tree.insert(Path::new("dev/infiniband").join(uverbs), Entry::Link("/dev/null".into()));
    }
    tree
}

fn line(text: impl ToString) -> Entry {
    Entry::Line(text.to_string())
}

fn device_files(device: &ResolvedLink) -> Vec<(PathBuf, Entry)> {
    let (interface, guid) = (&device.interface, device.node_guid);
    let mut files: Vec<(PathBuf, Entry)> = vec![
        ("node_type".into(), line("1: CA")),
        ("node_guid".into(), line(guid)),
        ("sys_image_guid".into(), line(guid)),
        ("node_desc".into(), line(&device.spec.name)),
        ("fw_ver".into(), line(env!("CARGO_PKG_VERSION"))),
        ("parent".into(), line(&interface.name)),
        ("device/net".into(), Entry::Folder),
        (
            Path::new("device/net").join(&interface.name),
            Entry::Link(Path::new("/sys/class/net").join(&interface.name)),
        ),
    ];
    let port = Path::new("ports/1");
    files.extend(port_files(device).into_iter().map(|(file, entry)| (port.join(file), entry)));
    files
}

fn port_files(device: &ResolvedLink) -> Vec<(PathBuf, Entry)> {
    let interface = &device.interface;
    let (state, phys_state) = match interface.state {
        OperState::Up => ("4: ACTIVE", "5: LinkUp"),
        OperState::NoCarrier => ("1: DOWN", "2: Polling"),
        OperState::Disabled => ("1: DOWN", "3: Disabled"),
    };
    let mut files: Vec<(PathBuf, Entry)> = vec![
        ("state".into(), line(state)),
        ("phys_state".into(), line(phys_state)),
        ("link_layer".into(), line("Ethernet")),
        ("rate".into(), line(rate(interface.speed_mbps))),
        ("cap_mask".into(), line(format!("{CAP_MASK:#010x}"))),
        ("lid".into(), line("0x0")),
        ("lid_mask_count".into(), line(0)),
        ("sm_lid".into(), line("0x0")),
        ("sm_sl".into(), line(0)),
        ("pkeys/0".into(), line("0xffff")),
        ("hw_counters/lifespan".into(), line(LIFESPAN_MS)),
    ];
    for (index, entry) in device.gids.iter().enumerate() {
        let index = index.to_string();
        let groups: Vec<String> = entry
            .gid
            .0
            .chunks_exact(2)
            .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
            .collect();
        files.push((Path::new("gids").join(&index), line(groups.join(":"))));
        files.push((Path::new("gid_attrs/types").join(&index), line("RoCE v2")));
        files.push((Path::new("gid_attrs/ndevs").join(&index), line(&interface.name)));
    }
    let zero = |folder: &str, name: &str| (Path::new(folder).join(name), line(0));
    files.extend(Counter::ALL.iter().map(|counter| zero("hw_counters", counter.name())));
    files.extend(PORT_COUNTERS.map(|name| zero("counters", name)));
    files
}

/// Returns the rate as the kernel writes it: `100 Gb/sec (4X EDR)`.
fn rate(speed_mbps: Option<u32>) -> String {
    let (width, speed) = width_and_speed(speed_mbps);
    let lanes = match width {
        LinkWidth::One => 1,
        LinkWidth::Four => 4,
    };
    // In tenths of Gb/s.
    let (lane, name) = match speed {
        LaneSpeed::Sdr => (25, "SDR"),
        LaneSpeed::Fdr10 => (100, "FDR10"),
        LaneSpeed::Edr => (250, "EDR"),
        LaneSpeed::Hdr => (500, "HDR"),
        LaneSpeed::Ndr => (1000, "NDR"),
    };
    let all = lane * lanes;
    let tenths = if all % 10 == 0 { String::new() } else { format!(".{}", all % 10) };
    format!("{}{tenths} Gb/sec ({lanes}X {name})", all / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_the_kernels() {
        for (mbps, said) in [
            (None, "2.5 Gb/sec (1X SDR)"),
            (Some(1_000), "2.5 Gb/sec (1X SDR)"),
            (Some(10_000), "10 Gb/sec (1X FDR10)"),
            (Some(25_000), "25 Gb/sec (1X EDR)"),
            (Some(100_000), "100 Gb/sec (4X EDR)"),
            (Some(400_000), "400 Gb/sec (4X NDR)"),
        ] {
            assert_eq!(rate(mbps), said);
        }
    }

    #[test]
    fn a_folder_is_created_once_with_the_files_of_the_kernel() {
        let place = tempfile::tempdir().unwrap();
        let links = ["mine=127.0.0.3".parse().unwrap()];
        let made = folder(&links, place.path()).unwrap();
        assert_eq!(folder(&links, place.path()).unwrap(), made);
        let text = |file: &str| {
            fs::read_to_string(made.join("sys/class/infiniband/mine").join(file)).unwrap()
        };
        assert_eq!(text("node_guid"), "0000:5efe:7f00:0003\n");
        assert_eq!(text("ports/1/gids/1"), "0000:0000:0000:0000:0000:ffff:7f00:0003\n");
        assert_eq!(text("ports/1/gid_attrs/ndevs/0"), "lo\n");
        assert_eq!(text("ports/1/hw_counters/sent_pkts"), "0\n");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing else is left");
    }
}
