//! Records which process has the XRC domain of a file. A domain is shared within one process only;
//! another process that opens the file fails.
//!
//! A claim is an abstract Unix socket whose name has the device's first GID and the file. As in the
//! kernel, a domain belongs to a device, so two devices may each have a domain of one file. The
//! kernel gives a name to one socket at a time and frees it when the process ends; no file is left
//! behind. Names belong to a network namespace, as devices do.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::srq::xrcd::{Claim, Inode, OpenXrcdError};
use crate::sys::fork::{CloseOnFork, PerProcess, close_on_fork};
use urxe_wire::Gid;

/// The claims of this process, which may have opened a device several times, each with a domain of
/// the same file.
static CLAIMS: PerProcess<Mutex<Claims>> = PerProcess::new(Mutex::default);

type Claims = Vec<(Gid, Inode, Weak<CloseOnFork<UnixDatagram>>)>;

/// Claims for this process the domain that the device with this first GID has of a file. For
/// [`Device::open_xrcd`](crate::device::Device::open_xrcd).
///
/// # Errors
/// [`OpenXrcdError::OtherProcess`] if another process has the domain, [`OpenXrcdError::Claim`] if
/// the system refuses the socket.
pub fn claim_xrcd(gid: Gid, inode: Inode) -> Result<Option<Claim>, OpenXrcdError> {
    let mut claims = CLAIMS.get().lock().unwrap_or_else(PoisonError::into_inner);
    claims.retain(|(.., claim)| claim.strong_count() > 0);
    let own = claims.iter().find(|(on, of, _)| (*on, *of) == (gid, inode));
    let own = own.and_then(|(.., claim)| claim.upgrade());
    if let Some(own) = own {
        return Ok(Some(Box::new(own)));
    }
    let name = SocketAddr::from_abstract_name(name(gid, inode))?;
    // A forked child's copy would keep the name bound after this process ends.
    match close_on_fork(|| UnixDatagram::bind_addr(&name)) {
        Ok(socket) => {
            let claim = Arc::new(socket);
            claims.push((gid, inode, Arc::downgrade(&claim)));
            Ok(Some(Box::new(claim)))
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            Err(OpenXrcdError::OtherProcess { given: inode })
        }
        Err(error) => Err(error.into()),
    }
}

fn name(gid: Gid, inode: Inode) -> String {
    format!("urxe-xrcd-{gid}-{:x}-{:x}", inode.device, inode.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_claimed_by_one_process_as_often_as_it_likes() {
        let inode = Inode { device: 0x7e57, number: u64::from(std::process::id()) };
        let gid = |last| Gid::from_ip(std::net::Ipv4Addr::new(127, 0, 0, last).into());
        let address = SocketAddr::from_abstract_name(name(gid(1), inode)).unwrap();
        let stranger = UnixDatagram::bind_addr(&address).unwrap();
        let refused = claim_xrcd(gid(1), inode).unwrap_err();
        assert!(matches!(refused, OpenXrcdError::OtherProcess { .. }), "{refused}");
        assert_eq!(refused.errno(), libc::EOPNOTSUPP);
        // The other process has the domain of one device only.
        drop(claim_xrcd(gid(2), inode).unwrap());
        drop(stranger);
        let claims = [claim_xrcd(gid(1), inode).unwrap(), claim_xrcd(gid(1), inode).unwrap()];
        let [first, second] = claims;
        drop(first);
        assert_eq!(UnixDatagram::bind_addr(&address).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(second);
        UnixDatagram::bind_addr(&address).unwrap();
    }
}
