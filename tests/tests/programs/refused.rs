//! Programs that `urxe run` refuses, with the reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::{install, ok, text_of};

#[track_caller]
fn refused(words: &str, why: &str) {
    let output = install().run(words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text_of(&output));
    assert!(text_of(&output).contains(why), "{}", text_of(&output));
}

#[test]
fn a_program_that_is_not_there() {
    refused(
        "-- no-such-program",
        "there is no program no-such-program in PATH; install it, or give its path",
    );
}

#[test]
fn a_program_with_rights_of_its_own() {
    // Debian's package passwd is essential, so it is always installed.
    assert!(Path::new("/usr/bin/passwd").exists());
    refused("-- passwd", "runs as another user or group");
}

#[test]
fn a_static_program_runs_with_a_note() {
    // Debian's ldconfig is static, because it must run when no library can be loaded.
    let mut run = install().run("-- /sbin/ldconfig --version");
    let text = text_of(&run.output().unwrap());
    assert!(text.contains("note: /sbin/ldconfig is statically linked, so urxe serves"), "{text}");
    ok(&mut run);
}

/// Makes an executable file with these bytes. Returns the words of a run.
fn file(name: &str, bytes: &[u8]) -> String {
    let path = install().path(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("-- {}", path.display())
}

#[test]
fn files_that_the_kernel_does_not_start() {
    let path = |name: &str| install().path(name).display().to_string();
    let script = file("bin/script", b"echo hello\n");
    refused(&script, &format!("such as: urxe run -- sh {}", path("bin/script")));
    ok(&mut install().run(&format!("-- sh {}", path("bin/script"))));
    let script = file("bin/lost", b"#!/nowhere/python2 -E\nprint 1\n");
    refused(&script, "names the interpreter /nowhere/python2, which does not exist");
    let script = file("bin/lost-env", b"#!/usr/bin/env no-such-program\n");
    refused(&script, "names the interpreter no-such-program, which does not exist");
    refused(&file("bin/data", b"\x01\x00\x02"), "is not a program of Linux");
    refused("-- ./no-such-program", "there is no program ./no-such-program; check the path");
    refused(&format!("-- {}", path("lib")), "is a folder");
    let text = file("bin/text", b"#!/bin/sh\n");
    fs::set_permissions(path("bin/text"), fs::Permissions::from_mode(0o644)).unwrap();
    refused(&text, &format!("is not executable; make it so (chmod +x {})", path("bin/text")));
    let script = file("bin/good", b"#!/usr/bin/env -S sh -e\necho served $0\n");
    assert_eq!(ok(&mut install().run(&script)), format!("served {}\n", path("bin/good")));
    let mut line = install().run("--");
    let text = text_of(&line.arg("ls -l").output().unwrap());
    assert!(text.contains("for a command line, use: urxe run -- sh -c 'ls -l'"), "{text}");
}

#[test]
fn programs_for_other_machines() {
    let mut bytes = fs::read("/bin/true").unwrap();
    // e_machine: RISC-V.
    bytes[18] = 243;
    refused(&file("bin/riscv", &bytes), "is a program for");
    bytes[18] = 3;
    bytes[4] = 1;
    refused(&file("bin/i386", &bytes), "is a 32-bit program");
    let mut bytes = fs::read("/bin/true").unwrap();
    let loader = bytes.windows(12).position(|part| part == b"/lib64/ld-li").unwrap();
    bytes[loader + 1..loader + 6].copy_from_slice(b"lib65");
    refused(&file("bin/no-loader", &bytes), "needs the loader /lib65/ld-linux");
    if Path::new("/lib/ld-musl-x86_64.so.1").exists() {
        let end = loader + b"/lib64/ld-linux-x86-64.so.2".len();
        bytes[loader..end].copy_from_slice(b"/lib/ld-musl-x86_64.so.1\0\0\0");
        refused(&file("bin/musl", &bytes), "is linked against the C library musl");
    } else {
        eprintln!("skipped: musl is not installed");
    }
}

#[test]
fn programs_that_remove_the_variables() {
    refused("-- env -i true", "env -i removes the variables");
    refused("-- env -u LD_PRELOAD true", "put urxe run behind it");
    ok(&mut install().run("-- env A=1 true"));
    let script = file("bin/cleared", b"#!/usr/bin/env -S -i sh\n");
    refused(&script, "env -i removes the variables");
    let sudo = file("bin/sudo", b"#!/bin/sh\n");
    refused(&sudo, &format!("sudo {} run -- PROGRAM", install().path("bin/urxe").display()));
    let docker = file("bin/docker", b"#!/bin/sh\necho $*\n");
    let output = install().run(&format!("{docker} run debian")).output().unwrap();
    let text = text_of(&output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "run debian\n", "{text}");
    assert!(text.contains("programs in a container do not see urxe; install urxe"), "{text}");
}

#[test]
fn a_library_that_is_not_there() {
    let output = install()
        .run("-- ibv_devices")
        .env("URXE_LIBRARY", "/nowhere/liburxe.so")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = text_of(&output);
    let expected = "cannot read /nowhere/liburxe.so, to which URXE_LIBRARY is set";
    assert!(text.contains(expected), "{text}");
}

/// Compiles a program in a folder of its own, linked with a library there whose name is `soname`.
fn linked_with(soname: &str, options: &[&str]) -> PathBuf {
    let folder = install().path(&format!("refused-{soname}{}", options.len()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let [library, program] = [folder.join(soname), folder.join("program")];
    fs::write(folder.join("library.c"), "int ibv_fork_init(void) { return 0; }\n").unwrap();
    fs::write(
        folder.join("program.c"),
        "int ibv_fork_init(void);\nint main(void) { return ibv_fork_init(); }\n",
    )
    .unwrap();
    let gcc = |output: &Path| {
        let mut gcc = Command::new("gcc");
        gcc.current_dir(&folder).arg("-o").arg(output);
        gcc
    };
    ok(gcc(&library).args(["-shared", "-fPIC", "library.c"]).arg(format!("-Wl,-soname,{soname}")));
    ok(gcc(&program).arg("program.c").arg(&library).args(options));
    program
}

#[test]
fn a_program_with_a_libibverbs_of_another_name() {
    let program = linked_with("libibverbs.so.2", &[]);
    refused(
        &format!("-- {}", program.display()),
        "needs libibverbs.so.2, but the library replaces only libibverbs.so.1",
    );
}

#[test]
fn a_program_that_names_the_folder_of_its_libibverbs() {
    let rpath = linked_with("libibverbs.so.1", &["-Wl,--disable-new-dtags,-rpath,$ORIGIN"]);
    refused(
        &format!("--no-preload -- {}", rpath.display()),
        "sets the folder of its libraries (DT_RPATH $ORIGIN)",
    );
    // The preloaded library has priority over both tags.
    ok(&mut install().run(&format!("-- {}", rpath.display())));
    // The newer tag (DT_RUNPATH) has lower priority than the environment.
    let runpath = linked_with("libibverbs.so.1", &["-Wl,--enable-new-dtags,-rpath,$ORIGIN", "-O1"]);
    ok(&mut install().run(&format!("--no-preload -- {}", runpath.display())));
}

#[test]
fn a_program_with_capabilities_of_its_own() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root gives a file capabilities");
        return;
    }
    let program = install().path("bin/capable");
    fs::copy("/bin/true", &program).unwrap();
    // Revision 2 and the effective bit; permitted: CAP_NET_RAW (linux/capability.h).
    let words: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    let value: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    let set = rustix::fs::setxattr(
        &program,
        "security.capability",
        &value,
        rustix::fs::XattrFlags::empty(),
    );
    if let Err(error) = set {
        eprintln!("skipped: the file system keeps no capabilities ({error})");
        return;
    }
    refused(&format!("-- {}", program.display()), "has file capabilities");
}
