//! The file in which the programs of a run note that they loaded the library or opened a device.
//!
//! `urxe run` creates the file, and `liburxe.so` appends a byte for each fact
//! (`verbs-api/abi/src/usage.rs`). At the end of the program that `urxe run` became,
//! `liburxe_sysfs.so` reads and removes the file (`verbs-api/sysfs/src/report.rs`). No process
//! keeps a descriptor of the file. A file whose process was killed is removed by the next run.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::places;

/// The environment variable that names the file. The last part is the process id of the program.
pub const VARIABLE: &str = "URXE_REPORT";
/// Programs that list devices and open none.
const LISTING: [&str; 1] = ["ibv_devices"];

/// The byte of a process that loaded the library (`verbs-api/abi/src/usage.rs`).
const LOADED: &str = "l";

/// Returns the file for a program that this process becomes. A program that needs the library has
/// the first byte already. Returns `None` for a program that only lists devices, and if there is no
/// place for the file.
pub fn file(program: &Path, needs_verbs: bool) -> Option<PathBuf> {
    if program.file_name().is_some_and(|name| LISTING.iter().any(|listing| name == *listing)) {
        return None;
    }
    let folder = places::of_session(Path::new("run")).ok()?;
    remove_ended(&folder);
    let file = folder.join(std::process::id().to_string());
    // The folder is private, so the file is of this user.
    fs::write(&file, if needs_verbs { LOADED } else { "" }).ok()?;
    Some(file)
}

/// Removes the files of processes that ended without reading theirs, and an own file of a process
/// that had the same number.
fn remove_ended(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else { continue };
        let is_this = pid == rustix::process::getpid();
        if is_this || test_kill_process(pid) == Err(Errno::SRCH) {
            let _another_run_was_faster = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_ended_processes_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id().to_string();
        child.wait().unwrap();
        let parent = std::os::unix::process::parent_id().to_string();
        let own = std::process::id().to_string();
        for name in [&ended, &parent, &own, "other"] {
            fs::write(place.path().join(name), "l").unwrap();
        }
        remove_ended(place.path());
        let left = |name: &str| place.path().join(name).exists();
        assert!(!left(&ended) && !left(&own));
        assert!(left(&parent) && left("other"));
    }

    #[test]
    fn a_program_that_only_lists_devices_has_no_file() {
        assert_eq!(file(Path::new("/usr/bin/ibv_devices"), true), None);
        let path = file(Path::new("/usr/bin/sh"), false).unwrap();
        assert!(path.ends_with(std::process::id().to_string()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        let path = file(Path::new("/usr/bin/ibv_devinfo"), true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), LOADED);
        fs::remove_file(path).unwrap();
    }
}
