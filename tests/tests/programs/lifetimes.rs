//! Lifetimes of objects in a C program: devices opened and closed under valgrind, objects left
//! behind, objects inherited by children, threads cancelled. A program with two copies of the
//! library is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::install::{EXPECTED, compile, compile_as, install, ok, passes, text_of};
use crate::pair::exclusive;

fn compiled() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("lifetimes"))
}

#[track_caller]
fn lives(address: &str, before: &str, what: &str) {
    let _exclusive = exclusive();
    let program = compiled().display();
    let words = format!("--link rxe0={address} -- timeout 120 {before} {program} {what}");
    let output = install().run(&words).env("UNDER_VALGRIND", before).output().unwrap();
    assert!(output.status.success() && text_of(&output).contains(EXPECTED), "{}", text_of(&output));
}

#[test]
fn objects_of_a_context_end_with_it() {
    lives("127.79.0.9", "", "leftovers");
}

#[test]
fn a_child_uses_inherited_objects_for_calls_that_move_no_data() {
    lives("127.79.0.10", "", "inherited");
}

#[test]
fn nothing_is_left_of_a_closed_device() {
    lives("127.79.0.11", "", "cycles");
    let kinds = "--show-leak-kinds=definite,possible --errors-for-leak-kinds=definite,possible";
    let valgrind = format!("valgrind --leak-check=full {kinds} --error-exitcode=9");
    lives("127.79.0.11", &valgrind, "cycles");
}

#[test]
fn destroying_identifiers_and_channels_waits_for_unacknowledged_events() {
    let _exclusive = exclusive();
    passes("--link rxe0=127.79.0.12", &compile("cm_lifetimes"), "127.79.0.12");
}

#[test]
fn cancelled_threads_end_and_leave_the_objects_usable() {
    let _exclusive = exclusive();
    let program = compile("cancel");
    passes("--link rxe0=127.79.0.14", &program, "");
    // The library also writes a file then.
    let capture = install().path("home/cancel.pcapng");
    let words = format!("--link rxe0=127.79.0.14 -- timeout 120 {}", program.display());
    let output = install().run(&words).env("URXE_CAPTURE", &capture).output().unwrap();
    assert!(output.status.success() && text_of(&output).contains(EXPECTED), "{}", text_of(&output));
    assert!(fs::metadata(&capture).unwrap().len() > 0);
}

#[test]
fn two_copies_of_the_library_are_refused_at_loading() {
    let folder = install().path("copies");
    fs::create_dir_all(&folder).unwrap();
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        fs::copy(install().path("lib/liburxe.so"), folder.join(name)).unwrap();
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let mut program = install().user("ib_write_bw");
    let output = program.env("LD_LIBRARY_PATH", &folder).arg("--version").output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", text_of(&output));
    let text = text_of(&output);
    assert!(
        text.contains("copies/libibverbs.so.1 and") && text.contains("are both loaded"),
        "{text}"
    );
}

#[test]
fn names_without_a_version_are_of_the_same_library() {
    let program = compile_as("two_copies", "bin/two_copies", &["-ldl"]);
    let words = format!(
        "--link rxe0=127.79.0.44 -- {} libibverbs.so librdmacm.so libibverbs.so.1 librdmacm.so.1",
        program.display()
    );
    let output = install().run(&words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "opened\n".repeat(4), "{}", text_of(&output));
}

#[test]
fn two_copies_of_wheels_in_a_process_are_refused_with_both_paths() {
    let package = install().path("lib/liburxe.so");
    // The names that packers of wheels give.
    let [first, second] = ["1a2b3c4d", "5e6f7a8b"].map(|hash| {
        let wheel = install().path(&format!("lib/liburxe-{hash}.so"));
        fs::copy(&package, &wheel).unwrap();
        wheel
    });
    let program = compile_as("two_copies", "bin/two_copies", &["-ldl"]);
    let run = |copies: [&PathBuf; 2]| {
        let mut command = install().user(&program);
        command.args(copies).env("URXE_DEVICES", "rxe0=127.79.0.42");
        command
    };
    let output = run([&first, &second]).output().unwrap();
    let text = text_of(&output);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "opened\nDevice or resource busy\n", "{text}");
    for path in [&first, &second] {
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
    assert!(text.contains("this process has two copies of urxe"), "{text}");
    // A library of the system that is loaded later is found at the next list of devices.
    let system = PathBuf::from("/usr/lib/x86_64-linux-gnu/libibverbs.so.1");
    let output = run([&package, &system]).arg(&package).output().unwrap();
    let text = text_of(&output);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "opened\nno device\nno device\n", "{text}");
    for part in [&package, &system].map(|path| path.display().to_string()) {
        assert!(text.contains(&part) && text.contains("are both loaded"), "{part}: {text}");
    }
    // The loader's check knows the name of the package's library.
    let text = text_of(&run([&package, &second]).output().unwrap());
    assert!(text.starts_with("exit status: 127\n"), "{text}");
    for path in [&package, &second] {
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
    // The same copy twice is one library.
    assert_eq!(ok(&mut run([&first, &first])), "opened\nopened\n");
}
