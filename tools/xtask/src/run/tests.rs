//! Summary lines as the test programs print them, and commands that end in each way.

use super::*;

fn counted(lines: &str) -> (u64, u64) {
    let mut tally = Tally::default();
    lines.lines().for_each(|line| tally.read(line));
    (tally.passed, tally.failed)
}

#[test]
fn libtest() {
    let lines = "running 3 tests\n\
        test a ... ok\n\
        test result: ok. 29 passed; 0 failed; 1 ignored; 7 filtered out; finished in 0.01s\n\
        test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 filtered out; finished in 1.00s";
    assert_eq!(counted(lines), (33, 2));
}

#[test]
fn nextest() {
    assert_eq!(counted("     Summary [   0.123s] 39 tests run: 39 passed, 2 skipped"), (39, 0));
    let one = "     Summary [   9.123s] 1 test run: 1 passed (1 slow), 0 skipped";
    assert_eq!(counted(one), (1, 0));
    let worst = "Summary [  61.0s] 9/12 tests run: 5 passed (2 flaky, 1 leaky), 2 failed, \
        1 exec failed, 1 timed out, 3 skipped";
    assert_eq!(counted(worst), (5, 4));
}

#[test]
fn other_lines_count_for_nothing() {
    assert_eq!(counted("5 passed, 3 failed\nSummary of 3 failed\ntest result: none"), (0, 0));
}

#[test]
fn a_command_counts_as_its_tests_or_as_one() {
    let end = |script: &str| {
        let mut runner = Runner { output: Box::new(io::sink()), ..Runner::default() };
        let result = runner.run(Command::new("sh").args(["-c", script]));
        (runner.tally.passed, runner.tally.failed, result.map_err(|error| error.to_string()))
    };
    assert_eq!(end("true"), (1, 0, Ok(())));
    assert_eq!(end("echo 'test result: ok. 3 passed; 0 failed'"), (3, 0, Ok(())));
    let (passed, failed, result) = end("echo out; echo why >&2; exit 3");
    assert_eq!((passed, failed), (0, 1));
    assert!(result.unwrap_err().starts_with("out\nwhy\nfailed (exit status: 3): "));
}

#[test]
fn only_the_accepted_statuses_are_a_success() {
    for (status, is_accepted) in [(0, true), (1, false), (2, false), (3, true)] {
        let mut runner = Runner { output: Box::new(io::sink()), ..Runner::default() };
        let script = format!("exit {status}");
        let result = runner.run_accepting(Command::new("sh").args(["-c", &script]), &[0, 3]);
        assert_eq!(result.is_ok(), is_accepted, "{status}");
        assert_eq!(runner.tally.failed, u64::from(!is_accepted), "{status}");
    }
    let mut runner = Runner { output: Box::new(io::sink()), ..Runner::default() };
    let killed = runner.run_accepting(Command::new("sh").args(["-c", "kill -9 $$"]), &[0, 3]);
    assert!(killed.is_err());
}

#[test]
fn two_commands_at_once_count_as_both_and_fail_if_one_does() {
    let file = target_folder().join(format!("run-both-{}.log", process::id()));
    fs::create_dir_all(target_folder()).unwrap();
    // Each waits for a file of the other, so one after the other they would fail.
    let script = "touch $0.$1; for n in $(seq 500); do test -e $0.$2 && exit $3; sleep 0.02; done";
    let command = |own: &str, other: &str, status: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{script}; exit 9")]).arg(&file).args([own, other, status]);
        command
    };
    for (statuses, failed) in [(["0", "0"], 0), (["0", "1"], 1), (["1", "0"], 1)] {
        let mut runner = Runner { output: Box::new(io::sink()), ..Runner::default() };
        let (mut one, mut two) =
            (command("one", "two", statuses[0]), command("two", "one", statuses[1]));
        let result = runner.run_both(&mut one, &mut two, &file);
        assert_eq!(result.is_err(), failed > 0, "{statuses:?}: {result:?}");
        assert_eq!(runner.tally, Tally { passed: 2 - failed, failed });
        assert!(fs::read_to_string(&file).unwrap().contains("\"two\" \"one\""));
        for own in ["one", "two"] {
            fs::remove_file(file.with_extension(format!("log.{own}"))).unwrap();
        }
    }
    fs::remove_file(file).unwrap();
}
