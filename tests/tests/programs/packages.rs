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

fn with_ending(folder: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<PathBuf> =
        files.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
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

#[test]
fn archive_and_debian_package_work_wherever_they_are_unpacked() {
    let packages = packages();
    let scratch = TempDir::with_prefix("urxe-packages-").unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let place = scratch.path().join("moved/twice");
    fs::create_dir_all(&place).unwrap();
    ok(Command::new("tar")
        .arg("-xzf")
        .arg(with_ending(&packages, ".tar.gz"))
        .arg("-C")
        .arg(&place));
    let folder = with_ending(&place, std::env::consts::ARCH);
    serves(&folder.join("bin/urxe"), &folder.join("lib/urxe"));

    let (package, root) = (with_ending(&packages, ".deb"), scratch.path().join("root"));
    ok(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root));
    serves(&root.join("usr/bin/urxe"), &root.join("usr/lib/urxe"));
    // No file of the package replaces a library of the system.
    let listed = ok(Command::new("dpkg-deb").arg("-c").arg(&package));
    let libraries: Vec<&str> = listed.lines().filter(|line| line.contains(".so")).collect();
    assert_eq!(libraries.len(), 6, "{listed}");
    assert!(libraries.iter().all(|line| line.contains("./usr/lib/urxe/")), "{listed}");
}
