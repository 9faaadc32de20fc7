//! Bad input: the result of each verb, and the log of `URXE_LOG`. `tests/programs/refusals.c` has
//! the cases. Tests with real kernels (`kernels::refusals` of the kernel peers) verify the results
//! of the original.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use urxe_tests::process::KillOnDrop;
use urxe_tests::programs::refusals::check_urxe;

use crate::install::{EXPECTED, compile, install, ok, text_of};
use crate::pair::exclusive;

fn refusals(link: &str, what: &str, log: &str) -> Output {
    let words =
        format!("--link rxe0={link} -- timeout 60 {} {what}", compile("refusals").display());
    let output = install().run(&words).env("URXE_LOG", log).output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output));
    output
}

#[test]
fn every_refusal_has_the_errno_that_is_expected() {
    let _exclusive = exclusive();
    let output = refusals("127.79.0.21", "", "");
    check_urxe(&String::from_utf8(output.stdout).unwrap()).unwrap();
}

#[test]
fn objects_destroyed_twice_or_used_after_closing_are_refused() {
    let _exclusive = exclusive();
    let output = refusals("127.79.0.22", "twice", "warn");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), EXPECTED);
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(
        log.contains(
            "ibv_destroy_qp: no such object (QpObject): the program destroyed the object before"
        ),
        "{log}"
    );
}

#[test]
fn a_refused_verb_logs_the_reason_on_request() {
    let _exclusive = exclusive();
    let log = |level| String::from_utf8(refusals("127.79.0.23", "", level).stderr).unwrap();
    assert_eq!(log(""), "");
    let log = log("warn");
    for reason in [
        "ibv_create_cq: the completion channel belongs to another context than the completion \
         queue errno=9",
        "ibv_create_cq_ex: the completion channel belongs to another context than the completion \
         queue errno=9",
        "ibv_create_qp: send_cq belongs to another context of the device: \
         make both objects through one context",
        "ibv_rereg_mr: pd belongs to another context of the device",
        "ibv_create_qp: max_send_wr is 1048577; the device allows 1048576 errno=22",
        "ibv_create_qp_ex: send_ops_flags is 0x1: UD queue pairs do not support 0x1 errno=95",
        "ibv_query_port: port 2: the device has port 1 errno=22",
        "ibv_destroy_cq: the completion queue is used by 2 work queues errno=16",
        "are not all writable, which LOCAL_WRITE needs errno=14",
        "ibv_modify_qp: path_mtu is 9; IBV_MTU_256 (1) to IBV_MTU_4096 (5) are allowed errno=22",
        "ibv_modify_qp: qkey (IBV_QP_QKEY) is 0x80010000: \
         those with the highest bit set are privileged",
        "ibv_post_recv: the queue holds 4 work requests and all are outstanding: \
         poll for completions first errno=12",
        "ibv_dealloc_pd: pd is NULL errno=22",
        "ibv_create_srq: max_wr is 0, not 1 to 1048576 errno=22",
        "ibv_modify_srq: srq_limit is 1048576, and the shared receive queue holds 4 receives at \
         most errno=22",
        "ibv_destroy_srq: 1 queue pairs use the shared receive queue: destroy them first errno=16",
        "ibv_post_recv: the queue pair uses a shared receive queue: \
         post the receive to that queue errno=22",
        "ibv_create_ah: is_global is 0: an address handle of RoCE needs a GRH with the \
         destination in dgid errno=22",
        "ibv_init_ah_from_wc: the completion has no GRH (IBV_WC_GRH): \
         it is not of a received datagram errno=22",
        "ibv_attach_mcast: a RC queue pair cannot be attached to a multicast group; \
         UD queue pairs can errno=22",
        "is not attached to 0000:0000:0000:0000:0000:ffff:ef00:0007 errno=22",
        "ibv_destroy_qp: the queue pair is attached to 1 multicast groups: \
         detach it first errno=16",
        "ibv_post_send: a message of 5000 bytes exceeds the maximum of 4096 bytes errno=22",
        "ibv_post_send: a UD queue pair does not support this operation errno=95",
        "ibv_post_send: the address handle belongs to another protection domain",
        "at 239.0.0.8: use queue pair 0xffffff for a multicast group, and only for that errno=22",
        "ibv_dealloc_pd: the protection domain still has 0 queue pairs, 0 shared receive queues, \
         1 address handles",
        "ibv_post_send: ah is NULL errno=22",
        "ibv_bind_mw: mw_access_flags is 36; a bind of a type 1 window must not set \
         IBV_ACCESS_ZERO_BASED errno=22",
        "ibv_dereg_mr: 1 memory windows are bound to the region",
        "ibv_free_dm: 1 memory regions of the device memory are registered",
        "ibv_close_xrcd: the XRC domain still has 1 shared receive queues",
    ] {
        assert!(log.contains(reason), "{reason} is not in\n{log}");
    }
    let lines = log.lines().count();
    assert!(lines > 120, "{lines} lines for all refused calls\n{log}");
}

#[test]
fn an_address_of_another_user_is_refused_with_a_remedy() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be two users");
        return;
    }
    let _exclusive = exclusive();
    let link = "--link rxe0=127.79.0.24";
    let home = install().path("home-of-another");
    fs::create_dir_all(&home).unwrap();
    chown(&home, Some(65_533), Some(65_533)).unwrap();
    let mut holder: Command = install().run(&format!("{link} -- ibv_asyncwatch"));
    holder.env("HOME", &home);
    let mut holder =
        KillOnDrop(holder.uid(65_533).gid(65_533).stdout(Stdio::piped()).spawn().unwrap());
    // The program prints its descriptor after it has opened the address.
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("async event FD"), "{line}");
    let output = install().run(&format!("{link} -- ibv_devinfo")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = text_of(&output);
    for part in ["127.79.0.24", &format!("process {}", holder.id()), "user 65533", "127.0.0."] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    drop(holder);
    ok(&mut install().run(&format!("{link} -- ibv_devinfo")));
}
