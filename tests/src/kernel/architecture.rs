//! The architecture of the guests: their emulator, compiler, and programs.
//!
//! A guest of this machine's architecture runs this machine's programs. A guest of another one runs
//! those that `setup.sh --arch` unpacked.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Error, error::Context as _, job::output_of, requirements::find_program};

/// The variable that chooses the architecture.
const VARIABLE: &str = "URXE_KERNEL_ARCH";

/// An architecture of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// That of this machine.
    X86_64,
    /// ARM's 64-bit architecture.
    Aarch64,
}

impl Architecture {
    /// Returns the architecture that `URXE_KERNEL_ARCH` names, or else x86-64.
    ///
    /// # Errors
    /// [`Error::Malformed`] if there is no such architecture.
    pub fn chosen() -> Result<Self, Error> {
        match env::var_os(VARIABLE) {
            None => Ok(Self::X86_64),
            Some(name) if name == "x86_64" => Ok(Self::X86_64),
            Some(name) if name == "aarch64" => Ok(Self::Aarch64),
            Some(name) => Err(Error::Malformed {
                what: "URXE_KERNEL_ARCH is neither x86_64 nor aarch64, but",
                text: name.display().to_string(),
            }),
        }
    }

    /// Returns the option of `setup.sh`.
    pub(super) fn option(self) -> &'static str {
        match self {
            Self::X86_64 => "",
            Self::Aarch64 => " --arch arm64",
        }
    }

    /// Returns the folder of unpacked kernels and programs, given that of x86-64.
    pub(super) fn cache(self, of_x86_64: PathBuf) -> PathBuf {
        match self {
            Self::X86_64 => of_x86_64,
            Self::Aarch64 => of_x86_64.join("arm64"),
        }
    }

    /// Returns the Debian package of the emulator, and its program.
    pub(super) fn emulator(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("qemu-system-x86", "qemu-system-x86_64"),
            Self::Aarch64 => ("qemu-system-arm", "qemu-system-aarch64"),
        }
    }

    /// Returns the Debian package of the compiler, and its program.
    pub(super) fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("gcc", "gcc"),
            Self::Aarch64 => ("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
        }
    }

    /// Returns the file name of the dynamic loader.
    pub(super) fn loader(self) -> &'static str {
        match self {
            Self::X86_64 => "ld-linux-x86-64.so.2",
            Self::Aarch64 => "ld-linux-aarch64.so.1",
        }
    }

    /// Returns the folder of libraries below `lib` and `usr/lib`.
    pub(super) fn libraries(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-linux-gnu",
            Self::Aarch64 => "aarch64-linux-gnu",
        }
    }

    /// Returns the modules that compute CRC-32, which rxe requests from the crypto layer by name.
    pub(super) fn crc_modules(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["crc32_pclmul", "crc32_generic"],
            Self::Aarch64 => &["crc32_generic"],
        }
    }

    /// Returns the provider of rxe, which libibverbs loads by name.
    pub(super) fn provider(self) -> PathBuf {
        Path::new("/usr/lib").join(self.libraries()).join("libibverbs/librxe-rdmav34.so")
    }
}

/// The programs of a guest.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub architecture: Architecture,
    /// The folder of the unpacked packages; the root folder for this machine's programs.
    root: PathBuf,
}

impl Programs {
    pub fn new(architecture: Architecture, cache: &Path) -> Self {
        let root = match architecture {
            Architecture::X86_64 => PathBuf::from("/"),
            Architecture::Aarch64 => cache.join("programs/root"),
        };
        Self { architecture, root }
    }

    /// Returns the path of a program.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        if self.architecture == Architecture::X86_64 {
            return find_program(name);
        }
        let folders = ["usr/bin", "bin", "usr/sbin", "sbin"];
        folders.map(|folder| self.root.join(folder).join(name)).into_iter().find(|path| {
            // A link may lead to the same program of this machine.
            fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
        })
    }

    /// Returns the libraries of these programs, and those that are loaded by name: their names in
    /// the guest, and their files.
    ///
    /// # Errors
    /// Those of `ldd`, or of reading the folders.
    pub fn libraries(&self, programs: &[PathBuf]) -> Result<Vec<(PathBuf, PathBuf)>, Error> {
        let provider = self.architecture.provider();
        if self.architecture == Architecture::X86_64 {
            // `pthread_exit` loads the second one.
            let folder = Path::new("/lib").join(self.architecture.libraries());
            let by_name = [provider, folder.join("libgcc_s.so.1")];
            let mut all = libraries_of(programs.iter().chain(&by_name).map(PathBuf::as_path))?;
            all.extend(by_name);
            return Ok(all.into_iter().map(|path| (path.clone(), path)).collect());
        }
        // `ldd` runs the programs, so it does not read those of another architecture.
        let folder = self.architecture.libraries();
        let mut all = vec![provider, Path::new("/lib").join(self.architecture.loader())];
        for folder in [Path::new("/lib").join(folder), Path::new("/usr/lib").join(folder)] {
            all.extend(shared_objects(&self.root, &folder)?);
        }
        Ok(all.into_iter().map(|path| (path.clone(), self.below_root(&path))).collect())
    }

    /// Returns the folders for the linker's options `-L` and `-rpath-link`.
    pub fn library_folders(&self) -> [PathBuf; 2] {
        ["/lib", "/usr/lib"]
            .map(|folder| self.below_root(&Path::new(folder).join(self.architecture.libraries())))
    }

    fn below_root(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Returns the libraries of a folder by the names that programs need. They are links to files with
/// a longer version.
fn shared_objects(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let place = root.join(folder.strip_prefix("/").unwrap_or(folder));
    let read = || format!("read {}", place.display());
    let entries = fs::read_dir(&place).context(read)?.collect::<Result<Vec<_>, _>>();
    let entries = entries.context(read)?;
    let targets: BTreeSet<_> =
        entries.iter().filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let is_needed = |name: &Path| {
        name.to_str().is_some_and(|name| name.contains(".so")) && !targets.contains(name)
    };
    let names = entries.iter().map(|entry| PathBuf::from(entry.file_name()));
    Ok(names.filter(|name| is_needed(name)).map(|name| folder.join(name)).collect())
}

/// Returns the libraries of these programs: the paths in `ldd`'s lines "name => path (address)",
/// and the loader's path.
fn libraries_of<'a>(programs: impl Iterator<Item = &'a Path>) -> Result<BTreeSet<PathBuf>, Error> {
    let output = output_of(Command::new("ldd").args(programs))?;
    Ok(output
        .lines()
        .filter(|line| line.starts_with('\t'))
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect())
}
