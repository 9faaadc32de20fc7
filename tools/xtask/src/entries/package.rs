//! Installs the command and its libraries, or packs them into relocatable archives and Debian
//! packages.
//!
//! ```text
//!   PREFIX/bin/urxe
//!   PREFIX/lib/urxe/liburxe.so, liburxe_sysfs.so
//!   PREFIX/lib/urxe/libibverbs.so.1, librdmacm.so.1, libibverbs.so, librdmacm.so -> liburxe.so
//!   PREFIX/libexec/urxe/bin/rdma, modprobe, … -> ../../../bin/urxe
//!   PREFIX/share/man/…, PREFIX/share/…/completions/…     made by tools/manual
//!   PREFIX/share/doc/urxe/…
//! ```
//! The libraries and the small commands have separate folders, which only programs of `urxe run`
//! search, so the system's libibverbs and commands are unaffected. `urxe` finds the folders from
//! its own path, so the tree may be moved.
//!
//! All forms contain the same tree.
//!
//! | file | subject |
//! |---|---|
//! | `tree` | the files below a prefix |
//! | `elf` | machine and needed libraries of a file; debug information in a separate file |
//! | `debian` | Debian packages, by `dpkg-deb`; `cargo deb` would need a second list of the files |
//! | `portable` | a build for an old glibc, for this machine or another one |
//! | `copyright` | the licences of the project and of the crates that it contains |
//! | `wheel` | a Python wheel with the same stripped files |
//! | `chroots` | the test of all forms in fresh folders with a Debian |

mod chroots;
mod copyright;
mod debian;
mod elf;
mod portable;
mod tree;
mod wheel;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::machine::succeeds;
use crate::run::{Runner, cargo, root, target_folder};

use elf::{Elf, Machine};
use tree::Split;

pub use chroots::chroots;
pub use wheel::wheel;

/// The default prefix.
const PREFIX: &str = "/usr/local";
/// The program that writes the manual and the completions.
const MANUAL: &str = "urxe-manual";

/// The parsed arguments.
struct Options {
    prefix: PathBuf,
    source: Source,
}

/// The origin of the files.
enum Source {
    /// Built now, with this profile.
    Profile(String),
    /// Built now for this machine, by Rust's name, and for an old glibc.
    Portable(String),
    /// They lie there: built earlier, or for another machine.
    Built(PathBuf),
}

fn options(arguments: &[String], has_prefix: bool) -> Result<Options> {
    let mut options =
        Options { prefix: PREFIX.into(), source: Source::Profile("release".to_owned()) };
    for pair in arguments.chunks(2) {
        match pair {
            [option, folder] if has_prefix && option == "--prefix" => {
                options.prefix = folder.into();
            }
            [option, profile] if option == "--profile" => {
                options.source = Source::Profile(profile.clone());
            }
            [option, machine] if option == "--portable" => {
                options.source = Source::Portable(machine.clone());
            }
            [option, folder] if option == "--built" => {
                options.source = Source::Built(root().join(folder));
            }
            _ => bail!(
                "unknown arguments {arguments:?}; allowed: [--prefix FOLDER] (install) \
                 [--check] (wheel) [--profile PROFILE | --portable MACHINE | --built FOLDER]"
            ),
        }
    }
    Ok(options)
}

/// Installs into a folder.
pub fn install(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let Options { prefix, source } = options(arguments, true)?;
    let prefix = root().join(prefix);
    // The build takes minutes.
    tree::writable(&prefix)?;
    let built = source.folder(runner)?;
    tree::stage(&built, &prefix).with_context(|| writing(&prefix))?;
    texts(&built, &prefix, runner)?;
    println!("\ninstalled: {}", prefix.join("bin/urxe").display());
    Ok(())
}

/// Installs into `prefix` what is in the folder `built`, or a new build with this profile, without
/// the manual. Returns the path of `urxe`.
pub fn installed(
    prefix: &Path,
    built: Option<&Path>,
    profile: &str,
    runner: &mut Runner,
) -> Result<PathBuf> {
    let source = match built {
        Some(built) => Source::Built(root().join(built)),
        None => Source::Profile(profile.to_owned()),
    };
    let built = source.folder(runner)?;
    tree::stage(&built, prefix).with_context(|| writing(prefix))?;
    Ok(prefix.join("bin/urxe"))
}

/// Writes the manual pages and the completions to `target/manual`.
pub fn manual(arguments: &[String], runner: &mut Runner) -> Result<()> {
    super::none(arguments)?;
    let folder = target_folder().join("manual");
    remade(&folder).with_context(|| writing(&folder))?;
    runner.run(&mut cargo(["build", "--package", MANUAL]))?;
    texts(&target_folder().join("debug"), &folder, runner)?;
    println!("\nmanual: {}", folder.join("share/man").display());
    Ok(())
}

