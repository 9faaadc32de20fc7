//! Programs with more rights than their callers.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::install::{compile_as, install, is_root};

/// Returns whether the tests run as root, and prints that a test is skipped otherwise.
fn can_be_others() -> bool {
    if !is_root() {
        eprintln!("skipped: only root makes files of other users and setuid programs");
    }
    is_root()
}

/// Compiles a program that finds the library without `LD_LIBRARY_PATH`, which the loader ignores
/// for setuid programs.
fn program(place: &str) -> PathBuf {
    static LINK: Once = Once::new();
    let folder = install().path("lib");
    LINK.call_once(|| symlink("liburxe.so", folder.join("libibverbs.so.1")).unwrap());
    let path = format!("-Wl,-rpath,{}", folder.display());
    compile_as("privileged", place, &["-Wl,--as-needed", "-libverbs", &path])
}

/// Makes a folder of a user, closed to others.
fn folder(name: &str, user: u32) -> PathBuf {
    let folder = install().path(name);
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    chown(&folder, Some(user), Some(user)).unwrap();
    folder
}

/// Makes a file of a user with these rights and a text.
fn file(path: &Path, user: u32, mode: u32) {
    fs::write(path, "precious").unwrap();
    chown(path, Some(user), Some(user)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_setuid_program_ignores_the_variables_of_its_caller() {
    if !can_be_others() {
        return;
    }
    let program = program("bin/setuid");
    let secret = folder("root-only", 0).join("secret");
    file(&secret, 0, 0o600);
    let log = install().path("home/log");
    let run = |capture: &Path| {
        let mut command = install().user(&program);
        command.env("URXE_CAPTURE", capture).env("URXE_DEVICES", "mine=127.79.0.40");
        let output = command.env("URXE_LOG", "trace").env("SYSFS_PATH", "/x").output().unwrap();
        let texts = [output.stdout, output.stderr];
        texts.map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    let [said, logged] = run(&log);
    assert_eq!(said, "secure 0, device mine, opened\n");
    assert!(!logged.is_empty() && log.exists(), "the variables work without more rights");

    // The kernel clears the bit when the owner changes.
    chown(&program, Some(0), Some(0)).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    fs::remove_file(&log).unwrap();
    for capture in [&secret, &log] {
        let [said, logged] = run(capture);
        assert!(said.starts_with("secure 1, device rxe0"), "{said}");
        assert!(!logged.contains("TRACE") && !logged.contains("DEBUG"), "{logged}");
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "precious");
    assert!(!log.exists());
}
