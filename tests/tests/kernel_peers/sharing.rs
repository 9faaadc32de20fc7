//! Four processes of urxe on one address, all of which communicate with one kernel at once.

use urxe_tests::kernel::{Series, Testbed};

use crate::{
    case::{Case, Failure},
    clean::on_clean_link,
    nodes::{Ended, Family, Pingpong, Transport, roles},
};

const PROCESSES: usize = 4;
/// The position of the process slot in a queue pair number.
const SLOT_SHIFT: u32 = 18;

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let all = [
        ("connections", [Transport::Rc; PROCESSES]),
        ("datagrams", [Transport::Ud; PROCESSES]),
        ("both", [Transport::Rc, Transport::Rc, Transport::Ud, Transport::Ud]),
    ];
    let [_, newer] = both;
    let kernel = newer.name();
    let mut cases = Vec::new();
    for (what, transports) in all {
        for family in Family::ALL {
            let name = format!("urxe::four_on_one_address_with_{kernel}::{what}_{}", family.name());
            cases.push(Case::new(name, move |testbed| at_once(testbed, newer, transports, family)));
        }
    }
    cases
}

/// Every second process serves the kernel, the others are its clients. Each end verifies its
/// messages.
fn at_once(
    testbed: &Testbed,
    series: Series,
    transports: [Transport; PROCESSES],
    family: Family,
) -> Result<(), Failure> {
    on_clean_link(testbed, || {
        let mut opened = Vec::new();
        for (number, transport) in transports.into_iter().enumerate() {
            // A datagram is one packet.
            let mtu = if transport == Transport::Ud { 4096 } else { 1024 };
            let run = Pingpong { transport, count: 200, ..Pingpong::new(family, 2000, mtu) };
            let (server, client) = roles(testbed, series, number % 2 == 0);
            opened.push(run.open(testbed, server, client)?);
        }
        let running =
            opened.into_iter().map(|opened| opened.start()).collect::<Result<Vec<_>, _>>()?;
        let ended =
            running.into_iter().map(|running| running.finish()).collect::<Result<Vec<_>, _>>()?;
        // A process takes the lowest free slot, so four slots prove four simultaneous processes.
        let mut slots = ended.iter().map(slot).collect::<Result<Vec<_>, _>>()?;
        slots.sort_unstable();
        if slots != [0, 1, 2, 3] {
            return Err(missing_output(&ended[0], &format!("slots 0 to 3 instead of {slots:?}")));
        }
        if let Some(astray) =
            ended.iter().find(|ended| ended.counters.iter().any(|c| c.value("forwarded") > 0))
        {
            return Err(missing_output(astray, "that no packet came to the wrong process"));
        }
        Ok(ended.into_iter().flat_map(|ended| ended.counters).collect())
    })
}

/// Returns the slot of urxe's queue pair, from the printed number.
fn slot(ended: &Ended) -> Result<u32, Failure> {
    let line =
        ended.output.lines().find_map(|line| line.trim_start().strip_prefix("local address:"));
    let number = line
        .and_then(|line| line.split_once("QPN 0x")?.1.split_once(','))
        .map(|(number, _)| number);
    let qpn = number.and_then(|number| u32::from_str_radix(number, 16).ok());
    qpn.map(|qpn| qpn >> SLOT_SHIFT)
        .ok_or_else(|| missing_output(ended, "the number of its queue pair"))
}

fn missing_output(ended: &Ended, wanted: &str) -> Failure {
    Failure::missing_output("urxe pingpong", &ended.output, wanted)
}
