//! The files of an installation below its prefix.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::elf::{self, Elf, Machine};
use super::writing;
use crate::run::{Runner, root};

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

/// A built file of a tree, with its debug information in another file.
pub struct Split {
    /// The installed file.
    pub file: PathBuf,
    /// The debug information.
    pub debug: PathBuf,
    /// The identifier of the build, in hexadecimal digits.
    pub build_id: String,
}

/// Returns `folder` if it contains all files.
pub fn complete(folder: PathBuf) -> Result<PathBuf> {
    if let Some((name, ..)) = BUILT.iter().find(|(name, ..)| !folder.join(name).is_file()) {
        bail!(
            "there is no {}; give --built the folder that cargo build --workspace has filled, such \
             as target/release",
            folder.join(name).display()
        );
    }
    Ok(folder)
}

/// Copies all files below `prefix`. Each file replaces an old one atomically, because programs may
/// be using the old file.
pub fn stage(built: &Path, prefix: &Path) -> io::Result<()> {
    let put = |from: &Path, to: &str, mode: u32| -> io::Result<()> {
        let to = prefix.join(to);
        fs::create_dir_all(to.parent().unwrap_or(prefix))?;
        let fresh = to.with_extension("fresh");
        fs::copy(from, &fresh)?;
        if mode == EXECUTABLE || to.extension().is_some_and(|ending| ending == "so") {
            without_debug(&fresh);
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

/// Replaces the built files of a staged tree by files without symbols. Their debug information goes
/// below `debug`, to the places where debuggers look for it: the folder `.debug` beside each file.
pub fn strip(
    built: &Path,
    tree: &Path,
    debug: &Path,
    machine: Machine,
    runner: &mut Runner,
) -> Result<Vec<Split>> {
    let mut files = Vec::new();
    for (name, to, mode) in BUILT {
        let (from, file) = (built.join(name), tree.join(to));
        let Some(build_id) = Elf::read(&from)?.build_id else {
            bail!(
                "{} has no build identifier, by which debuggers find its symbols; build with: \
                 RUSTFLAGS=-Clink-arg=-Wl,--build-id",
                from.display()
            );
        };
        // The name is that of dh_strip.
        let hidden = debug.join(to).with_file_name(".debug");
        fs::create_dir_all(&hidden).with_context(|| writing(&hidden))?;
        let debug = hidden.join(format!("{}.debug", &build_id[2..]));
        elf::split(&from, &file, &debug, machine, runner)?;
        for (path, mode) in [(&file, mode), (&debug, 0o644)] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(path, mode).with_context(|| writing(path))?;
        }
        files.push(Split { file, debug, build_id });
    }
    Ok(files)
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
pub fn writable(prefix: &Path) -> Result<()> {
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
fn without_debug(file: &Path) {
    let _stays =
        Command::new("strip").arg("--strip-debug").arg(file).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

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
