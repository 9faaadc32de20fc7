//! Installs the command and its libraries, or packs them into a relocatable archive and a Debian
//! package.
//!
//! ```text
//!   PREFIX/bin/urxe
//!   PREFIX/lib/urxe/liburxe.so, liburxe_sysfs.so
//!   PREFIX/lib/urxe/libibverbs.so.1, librdmacm.so.1, libibverbs.so, librdmacm.so -> liburxe.so
//!   PREFIX/libexec/urxe/bin/rdma, modprobe, … -> ../../../bin/urxe
//!   PREFIX/share/doc/urxe/…
//! ```
//! The libraries and the small commands have separate folders, which only programs of `urxe run`
//! search, so the system's libibverbs and commands are unaffected. `urxe` finds the folders from
//! its own path, so the tree may be moved.
//!
//! All three forms contain the same tree. `dpkg-deb` packs this tree. `cargo deb` would need a
//! second list of the files, because it packs the files that a crate lists.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::run::{Runner, cargo, root, target_folder};

const EXECUTABLE: u32 = 0o755;
/// Built by cargo, with their places and modes.
const BUILT: [(&str, &str, u32); 3] = [
    ("urxe", "bin/urxe", EXECUTABLE),
    ("liburxe.so", "lib/urxe/liburxe.so", 0o644),
    ("liburxe_sysfs.so", "lib/urxe/liburxe_sysfs.so", 0o644),
];
/// The library names of programs.
const LINKS: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];
/// The small commands that stand before the system's (`tools/urxe/src/cmd/applets`).
const COMMANDS: [&str; 13] = [
    "rdma",
    "modprobe",
    "insmod",
    "rmmod",
    "lsmod",
    "modinfo",
    "rxe_cfg",
    "ibv_devices",
    "ibv_devinfo",
    "ibstat",
    "ibstatus",
    "show_gids",
    "sudo",
];
/// Texts.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// The default prefix.
const PREFIX: &str = "/usr/local";

/// The parsed arguments.
struct Options {
    prefix: PathBuf,
    source: Source,
}

/// The origin of the files.
enum Source {
    /// Built now, with this profile.
    Profile(String),
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
            [option, folder] if option == "--built" => {
                options.source = Source::Built(root().join(folder));
            }
            _ => bail!(
                "unknown arguments {arguments:?}; allowed: [--prefix FOLDER] (install) \
                 [--profile PROFILE | --built FOLDER]"
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
    writable(&prefix)?;
    let built = source.folder(runner)?;
    stage(&built, &prefix).with_context(|| writing(&prefix))?;
    println!("\ninstalled: {}", prefix.join("bin/urxe").display());
    Ok(())
}

/// Installs into `prefix` what is in the folder `built`, or a new build with this profile. Returns
/// the path of `urxe`.
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
    stage(&built, prefix).with_context(|| writing(prefix))?;
    Ok(prefix.join("bin/urxe"))
}

/// Makes `target/packages/urxe-VERSION-MACHINE.tar.gz`, and where dpkg-deb is,
/// `urxe_VERSION_MACHINE.deb`.
pub fn package(arguments: &[String], runner: &mut Runner) -> Result<()> {
    let Options { source, .. } = options(arguments, false)?;
    let built = source.folder(runner)?;
    let (place, version) = (target_folder().join("packages"), env!("CARGO_PKG_VERSION"));
    let name = format!("urxe-{version}-{}", std::env::consts::ARCH);
    let tree = place.join(&name);
    remade(&tree).and_then(|()| stage(&built, &tree)).with_context(|| writing(&tree))?;
    let archive = place.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&place).args(["--owner=0", "--group=0", "--numeric-owner", "-czf"]);
    runner.run(tar.arg(&archive).arg(&name))?;

    let tree = place.join("deb");
    let control = format!(
        "Package: urxe\nVersion: {version}\nArchitecture: {}\nSection: net\nPriority: optional\n\
         Maintainer: The developers of urxe <urxe@localhost>\n\
         Depends: libc6 (>= 2.34), libgcc-s1\nSuggests: ibverbs-utils, perftest\n\
         Homepage: {}\nDescription: RDMA in userspace (RoCEv2 over UDP)\n \
         Runs programs that were linked against libibverbs without RDMA hardware, kernel module\n \
         or root, and speaks with the kernel's rdma_rxe. The system's libibverbs stays as it is.\n",
        debian_architecture(),
        env!("CARGO_PKG_REPOSITORY"),
    );
    let staged = remade(&tree).and_then(|()| stage(&built, &tree.join("usr"))).and_then(|()| {
        fs::create_dir_all(tree.join("DEBIAN"))?;
        fs::write(tree.join("DEBIAN/control"), control)
    });
    staged.with_context(|| writing(&tree))?;
    let package = place.join(format!("urxe_{version}_{}.deb", debian_architecture()));
    // Gzip is understood by every dpkg, and quick.
    let mut debian = Command::new("dpkg-deb");
    debian.args(["--root-owner-group", "-Zgzip", "--build"]).args([&tree, &package]);
    runner.run(&mut debian)?;
    println!("\npackages: {}\n          {}", archive.display(), package.display());
    Ok(())
}

