//! The guest's image: an unpacked Debian kernel and an initramfs. The initramfs holds busybox, the
//! RDMA programs with their libraries, the modules in dependency order, and the harness's own
//! `init`, `peer` and `group`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use cpio::newc;

use super::{
    Error, Requirements, Series,
    architecture::{Architecture, Programs},
    error::Context as _,
    job::output_of,
    requirements::{BUSYBOX, GUEST, source_dir},
};

/// The modules that the guest loads, besides their dependencies and those for CRC-32.
const MODULES: [&str; 13] = [
    "virtio_pci",
    "virtio_net",
    "ib_uverbs",
    "ib_umad",
    "rdma_ucm",
    "rdma_rxe",
    "sch_netem",
    "sch_prio",
    "sch_ingress",
    "cls_u32",
    "act_mirred",
    "ifb",
    "virtio_rng",
];

/// Modules that some tests load, by the guest's program `load-module`. `/modules/NAME.order` lists
/// the module after its dependencies.
const LOADED_BY_TESTS: [&str; 4] = ["nvmet_rdma", "nvme_rdma", "9pnet_virtio", "9p"];

/// A kernel unpacked by `setup.sh`.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The series.
    pub series: Series,
    /// The release, as `uname -r` prints it: `6.1.0-56-amd64`.
    pub release: String,
    /// The architecture.
    pub architecture: Architecture,
    root: PathBuf,
}

impl Kernel {
    /// Finds the kernel of a series in the cache.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Malformed`] if the cache is damaged.
    pub fn find(requirements: &Requirements, series: Series) -> Result<Self, Error> {
        let root = requirements.cache.join(series.name()).join("root");
        let boot = root.join("boot");
        let release = fs::read_dir(&boot)
            .context(|| format!("read {}", boot.display()))?
            .filter_map(Result::ok)
            .find_map(|entry| {
                entry.file_name().to_str()?.strip_prefix("vmlinuz-").map(str::to_owned)
            })
            .ok_or_else(|| Error::Malformed {
                what: "no vmlinuz in",
                text: boot.display().to_string(),
            })?;
        Ok(Self { series, release, architecture: requirements.architecture, root })
    }

    /// Returns the path of the compressed kernel.
    pub fn vmlinuz(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    fn modules(&self) -> PathBuf {
        self.root.join("lib/modules").join(&self.release)
    }
}

/// The first file system of a guest.
#[derive(Debug)]
pub struct Image {
    /// The bytes for QEMU's `-initrd`.
    pub bytes: Vec<u8>,
}

impl Image {
    /// Builds the image of one kernel, with the harness's own programs.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Status`] or [`Error::Malformed`], naming the file or command.
    pub(super) fn build(kernel: &Kernel, own: &OwnPrograms) -> Result<Self, Error> {
        let mut archive = Archive::default();
        for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/etc"] {
            archive.folder(folder);
        }
        archive.device("/dev/console", 5, 1);
        archive.file("/init", &read(&source_dir().join("guest/init"))?);
        let load_module = read(&source_dir().join("guest/load-module"))?;
        archive.file("/usr/bin/load-module", &load_module);
        archive.file("/etc/libibverbs.d/rxe.driver", b"driver rxe\n");
        let users = b"root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n";
        archive.file("/etc/passwd", users);
        archive.file("/etc/group", b"root:x:0:\nuser:x:1000:\n");
        archive.file("/etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n");
        let busybox = own.packaged.find(BUSYBOX).unwrap_or_default();
        archive.file("/bin/busybox", &read(&busybox)?);

        let mut programs = own.programs.clone();
        for (_, names) in GUEST {
            for name in names.split_whitespace() {
                let file = own.packaged.find(name).unwrap_or_default();
                programs.push((format!("/usr/bin/{name}"), file));
            }
        }
        // These programs have libraries of their own.
        for (name, path) in &own.newer {
            archive.file(name, &read(path)?);
        }
        for (name, path) in &programs {
            archive.file(name, &read(path)?);
        }
        let files: Vec<_> = programs.into_iter().map(|(_, path)| path).collect();
        for (name, path) in own.packaged.libraries(&files)? {
            let name = name.to_str().ok_or_else(|| malformed("library path", &name))?;
            archive.file(name, &read(&path)?);
        }

        let folder = kernel.modules();
        let mut names = MODULES.to_vec();
        // The newest kernels compute CRC-32 in their library.
        if kernel.series != Series::Newest {
            names.splice(..0, kernel.architecture.crc_modules().iter().copied());
        }
        let mut modules = module_order(&folder, &names)?;
        archive.file("/modules/order", list(&modules).as_bytes());
        for name in LOADED_BY_TESTS {
            let needed = module_order(&folder, &[name])?;
            archive.file(&format!("/modules/{name}.order"), list(&needed).as_bytes());
            modules.extend(needed);
        }
        for module in modules.into_iter().collect::<BTreeSet<_>>() {
            let name = module_name(&module);
            archive.file(&format!("/modules/{name}.ko"), &unpacked(&folder.join(&module))?);
        }
        Ok(Self { bytes: archive.finish() })
    }
}

