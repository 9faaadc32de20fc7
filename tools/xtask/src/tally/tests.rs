//! Summary lines as the test programs print them.

use super::*;

fn counted(lines: &str) -> (u64, u64) {
    let mut tally = Tally::default();
    for line in lines.lines() {
        tally.read(line);
    }
    (tally.passed, tally.failed)
}

#[test]
fn libtest() {
    let lines = "running 3 tests\n\
        test a ... ok\n\
        test result: ok. 29 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s\n\
        test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";
    assert_eq!(counted(lines), (33, 2));
}

#[test]
fn nextest() {
    assert_eq!(counted("     Summary [   0.123s] 39 tests run: 39 passed, 2 skipped"), (39, 0));
    assert_eq!(
        counted("     Summary [   9.123s] 1 test run: 1 passed (1 slow), 0 skipped"),
        (1, 0)
    );
    let worst = "Summary [  61.0s] 9/12 tests run: 5 passed (2 flaky, 1 leaky), 2 failed, 1 exec failed, 1 timed out, 3 skipped";
    assert_eq!(counted(worst), (5, 4));
}

#[test]
fn colours_do_not_matter() {
    assert_eq!(counted("test result: \x1b[32mok\x1b[m. 2 passed; 0 failed; 0 ignored"), (2, 0));
    let coloured = "\x1b[32;1m     Summary\x1b[0m [   0.1s] \x1b[1m2\x1b[0m tests run: \x1b[1m2\x1b[0m \x1b[32;1mpassed\x1b[0m, \x1b[1m0\x1b[0m skipped";
    assert_eq!(counted(coloured), (2, 0));
}

#[test]
fn other_lines_count_for_nothing() {
    assert_eq!(counted("5 passed, 3 failed\nSummary of 3 failed\ntest result: none\n\x1b"), (0, 0));
}

#[test]
fn the_last_line_of_a_run_is_read_by_another() {
    let tally = Tally { passed: 61, failed: 2 };
    assert_eq!(Tally::of_total(&format!("{tally}\n")), Some(tally));
    assert_eq!(Tally::of_total("test result: ok. 2 passed; 0 failed"), None);
}
