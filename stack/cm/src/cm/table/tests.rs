use std::collections::BTreeSet;

use super::*;

#[test]
fn each_state_and_input_has_at_most_one_row() {
    for state in CmState::ALL {
        for input in Input::ALL {
            let rows = TABLE
                .iter()
                .filter(|Row(from, of, ..)| *of == input && from.contains(&state))
                .count();
            assert!(rows <= 1, "{rows} rows for {input} in {state}");
        }
    }
}

#[test]
fn every_state_can_be_entered_and_left() {
    let mut reached = BTreeSet::from([CmState::Idle]);
    // Requests of peers start in these states.
    reached.extend([CmState::ReqRcvd, CmState::SidrReqRcvd]);
    for Row(from, _, _, next) in TABLE {
        assert!(!from.is_empty());
        reached.extend(*next);
    }
    assert_eq!(reached, BTreeSet::from(CmState::ALL));
    for state in CmState::ALL {
        let leaves = TABLE
            .iter()
            .any(|Row(from, _, _, next)| from.contains(&state) && next.is_some_and(|n| n != state));
        assert!(leaves, "{state} is for ever");
    }
}

/// States with retransmission have a row for exhausted retries, and other states do not.
#[test]
fn requests_with_retransmission_end_some_time() {
    let asking: BTreeSet<_> = TABLE
        .iter()
        .filter(|Row(_, _, action, _)| {
            matches!(action, Action::SendRequest | Action::ExtendTimeout)
        })
        .filter_map(|Row(.., next)| *next)
        .collect();
    for state in CmState::ALL {
        assert_eq!(
            step(state, Input::RetriesExhausted).is_some(),
            asking.contains(&state),
            "{state}"
        );
        assert_eq!(
            step(state, Input::TimewaitExit).is_some(),
            state == CmState::Timewait,
            "{state}"
        );
    }
}

#[test]
fn a_program_can_end_a_connection_in_every_state() {
    use CmState::*;
    for state in CmState::ALL {
        let ends = [Input::CallRej, Input::CallDreq, Input::CallDrep, Input::CallSidrRep];
        let has_end = ends.into_iter().any(|input| step(state, input).is_some());
        let goes_by_itself = matches!(state, Idle | DreqSent | Timewait | SidrReqSent);
        assert!(has_end != goes_by_itself, "{state}");
    }
}
