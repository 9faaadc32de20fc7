//! Files that this process writes at a path that its user chose: captures, plots, lists of links.
//!
//! Another user may make a file at that path first, for example in `/tmp`. A symbolic link or a
//! hard link would direct the output to any file of this user. A file or a pipe of the other user
//! would give that user the packets. So [`create`] writes only to these files:
//!
//! | at the path | result |
//! |---|---|
//! | nothing | a new file |
//! | a regular file of this user with one name | the file, truncated |
//! | a pipe of this user | the pipe, when a process reads it |
//! | a character device of this user or of root | the device |
//! | `/dev/fd/N`, `/dev/stdout`, `/dev/stderr` | the descriptor, at its position |
//!
//! The checks are of the opened file, because the path may lead to another file a moment later. A
//! file is truncated only after the checks. A descriptor needs no check, because another program
//! opened the file and passed the descriptor on.

use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::sys;
use urxe_types::errno::OsError;

#[cfg(test)]
mod tests;

/// The users with the right to read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Only the owner (mode 0600), because packets have the data of programs. An existing file gets
    /// this mode, too.
    Owner,
    /// All users but those that the umask excludes. An existing file keeps its mode.
    Umask,
}

urxe_types::errors! {
    /// Why a file was not opened for writing.
    #[derive(Debug, thiserror::Error)]
    pub enum OutputFileError {
        #[error("cannot write {}: it is a symbolic link, which may lead to any file; remove it, or \
                 give the path of its target", path.display())]
        SymbolicLink { path: PathBuf } = libc::ELOOP,
        #[error("cannot write {}: it belongs to user {owner}, and this program runs as user \
                 {user}; remove it, or choose another path", path.display())]
        OtherOwner { path: PathBuf, owner: u32, user: u32 } = EPERM,
        #[error("cannot write {}: the file has several names (hard links), and one may be of a \
                 file to keep; remove it, or choose another path", path.display())]
        SeveralNames { path: PathBuf } = libc::EMLINK,
        #[error("cannot write to {}: all users can write to the folder; remove that right (chmod \
                 o-w), or choose another folder", path.display())]
        OpenFolder { path: PathBuf } = EPERM,
        #[error("cannot write {}: it is neither a regular file nor a pipe; choose another path",
                path.display())]
        Kind { path: PathBuf } = EINVAL,
        #[error("cannot write {}: {errno}", path.display())]
        System { path: PathBuf, errno: OsError } = errno.raw_os_error(),
    }
}

/// How often the file at the path may vanish or appear between two calls.
const ATTEMPTS: usize = 8;

/// Opens a file for writing. Truncates a regular file of this user. See the [module](self).
///
/// # Errors
/// Fails with [`OutputFileError`] if another user could have made the file, or the system refuses.
pub fn create(path: &Path, readers: Readers) -> Result<File, OutputFileError> {
    let (file, is_new) = open(path, readers)?;
    if !is_new {
        truncate(path, &file)?;
    }
    Ok(file)
}

/// A file that is written later; see [`reserve`].
#[derive(Debug)]
pub struct Reserved {
    path: PathBuf,
    readers: Readers,
    /// The open file, unless the path has no file yet.
    existing: Option<File>,
}

/// Checks that [`create`] can open a file, and leaves the file and its content as they are. A
/// program so learns before its work that it cannot write the result.
///
/// # Errors
/// Fails with [`OutputFileError`] as [`create`] does.
pub fn reserve(path: &Path, readers: Readers) -> Result<Reserved, OutputFileError> {
    let (file, is_new) = open(path, readers)?;
    let failed =
        |errno| OutputFileError::System { path: path.to_owned(), errno: OsError::of(errno) };
    if is_new {
        // A program that ends early leaves no empty file.
        rustix::fs::unlink(path).map_err(failed)?;
    }
    // A pipe stays open, because its reader would see its end.
    let existing = (!is_new).then_some(file);
    Ok(Reserved { path: path.to_owned(), readers, existing })
}

impl Reserved {
    /// Opens the file for writing, as [`create`] does.
    ///
    /// # Errors
    /// Fails with [`OutputFileError`] if the folder has changed since, or the system refuses.
    pub fn create(self) -> Result<File, OutputFileError> {
        let Some(file) = self.existing else { return create(&self.path, self.readers) };
        truncate(&self.path, &file)?;
        Ok(file)
    }
}

/// Opens a file for writing and keeps its content. Returns whether the file is new.
fn open(path: &Path, readers: Readers) -> Result<(File, bool), OutputFileError> {
    let failed =
        |errno| OutputFileError::System { path: path.to_owned(), errno: OsError::of(errno) };
    if let Some(number) = descriptor_number(path) {
        let duplicate = sys::duplicate_writable(number).map(File::from).map_err(failed)?;
        return Ok((duplicate, false));
    }
    for _ in 0..ATTEMPTS {
        if let Some(file) = create_new(path, readers).map_err(failed)? {
            return Ok((file, true));
        }
        if let Some(file) = open_existing(path, readers)? {
            return Ok((file, false));
        }
    }
    Err(failed(Errno::EXIST))
}

/// Truncates a regular file, unless the path names a descriptor, which keeps its position.
fn truncate(path: &Path, file: &File) -> Result<(), OutputFileError> {
    let failed =
        |errno| OutputFileError::System { path: path.to_owned(), errno: OsError::of(errno) };
    let is_regular = file_type(&rustix::fs::fstat(file).map_err(failed)?) == FileType::RegularFile;
    if is_regular && descriptor_number(path).is_none() {
        rustix::fs::ftruncate(file, 0).map_err(failed)?;
    }
    Ok(())
}

