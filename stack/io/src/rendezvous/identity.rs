//! Which processes belong to this user.
//!
//! The kernel translates the user of another process into the user namespace of this process
//! (SO_PEERCRED, unix(7)). A user without an id in this namespace appears with the *overflow id*,
//! usually 65534 (user_namespaces(7)). So there are two cases:
//!
//! | user id of this process | processes of this user |
//! |---|---|
//! | any other, or a namespace with ids for all users | those with the same id |
//! | the overflow id, in a namespace without ids for all users | those that use a folder of it |
//!
//! The second case occurs in containers that map few users or none. An id proves nothing there, and
//! neither does a descriptor that a process passes, because a stranger can pass it on. Changing the
//! mode of a folder does: the kernel allows that to the owner alone. So [`places`](super) are files
//! in such a folder only.

use std::fs::read_to_string;
use std::sync::OnceLock;

use rustix::fs::stat;
use rustix::process::geteuid;

use crate::sys::unix::Peer;

/// The overflow id of Linux, where /proc does not show another.
const USUAL_OVERFLOW_ID: u32 = 65_534;
/// The number of user ids (user_namespaces(7)). The id 2^32 - 1 is none.
const ALL_USERS: u64 = u32::MAX as u64;

/// How this process recognises the processes of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    uid: u32,
    /// Whether processes of other users may have the same id.
    is_ambiguous: bool,
}

impl Identity {
    /// Returns the identity of this process.
    pub fn own() -> Self {
        let uid = geteuid().as_raw();
        let map = || read_to_string("/proc/self/uid_map").unwrap_or_default();
        Self { uid, is_ambiguous: uid == overflow_id() && !maps_all_users(&map()) }
    }

    /// Returns the user id.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// Returns whether processes of other users may have the same id.
    pub fn is_ambiguous(self) -> bool {
        self.is_ambiguous
    }

    /// Returns whether the process has this user's id. If the id is
    /// [ambiguous](Self::is_ambiguous), only the place of the connection proves the rest.
    pub fn has_own_id(self, peer: Peer) -> bool {
        peer.uid == self.uid
    }

    /// Returns a text that is different for each user that appears with the same id: the id, or the
    /// id with the number of the user namespace. `None` if /proc does not show the namespace.
    pub fn text(self) -> Option<String> {
        match self.is_ambiguous {
            false => Some(self.uid.to_string()),
            true => {
                let namespace = stat("/proc/self/ns/user").ok()?.st_ino;
                Some(format!("{}-{namespace}", self.uid))
            }
        }
    }
}

fn overflow_id() -> u32 {
    static ID: OnceLock<u32> = OnceLock::new();
    *ID.get_or_init(|| {
        let text = read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        text.trim().parse().unwrap_or(USUAL_OVERFLOW_ID)
    })
}

/// Returns whether all users have an id in the namespace of this `/proc/self/uid_map`. Each line
/// has the first id, the first id in the parent namespace, and the number of ids.
fn maps_all_users(map: &str) -> bool {
    let count = |line: &str| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(count).sum::<u64>() >= ALL_USERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_id_is_another_user() {
        let own = Identity::own();
        assert!(own.has_own_id(Peer { pid: 1, uid: geteuid().as_raw() }));
        assert!(!own.has_own_id(Peer { pid: 1, uid: geteuid().as_raw() ^ 1 }));
    }

    #[test]
    fn users_with_one_id_differ_by_their_namespace() {
        let named = Identity { uid: 1000, is_ambiguous: false };
        assert_eq!(named.text().unwrap(), "1000");
        let namespace = stat("/proc/self/ns/user").unwrap().st_ino;
        let unnamed = Identity { uid: 65_534, is_ambiguous: true };
        assert_eq!(unnamed.text().unwrap(), format!("65534-{namespace}"));
    }

    #[test]
    fn a_map_of_all_users_is_distinguished_from_a_part() {
        assert!(maps_all_users("         0          0 4294967295\n"));
        assert!(maps_all_users("0 100000 65536\n65536 0 4294901759\n"));
        for part in ["", "0 1000 1\n", "0 0 65536\n1 100000 65536\n", "garbage\n"] {
            assert!(!maps_all_users(part), "{part:?}");
        }
    }
}