/// The "newc" archive that the kernel unpacks as its first file system
/// (Documentation/driver-api/early-userspace/buffer-format.rst). Each folder precedes its files,
/// because the kernel creates no missing folder.
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
}

impl Archive {
    const FOLDER: u32 = 0o040_755;
    const PROGRAM: u32 = 0o100_755;
    const DEVICE: u32 = 0o020_600;

    /// Adds an executable file and the folders above it. `path` is absolute.
    fn file(&mut self, path: &str, data: &[u8]) {
        let path = self.below_folders(path);
        self.entry(newc::Builder::new(path).mode(Self::PROGRAM), data);
    }

    /// Adds a folder and the folders above it.
    fn folder(&mut self, path: &str) {
        self.below_folders(&format!("{path}/"));
    }

    /// Adds a character device.
    fn device(&mut self, path: &str, major: u32, minor: u32) {
        let device = newc::Builder::new(self.below_folders(path)).mode(Self::DEVICE);
        self.entry(device.rdev_major(major).rdev_minor(minor), &[]);
    }

    /// Returns the archive with its end mark.
    fn finish(self) -> Vec<u8> {
        newc::trailer(self.bytes).expect(INFALLIBLE)
    }

    /// Adds the folders above a path. Returns the path as the archive names it.
    fn below_folders<'a>(&mut self, path: &'a str) -> &'a str {
        let path = path.trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            if self.folders.insert(path[..at].to_owned()) {
                self.entry(newc::Builder::new(&path[..at]).mode(Self::FOLDER).nlink(2), &[]);
            }
        }
        path
    }

    fn entry(&mut self, entry: newc::Builder, data: &[u8]) {
        let size = u32::try_from(data.len()).expect("a file of the image is below 4 GiB");
        let mut writer = entry.write(&mut self.bytes, size);
        writer.write_all(data).and_then(|()| writer.finish()).expect(INFALLIBLE);
    }
}

const INFALLIBLE: &str = "a vector takes every write";

/// The compiled programs of `tests/kernel/guest`, and those of `tests/programs` that run here as
/// well: the name in the guest, and the file.
#[derive(Debug)]
pub(super) struct OwnPrograms {
    programs: Vec<(String, PathBuf)>,
    /// `peer` and `group`, and their libraries.
    newer: Vec<(String, PathBuf)>,
    packaged: Programs,
}

/// Options of the compiler. The packages of another architecture have no links for `-libverbs`.
const WITH_VERBS: &str = "-l:libibverbs.so.1";
const WITH_CM: &str = "-l:libibverbs.so.1 -l:librdmacm.so.1";
const WITH_CM_AND_THREADS: &str = "-l:libibverbs.so.1 -l:librdmacm.so.1 -lpthread";

/// Source, name in the guest, and options of the compiler.
const OWN: [(&str, &str, &str); 11] = [
    ("../../programs/exchange.c", "bin/exchange", WITH_VERBS),
    ("../../programs/cm_refusals.c", "bin/cm_refusals", WITH_CM),
    ("../../programs/cm_lifetimes.c", "bin/cm_lifetimes", WITH_CM_AND_THREADS),
    ("../../programs/cm_deaths.c", "bin/cm_deaths", WITH_CM),
    ("../../programs/private_data.c", "bin/private_data", WITH_CM),
    ("../../programs/refusals.c", "bin/refusals", WITH_CM),
    ("../../programs/refused_port.c", "bin/refused_port", WITH_CM),
    ("five_datagrams.c", "bin/five_datagrams", ""),
    ("patient.c", "lib/patient.so", "-shared -fPIC"),
    ("lingering.c", "lib/lingering.so", "-shared -fPIC"),
    ("slow_connect.c", "lib/slow_connect.so", "-shared -fPIC"),
];

/// The folder of the libraries of `peer` and `group` in the guest, which are newer than those of
/// the other programs.
const VERBS: &str = "/opt/verbs";
/// The libraries besides the loader, and the provider, which libibverbs loads by name.
const VERBS_LIBRARIES: [&str; 6] = [
    "libc.so.6",
    "libm.so.6",
    "libibverbs.so.1",
    "libnl-3.so.200",
    "libnl-route-3.so.200",
    "libibverbs/librxe-rdmav34.so",
];

