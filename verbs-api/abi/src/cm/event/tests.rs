//! An event that one thread takes while another thread ends its object.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use urxe_stack::qp::attr::QpType;
use urxe_wire::Gid;

use super::*;
use crate::cm::address::bind_addr;
use crate::cm::channel::{create_event_channel, destroy_event_channel};
use crate::cm::id::{create_id, destroy_id};
use crate::cm::multicast::{join_multicast, leave_multicast};
use crate::cm::qp::{create_qp, destroy_qp};
use crate::layout::ibv_qp_init_attr;
use crate::qp::detach_mcast;

/// `RDMA_PS_UDP`
const UDP: u32 = 0x111;

fn address(octets: [u8; 4]) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(octets) },
        sin_zero: [0; 8],
    }
}

/// Leaves the group on another thread, and returns when that thread has removed the membership from
/// its identifier and had time to do the rest.
fn start_leaving(user: u64, mut group: libc::sockaddr_in) -> JoinHandle<c_int> {
    let leaver = spawn(move || {
        // SAFETY: the identifier exists until this thread ends.
        unsafe { leave_multicast(IdObject::from_user(user), (&raw mut group).cast()) }
    });
    // SAFETY: as above.
    let object = unsafe { IdObject::from_c(IdObject::from_user(user)) }.unwrap();
    while !lock(&object.state).memberships.is_empty() {
        sleep(Duration::from_millis(1));
    }
    sleep(Duration::from_millis(200));
    leaver
}

/// The taken event names the membership, so the membership must stay until the acknowledgement. The
/// event also attaches the queue pair, although the other thread is leaving.
fn leave_while_the_event_is_taken() {
    let (mut here, mut group) = (address([127, 117, 9, 1]), address([239, 1, 9, 1]));
    // SAFETY: the calls as a program makes them; `take_next` as `rdma_get_cm_event` calls it.
    unsafe {
        let channel = create_event_channel();
        let mut id = ptr::null_mut();
        assert_eq!(create_id(channel, &mut id, ptr::null_mut(), UDP), 0);
        assert_eq!(bind_addr(id, (&raw mut here).cast()), 0);
        let mut attr: ibv_qp_init_attr = zeroed();
        attr.qp_type = QpType::Ud.number().into();
        attr.cap.max_send_wr = 1;
        attr.cap.max_recv_wr = 1;
        assert_eq!(create_qp(id, ptr::null_mut(), &mut attr), 0);
        assert_eq!(join_multicast(id, (&raw mut group).cast(), ptr::null_mut()), 0);
        let (object, leaver) = (channel::find(channel).unwrap(), RefCell::new(None));
        let taken = take_next(&object, |fd, redeem| {
            let taken = fd.try_take_event(redeem);
            let leaving = start_leaving(IdObject::to_user(id), group);
            assert!(
                !leaving.is_finished(),
                "the membership is gone before its event is given back"
            );
            leaver.replace(Some(leaving));
            taken
        });
        let event = taken.unwrap().unwrap();
        assert_eq!((*event).event, u32::from(CmaEventType::MulticastJoin.number()));
        let group = Gid::from_ip(Ipv4Addr::from([239, 1, 9, 1]).into());
        assert_eq!(ack_cm_event(event), 0);
        assert_eq!(leaver.take().unwrap().join().unwrap(), 0);
        assert_ne!(detach_mcast((*id).qp, &group.0, 0), 0, "the queue pair is still in the group");
        destroy_qp(id);
        assert_eq!(destroy_id(id), 0);
        destroy_event_channel(channel);
    }
}

#[test]
fn leaving_a_group_waits_for_an_event_that_another_thread_has_taken() {
    const DEVICES: &str = "URXE_DEVICES";
    const OWN: &str = "rxe0=127.117.9.1";
    if std::env::var_os(DEVICES).is_some_and(|value| value == OWN) {
        // This is the process that the test starts below.
        return leave_while_the_event_is_taken();
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let mut child = Command::new(std::env::current_exe().unwrap());
    let status = child.args(["--exact", &name]).env(DEVICES, OWN).status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_status_that_is_no_error_number_becomes_einval() {
    let outcome_of = |event_type: CmaEventType, status| {
        // SAFETY: an event consists of integers and pointers, which may be null.
        let mut event: rdma_cm_event = unsafe { zeroed() };
        (event.event, event.status) = (event_type.number().into(), status);
        outcome(&event).map_err(|error| error.errno())
    };
    let failed = CmaEventType::RouteError;
    for (status, expected) in [
        (0, Ok(())),
        (-libc::ETIMEDOUT, Err(libc::ETIMEDOUT)),
        (libc::ETIMEDOUT, Err(libc::ETIMEDOUT)),
        (4095, Err(4095)),
        (4096, Err(libc::EINVAL)),
        (c_int::MAX, Err(libc::EINVAL)),
        (c_int::MIN, Err(libc::EINVAL)),
    ] {
        assert_eq!(outcome_of(failed, status), expected, "{status}");
    }
    assert_eq!(outcome_of(CmaEventType::Rejected, 28), Err(libc::ECONNREFUSED));
}
