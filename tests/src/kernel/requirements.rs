//! The requirements of the harness, checked before anything starts. One message lists all missing
//! requirements.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::{Architecture, Error, architecture::Programs};

/// A series of kernels, by Debian 12's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Series {
    /// `linux-image-amd64`: rxe with tasklets, without FLUSH and ATOMIC WRITE.
    V6_1,
    /// `linux-image-6.12-amd64`: rxe with work queues.
    V6_12,
}

impl Series {
    /// All series with which tests run.
    pub const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    /// Returns the version: `6.1`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }
}

/// The checked requirements of the host and of the guest's image.
#[derive(Debug)]
pub struct Requirements {
    /// The folder of unpacked kernels: `URXE_KERNEL_CACHE`, else `$XDG_CACHE_HOME/urxe/kernels`;
    /// in it, the folder `arm64` for guests of that architecture.
    pub cache: PathBuf,
    /// The architecture of the guests.
    pub architecture: Architecture,
    pub(super) programs: Programs,
}

/// Debian packages, and their programs on the host.
const HOST: [(&str, &str); 6] = [
    ("xz-utils", "xz"),
    ("iproute2", "ip"),
    ("tcpdump", "tcpdump"),
    ("util-linux", "setpriv"),
    ("libc-bin", "ldd"),
    ("kmod", "depmod"),
];

/// The guest's shell and its commands, which need no library.
pub(super) const BUSYBOX: &str = "busybox";

/// Debian packages, and their programs in the guest, which are copied with their libraries.
pub(super) const GUEST: [(&str, &str); 5] = [
    ("iproute2", "ip tc rdma"),
    ("ethtool", "ethtool"),
    (
        "ibverbs-utils",
        "ibv_asyncwatch ibv_devices ibv_devinfo
        ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong",
    ),
    (
        "rdmacm-utils",
        "rping ucmatose udaddy mckey rdma_client rdma_server cmtime rstream riostream rcopy udpong",
    ),
    (
        "perftest",
        "ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat
        ib_atomic_bw ib_atomic_lat",
    ),
];

/// Files and their Debian packages.
const FILES: [(&str, &str); 2] =
    [("/usr/include/stdio.h", "libc6-dev"), ("/usr/include/rdma/rdma_cma.h", "librdmacm-dev")];

impl Requirements {
    /// Checks all requirements.
    ///
    /// # Errors
    /// [`Error::Missing`] with each missing requirement and the command that installs it.
    pub fn check() -> Result<Self, Error> {
        let architecture = Architecture::chosen()?;
        let cache = architecture.cache(cache_dir());
        let in_guest = Programs::new(architecture, &cache);
        let mut what = Vec::new();
        let mut packages = Vec::new();
        for (package, programs) in
            HOST.into_iter().chain([architecture.emulator(), architecture.compiler()])
        {
            for program in programs.split_whitespace().filter(|name| find_program(name).is_none()) {
                what.push(format!("the program {program}"));
                packages.push(package);
            }
        }
        let provider = architecture.provider().display().to_string();
        let own_provider = (provider.as_str(), "ibverbs-providers");
        let is_own = architecture == Architecture::X86_64;
        for (file, package) in FILES.into_iter().chain(is_own.then_some(own_provider)) {
            if !Path::new(file).exists() {
                what.push(format!("the file {file}"));
                packages.push(package);
            }
        }
        for (package, programs) in GUEST.into_iter().chain([("busybox-static", BUSYBOX)]) {
            for program in programs.split_whitespace().filter(|name| in_guest.find(name).is_none())
            {
                what.push(format!("the program {program}, for the guest"));
                // `setup.sh` unpacks those of another architecture.
                packages.extend(is_own.then_some(package));
            }
        }
        packages.sort_unstable();
        packages.dedup();
        let mut remedies = Vec::new();
        if !packages.is_empty() {
            remedies.push(format!("sudo apt-get install {}", packages.join(" ")));
        }
        let script = source_dir().join("setup.sh");
        let option = architecture.option();
        let setup = format!("{}{option} (it installs the packages too)", script.display());
        if !is_own && !cache.join("programs/stamp").exists() {
            what.push(format!("the guest's programs unpacked in {}", cache.display()));
            remedies = vec![setup.clone()];
        }
        for series in Series::ALL {
            if !cache.join(series.name()).join("stamp").exists() {
                what.push(format!("kernel {} unpacked in {}", series.name(), cache.display()));
                remedies = vec![setup.clone()];
            }
        }
        if !cache.join("verbs/stamp").exists() {
            what.push(format!("Debian 13's libibverbs unpacked in {}", cache.display()));
            remedies = vec![setup];
        }
        if !Path::new("/dev/net/tun").exists() {
            what.push("/dev/net/tun, for the guests' network".to_owned());
            remedies.push("sudo modprobe tun".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            what.push("root, to make a network namespace and taps".to_owned());
            remedies.push("run the same command as root (sudo -E)".to_owned());
        }
        if what.is_empty() {
            Ok(Self { cache, architecture, programs: in_guest })
        } else {
            Err(Error::Missing { what, remedy: remedies.join("; ") })
        }
    }
}

/// Returns the path of `tests/kernel` in the source tree.
pub(super) fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel")
}

fn cache_dir() -> PathBuf {
    if let Some(cache) = env::var_os("URXE_KERNEL_CACHE") {
        return cache.into();
    }
    let cache = env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache"),
        PathBuf::from,
    );
    cache.join("urxe/kernels")
}

/// Returns the path of a program in `PATH` or the folders of administrators' programs.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| fs::metadata(file).is_ok_and(|found| found.is_file()))
}
