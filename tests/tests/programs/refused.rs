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
    refused("-- no-such-program", "there is no program no-such-program in PATH");
}

#[test]
fn a_program_with_rights_of_its_own() {
    // Debian's package passwd is essential, so it is always installed.
    assert!(Path::new("/usr/bin/passwd").exists());
    refused("-- passwd", "runs as another user or group");
}

#[test]
fn a_static_program() {
    // Debian's ldconfig is static, because it must run when no library can be loaded.
    assert!(Path::new("/sbin/ldconfig").exists());
    refused("-- /sbin/ldconfig --version", "is statically linked");
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
        &format!("-- {}", rpath.display()),
        "sets the folder of its libraries (DT_RPATH $ORIGIN)",
    );
    // The newer tag (DT_RUNPATH) has lower priority than the environment.
    let runpath = linked_with("libibverbs.so.1", &["-Wl,--enable-new-dtags,-rpath,$ORIGIN", "-O1"]);
    ok(&mut install().run(&format!("-- {}", runpath.display())));
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
