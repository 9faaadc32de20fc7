//! A Python wheel: the command and its libraries inside the package `urxe`, with the sources of
//! `tools/python`.
//!
//! ```text
//!   urxe/*.py, py.typed              from tools/python/urxe
//!   urxe/_build.py                   version, machine and lowest glibc
//!   urxe/bin/urxe                    the stripped files of the other packages
//!   urxe/lib/urxe/liburxe.so, …
//!   urxe-VERSION.dist-info/METADATA, WHEEL, entry_points.txt, licenses/…, RECORD
//! ```
//! A wheel has no symbolic links. So `urxe run` makes its links in the user's cache.
//!
//! Sources: the "Binary distribution format", "Core metadata" and "Entry points" specifications of
//! packaging.python.org, and PEP 600 for the name of the platform.
//!
//! | file | subject |
//! |---|---|
//! | `archive` | the zip file, and `RECORD` with the hash of each file |
//! | `check` | the wheel in virtual environments |

mod archive;
mod check;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::elf::{self, Elf, Machine};
use super::tree::Split;
use super::{commit, options, portable, remade, stripped, writing};
use crate::run::{Runner, root, target_folder};

use archive::{Archive, EXECUTABLE, READABLE};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// A version of glibc.
type Glibc = [u32; 2];

/// The versions of glibc that the name of a wheel promises: the first that suffices. `--portable`
/// builds for the first one, and a build on Debian 12 needs the second one.
const GLIBC: [Glibc; 2] = [portable::GLIBC, [2, 34]];
/// The folder of the sources, without those that this task writes.
const SOURCES: &str = "tools/python/urxe";
/// The entries by which pip makes the command, and pytest finds the plugin.
const ENTRY_POINTS: &str = "\
[console_scripts]
urxe = urxe._command:main

[pytest11]
urxe = urxe.pytest_plugin
";
const LICENCES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "copyright"];

/// Makes the wheel in `target/packages`. With `--check`, tests the wheel.
pub fn wheel(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let (checks, others): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|argument| argument == "--check");
    let built = options(&others, false)?.source.folder(runner)?;
    let place = target_folder().join("wheel");
    remade(&place).with_context(|| writing(&place))?;
    let (tree, debug) = (place.join("tree"), place.join("debug"));
    let machine = Elf::read(&built.join("urxe"))?.machine()?;
    let files = stripped(&built, &tree, &debug, machine, runner)?;
    let glibc = promised(&files)?;

    let packages = target_folder().join("packages");
    fs::create_dir_all(&packages).with_context(|| writing(&packages))?;
    let wheel = packages.join(format!("urxe-{VERSION}-{}.whl", tag(machine, glibc)));
    write(&wheel, &tree, &files, (machine, glibc)).with_context(|| writing(&wheel))?;
    println!("\nwheel: {}", wheel.display());
    if !checks.is_empty() {
        check::check(&wheel, &place, runner)?;
    }
    Ok(())
}

/// Returns the version of glibc that the files need, rounded up to one that a wheel promises.
fn promised(files: &[Split]) -> Result<Glibc> {
    let paths: Vec<&Path> = files.iter().map(|split| &*split.file).collect();
    let needed = elf::dependencies(&paths)?;
    let needed = needed.iter().find(|(package, _)| *package == "libc6");
    sufficient(needed.map_or(&[], |(_, version)| version))
}

fn sufficient(needed: &[u32]) -> Result<Glibc> {
    GLIBC.into_iter().find(|version| needed <= &version[..]).with_context(|| {
        format!(
            "the libraries need glibc {}, and a wheel may need {} at most; build them by \
             --portable, or on a machine with an older glibc, such as Debian 12",
            dotted(needed),
            dotted(&GLIBC[GLIBC.len() - 1])
        )
    })
}

/// Returns the versions of Python, its interface and the platform.
fn tag(machine: Machine, glibc: Glibc) -> String {
    format!("py3-none-manylinux_{}_{}_{}", glibc[0], glibc[1], machine.rust)
}

fn write(
    wheel: &Path,
    tree: &Path,
    files: &[Split],
    (machine, glibc): (Machine, Glibc),
) -> Result<()> {
    let mut archive = Archive::create(wheel, &format!("urxe-{VERSION}.dist-info"), &commit("%cs"))?;
    for source in sources()? {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        archive.add(&format!("urxe/{name}"), &fs::read(&source)?, READABLE)?;
    }
    archive.add("urxe/_build.py", build(machine, glibc).as_bytes(), READABLE)?;
    for Split { file, .. } in files {
        let name = file.strip_prefix(tree).context("a file outside of the tree")?.display();
        let mode = if file.extension().is_some() { READABLE } else { EXECUTABLE };
        archive.add(&format!("urxe/{name}"), &fs::read(file)?, mode)?;
    }
    let documents = tree.join("share/doc/urxe");
    for name in LICENCES {
        archive.add_info(&format!("licenses/{name}"), &fs::read(documents.join(name))?)?;
    }
    archive.add_info("METADATA", metadata()?.as_bytes())?;
    let tags = format!(
        "Wheel-Version: 1.0\nGenerator: urxe-xtask {VERSION}\nRoot-Is-Purelib: false\nTag: {}\n",
        tag(machine, glibc)
    );
    archive.add_info("WHEEL", tags.as_bytes())?;
    archive.add_info("entry_points.txt", ENTRY_POINTS.as_bytes())?;
    archive.finish()
}