/// Creates a file. Returns `None` if there is one at the path, which may be a symbolic link.
fn create_new(path: &Path, readers: Readers) -> Result<Option<File>, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = match readers {
        Readers::Owner => Mode::RUSR | Mode::WUSR,
        Readers::Umask => Mode::from_raw_mode(0o666),
    };
    match rustix::fs::open(path, flags, mode) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Opens the file at the path and checks it. Returns `None` if the file has vanished.
fn open_existing(path: &Path, readers: Readers) -> Result<Option<File>, OutputFileError> {
    let failed =
        |errno| OutputFileError::System { path: path.to_owned(), errno: OsError::of(errno) };
    let Some(file) = open_unchecked(path)? else { return Ok(None) };
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    let kind = check(path, &stat)?;
    // Opened without waiting, and from now on a slow reader of a pipe is waited for.
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(failed)?;
    if kind == FileType::RegularFile && readers == Readers::Owner {
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    }
    Ok(Some(file.into()))
}

/// Opens the file at the path for writing, without an effect on the file.
fn open_unchecked(path: &Path) -> Result<Option<OwnedFd>, OutputFileError> {
    let failed =
        |errno| OutputFileError::System { path: path.to_owned(), errno: OsError::of(errno) };
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    let at_once = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::empty());
    let (opened, stat) = match at_once {
        Ok(file) => return Ok(Some(file)),
        Err(errno) => (errno, rustix::fs::lstat(path)),
    };
    match (opened, stat) {
        (Errno::NOENT, _) | (_, Err(Errno::NOENT)) => Ok(None),
        (Errno::LOOP, Ok(stat)) if file_type(&stat) == FileType::Symlink => {
            Err(OutputFileError::SymbolicLink { path: path.to_owned() })
        }
        // A pipe without a reader, or a local socket.
        (Errno::NXIO, Ok(stat)) => {
            check(path, &stat)?;
            rustix::fs::open(path, flags, Mode::empty()).map(Some).map_err(failed)
        }
        (errno, _) => Err(failed(errno)),
    }
}

/// Checks that no other user could have made the file. Returns its type.
fn check(path: &Path, stat: &Stat) -> Result<FileType, OutputFileError> {
    let path = || path.to_owned();
    let kind = file_type(stat);
    let user = rustix::process::geteuid().as_raw();
    match kind {
        FileType::RegularFile | FileType::Fifo if stat.st_uid != user => {
            Err(OutputFileError::OtherOwner { path: path(), owner: stat.st_uid, user })
        }
        FileType::RegularFile if stat.st_nlink > 1 => {
            Err(OutputFileError::SeveralNames { path: path() })
        }
        // Only root makes devices.
        FileType::CharacterDevice if stat.st_uid != user && stat.st_uid != 0 => {
            Err(OutputFileError::OtherOwner { path: path(), owner: stat.st_uid, user })
        }
        FileType::RegularFile | FileType::Fifo | FileType::CharacterDevice => Ok(kind),
        _ => Err(OutputFileError::Kind { path: path() }),
    }
}

/// Returns the folder `inside` below `base`. Creates missing folders with mode 0700. Checks that no
/// other user could have made one of those below `base`.
///
/// # Errors
/// Fails with [`OutputFileError`] if another user can write to a folder, or the system refuses.
pub fn private_folder(base: &Path, inside: &Path) -> Result<PathBuf, OutputFileError> {
    let mut path = base.to_owned();
    let failed = |path: &Path, errno| OutputFileError::System {
        path: path.to_owned(),
        errno: OsError::of(errno),
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.map_err(|error| failed(base, Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    for part in inside {
        path.push(part);
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(&path, errno)),
        }
        let stat = rustix::fs::lstat(&path).map_err(|errno| failed(&path, errno))?;
        match file_type(&stat) {
            FileType::Directory => check_folder(&path, &stat)?,
            FileType::Symlink => return Err(OutputFileError::SymbolicLink { path }),
            _ => return Err(failed(&path, Errno::NOTDIR)),
        }
    }
    Ok(path)
}

/// Checks that a folder belongs to this user and that not all users can write to it.
///
/// # Errors
/// Fails with [`OutputFileError`] if another user can put files into the folder.
pub fn check_folder(path: &Path, stat: &Stat) -> Result<(), OutputFileError> {
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid != user {
        let (path, owner) = (path.to_owned(), stat.st_uid);
        return Err(OutputFileError::OtherOwner { path, owner, user });
    }
    if Mode::from_raw_mode(stat.st_mode).contains(Mode::WOTH) {
        return Err(OutputFileError::OpenFolder { path: path.to_owned() });
    }
    Ok(())
}

/// Checks that the file at the path, or the symbolic link, belongs to this user or does not exist.
///
/// # Errors
/// Fails with [`OutputFileError`] if the file belongs to another user, or the system refuses.
pub fn check_owner(path: &Path) -> Result<(), OutputFileError> {
    let user = rustix::process::geteuid().as_raw();
    match rustix::fs::lstat(path) {
        Ok(stat) if stat.st_uid != user => {
            Err(OutputFileError::OtherOwner { path: path.to_owned(), owner: stat.st_uid, user })
        }
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => {
            Err(OutputFileError::System { path: path.to_owned(), errno: OsError::of(errno) })
        }
    }
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the number in a path that names a descriptor of this process. The system implements
/// these paths by symbolic links, which [`create`] does not follow.
fn descriptor_number(path: &Path) -> Option<i32> {
    match path.to_str()? {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        text => {
            let number = ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|at| text.strip_prefix(at));
            number?.parse().ok().filter(|number| *number >= 0)
        }
    }
}
