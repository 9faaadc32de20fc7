//! Records which process has the XRC domain of a file. A domain is shared within one process only;
//! another process of the user that opens the file fails.
//!
//! A claim is a [lock of the user](UserLock) whose name has the device's first GID and the file. As
//! in the kernel, a domain belongs to a device, so two devices may each have a domain of one file.
//! No process of another user can claim a domain, because nothing is shared with such a process.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::rendezvous::UserLock;
use crate::srq::xrcd::{Claim, Inode, OpenXrcdError};
use crate::sys::fork::PerProcess;
use urxe_wire::Gid;

/// The claims of this process, which may have opened a device several times, each with a domain of
/// the same file.
static CLAIMS: PerProcess<Mutex<Claims>> = PerProcess::new(Mutex::default);

type Claims = Vec<(Gid, Inode, Weak<UserLock>)>;

/// Claims for this process the domain that the device with this first GID has of a file. For
/// [`Device::open_xrcd`](crate::device::Device::open_xrcd).
///
/// # Errors
/// [`OpenXrcdError::OtherProcess`] if another process of this user has the domain,
/// [`OpenXrcdError::Claim`] if the system refuses the lock.
pub fn claim_xrcd(gid: Gid, inode: Inode) -> Result<Option<Claim>, OpenXrcdError> {
    let mut claims = CLAIMS.get().lock().unwrap_or_else(PoisonError::into_inner);
    claims.retain(|(.., claim)| claim.strong_count() > 0);
    let own = claims.iter().find(|(on, of, _)| (*on, *of) == (gid, inode));
    let own = own.and_then(|(.., claim)| claim.upgrade());
    if let Some(own) = own {
        return Ok(Some(Box::new(own)));
    }
    match UserLock::take(&name(gid, inode)).map_err(std::io::Error::from)? {
        Some(lock) => {
            let claim = Arc::new(lock);
            claims.push((gid, inode, Arc::downgrade(&claim)));
            Ok(Some(Box::new(claim)))
        }
        None => Err(OpenXrcdError::OtherProcess { given: inode }),
    }
}

fn name(gid: Gid, inode: Inode) -> String {
    format!("xrcd-{gid}-{:x}-{:x}", inode.device, inode.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_claimed_by_one_process_as_often_as_it_likes() {
        let inode = Inode { device: 0x7e57, number: u64::from(std::process::id()) };
        let gid = |last| Gid::from_ip(std::net::Ipv4Addr::new(127, 0, 0, last).into());
        let name = name(gid(1), inode);
        // A lock beside the claims of this process is as that of another one.
        let other = UserLock::take(&name).unwrap().unwrap();
        let refused = claim_xrcd(gid(1), inode).unwrap_err();
        assert!(matches!(refused, OpenXrcdError::OtherProcess { .. }), "{refused}");
        assert_eq!(refused.errno(), libc::EOPNOTSUPP);
        // The other process has the domain of one device only.
        drop(claim_xrcd(gid(2), inode).unwrap());
        drop(other);
        let claims = [claim_xrcd(gid(1), inode).unwrap(), claim_xrcd(gid(1), inode).unwrap()];
        let [first, second] = claims;
        drop(first);
        assert!(UserLock::take(&name).unwrap().is_none());
        drop(second);
        assert!(UserLock::take(&name).unwrap().is_some());
    }
}
