//! Locks that one process of a user has at a time in a network namespace.
//!
//! A lock is a lock (flock(2)) on a file in the folder of the user, where no other user can be
//! first. The kernel releases it when the process ends. A file that a killed process leaves is
//! empty and has no lock.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, unlink};
use rustix::io::Errno;

use super::identity::Identity;
use super::places::{file_of, folders, is_private, make_private};
use crate::sys::fork::{CloseOnFork, ProcessId, close_on_fork};

/// The attempts to lock a file that other processes remove.
const ATTEMPTS: usize = 16;

/// A lock of this process. Dropping it releases the lock.
#[derive(Debug)]
pub struct UserLock {
    path: PathBuf,
    process: ProcessId,
    _file: CloseOnFork<OwnedFd>,
}

impl UserLock {
    /// Takes the lock with this name. Returns `None` if another process of this user has it.
    ///
    /// # Errors
    /// `EACCES` if this user has no folder of its own, and the system's.
    pub fn take(name: &str) -> Result<Option<Self>, Errno> {
        Self::take_in(&folders(Identity::own()).collect::<Vec<_>>(), name)
    }

    /// Takes the lock in the first folder that this user has or can make. A process that started
    /// before a folder existed may have the lock in another one.
    fn take_in(folders: &[PathBuf], name: &str) -> Result<Option<Self>, Errno> {
        let own = folders.iter().find(|folder| make_private(folder)).ok_or(Errno::ACCESS)?;
        let path = |folder: &Path| file_of(folder, name).ok_or(Errno::ACCESS);
        let others = folders.iter().filter(|folder| *folder != own && is_private(folder));
        for other in others {
            match try_lock(&path(other)?, OFlags::empty()) {
                Ok(_) | Err(Errno::NOENT) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        let path = path(own)?;
        for _ in 0..ATTEMPTS {
            match close_on_fork(|| try_lock(&path, OFlags::CREATE)) {
                // The former process may have removed the file after it was opened here.
                Ok(file) if fstat(&*file)?.st_nlink == 0 => {}
                Ok(file) => {
                    return Ok(Some(Self { path, process: ProcessId::this(), _file: file }));
                }
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        Ok(None)
    }
}

impl Drop for UserLock {
    fn drop(&mut self) {
        // Only the process with the lock removes the file.
        if !self.process.is_other() {
            let _ = unlink(&self.path);
        }
    }
}

fn try_lock(path: &Path, create: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | create;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_a_lock_and_leaves_no_file() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["a", "b"].map(|name| place.path().join(name));
        // flock(2) excludes two descriptors of one process as well.
        let lock = UserLock::take_in(&folders, "x").unwrap().unwrap();
        assert!(UserLock::take_in(&folders, "x").unwrap().is_none());
        assert!(UserLock::take_in(&folders, "y").unwrap().is_some());
        drop(lock);
        assert_eq!(std::fs::read_dir(&folders[0]).unwrap().count(), 0);
        assert!(UserLock::take_in(&folders, "x").unwrap().is_some());
    }

    #[test]
    fn a_lock_in_a_later_folder_counts() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["a", "b"].map(|name| place.path().join(name));
        let later = UserLock::take_in(&folders[1..], "x").unwrap().unwrap();
        assert!(UserLock::take_in(&folders, "x").unwrap().is_none());
        drop(later);
        assert!(UserLock::take_in(&folders, "x").unwrap().is_some());
    }

    #[test]
    fn the_file_of_another_user_is_no_lock() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["a", "b"].map(|name| place.path().join(name));
        // A folder with rights for others counts as one of another user.
        std::fs::create_dir(&folders[0]).unwrap();
        let path = file_of(&folders[0], "x").unwrap();
        let theirs = try_lock(&path, OFlags::CREATE).unwrap();
        let lock = UserLock::take_in(&folders, "x").unwrap().expect("in the next folder");
        assert!(lock.path.starts_with(&folders[1]));
        drop(theirs);
        let link = UserLock::take_in(&folders[1..], "y").unwrap().unwrap();
        let (target, link) = (link.path.clone(), file_of(&folders[1], "z").unwrap());
        std::os::unix::fs::symlink(target, link).unwrap();
        assert_eq!(UserLock::take_in(&folders[1..], "z").unwrap_err(), Errno::LOOP);
    }
}
