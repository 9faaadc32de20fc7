//! The programs of `perftest`, without librdmacm (`-R`). They judge themselves: a wrong completion or a missing one is an error.

use crate::pair::play;

/// Runs one and returns the columns of its client's last line of results.
#[track_caller]
fn perftest(program: &str, options: &str) -> Vec<f64> {
    let pair = play(&format!("{program} -x 0 -F {options}"), "-p");
    let line = pair.client.lines().rfind(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let line = line.unwrap_or_else(|| panic!("{program} {options} printed no result\n{}", pair.client));
    line.split_whitespace().map(|column| column.parse().unwrap()).collect()
}

#[test]
fn bandwidth() {
    for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        for size in [1, 4096, 65_536, 1_000_001] {
            let columns = perftest(program, &format!("-s {size} -n 100"));
            assert_eq!(columns[..2], [f64::from(size), 100.0], "{program}");
        }
    }
}

#[test]
fn latency() {
    for program in ["ib_write_lat", "ib_read_lat", "ib_send_lat"] {
        for size in [1, 2, 64, 65_536] {
            let columns = perftest(program, &format!("-s {size} -n 100"));
            assert_eq!(columns[..2], [f64::from(size), 100.0], "{program}");
        }
    }
}

#[test]
fn atomics() {
    for kind in ["CMP_AND_SWAP", "FETCH_AND_ADD"] {
        for program in ["ib_atomic_bw", "ib_atomic_lat"] {
            assert_eq!(
                perftest(program, &format!("-A {kind} -n 100"))[..2],
                [8.0, 100.0],
                "{program} {kind}"
            );
        }
    }
}

#[test]
fn many_queue_pairs_in_both_directions() {
    assert_eq!(perftest("ib_write_bw", "-b -q 4 -n 100")[1], 400.0);
    perftest("ib_send_bw", "-b -q 4 -n 100");
    perftest("ib_read_bw", "-b -q 4 -n 100");
}

#[test]
fn sleeping_for_completions() {
    perftest("ib_send_bw", "-e -n 100");
    perftest("ib_send_lat", "-e -n 100");
    perftest("ib_read_bw", "-e -n 100");
}

#[test]
fn a_shared_receive_queue() {
    perftest("ib_send_bw", "--use-srq -r 64 -q 2 -n 100");
    perftest("ib_send_lat", "--use-srq -n 100");
}

#[test]
fn unreliable_connections() {
    perftest("ib_write_lat", "-c UC -n 100");
    perftest("ib_send_lat", "-c UC -n 100");
}

#[test]
fn datagrams() {
    perftest("ib_send_bw", "-c UD -s 2048 -n 100");
    perftest("ib_send_lat", "-c UD -s 64 -n 100");
}

#[test]
fn inline_data() {
    perftest("ib_send_lat", "-I 128 -s 128 -n 100");
    perftest("ib_write_bw", "-I 64 -s 64 -n 100");
}