impl OwnPrograms {
    /// Compiles the programs into the given folder.
    ///
    /// # Errors
    /// [`Error::Status`] with the compiler's output.
    pub(super) fn compile(requirements: &Requirements, folder: &Path) -> Result<Self, Error> {
        let source = source_dir().join("guest");
        let root = requirements.cache.join("verbs/root");
        let Programs { architecture, .. } = requirements.programs;
        let newer = root.join("usr/lib").join(architecture.libraries());
        let loader = architecture.loader();
        let mut foreign = Vec::new();
        if architecture != Architecture::X86_64 {
            // The RDMA headers are the same on each architecture. Those of the C library differ,
            // and come first.
            foreign.push("-idirafter/usr/include".to_owned());
            foreign.push("-Wl,--allow-shlib-undefined".to_owned());
            let folders = requirements.programs.library_folders();
            foreign.extend(folders.iter().map(|folder| format!("-L{}", folder.display())));
        }
        // Returns a file's name in the guest, and the file.
        let compile = |name: &str, to: &str, options: &[String]| {
            let to = format!("/usr/{to}");
            let output = folder.join(to.rsplit('/').next().unwrap_or(&to));
            let mut gcc = Command::new(architecture.compiler().1);
            gcc.args(["-O2", "-Wall", "-Wextra", "-o"]).args([&output, &source.join(name)]);
            output_of(gcc.args(&foreign).args(options)).map(|_| (to, output))
        };
        let programs = OWN.map(|(name, to, options)| {
            let options: Vec<_> = options.split_whitespace().map(str::to_owned).collect();
            compile(name, to, &options)
        });
        let with_verbs = [
            // The verbs header is the newer one; the C library's headers are those of this machine.
            // The newer C library has all symbols of the older one.
            format!("-I{}", root.join("usr/include").display()),
            newer.join("libibverbs.so.1").display().to_string(),
            format!("-DPROVIDER=\"{VERBS}/librxe\""),
            "-Wl,--allow-shlib-undefined".to_owned(),
            format!("-Wl,-rpath,{VERBS}"),
            format!("-Wl,--dynamic-linker={VERBS}/{loader}"),
        ];
        let with_verbs = [("peer.c", "bin/peer"), ("group.c", "bin/group")]
            .map(|(name, to)| compile(name, to, &with_verbs));
        let libraries = [loader].into_iter().chain(VERBS_LIBRARIES).map(|name| {
            let file = name.rsplit('/').next().unwrap_or(name);
            Ok((format!("{VERBS}/{file}"), newer.join(name)))
        });
        Ok(Self {
            programs: programs.into_iter().collect::<Result<_, _>>()?,
            newer: with_verbs.into_iter().chain(libraries).collect::<Result<_, _>>()?,
            packaged: requirements.programs.clone(),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).context(|| format!("read {}", path.display()))
}

fn malformed(what: &'static str, path: &Path) -> Error {
    Error::Malformed { what, text: path.display().to_string() }
}

/// Returns a module's bytes. Modules of Debian 12 are plain; those of the 6.12 backport are .xz
/// files.
fn unpacked(path: &Path) -> Result<Vec<u8>, Error> {
    if path.extension().is_some_and(|extension| extension == "xz") {
        let output = Command::new("xz").arg("-dc").arg(path).output();
        let output = output.context(|| format!("xz -dc {}", path.display()))?;
        return if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(malformed("xz -dc", path))
        };
    }
    read(path)
}

/// Returns a module's name: `kernel/net/sched/sch_prio.ko.xz` is `sch_prio`, and '-' equals '_'.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// Returns the names of modules as files of the guest, one a line.
fn list(modules: &[String]) -> String {
    modules.iter().map(|module| format!("{}.ko\n", module_name(module))).collect()
}

/// Returns the files of modules and of their dependencies, each after its own dependencies.
fn module_order(folder: &Path, modules: &[&str]) -> Result<Vec<String>, Error> {
    let text = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).context(|| format!("read {}", path.display()))
    };
    let dependencies = text("modules.dep")?;
    let mut known = BTreeMap::new();
    for line in dependencies.lines() {
        let (file, needs) = line.split_once(':').unwrap_or((line, ""));
        known.insert(module_name(file), (file, needs));
    }
    let built_in: BTreeSet<String> = text("modules.builtin")?.lines().map(module_name).collect();

    let mut order: Vec<String> = Vec::new();
    for &module in modules {
        if built_in.contains(module) {
            continue;
        }
        let Some((file, needs)) = known.get(module) else {
            return Err(Error::Malformed {
                what: "no such module in modules.dep",
                text: module.to_owned(),
            });
        };
        // modules.dep lists the dependencies of a module, the deepest last.
        for file in needs.split_whitespace().rev().chain([*file]) {
            if !order.iter().any(|earlier| earlier == file) {
                order.push(file.to_owned());
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::{Archive, newc};

    #[test]
    fn folders_come_first_and_once() {
        let mut archive = Archive::default();
        archive.file("/a/b/one", b"12345");
        archive.file("/a/b/two", b"");
        archive.device("/dev/console", 5, 1);
        let bytes = archive.finish();
        let (mut rest, mut names) = (bytes.as_slice(), Vec::new());
        while !rest.is_empty() {
            let entry = newc::Reader::new(rest).unwrap();
            names.push(entry.entry().name().to_owned());
            rest = entry.finish().unwrap();
        }
        assert_eq!(names, ["a", "a/b", "a/b/one", "a/b/two", "dev", "dev/console", "TRAILER!!!"]);
    }
}
