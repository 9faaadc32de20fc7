//! The places of a rendezvous server, where other processes of the user find it.
//!
//! | place | visible in | when |
//! |---|---|---|
//! | abstract name `urxe/4791/ADDRESS/SLOT` | the network namespace | usually |
//! | a socket file in a folder of the user | the file system | a stranger has the name |
//!
//! Any user can bind an abstract name first. Such a stranger is ignored: the server uses the
//! folder, and a connecting process tries both places. The folder is `/run/user/UID/urxe`, or
//! `/tmp/urxe-UID`, or `/tmp/urxe-UID.N` if others have that one. It depends on the user alone, so
//! that a login shell and a cron job use the same folder. Only a folder of this user with mode 0700
//! is used, and no symbolic link. A file's name begins with the number of the network namespace,
//! because namespaces may share a file system.
//!
//! If the user id is [ambiguous](Identity::is_ambiguous), the folder is the only place.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fchmod, fstat, mkdir, open, stat, unlink};
use rustix::io::Errno;
use rustix::process::geteuid;
use urxe_wire::ROCE_PORT;

use super::identity::Identity;
use super::shared_address::SharedAddress;
use crate::sys::fork::{CloseOnFork, ProcessId, close_on_fork};
use crate::sys::unix::{self, Name, Peer};

/// The number of names of a folder in a folder of all users.
const NAMES: usize = 4;

/// A listening socket at one of the places.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: CloseOnFork<OwnedFd>,
    /// The file to remove, and the process that made it.
    file: Option<(PathBuf, ProcessId)>,
}

impl Listener {
    /// Opens the listener of a claimed slot.
    ///
    /// # Errors
    /// `EADDRINUSE` while a process of this user has the name, such as the child of a dead process;
    /// the system's errors if both places fail.
    pub fn open(address: SharedAddress, slot: u8, identity: Identity) -> Result<Self, Errno> {
        let mut errno = Errno::OPNOTSUPP;
        if !identity.is_ambiguous() {
            let name = address.rendezvous_name(slot);
            errno = match close_on_fork(|| unix::listen_at(Name::Abstract(&name))) {
                Ok(socket) => return Ok(Self { socket, file: None }),
                Err(errno) => errno,
            };
            let is_own = |peer| identity.has_own_id(peer);
            if errno == Errno::ADDRINUSE && listener_of(&name).is_some_and(is_own) {
                return Err(errno);
            }
            tracing::info!(%errno, "cannot bind the abstract name {name}: using a file");
        }
        let folder = folders(identity).find(|folder| make_private(folder));
        let path = folder.and_then(|folder| file_in(&folder, address, slot)).ok_or(errno)?;
        // The slot is claimed, so a file at this path is of a process that ended.
        let _ = unlink(&path);
        let socket = close_on_fork(|| unix::listen_at(Name::File(&path)))?;
        Ok(Self { socket, file: Some((path, ProcessId::this())) })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, process)) = &self.file
            && !process.is_other()
        {
            let _ = unlink(path);
        }
    }
}

/// A failed attempt to connect to the server of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotConnected {
    /// `ECONNREFUSED` if no process of this user listens, `EAGAIN` if the queue of a server is
    /// full; the system's.
    pub errno: Errno,
    /// The process of another user that has the abstract name, if any.
    pub stranger: Option<Peer>,
}

/// Connects to the server of a slot, if it belongs to this user.
pub(crate) fn connect(
    address: SharedAddress,
    slot: u8,
    identity: Identity,
) -> Result<(CloseOnFork<OwnedFd>, Peer), NotConnected> {
    let mut failed = NotConnected { errno: Errno::CONNREFUSED, stranger: None };
    if !identity.is_ambiguous() {
        match connect_to(Name::Abstract(&address.rendezvous_name(slot))) {
            Ok((connection, peer)) if identity.has_own_id(peer) => return Ok((connection, peer)),
            Ok((_, peer)) => failed.stranger = Some(peer),
            Err(errno) => failed.errno = errno,
        }
    }
    for folder in folders(identity).filter(|folder| is_private(folder)) {
        let Some(path) = file_in(&folder, address, slot) else { break };
        if let Ok((connection, peer)) = connect_to(Name::File(&path))
            && identity.has_own_id(peer)
        {
            return Ok((connection, peer));
        }
    }
    Err(failed)
}

/// Returns the process that listens under an abstract name.
pub(crate) fn listener_of(name: &str) -> Option<Peer> {
    connect_to(Name::Abstract(name)).ok().map(|(_, peer)| peer)
}

fn connect_to(name: Name<'_>) -> Result<(CloseOnFork<OwnedFd>, Peer), Errno> {
    let connection = close_on_fork(|| unix::connect_to(name))?;
    let peer = unix::peer(&*connection)?;
    Ok((connection, peer))
}

