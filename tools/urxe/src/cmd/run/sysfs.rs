//! Creates the folder that programs see as `/sys/class/infiniband` (`urxe run`).
//!
//! The files are those of the kernel's `rdma_rxe` (`drivers/infiniband/core/sysfs.c`), with the
//! attributes of a device when it is opened. In addition, `device/net` contains the interface,
//! where programs look for it. Each list of devices has one folder, which `urxe run` and `rdma link
//! add` bring up to date.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use urxe_stack::device::counters::Counter;
use urxe_stack::link::{
    LaneSpeed, LinkError, LinkSpec, LinkWidth, OperState, Origin, ResolvedLink, config, configured,
    resolve, width_and_speed,
};

use super::library::LibraryError;
use super::pci;

/// `IB_PORT_CM_SUP`, `IB_PORT_IP_BASED_GIDS`, as in `ibv_query_port`.
pub const CAP_MASK: u32 = 1 << 16 | 1 << 26;
/// The version of the kernel's verbs interface that programs expect.
const VERBS_ABI: u32 = 6;
/// The age limit of the kernel's counters, in milliseconds. Here each read returns the current
/// value.
const LIFESPAN_MS: u32 = 10;
/// The file that says which tree is in the folder.
const STAMP: &str = ".contents";
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
pub enum Entry {
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
///
/// Each list of devices has a folder in each network namespace. So programs that run see a device
/// that is added to the list, as with the kernel.
pub fn folder(links: &[LinkSpec], place: &Path) -> Result<PathBuf, SysfsError> {
    let configured = if links.is_empty() { Some(configured()?) } else { None };
    let mut hasher = DefaultHasher::new();
    fs::read_link("/proc/self/ns/net").ok().hash(&mut hasher);
    match &configured {
        None => links.hash(&mut hasher),
        Some(list) if list.origin == Origin::Environment => list.links.hash(&mut hasher),
        Some(_) => config::file_path().ok().hash(&mut hasher),
    }
    let folder = place.join(format!("{:016x}", hasher.finish()));
    update(&folder, configured.as_ref().map_or(links, |list| list.links.as_slice()))?;
    Ok(folder)
}

/// Brings a folder up to date after a change of the configured devices.
pub fn refresh(folder: &Path) -> Result<(), SysfsError> {
    update(folder, &configured()?.links)
}

fn update(folder: &Path, links: &[LinkSpec]) -> Result<(), SysfsError> {
    // The library reports devices that this machine does not have.
    let devices: Vec<ResolvedLink> = links.iter().filter_map(|spec| resolve(spec).ok()).collect();
    let failed = |error| SysfsError::Write { folder: folder.to_owned(), error };
    write(&tree(&devices), folder).map_err(failed)
}

/// Writes what differs. Other processes may do the same, and read meanwhile.
fn write(tree: &Tree, folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let turn = File::open(folder)?;
    turn.lock()?;
    let mut hasher = DefaultHasher::new();
    tree.hash(&mut hasher);
    let stamp = Entry::Line(format!("{:016x}", hasher.finish()));
    let stamp_file = folder.join(STAMP);
    if holds(&stamp_file, &stamp) {
        return Ok(());
    }
    let _from_now_on_incomplete = fs::remove_file(&stamp_file);
    remove_others(tree, folder, Path::new(""))?;
    // In reverse order, a device's own folder precedes the link to it.
    for (path, entry) in tree.iter().rev() {
        put(&folder.join(path), entry)?;
    }
    put(&stamp_file, &stamp)
}

/// Removes what is not in the tree, from the folder `inside` of `folder`. In order, the link to a
/// device precedes its own folder.
fn remove_others(tree: &Tree, folder: &Path, inside: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(folder.join(inside))?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = inside.join(entry.file_name());
        let is_ancestor =
            || tree.range(path.clone()..).next().is_some_and(|(next, _)| next.starts_with(&path));
        match entry.file_type()?.is_dir() {
            true if is_ancestor() => remove_others(tree, folder, &path)?,
            true => fs::remove_dir_all(entry.path())?,
            false if tree.contains_key(&path) => {}
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Returns whether the entry is at `path` already.
fn holds(path: &Path, entry: &Entry) -> bool {
    match entry {
        Entry::Line(text) => {
            fs::read(path).is_ok_and(|bytes| bytes.strip_suffix(b"\n") == Some(text.as_bytes()))
        }
        Entry::Link(target) => fs::read_link(path).is_ok_and(|there| there == *target),
        Entry::Folder => fs::symlink_metadata(path).is_ok_and(|there| there.is_dir()),
    }
}

/// Puts an entry into its place. The rename is atomic, because programs may be reading.
fn put(path: &Path, entry: &Entry) -> io::Result<()> {
    if holds(path, entry) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let fresh = path.with_file_name(format!(".{}", std::process::id()));
    match entry {
        Entry::Line(text) => fs::write(&fresh, format!("{text}\n"))?,
        Entry::Link(target) => symlink(target, &fresh)?,
        Entry::Folder => return fs::create_dir_all(path),
    }
    fs::rename(&fresh, path)
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
        let place = device.spec.profile.map(|profile| (pci::Place::new(index), profile));
        let parent = match &place {
            Some((place, _)) => place.folder(),
            None => "devices/virtual".into(),
        };
        let here = parent.join("infiniband").join(name);
        tree.insert(Path::new("sys/class/infiniband").join(name), Entry::Link(up.join(&here)));
        for (file, entry) in device_files(device) {
            tree.insert(sys.join(&here).join(file), entry);
        }
        let there = parent.join("infiniband_verbs").join(&uverbs);
        tree.insert(verbs.join(&uverbs), Entry::Link(up.join(&there)));
        if let Some((place, profile)) = &place {
            for (file, entry) in place.files(&profile.pci, &device.interface.name) {
                tree.insert(sys.join(file), entry);
            }
            let function = Path::new("../../../").join(&place.address);
            for folder in [&here, &there] {
                tree.insert(sys.join(folder).join("device"), Entry::Link(function.clone()));
            }
        }
        tree.insert(sys.join(&there).join("ibdev"), line(name));
        tree.insert(sys.join(&there).join("abi_version"), line(1));
        // UCX checks that this device file exists and that it may open the file. `liburxe.so` does
        // not use the file.
        tree.insert(Path::new("dev/infiniband").join(uverbs), Entry::Link("/dev/null".into()));
    }
    tree
}

pub fn line(text: impl ToString) -> Entry {
    Entry::Line(text.to_string())
}

fn device_files(device: &ResolvedLink) -> Vec<(PathBuf, Entry)> {
    let (interface, guid) = (&device.interface, device.node_guid);
    let mut files: Vec<(PathBuf, Entry)> = vec![
        ("node_type".into(), line("1: CA")),
        ("node_guid".into(), line(guid)),
        ("sys_image_guid".into(), line(guid)),
        ("node_desc".into(), line(&device.spec.name)),
        ("parent".into(), line(&interface.name)),
    ];
    match device.spec.profile {
        Some(profile) => files.extend([
            ("fw_ver".into(), line(profile.fw_ver)),
            ("hca_type".into(), line(profile.hca_type)),
            ("hw_rev".into(), line(format!("{:x}", profile.hw_ver))),
            ("board_id".into(), line(profile.board_id)),
        ]),
        None => files.extend([
            ("fw_ver".into(), line(env!("CARGO_PKG_VERSION"))),
            ("device/net".into(), Entry::Folder),
            (
                Path::new("device/net").join(&interface.name),
                Entry::Link(Path::new("/sys/class/net").join(&interface.name)),
            ),
        ]),
    }
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
pub fn rate(speed_mbps: Option<u32>) -> String {
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

    #[test]
    fn a_changed_list_changes_the_folder_in_its_place() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("one");
        let names = || {
            let folder = folder.join("sys/class/infiniband");
            let mut names: Vec<_> =
                fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let [first, second] = ["a=127.0.0.3", "b=127.0.0.4"].map(|text| text.parse().unwrap());
        update(&folder, &[first]).unwrap();
        assert_eq!(names(), ["a"]);
        update(&folder, &[second]).unwrap();
        assert_eq!(names(), ["b"]);
        assert!(!folder.join("sys/devices/virtual/infiniband/a").exists());
        let gid = folder.join("sys/class/infiniband/b/ports/1/gids/0");
        assert_eq!(fs::read_to_string(&gid).unwrap(), "0000:0000:0000:0000:0000:ffff:7f00:0004\n");
        update(&folder, &["nic=127.0.0.5,profile=mlx5".parse().unwrap()]).unwrap();
        let device = folder.join("sys/class/infiniband/nic/device");
        let text = |file: &str| fs::read_to_string(device.join(file)).unwrap();
        assert_eq!((text("vendor").trim(), text("device").trim()), ("0x15b3", "0x1017"));
        assert!(device.join("infiniband/nic/board_id").is_file());
        assert!(
            fs::canonicalize(&device).unwrap().ends_with("pci7e57:00/7e57:00:01.0/7e57:01:00.0")
        );
        assert!(folder.join("sys/bus/pci/devices/7e57:01:00.0/numa_node").is_file());
        update(&folder, &["b=127.0.0.4".parse().unwrap()]).unwrap();
        assert!(!folder.join("sys/bus").exists() && device.symlink_metadata().is_err());
        // Half a change, after which a process was killed.
        fs::remove_file(folder.join(STAMP)).unwrap();
        fs::remove_file(&gid).unwrap();
        update(&folder, &["b=127.0.0.4".parse().unwrap()]).unwrap();
        assert!(gid.exists());
    }
}
