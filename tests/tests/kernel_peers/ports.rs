//! Packets of a kernel whose UDP source port changes in the middle of a connection. urxe gives
//! received packets other ports with the ICRCs that belong to them. The kernel's own ports never
//! change, and `rdma_rxe` compares none.

use urxe_tests::kernel::{Series, Testbed};
use urxe_tests::programs::lists;

use crate::case::{Case, Failure};
use crate::nodes::roles;
use crate::programs::run_pair;

/// The port of every fifth packet is another one.
const FAULTS: &str = "rebind=20%,seed=1";

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let case = |series: Series, serves: bool| {
        let role = if serves { "served_to" } else { "of_clients_of" };
        Case::new(format!("ports::changes_{role}_{}", series.name()), move |testbed| {
            changes(testbed, series, serves)
        })
    };
    both.into_iter().flat_map(|series| [case(series, true), case(series, false)]).collect()
}

fn changes(testbed: &Testbed, series: Series, serves: bool) -> Result<(), Failure> {
    let (server, client) = roles(testbed, series, serves);
    let before = testbed.guest(series).counters()?;
    for pair in lists::with_each_operation() {
        let [of_server, of_client] = run_pair(testbed, &pair, server, client, Some(FAULTS))?;
        let log = if serves { of_server } else { of_client };
        if !pair.is_perftest() && count(&log, "rebound") == 0 {
            return Err(Failure::missing_output(pair.to_string(), log, "that ports changed"));
        }
        if count(&log, "unknown_port") != 0 {
            let expected = "that no packet was dropped for its port";
            return Err(Failure::missing_output(pair.to_string(), log, expected));
        }
    }
    // The connections went on with each new port, so no packet was missing. The guest may send
    // again all the same: the timer of `rdma_rxe` goes on while a queue pair has nothing to send.
    // So it may fire at once after an idle time, which `ibv_rc_pingpong` on a slow guest has.
    let moved = testbed.guest(series).counters()?.since(&before);
    match moved.value("out_of_seq_request") {
        0 => Ok(()),
        _ => Err(Failure::Faults { counters: moved.faults().to_string() }),
    }
}

/// Returns a number in the message about the faults.
fn count(log: &str, name: &str) -> u32 {
    let number = log.split(&format!("{name}=")).nth(1).unwrap_or_default();
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    number[..digits].parse().unwrap_or_default()
}
