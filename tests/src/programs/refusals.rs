//! The expected answers to bad input, which `tests/programs/refusals.c` prints. `refusals.tsv` has
//! a line for each case: the answer of urxe, and, where they differ, the answer of the original
//! (rdma-core 44 over `rdma_rxe`; "A | B" where kernels differ) and the reason.

/// A case.
struct Case<'a> {
    name: &'a str,
    urxe: &'a str,
    original: &'a str,
}

const EXPECTED: &str = include_str!("../../programs/refusals.tsv");

fn expected() -> impl Iterator<Item = Case<'static>> {
    EXPECTED.lines().map(|line| {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let [name, urxe, original] = [next(), next(), next()];
        Case { name, urxe, original: if original.is_empty() { urxe } else { original } }
    })
}

/// Checks the output of the program over urxe.
///
/// # Errors
/// The cases with another answer, missing and unexpected cases.
pub fn check_urxe(output: &str) -> Result<(), String> {
    check(output, expected().map(|case| (case.name, case.urxe)))
}

/// Checks the output of the program over a kernel's device.
///
/// # Errors
/// As [`check_urxe`].
pub fn check_original(output: &str) -> Result<(), String> {
    check(output, expected().map(|case| (case.name, case.original)))
}

fn check<'a>(
    output: &str,
    expected: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), String> {
    let answers: Vec<(&str, &str)> =
        output.lines().filter_map(|line| line.split_once('\t')).collect();
    let expected: Vec<(&str, &str)> = expected.collect();
    let mut wrong = String::new();
    for (name, answer) in &answers {
        match expected.iter().find(|(other, _)| other == name) {
            Some((_, due)) if due.split(" | ").any(|due| due == *answer) => {}
            Some((_, wanted)) => wrong += &format!("{name}: {answer}, expected {wanted}\n"),
            None => wrong += &format!("{name}: {answer}, which refusals.tsv does not list\n"),
        }
    }
    for (name, _) in
        expected.iter().filter(|(name, _)| !answers.iter().any(|(other, _)| other == name))
    {
        wrong += &format!("{name}: no answer\n");
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_is_explained_and_no_case_comes_twice() {
        let mut names: Vec<&str> = expected().map(|case| case.name).collect();
        assert!(names.len() > 150, "{}", names.len());
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]));
        for line in EXPECTED.lines() {
            let columns = line.split('\t').count();
            assert!(columns == 2 || columns == 4, "{line}");
        }
    }

    #[test]
    fn other_missing_and_new_answers_are_reported() {
        let due = || [("a", "0"), ("b", "EINVAL")].into_iter();
        assert_eq!(check("a\t0\nb\tEINVAL\n", due()), Ok(()));
        for wrong in ["a\t0\n", "a\t0\nb\t0\n", "a\t0\nb\tEINVAL\nc\t0\n"] {
            assert!(check(wrong, due()).is_err(), "{wrong}");
        }
    }
}
