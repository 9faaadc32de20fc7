//! What `urxe run` cannot serve, it says.

use std::path::Path;

use crate::install::{install, said};

#[track_caller]
fn refused(words: &str, why: &str) {
    let output = install().run(words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains(why), "{}", said(&output));
}

#[test]
fn a_program_that_is_not_there() {
    refused("-- no-such-program", "no program no-such-program; it is not in PATH");
}

#[test]
fn a_program_with_rights_of_its_own() {
    // Debian's package passwd is essential to it.
    assert!(Path::new("/usr/bin/passwd").exists());
    refused("-- passwd", "runs as another user or group");
}

#[test]
fn a_static_program() {
    // Debian's ldconfig has to run when no library can be loaded.
    assert!(Path::new("/sbin/ldconfig").exists());
    refused("-- /sbin/ldconfig --version", "is statically linked");
}

#[test]
fn a_library_that_is_not_there() {
    let output = install().run("-- ibv_devices").env("URXE_LIBRARY", "/nowhere/liburxe.so").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("URXE_LIBRARY is /nowhere/liburxe.so"), "{}", said(&output));
}
