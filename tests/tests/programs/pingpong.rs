//! The ping-pong programs of `ibverbs-utils`.

use crate::pair::play;

#[track_caller]
fn pingpong(program: &str, options: &str) {
    let pair = play(&format!("{program} {options}"), "-p");
    for end in [pair.server, pair.client] {
        assert!(end.contains("bytes in") && end.contains("usec/iter"), "{program} {options}\n{end}");
        assert!(!end.contains("invalid data"), "{program} {options}\n{end}");
    }
}

#[test]
fn rc_with_either_gid_index() {
    for gid in [0, 1] {
        pingpong("ibv_rc_pingpong", &format!("-g {gid} -c"));
    }
}

#[test]
fn rc_of_every_size_and_mtu() {
    for size in [1, 2, 3, 255, 256, 4096, 4097, 100_000, 1 << 20] {
        pingpong("ibv_rc_pingpong", &format!("-g 0 -c -s {size} -n 50"));
    }
    for mtu in [256, 512, 1024, 2048, 4096] {
        pingpong("ibv_rc_pingpong", &format!("-g 0 -c -m {mtu} -s 70000 -n 50"));
    }
}

#[test]
fn rc_sleeping_for_completions() {
    pingpong("ibv_rc_pingpong", "-g 0 -e -c -n 300");
}

#[test]
fn rc_by_the_functions_of_the_queue_pair() {
    pingpong("ibv_rc_pingpong", "-g 0 -N -c -n 300");
}

#[test]
fn uc() {
    pingpong("ibv_uc_pingpong", "-g 0 -c -n 300");
    pingpong("ibv_uc_pingpong", "-g 1 -e -n 300");
}

#[test]
fn srq() {
    pingpong("ibv_srq_pingpong", "-g 0 -q 16 -c -n 300");
    pingpong("ibv_srq_pingpong", "-g 1 -e -n 300");
}

#[test]
fn ud() {
    pingpong("ibv_ud_pingpong", "-g 0 -c -n 300");
    pingpong("ibv_ud_pingpong", "-g 1 -e -s 2000 -n 300");
}

/// Both ends make an XRC domain on the same file, each its own. The program says that it succeeded, and no figures.
#[test]
fn xrc() {
    for options in ["-g 0 -n 300", "-g 1 -e -n 300"] {
        let pair = play(&format!("ibv_xsrq_pingpong {options}"), "-p");
        for end in [pair.server, pair.client] {
            assert!(end.lines().any(|line| line == "success"), "{options}\n{end}");
        }
    }
}