/// Returns Debian's name of this architecture.
fn debian_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Source {
    /// Returns the folder with the files to install, built if need be.
    fn folder(self, runner: &mut Runner) -> Result<PathBuf> {
        let profile = match self {
            Self::Built(folder) => return complete(folder),
            Self::Profile(profile) => profile,
        };
        let packages = ["-p", "urxe-tools", "-p", "urxe-abi", "-p", "urxe-sysfs"];
        runner.run(cargo(["build", "--profile", &profile]).args(packages))?;
        Ok(target_folder().join(if profile == "dev" { "debug" } else { &profile }))
    }
}

/// Returns `folder` if it contains all files.
fn complete(folder: PathBuf) -> Result<PathBuf> {
    if let Some((name, ..)) = BUILT.iter().find(|(name, ..)| !folder.join(name).is_file()) {
        bail!(
            "there is no {}; give --built the folder that cargo build --workspace has filled, such \
             as target/release",
            folder.join(name).display()
        );
    }
    Ok(folder)
}

fn remade(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(folder)
}

/// Copies all files below `prefix`. Each file replaces an old one atomically, because programs may
/// be using the old file.
fn stage(built: &Path, prefix: &Path) -> io::Result<()> {
    let put = |from: &Path, to: &str, mode: u32| -> io::Result<()> {
        let to = prefix.join(to);
        fs::create_dir_all(to.parent().unwrap_or(prefix))?;
        let fresh = to.with_extension("fresh");
        fs::copy(from, &fresh)?;
        if mode == EXECUTABLE || to.extension().is_some_and(|ending| ending == "so") {
            strip(&fresh);
        }
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
        fs::rename(&fresh, &to)
    };
    for (name, to, mode) in BUILT {
        put(&built.join(name), to, mode)?;
    }
    for name in DOCUMENTS {
        put(&root().join(name), &format!("share/doc/urxe/{name}"), 0o644)?;
    }
    link(&prefix.join("lib/urxe"), &LINKS, "liburxe.so")?;
    let commands = prefix.join("libexec/urxe/bin");
    fs::create_dir_all(&commands)?;
    link(&commands, &COMMANDS, "../../../bin/urxe")
}

/// Makes links of these names to `target` in a folder.
fn link(folder: &Path, names: &[&str], target: &str) -> io::Result<()> {
    let fresh = folder.join(".fresh");
    for name in names {
        let _left_by_one_that_was_killed = fs::remove_file(&fresh);
        symlink(target, &fresh)?;
        fs::rename(&fresh, folder.join(name))?;
    }
    Ok(())
}

/// Checks that files can be made in the folders below `prefix`, and makes the folders.
fn writable(prefix: &Path) -> Result<()> {
    for folder in BUILT.map(|(_, to, _)| prefix.join(to)).iter().filter_map(|to| to.parent()) {
        let probe = folder.join(format!(".urxe-{}", std::process::id()));
        let made = fs::create_dir_all(folder).and_then(|()| fs::write(&probe, ""));
        if let Err(error) = made.and_then(|()| fs::remove_file(&probe)) {
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; use: cargo xtask install --prefix ~/.local, or run the command as root"
                }
                _ => "",
            };
            bail!("cannot write into {}: {error}{advice}", folder.display());
        }
    }
    Ok(())
}

/// Removes debug information, which is most of a file. Without binutils, the file stays unchanged.
fn strip(file: &Path) {
    let _stays =
        Command::new("strip").arg("--strip-debug").arg(file).stderr(Stdio::null()).status();
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

    #[test]
    fn every_small_command_has_a_link() {
        let table = root().join("tools/urxe/src/cmd/applets/mod.rs");
        let table = fs::read_to_string(table).unwrap();
        let names: Vec<&str> = table
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Applet { name: \""))
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert_eq!(names, COMMANDS);
    }
}
