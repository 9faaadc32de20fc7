//! rdma-core's own tests (`python3-pyverbs`), as an ordinary user.
//!
//! `tests/programs/suite` has the expected results. `passed-44.txt` (and `passed-56.txt` for newer
//! tests) names the tests that must pass, and `skipped.tsv` explains each reason for a skip.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::install::{install, ok, text_of};
use crate::pair::exclusive;

/// The package's folder of the tests, most of which are compressed.
const PACKAGED: &str = "/usr/share/doc/rdma-core/tests";

/// The minimum number of tests in a list, to detect a truncated file.
const AT_LEAST: usize = 130;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/suite")
}

fn expected(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// Unpacks the tests to a folder that the ordinary user can read.
fn unpack() -> PathBuf {
    assert!(
        Path::new(PACKAGED).is_dir(),
        "{PACKAGED} is not there: install python3-pyverbs, on a system that keeps /usr/share/doc"
    );
    let place = install().path("suite");
    fs::create_dir_all(&place).unwrap();
    ok(Command::new("cp").args(["-rL", PACKAGED]).arg(place.join("tests")));
    ok(Command::new("gunzip").arg("-rf").arg(place.join("tests")));
    fs::copy(folder().join("run.py"), place.join("run.py")).unwrap();
    ok(Command::new("chmod").args(["-R", "a+rX"]).arg(&place));
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    place
}

#[test]
fn the_tests_of_rdma_core_pass() {
    let _exclusive = exclusive();
    let place = unpack();
    let place = place.display();
    // The default device, because the tests of librdmacm get the interface's address from `ip`.
    let words = format!("-- timeout 300 python3 -B {place}/run.py {place}");
    check(&install().run(&words).output().unwrap(), "passed-44.txt");
}

/// Checks that no test failed, that every expected test passed, and that every skip is explained.
#[track_caller]
pub fn check(output: &Output, passed_before: &str) {
    let outputs = text_of(output);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<[&str; 3]> = text
        .lines()
        .filter_map(|line| line.split('\t').collect::<Vec<_>>().try_into().ok())
        .collect();
    let of = |kind: &str| -> Vec<[&str; 2]> {
        lines.iter().filter(|line| line[0] == kind).map(|[_, name, why]| [*name, *why]).collect()
    };

    assert!(
        output.status.success() && of("FAIL").is_empty() && of("ERROR").is_empty(),
        "{outputs}"
    );
    let passed: BTreeSet<&str> = of("ok").into_iter().map(|[name, _]| name).collect();
    let kept = expected(passed_before);
    let lost: Vec<&str> = kept.lines().filter(|name| !passed.contains(name)).collect();
    assert!(lost.is_empty(), "no longer passed: {lost:#?}\n{outputs}");
    assert!(kept.lines().count() >= AT_LEAST, "{passed_before} names fewer than {AT_LEAST}");
    let explained = expected("skipped.tsv");
    let reasons: Vec<&str> =
        explained.lines().map(|line| line.split_once('\t').unwrap().0).collect();
    for [name, why] in of("skip") {
        assert!(
            reasons.iter().any(|reason| why.starts_with(reason)),
            "{name} was skipped, and skipped.tsv does not explain: {why}"
        );
    }
}
