//! The packages of `cargo xtask package`, unpacked to a folder and used from there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::install::{install, ok};

/// Makes both packages from the build of the other tests. Returns their folder.
fn packages() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "-q", "-p", "xtask", "--", "package", "--built"]).arg(&install().built);
    let text = ok(command.current_dir(env!("CARGO_MANIFEST_DIR")));
    let archive = text
        .lines()
        .find_map(|line| line.strip_prefix("packages: "))
        .unwrap_or_else(|| panic!("{text}"));
    Path::new(archive).parent().unwrap().to_owned()
}

/// Returns the file of a folder whose name has this begin and this end.
fn only(folder: &Path, begin: &str, end: &str) -> PathBuf {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let found: Vec<String> =
        names.filter(|name| name.starts_with(begin) && name.ends_with(end)).collect();
    assert_eq!(found.len(), 1, "{begin}…{end}: {found:?}");
    folder.join(&found[0])
}

/// Checks that a program runs with this `urxe` and this library.
#[track_caller]
fn serves(urxe: &Path, library: &Path) {
    let mut devices = install().user(urxe);
    assert!(ok(devices.args(["run", "--", "ibv_devices"])).contains("rxe0"));
    let text = ok(install().user(urxe).arg("env"));
    let folder = fs::canonicalize(library).unwrap();
    let folder = folder.display();
    for line in [
        format!("export LD_LIBRARY_PATH='{folder}'"),
        format!("export LD_PRELOAD='{folder}/libibverbs.so.1:{folder}/liburxe_sysfs.so'"),
    ] {
        assert!(text.lines().any(|text| text == line), "{line}\n{text}");
    }
}

/// Checks the files below a prefix that are no programs.
#[track_caller]
fn has_texts(prefix: &Path, ending: &str, zsh: &str) {
    let pages = ["man1/urxe.1", "man1/urxe-run.1", "man7/urxe-environment.7", "man7/liburxe.7"];
    let mut files = pages.map(|page| format!("man/{page}{ending}")).to_vec();
    files.extend(
        ["bash-completion/completions/urxe", zsh, "fish/vendor_completions.d/urxe.fish"]
            .map(str::to_owned),
    );
    files.push("doc/urxe/copyright".to_owned());
    for file in files {
        assert!(prefix.join("share").join(&file).is_file(), "{file}");
    }
}

#[test]
fn archive_and_debian_package_work_wherever_they_are_unpacked() {
    let packages = packages();
    let scratch = TempDir::with_prefix("urxe-packages-").unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let place = scratch.path().join("moved/twice");
    fs::create_dir_all(&place).unwrap();
    let machine = std::env::consts::ARCH;
    for ending in [format!("-{machine}.tar.gz"), format!("-{machine}-debug.tar.gz")] {
        let archive = only(&packages, "urxe-", &ending);
        ok(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&place));
    }
    // Both archives are one folder.
    let folder = only(&place, "urxe-", machine);
    serves(&folder.join("bin/urxe"), &folder.join("lib/urxe"));
    has_texts(&folder, "", "zsh/site-functions/_urxe");
    let debug = only(&folder.join("bin/.debug"), "", ".debug");
    // A checksum follows the name.
    let mut readelf = Command::new("readelf");
    let link = readelf.arg("-p.gnu_debuglink").arg(folder.join("bin/urxe")).output().unwrap();
    let link = String::from_utf8_lossy(&link.stdout);
    assert!(link.contains(debug.file_name().unwrap().to_str().unwrap()), "{link}");

    let (package, root) = (only(&packages, "urxe_", ".deb"), scratch.path().join("root"));
    ok(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root));
    serves(&root.join("usr/bin/urxe"), &root.join("usr/lib/urxe"));
    has_texts(&root.join("usr"), ".gz", "zsh/vendor-completions/_urxe");
    // No file of the package replaces a library of the system.
    let listed = ok(Command::new("dpkg-deb").arg("-c").arg(&package));
    let libraries: Vec<&str> = listed.lines().filter(|line| line.contains(".so")).collect();
    assert_eq!(libraries.len(), 6, "{listed}");
    assert!(libraries.iter().all(|line| line.contains("./usr/lib/urxe/")), "{listed}");
    let control = ok(Command::new("dpkg-deb").arg("-f").arg(&package));
    for field in ["Depends: libc6 (>= 2.", "Homepage: https://", "Installed-Size: "] {
        assert!(control.contains(field), "{field} in\n{control}");
    }
    let dbgsym = only(&packages, "urxe-dbgsym_", ".deb");
    let listed = ok(Command::new("dpkg-deb").arg("-c").arg(&dbgsym));
    assert_eq!(listed.matches(".debug\n").count(), 3, "{listed}");
}
