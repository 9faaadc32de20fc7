//! A model of the specification beside the implementation. After each random operation on both, all
//! visible state must be equal: completions with status and order, events, states, queues, and
//! every byte of memory.
//!
//! ```text
//! generate ─→ operation ─┬─→ specification (keys, queues, bytes; no packets) ─┐
//!                        └─→ two devices, a clean link, until no packet is left ─┴─→ equal?
//! ```
//! `URXE_SEED` runs a single seed. `URXE_MODEL_OPERATIONS` sets the total number of operations.

mod generate;
mod keys;
mod operation;
mod outcomes;
mod scenario;
mod specification;

use std::collections::{BTreeMap, VecDeque};

use clap::ValueEnum as _;
use operation::Operation;
use outcomes::OUTCOMES;
use scenario::Scenario;
use specification::OmittedRule;

const OPERATIONS: u64 = 200_000;
/// The number of verbs of one seed.
const PER_SEED: u64 = 2_000;

/// Runs a seed. Returns the counted outcomes, or the first difference with the preceding
/// operations.
fn run(
    seed: u64,
    omitted: Option<OmittedRule>,
) -> Result<(u64, BTreeMap<&'static str, u64>), String> {
    let mut scenario = Scenario::new(seed, omitted);
    let (mut done, mut last) = (0, VecDeque::new());
    while done < PER_SEED {
        let operation: Operation = scenario.generator.next(&scenario.model);
        done += operation.count();
        last.push_back(format!("{operation:?}"));
        if last.len() > 6 {
            last.pop_front();
        }
        if let Err(difference) = scenario.step(&operation) {
            let last = Vec::from(last).join("\n");
            return Err(format!(
                "after {done} operations: {difference}\nthe last ones were\n{last}"
            ));
        }
    }
    Ok((done, scenario.model.outcomes))
}

#[test]
fn the_implementation_agrees_with_the_model() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let one = number("URXE_SEED");
    let wanted = number("URXE_MODEL_OPERATIONS").unwrap_or(OPERATIONS);
    let (mut done, mut outcomes) = (0, BTreeMap::<_, u64>::new());
    let first = one.unwrap_or(0);
    for seed in first.. {
        let (more, met) = run(seed, None)
            .unwrap_or_else(|what| panic!("seed {seed}, {what}\nagain with URXE_SEED={seed}"));
        done += more;
        met.into_iter().for_each(|(outcome, count)| *outcomes.entry(outcome).or_default() += count);
        if one.is_some() || done >= wanted {
            println!("{done} operations, seeds {first} to {seed}");
            break;
        }
    }
    for (outcome, count) in &outcomes {
        println!("{count:>8}  {outcome}");
    }
    if done >= OPERATIONS {
        let statuses = [
            "local protection error",
            "Work Request Flushed Error",
            "memory management operation error",
            "local QP operation error",
            "remote invalid request error",
            "remote access error",
            "remote operation error",
            "transport retry counter exceeded",
            "RNR retry counter exceeded",
        ];
        let rare: Vec<_> = OUTCOMES
            .iter()
            .chain(&statuses)
            .filter(|outcome| outcomes.get(**outcome).is_none_or(|count| *count < 10))
            .collect();
        assert!(rare.is_empty(), "hardly ever met: {rare:?}");
    }
}

#[test]
fn a_model_without_one_of_its_rules_is_contradicted() {
    for &omitted in OmittedRule::value_variants() {
        assert!((0..20).any(|seed| run(seed, Some(omitted)).is_err()), "{omitted:?}");
    }
}

#[test]
fn a_byte_that_changes_by_itself_is_found() {
    let mut scenario = Scenario::new(1, None);
    let operation = Operation::ModifySrq { srq: 0, max_wr: None, limit: Some(0) };
    assert_eq!(scenario.step(&operation), Ok(()));
    scenario.corrupt_byte();
    assert!(scenario.step(&operation).is_err());
}
