//! The requirements of the harness, checked before anything starts. One message lists all missing
//! requirements.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::{Architecture, Error, architecture::Programs};

/// The variable that chooses the kernels of the two guests.
const VARIABLE: &str = "URXE_KERNEL_VERSIONS";

/// A series of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Series {
    /// `linux-image-amd64` of Debian 12: rxe with tasklets, without FLUSH and ATOMIC WRITE.
    V6_1,
    /// `linux-image-6.12-amd64` of Debian 12: rxe with work queues.
    V6_12,
    /// The newest kernel of Debian's suites trixie-backports and sid: rxe with on-demand paging.
    Newest,
}

impl Series {
    /// All series, the oldest first.
    const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::Newest];

    /// Returns the two series with which tests run, the older first: those that
    /// `URXE_KERNEL_VERSIONS` names, as in `6.12,newest`, or else 6.1 and 6.12.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the variable does not name two series in this order.
    pub fn chosen() -> Result<[Self; 2], Error> {
        env::var_os(VARIABLE).map_or(Ok([Self::V6_1, Self::V6_12]), |names| {
            let names = names.display().to_string();
            Self::parse(&names).ok_or(Error::Malformed {
                what: "URXE_KERNEL_VERSIONS must be two of 6.1, 6.12 and newest, the older first, \
                       as in 6.12,newest; it is",
                text: names,
            })
        })
    }

    fn parse(names: &str) -> Option<[Self; 2]> {
        let (old, new) = names.split_once(',')?;
        let find = |name| Self::ALL.into_iter().find(|series| series.name() == name);
        let (old, new) = (find(old)?, find(new)?);
        (old < new).then_some([old, new])
    }

    /// Returns the version, or `newest`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Newest => "newest",
        }
    }

    /// Returns the option of `setup.sh`.
    fn option(self) -> &'static str {
        match self {
            Self::V6_1 | Self::V6_12 => "",
            Self::Newest => " --kernel newest",
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
    /// Checks all requirements of guests with these kernels.
    ///
    /// # Errors
    /// [`Error::Missing`] with each missing requirement and the command that installs it.
    pub fn check(series: &[Series]) -> Result<Self, Error> {
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
        let options: String = series.iter().map(|each| each.option()).collect();
        let options = options + architecture.option();
        let setup = format!("{}{options} (it installs the packages too)", script.display());
        if !is_own && !cache.join("programs/stamp").exists() {
            what.push(format!("the guest's programs unpacked in {}", cache.display()));
            remedies = vec![setup.clone()];
        }
        for series in series {
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

#[cfg(test)]
mod tests {
    use super::Series;

    #[test]
    fn two_series_are_chosen_in_their_order() {
        assert_eq!(Series::parse("6.1,6.12"), Some([Series::V6_1, Series::V6_12]));
        assert_eq!(Series::parse("6.12,newest"), Some([Series::V6_12, Series::Newest]));
        for wrong in
            ["", "newest", "6.12,6.1", "6.1,6.1", "6.1,7.2", "6.1,6.12,newest", "6.1, newest"]
        {
            assert_eq!(Series::parse(wrong), None, "{wrong}");
        }
    }
}