/// Makes in `target/packages`, each with another file for the debug information:
///
/// - `urxe-VERSION-MACHINE.tar.gz`;
/// - where dpkg-deb is, `urxe_VERSION_MACHINE.deb`.
pub fn package(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let Options { source, .. } = options(arguments, false)?;
    let built = source.folder(runner)?;
    let place = target_folder().join("packages");
    remade(&place).with_context(|| writing(&place))?;
    let machine = Elf::read(&built.join("urxe"))?.machine()?;
    let name = format!("urxe-{}-{}", env!("CARGO_PKG_VERSION"), machine.rust);
    let (tree, debug) = (place.join(&name), place.join(format!("{name}-debug")));
    let files = stripped(&built, &tree, &debug, machine, runner)?;
    texts(&built, &tree, runner)?;

    let mut made = Vec::new();
    for tree in [&tree, &debug] {
        made.push(archive(&place, tree, &name, runner)?);
    }
    if succeeds("dpkg-deb", &["--version"]) {
        made.extend(debian::packages(&place, &tree, &files, machine, runner)?);
    } else {
        println!("\nno Debian package, because dpkg-deb is not installed: apt-get install dpkg");
    }
    let made: Vec<String> = made.iter().map(|file| file.display().to_string()).collect();
    println!("\npackages: {}", made.join("\n          "));
    Ok(())
}

/// Makes the tree of packages without the manual, and a tree of its debug information.
fn stripped(
    built: &Path,
    tree: &Path,
    debug: &Path,
    machine: Machine,
    runner: &mut Runner,
) -> Result<Vec<Split>> {
    tree::stage(built, tree).with_context(|| writing(tree))?;
    let files = tree::strip(built, tree, debug, machine, runner)?;
    let copyright = tree.join("share/doc/urxe/copyright");
    fs::write(&copyright, copyright::text(machine)?).with_context(|| writing(&copyright))?;
    Ok(files)
}

/// Packs a tree, under this name. The same files make the same archive.
fn archive(place: &Path, tree: &Path, name: &str, runner: &mut Runner) -> Result<PathBuf> {
    let folder = tree.file_name().unwrap_or_default();
    let archive = place.join(format!("{}.tar.gz", folder.to_string_lossy()));
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(place).args(["--owner=0", "--group=0", "--numeric-owner", "--sort=name"]);
    tar.arg(format!("--mtime=@{}", commit("%ct")));
    // Both archives are unpacked at one place.
    tar.arg(format!("--transform=s,^{},{name},S", folder.to_string_lossy()));
    runner.run(tar.arg("-czf").arg(&archive).arg(folder))?;
    Ok(archive)
}

/// Writes the manual and the completions below a prefix, by the program in the folder of the build.
/// A program of another machine is built for this one.
fn texts(built: &Path, prefix: &Path, runner: &mut Runner) -> Result<()> {
    let mut program = built.join(MANUAL);
    if !succeeds(&program, &["--help"]) {
        runner.run(&mut cargo(["build", "--bin", MANUAL]))?;
        program = target_folder().join("debug").join(MANUAL);
    }
    runner.run(Command::new(program).arg(prefix).arg(commit("%cs")))
}

/// Returns the date of the last commit, in a format of `git log`. Packages have this date, so that
/// the same commit makes the same packages. Sources without git have the date of CHANGELOG.md.
fn commit(format: &str) -> String {
    let printed = |command: &mut Command| {
        let output = command.current_dir(root()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    let date = match format {
        "%cs" => "+%F",
        "%cD" => "-R",
        _ => "+%s",
    };
    printed(Command::new("git").args(["log", "-1", &format!("--format={format}")]))
        .or_else(|| printed(Command::new("date").args(["-u", "-r", "CHANGELOG.md", date])))
        .unwrap_or_default()
}

impl Source {
    /// Returns the folder with the files to install, built if need be.
    fn folder(self, runner: &mut Runner) -> Result<PathBuf> {
        let profile = match self {
            Self::Built(folder) => return tree::complete(folder),
            Self::Portable(machine) => return portable::build(&machine, runner),
            Self::Profile(profile) => profile,
        };
        let packages = ["urxe-tools", "urxe-abi", "urxe-sysfs", MANUAL];
        let mut build = cargo(["build", "--profile", &profile]);
        runner.run(build.args(packages.iter().flat_map(|package| ["-p", package])))?;
        Ok(target_folder().join(if profile == "dev" { "debug" } else { &profile }))
    }
}

fn remade(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(folder)
}

fn writing(place: &Path) -> String {
    format!("write into {}", place.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_cannot_be_written_is_refused_before_the_build() {
        let file = std::env::temp_dir().join(format!("urxe-prefix-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        let mut runner = Runner { output: Box::new(io::sink()), ..Runner::default() };
        let prefix = file.join("prefix").display().to_string();
        let arguments = ["--prefix".to_owned(), prefix.clone()];
        let error = install(&arguments, &mut runner).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        assert!(error.starts_with(&format!("cannot write into {prefix}/bin: ")), "{error}");
        assert_eq!(runner.tally.passed, 0, "no command ran");
    }
}
