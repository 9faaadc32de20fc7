//! ELF files: their machine, the libraries that they need, and their debug information.
//!
//! The versions of symbols decide which libraries a package depends on. So the result is that of
//! `dpkg-shlibdeps`, but needs no libraries of the machine for which the file was built.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::machine::succeeds;
use crate::run::Runner;

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// `e_machine` of the ELF header.
    code: u16,
    little_endian: bool,
    /// Rust's name, which is also that of the GNU tools.
    pub rust: &'static str,
    /// Debian's name.
    pub debian: &'static str,
}

/// The machines with 64 bits of Debian 13.
const MACHINES: [Machine; 6] = [
    machine(62, true, "x86_64", "amd64"),
    machine(183, true, "aarch64", "arm64"),
    machine(243, true, "riscv64", "riscv64"),
    machine(21, true, "powerpc64le", "ppc64el"),
    machine(22, false, "s390x", "s390x"),
    machine(258, true, "loongarch64", "loong64"),
];

/// Packages of libraries: the begin of the library's name, the package, and the begin of the
/// versions of its symbols.
const LIBRARIES: [(&str, &str, &str); 6] = [
    ("libc.so.", "libc6", "GLIBC_"),
    ("libm.so.", "libc6", "GLIBC_"),
    // Before glibc 2.34.
    ("libdl.so.", "libc6", "GLIBC_"),
    ("libpthread.so.", "libc6", "GLIBC_"),
    ("ld-linux", "libc6", "GLIBC_"),
    ("libgcc_s.so.", "libgcc-s1", "GCC_"),
];

/// A file.
pub struct Elf {
    code: u16,
    little_endian: bool,
    /// The needed libraries.
    needed: Vec<String>,
    /// Libraries, with the versions of their symbols that the file uses.
    versions: Vec<(String, String)>,
    /// The identifier of the build, in hexadecimal digits.
    pub build_id: Option<String>,
}

/// A package, with the lowest version that suffices.
pub type Dependency = (&'static str, Vec<u32>);

const fn machine(
    code: u16,
    little_endian: bool,
    rust: &'static str,
    debian: &'static str,
) -> Machine {
    Machine { code, little_endian, rust, debian }
}

impl Elf {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let context = || format!("read {}", path.display());
        let bytes = fs::read(path).with_context(context)?;
        let elf = goblin::elf::Elf::parse(&bytes).with_context(context)?;
        let mut versions = Vec::new();
        for need in elf.verneed.iter().flat_map(|section| section.iter()) {
            let library = elf.dynstrtab.get_at(need.vn_file).unwrap_or_default();
            for version in need.iter() {
                let version = elf.dynstrtab.get_at(version.vna_name).unwrap_or_default();
                versions.push((library.to_owned(), version.to_owned()));
            }
        }
        let notes = elf.iter_note_sections(&bytes, Some(".note.gnu.build-id"));
        let id = notes.into_iter().flatten().filter_map(Result::ok).next();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            code: elf.header.e_machine,
            little_endian: elf.little_endian,
            needed: elf.libraries.iter().map(|name| (*name).to_owned()).collect(),
            versions,
            build_id: id.map(|note| hex(note.desc)),
        })
    }

    /// Returns the machine for which the file was built.
    pub fn machine(&self) -> Result<Machine> {
        let is_own =
            |row: &&Machine| row.code == self.code && row.little_endian == self.little_endian;
        let found = MACHINES.iter().find(is_own).copied();
        found.with_context(|| format!("unknown machine {}; add it to {}", self.code, file!()))
    }

    /// Returns the packages of the needed libraries.
    pub fn dependencies(&self) -> Result<Vec<Dependency>> {
        let mut found: Vec<Dependency> = Vec::new();
        for library in &self.needed {
            let row = LIBRARIES.iter().find(|(begin, ..)| library.starts_with(begin));
            let Some((_, package, prefix)) = row else {
                bail!("unknown package of {library}; add it to {}", file!());
            };
            let own = self.versions.iter().filter(|(file, _)| file == library);
            let lowest = own.filter_map(|(_, version)| numbers(version.strip_prefix(prefix)?));
            let lowest = lowest.max().unwrap_or_default();
            match found.iter_mut().find(|(name, _)| name == package) {
                Some((_, version)) => *version = lowest.max(std::mem::take(version)),
                None => found.push((package, lowest)),
            }
        }
        Ok(found)
    }
}

/// Returns the packages of the libraries that the files need, in order, each with the lowest
/// version that suffices.
pub fn dependencies(files: &[&Path]) -> Result<Vec<Dependency>> {
    let mut found: Vec<Dependency> = Vec::new();
    for file in files {
        for (package, version) in Elf::read(file)?.dependencies()? {
            match found.iter_mut().find(|(name, _)| *name == package) {
                Some((_, lowest)) => *lowest = version.max(std::mem::take(lowest)),
                None => found.push((package, version)),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the numbers of a version such as `2.34`.
fn numbers(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|number| number.parse().ok()).collect()
}

/// Writes a file without symbols, and another one with its debug information. The first names the
/// second.
pub fn split(
    from: &Path,
    stripped: &Path,
    debug: &Path,
    machine: Machine,
    runner: &mut Runner,
) -> Result<()> {
    let objcopy = objcopy(machine)?;
    let only_debug = ["--only-keep-debug", "--compress-debug-sections"];
    runner.run(Command::new(&objcopy).args(only_debug).args([from, debug]))?;
    let mut strip = Command::new(&objcopy);
    strip.args(["--strip-unneeded", "--remove-section=.comment", "--remove-section=.note"]);
    runner.run(strip.arg(format!("--add-gnu-debuglink={}", debug.display())).args([from, stripped]))
}

/// Returns the program of binutils for a machine.
fn objcopy(machine: Machine) -> Result<String> {
    let own = format!("{}-linux-gnu-objcopy", machine.rust);
    if succeeds(&own, &["--version"]) {
        return Ok(own);
    }
    if machine.rust != std::env::consts::ARCH {
        bail!("{own} is missing; on Debian: apt-get install binutils-{}-linux-gnu", machine.rust);
    }
    if !succeeds("objcopy", &["--version"]) {
        bail!("objcopy is missing; on Debian: apt-get install binutils");
    }
    Ok("objcopy".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(needed: &[&str], versions: &[(&str, &str)]) -> Elf {
        Elf {
            code: 62,
            little_endian: true,
            needed: needed.iter().map(|name| (*name).to_owned()).collect(),
            versions: versions.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            build_id: None,
        }
    }

    #[test]
    fn the_newest_symbol_decides() {
        let versions = [
            ("libc.so.6", "GLIBC_2.9"),
            ("libc.so.6", "GLIBC_2.34"),
            ("libm.so.6", "GLIBC_2.35"),
            ("libgcc_s.so.1", "GCC_4.2.0"),
        ];
        let found = file(&["libgcc_s.so.1", "libm.so.6", "libc.so.6"], &versions).dependencies();
        let expected = [("libgcc-s1", vec![4, 2, 0]), ("libc6", vec![2, 35])];
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn a_library_without_a_known_package_is_an_error() {
        let error = file(&["libz.so.1"], &[]).dependencies().unwrap_err().to_string();
        assert!(error.starts_with("unknown package of libz.so.1"), "{error}");
    }

    #[test]
    fn this_program_is_for_this_machine() {
        let elf = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(elf.machine().unwrap().rust, std::env::consts::ARCH);
        assert!(elf.dependencies().unwrap().iter().any(|(name, _)| *name == "libc6"));
    }
}