/// Returns the folders that this user's processes use, in order.
pub(super) fn folders(identity: Identity) -> impl Iterator<Item = PathBuf> {
    let of_session = || format!("/run/user/{}/urxe", identity.uid()).into();
    let session = (!identity.is_ambiguous()).then(of_session);
    let user = identity.text().into_iter();
    session.into_iter().chain(user.flat_map(|user| names_in(Path::new("/tmp"), user)))
}

/// Returns the folders of a user in a folder of all users, in order. Another user may have made the
/// first ones, or a user of a namespace that had the same number before.
fn names_in(base: &Path, user: String) -> impl Iterator<Item = PathBuf> {
    let name = move |n| if n == 0 { format!("urxe-{user}") } else { format!("urxe-{user}.{n}") };
    (0..NAMES).map(move |n| base.join(name(n)))
}

/// Makes a folder with mode 0700 if it does not exist. Returns whether it [is
/// private](is_private).
pub(super) fn make_private(folder: &Path) -> bool {
    let _ = mkdir(folder, Mode::RWXU);
    is_private(folder)
}

/// Returns whether this is a folder of this user, without rights of others, and no symbolic link.
///
/// A folder of another user may appear with the own id, so its mode is set: only the owner can do
/// that. The owner is checked, too, because root can do that with every folder.
pub(super) fn is_private(folder: &Path) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(opened) = open(folder, flags, Mode::empty()) else { return false };
    let is_closed = |mode: Mode| !mode.intersects(Mode::RWXG | Mode::RWXO);
    fstat(&opened).is_ok_and(|found| {
        found.st_uid == geteuid().as_raw() && is_closed(Mode::from_raw_mode(found.st_mode))
    }) && fchmod(&opened, Mode::RWXU).is_ok()
}

/// Returns the path of a slot's file for this network namespace, or `None` without /proc.
fn file_in(folder: &Path, address: SharedAddress, slot: u8) -> Option<PathBuf> {
    let SharedAddress { ip, scope_id } = address;
    file_of(folder, &format!("{ROCE_PORT}-{ip}-{scope_id}-{slot}"))
}

/// Returns the path of a file for this network namespace, or `None` without /proc.
pub(super) fn file_of(folder: &Path, name: &str) -> Option<PathBuf> {
    let namespace = stat("/proc/thread-self/ns/net").ok()?.st_ino;
    Some(folder.join(format!("{namespace}-{name}")))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_a_private_folder_of_this_user_is_used() {
        let place = tempfile::tempdir().unwrap();
        let [fresh, open, file, link] = ["a", "b", "c", "d"].map(|name| place.path().join(name));
        assert!(!is_private(&fresh) && make_private(&fresh) && is_private(&fresh));
        assert_eq!(std::fs::metadata(&fresh).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::create_dir(&open).unwrap();
        for mode in [0o755, 0o720, 0o701] {
            std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(!make_private(&open), "{mode:o}");
        }
        std::fs::write(&file, "").unwrap();
        symlink(&fresh, &link).unwrap();
        assert!(!make_private(&file) && !make_private(&link));
        // Root's, or of nobody if this process is root.
        if geteuid().is_root() {
            std::os::unix::fs::chown(&fresh, Some(65_534), None).unwrap();
            assert!(!is_private(&fresh), "a folder of another user");
        }
    }

    #[test]
    fn the_next_name_is_taken_if_another_user_has_a_folder() {
        let place = tempfile::tempdir().unwrap();
        let names: Vec<_> = names_in(place.path(), "7".to_owned()).collect();
        assert_eq!(names[1], place.path().join("urxe-7.1"));
        // A folder with rights for others counts as one of another user.
        std::fs::create_dir(&names[0]).unwrap();
        std::fs::set_permissions(&names[0], std::fs::Permissions::from_mode(0o755)).unwrap();
        let own = || names_in(place.path(), "7".to_owned()).find(|folder| make_private(folder));
        assert_eq!(own().as_ref(), Some(&names[1]));
        assert_eq!(own().as_ref(), Some(&names[1]), "it is the user's own now");
    }

    #[test]
    fn a_file_belongs_to_one_network_namespace_address_and_slot() {
        let folder = Path::new("/run/user/4294967294/urxe");
        let scoped = SharedAddress::new("fe80::1234:5678:9abc:def0".parse().unwrap(), 4_000_000);
        let path = file_in(folder, scoped, 63).unwrap();
        let inode = stat("/proc/thread-self/ns/net").unwrap().st_ino;
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, format!("{inode}-4791-fe80::1234:5678:9abc:def0-4000000-63"));
        assert!(path.as_os_str().len() < 108, "sun_path of sockaddr_un has 108 bytes");
    }
}
