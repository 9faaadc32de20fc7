//! Debian packages: the tree of the archive below `/usr`, and its debug information as
//! `urxe-dbgsym`. If lintian is installed, it must find no error and no warning.
//!
//! | file of the package | from |
//! |---|---|
//! | `usr/share/doc/urxe/changelog.gz` | the version and the date of the last commit |
//! | `usr/share/doc/urxe/copyright` | `copyright` |
//! | `usr/share/zsh/vendor-completions/_urxe` | the tree's `site-functions` |
//! | `usr/share/man/…/….gz` | the tree's pages |
//! | `DEBIAN/control` | its `Depends` follows from the versions of symbols |
//! | `DEBIAN/prerm` | undoes `urxe install --system-wide` |

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::elf::{self, Machine};
use super::tree::Split;
use super::{commit, remade, writing};
use crate::machine::succeeds;
use crate::run::Runner;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const MAINTAINER: &str = "The urxe authors <urxe@users.noreply.github.com>";
/// The script that dpkg runs before it removes the package. Without it, the loader would have a
/// folder in its configuration that any later package could fill.
const PRERM: &str = "\
#!/bin/sh
set -e
list=/etc/ld.so.conf.d/00-urxe.conf
if [ \"$1\" = remove ] && grep -qx /usr/lib/urxe \"$list\" 2>/dev/null; then
\turxe uninstall --system-wide
fi
";
/// Files of the archive that the package has in another form.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Makes both packages. Returns their paths.
pub fn packages(
    place: &Path,
    tree: &Path,
    files: &[Split],
    machine: Machine,
    runner: &mut Runner,
) -> Result<Vec<PathBuf>> {
    let (main, debug) = (place.join("deb"), place.join("deb-dbgsym"));
    let depends = depends(files)?;
    usr(tree, &main, runner)?;
    debug_tree(&debug, files).with_context(|| writing(&debug))?;
    let head = |package: &str, tree: &Path| -> Result<String> {
        let size = size(tree).with_context(|| format!("read {}", tree.display()))?;
        Ok(format!(
            "Package: {package}\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {}\nPriority: optional\nHomepage: {}\n",
            machine.debian,
            size.div_ceil(1024),
            env!("CARGO_PKG_REPOSITORY"),
        ))
    };
    let control = format!(
        "{}Section: net\nDepends: {depends}\nSuggests: ibverbs-utils, perftest, man-db\n\
         Description: RDMA in userspace (RoCEv2 over UDP)\n \
         Runs programs that were linked against libibverbs without RDMA hardware,\n \
         kernel module or root, and speaks with the kernel's rdma_rxe. The system's\n \
         libibverbs stays as it is.\n",
        head("urxe", &main)?
    );
    let ids: Vec<&str> = files.iter().map(|file| &*file.build_id).collect();
    let debug_control = format!(
        "{}Source: urxe\nAuto-Built-Package: debug-symbols\nSection: debug\n\
         Depends: urxe (= {VERSION})\nBuild-Ids: {}\nDescription: debug symbols for urxe\n",
        head("urxe-dbgsym", &debug)?,
        ids.join(" "),
    );
    let mut made = Vec::new();
    for (tree, control, script) in [(&main, control, Some(PRERM)), (&debug, debug_control, None)] {
        meta(tree, &control, script, runner)?;
        let name = control.lines().next().and_then(|line| line.strip_prefix("Package: "));
        let name = format!("{}_{VERSION}_{}.deb", name.unwrap_or_default(), machine.debian);
        let package = place.join(name);
        // Gzip is understood by every dpkg, and quick.
        let mut debian = Command::new("dpkg-deb");
        debian.env("SOURCE_DATE_EPOCH", commit("%ct"));
        debian.args(["--root-owner-group", "-Zgzip", "--build"]).args([tree, &package]);
        runner.run(&mut debian)?;
        made.push(package);
    }
    lint(&made, runner)?;
    Ok(made)
}

/// Checks the packages.
fn lint(packages: &[PathBuf], runner: &mut Runner) -> Result<()> {
    if !succeeds("lintian", &["--version"]) {
        println!("\nthe packages are not checked, because lintian is not installed");
        return Ok(());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    runner.run(lintian.args(packages))
}

/// Returns the packages of the libraries that the files need, each with its lowest version.
fn depends(files: &[Split]) -> Result<String> {
    let paths: Vec<&Path> = files.iter().map(|split| &*split.file).collect();
    let found = elf::dependencies(&paths)?;
    let text = found.iter().map(|(package, version)| {
        let version: Vec<String> = version.iter().map(u32::to_string).collect();
        match version.is_empty() {
            true => (*package).to_owned(),
            false => format!("{package} (>= {})", version.join(".")),
        }
    });
    Ok(text.collect::<Vec<_>>().join(", "))
}

/// Copies the tree of the archive below `usr`, in the form that Debian asks for.
fn usr(tree: &Path, package: &Path, runner: &mut Runner) -> Result<()> {
    let usr = package.join("usr");
    remade(package).with_context(|| writing(package))?;
    runner.run(Command::new("cp").arg("-a").args([tree, &usr]))?;
    let share = usr.join("share");
    let document = share.join("doc/urxe");
    let changed = LICENCES.iter().try_for_each(|name| fs::remove_file(document.join(name)));
    let changed = changed
        .and_then(|()| {
            fs::rename(share.join("zsh/site-functions"), share.join("zsh/vendor-completions"))
        })
        .and_then(|()| {
            let text = format!(
                "urxe ({VERSION}) unstable; urgency=medium\n\n  \
                 * See /usr/share/doc/urxe/CHANGELOG.md.\n\n -- {MAINTAINER}  {}\n",
                commit("%cD")
            );
            fs::write(document.join("changelog"), text)
        });
    changed.with_context(|| writing(&share))?;
    let mut gzip = Command::new("gzip");
    gzip.args(["-9n", "-r"]).arg(share.join("man")).arg(document.join("changelog"));
    runner.run(&mut gzip)
}

/// Makes the tree of the debug information, where debuggers find each file by its identifier.
fn debug_tree(package: &Path, files: &[Split]) -> io::Result<()> {
    remade(package)?;
    for Split { debug, build_id, .. } in files {
        let folder = package.join("usr/lib/debug/.build-id").join(&build_id[..2]);
        fs::create_dir_all(&folder)?;
        fs::copy(debug, folder.join(debug.file_name().unwrap_or_default()))?;
    }
    let documents = package.join("usr/share/doc");
    fs::create_dir_all(&documents)?;
    symlink("urxe", documents.join("urxe-dbgsym"))
}

/// Adds the control files to a tree.
fn meta(tree: &Path, control: &str, prerm: Option<&str>, runner: &mut Runner) -> Result<()> {
    runner.run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree.join("usr")))?;
    let folder = tree.join("DEBIAN");
    let write = || -> io::Result<()> {
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        fs::write(folder.join("control"), control)?;
        if let Some(script) = prerm {
            let file = folder.join("prerm");
            fs::write(&file, script)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    };
    write().with_context(|| writing(&folder))?;
    // md5sum prints each file as dpkg reads it.
    let sums = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums";
    runner.run(Command::new("sh").args(["-c", sums]).current_dir(tree))
}

/// Returns the bytes of the files of a tree.
fn size(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        sum += match kind.is_dir() {
            true => size(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(sum)
}