/// Returns the sources in order.
fn sources() -> Result<Vec<PathBuf>> {
    let folder = root().join(SOURCES);
    let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "py" || ending == "typed") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the module with the properties of the build.
fn build(machine: Machine, glibc: Glibc) -> String {
    format!(
        "\"\"\"The build of this package, as ``cargo xtask wheel`` writes it.\"\"\"\n\n\
         VERSION = \"{VERSION}\"\nMACHINE = \"{}\"\nGLIBC = ({}, {})\n",
        machine.rust, glibc[0], glibc[1]
    )
}

fn metadata() -> Result<String> {
    let readme = fs::read_to_string(root().join("tools/python/README.md"))?;
    let licences: String = LICENCES.map(|name| format!("License-File: {name}\n")).concat();
    let repository = env!("CARGO_PKG_REPOSITORY");
    Ok(format!(
        "Metadata-Version: 2.4\nName: urxe\nVersion: {VERSION}\n\
         Summary: RDMA in userspace (RoCEv2 over UDP), with a plugin for pytest\n\
         License-Expression: MIT OR Apache-2.0\n{licences}\
         Project-URL: Repository, {repository}\n\
         Project-URL: Changelog, {repository}/blob/main/CHANGELOG.md\n\
         Keywords: rdma,roce,infiniband,libibverbs,pytest\n\
         Classifier: Development Status :: 4 - Beta\n\
         Classifier: Framework :: Pytest\n\
         Classifier: Operating System :: POSIX :: Linux\n\
         Classifier: Programming Language :: Python :: 3 :: Only\n\
         Classifier: Topic :: System :: Networking\n\
         Classifier: Typing :: Typed\n\
         Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n{readme}"
    ))
}

fn dotted(version: &[u32]) -> String {
    version.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns this program as a file of a tree.
    fn own() -> Split {
        let file = std::env::current_exe().unwrap();
        Split { file, debug: PathBuf::new(), build_id: String::new() }
    }

    #[test]
    fn the_name_has_the_machine_of_the_files() {
        let machine = Elf::read(&own().file).unwrap().machine().unwrap();
        let expected = format!("py3-none-manylinux_2_34_{}", std::env::consts::ARCH);
        assert_eq!(tag(machine, [2, 34]), expected);
        let module = build(machine, [2, 28]);
        assert!(module.contains(&format!("\nMACHINE = \"{}\"\n", machine.rust)), "{module}");
        assert!(module.contains("\nGLIBC = (2, 28)\n"), "{module}");
    }

    #[test]
    fn a_wheel_promises_the_oldest_glibc_that_suffices() {
        assert_eq!(sufficient(&[]).unwrap(), [2, 28]);
        assert_eq!(sufficient(&[2, 9]).unwrap(), [2, 28]);
        assert_eq!(sufficient(&[2, 28]).unwrap(), [2, 28]);
        assert_eq!(sufficient(&[2, 29]).unwrap(), [2, 34]);
        assert_eq!(sufficient(&[2, 34]).unwrap(), [2, 34]);
        let error = sufficient(&[2, 35]).unwrap_err().to_string();
        assert!(error.starts_with("the libraries need glibc 2.35, and"), "{error}");
        sufficient(&[2, 34, 1]).unwrap_err();
    }

    #[test]
    fn the_metadata_begins_with_fields_and_ends_with_the_page() {
        let text = metadata().unwrap();
        let (fields, page) = text.split_once("\n\n").unwrap();
        let is_field =
            |line: &str| line.split_once(": ").is_some_and(|(name, _)| !name.contains(' '));
        assert!(fields.lines().all(is_field), "{fields}");
        assert!(page.starts_with("# urxe"), "{page}");
    }

    #[test]
    fn the_sources_have_the_modules_of_the_entry_points() {
        let names: Vec<String> =
            sources().unwrap().iter().map(|file| file.display().to_string()).collect();
        for name in ["__init__.py", "_command.py", "pytest_plugin.py", "py.typed"] {
            assert!(names.iter().any(|file| file.ends_with(&format!("/{name}"))), "{names:?}");
        }
    }
}
