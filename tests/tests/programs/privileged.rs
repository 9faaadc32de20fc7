//! Programs with more rights than their callers, files of other users, and names of processes with
//! control characters.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

use urxe_tests::process::KillOnDrop;

use crate::install::{NOBODY, compile, compile_as, install, is_root, ok, text_of};

/// A third user.
const OTHER: u32 = 65_533;

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

#[test]
fn a_capture_in_the_file_of_another_user_is_refused() {
    if !can_be_others() {
        return;
    }
    let folder = folder("home/others", NOBODY.0);
    let [victim, link, foreign, own] =
        ["victim", "link", "foreign", "own"].map(|name| folder.join(name));
    file(&victim, NOBODY.0, 0o600);
    file(&foreign, OTHER, 0o666);
    file(&own, NOBODY.0, 0o644);
    symlink(&victim, &link).unwrap();
    let program = program("bin/opens");
    let run = |file: &Path| {
        let words = format!("--link rxe0=127.79.0.41 --capture {} --", file.display());
        install().run(&format!("{words} {}", program.display())).output().unwrap()
    };
    for (file, why) in [
        (&link, "it is a symbolic link, which may lead to any file; remove it".to_owned()),
        (&foreign, format!("it belongs to user {OTHER}, and this program runs as user 65534")),
    ] {
        let text = text_of(&run(file));
        let error = format!("URXE_CAPTURE: cannot write {}: {why}", file.display());
        assert!(text.contains(&error) && text.contains("not opened"), "{text}");
    }
    for file in [&victim, &foreign] {
        assert_eq!(fs::read_to_string(file).unwrap(), "precious", "{}", file.display());
    }
    for file in [&own, &folder.join("new")] {
        let text = text_of(&run(file));
        assert!(text.contains(", opened"), "{text}");
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "{text}");
        assert_eq!(fs::read(file).unwrap()[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a pcapng file");
    }
}

#[test]
fn the_list_and_the_links_of_another_user_are_not_changed() {
    if !can_be_others() {
        return;
    }
    let home = folder("home-of-list", OTHER);
    fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
    let inside = folder("home-of-list/urxe", OTHER);
    fs::set_permissions(&inside, Permissions::from_mode(0o777)).unwrap();
    let list = inside.join("links");
    file(&list, OTHER, 0o666);
    fs::write(&list, "").unwrap();
    let urxe = || install().user(install().path("bin/urxe"));
    let mut add = urxe();
    let output =
        add.args(["link", "add", "mine", "127.0.0.9"]).env("XDG_CONFIG_HOME", &home).output();
    let text = text_of(&output.unwrap());
    assert!(text.contains(&format!("urxe: cannot write {}", home.display())), "{text}");
    assert!(text.contains(&format!("belongs to user {OTHER}")), "{text}");
    assert_eq!(fs::read_to_string(&list).unwrap(), "");

    // The loader takes code from the folder in the cache.
    let mut env = urxe();
    env.arg("env").env("XDG_CACHE_HOME", &home).env("URXE_LIBRARY", copy_of_library());
    let text = text_of(&env.output().unwrap());
    assert!(text.contains("cannot write") && text.contains("belongs to user"), "{text}");
}

/// Returns the library at a place without links beside it.
fn copy_of_library() -> PathBuf {
    let copy = install().path("alone/liburxe.so");
    fs::create_dir(copy.parent().unwrap()).unwrap();
    fs::copy(install().path("lib/liburxe.so"), &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    copy
}

#[test]
fn a_name_with_control_characters_reaches_no_terminal() {
    const NAME: &str = "\x1b[31m\x1b]0;own\x07x";
    const SHOWN: &str = "(\\u001b[31m\\u001b]0;own\\u0007x)";
    const LINK: &str = "rxe0=127.79.0.42";
    let program = compile("privileged");
    let mut holder: Command = install().run(&format!("--link {LINK} -- {}", program.display()));
    holder.arg(NAME).stdin(Stdio::piped()).stdout(Stdio::piped());
    if is_root() {
        // A process of another user also appears in an error.
        let home = folder("home-of-name", OTHER);
        holder.env("HOME", home).uid(OTHER).gid(OTHER);
    }
    let mut holder = KillOnDrop(holder.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("rxe0, opened"), "{line}");

    let mut show = install().user(install().path("bin/urxe"));
    let listing = ok(show.args(["link", "show"]).env("URXE_DEVICES", LINK));
    assert!(listing.contains(SHOWN) && !listing.contains('\x1b'), "{listing:?}");
    if is_root() {
        let output = install().run(&format!("--link {LINK} -- ibv_devinfo")).output().unwrap();
        let text = text_of(&output);
        assert!(text.contains(SHOWN) && !text.contains('\x1b'), "{text:?}");
    }
}
