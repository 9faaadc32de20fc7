//! Environment variables. Privileged programs ignore them.
//!
//! The kernel starts a program with more rights than its caller has if the file is setuid or
//! setgid, or has file capabilities. The caller chose the variables of such a program. So they must
//! not choose the files that the program reads and writes. As in secure_getenv(3), such a program
//! has no variables here.
//!
//! All crates read variables by [`value`], and `cargo xtask structure environment` checks that.
//! `liburxe_sysfs.so` uses no other crate, and has the same check.

use std::ffi::OsString;

/// Returns the value of an environment variable. Returns `None` if the variable is not set or is
/// empty, and in a [privileged program](is_privileged).
#[must_use]
pub fn value(name: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns whether the kernel started this program with more rights than its caller has
/// (`AT_SECURE`, getauxval(3)). Security modules such as SELinux may set the flag as well.
///
/// A program that drops its rights later stays privileged, because its caller still chose the
/// variables.
#[must_use]
pub fn is_privileged() -> bool {
    // SAFETY: the call reads the process's auxiliary vector and takes no pointer.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_ordinary_program_reads_its_variables() {
        // The test `privileged` of the programs runs a setuid program.
        assert!(!is_privileged());
        assert_eq!(value("PATH"), std::env::var_os("PATH"));
        assert_eq!(value("URXE_TEST_UNSET"), None);
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        const ROLE: &str = "URXE_TEST_EMPTY";
        if std::env::var_os(ROLE).is_some() {
            // This is the process that the test starts below.
            assert_eq!(value(ROLE), None);
            return;
        }
        let name = std::thread::current().name().unwrap().to_owned();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child.args(["--exact", &name]).env(ROLE, "").status().unwrap();
        assert!(status.success());
    }
}
