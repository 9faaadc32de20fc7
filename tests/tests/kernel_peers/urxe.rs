//! urxe, as an unprivileged user, against each kernel, in both roles.

use urxe_tests::kernel::{Impairment, Lab, Series};

use crate::{
    case::{Case, Failure},
    clean::{balance, books},
    players::{Family, Node, Patience, Pingpong, Play, Transport, roles},
};

const MESSAGES: &[&str] = &["SEND", "SEND_IMM", "WRITE", "WRITE_IMM", "READ"];
const ATOMICS: &[&str] = &["FAA", "CAS", "CAS_MISS"];

/// Server and client of a test.
#[derive(Debug, Clone, Copy)]
struct Pair {
    series: Series,
    /// Whether urxe is the server.
    serves: bool,
}

impl Pair {
    fn nodes(self, lab: &Lab) -> (Node<'_>, Node<'_>) {
        roles(lab, self.series, self.serves)
    }

    fn pingpong(self, lab: &Lab, run: Pingpong) -> Result<(), Failure> {
        let (server, client) = self.nodes(lab);
        run.run(lab, server, client)
    }

    fn play(self, lab: &Lab, play: Play) -> Result<(), Failure> {
        let (server, client) = self.nodes(lab);
        play.run(lab, server, client)
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for series in Series::ALL {
        for (role, serves) in [("serves", true), ("client_of", false)] {
            let pair = Pair { series, serves };
            let name = format!("urxe::{role}_{}", series.name());
            let mut case = |what: &str, body: fn(Pair, &Lab) -> Result<(), Failure>| {
                cases.push(Case::new(format!("{name}::{what}"), move |lab| body(pair, lab)));
            };
            case("pingpong_sizes_v4", |pair, lab| pingpong_sizes(pair, lab, Family::V4));
            case("pingpong_sizes_v6", |pair, lab| pingpong_sizes(pair, lab, Family::V6));
            case("pingpong_1_mib", |pair, lab| {
                Family::ALL.into_iter().try_for_each(|family| {
                    let run = Pingpong { count: 4, ..Pingpong::new(family, 1 << 20, 4096) };
                    pair.pingpong(lab, run)
                })
            });
            case("pingpong_path_mtus", pingpong_path_mtus);
            case("shared_receive_queue", shared_receive_queue);
            case("unreliable_connection", unreliable_connection);
            case("datagrams", datagrams);
            case("operations_sizes", operations_sizes);
            case("operations_path_mtus_v6", operations_path_mtus);
            case("atomics", atomics);
            case("inline_and_pieces", inline_and_pieces);
            case("memory_windows", memory_windows);
            case("link_of_1500", link_of_1500);
            case("wrong_key", wrong_key);
            case("loss", |pair, lab| {
                under(pair, lab, Impairment { loss: 2.0, ..Impairment::default() })
            });
            case("duplication", |pair, lab| {
                under(pair, lab, Impairment { duplicate: 10.0, ..Impairment::default() })
            });
            case("reordering", |pair, lab| {
                under(pair, lab, Impairment { reorder: 30.0, delay_ms: 2, ..Impairment::default() })
            });
            if series == Series::V6_12 {
                case("atomic_write_and_flush", newer);
            }
        }
    }
    cases
}

fn pingpong_sizes(pair: Pair, lab: &Lab, family: Family) -> Result<(), Failure> {
    for size in [1, 2, 255, 1024, 1025, 65536] {
        pair.pingpong(lab, Pingpong::new(family, size, 1024))?;
    }
    Ok(())
}

fn pingpong_path_mtus(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    let [v4, v6] = Family::ALL;
    for (mtu, family) in [(256, v4), (256, v6), (512, v4), (1024, v6), (2048, v4), (4096, v6)] {
        pair.pingpong(lab, Pingpong { count: 10, ..Pingpong::new(family, 40_000, mtu) })?;
    }
    Ok(())
}

fn shared_receive_queue(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    let [v4, v6] = Family::ALL;
    for (family, size, qps, count) in
        [(v4, 4096, 16, 1000), (v6, 1, 1, 100), (v4, 20_001, 100, 500)]
    {
        pair.pingpong(lab, Pingpong::shared(family, size, qps, count))?;
    }
    Ok(())
}

fn unreliable_connection(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    let [v4, v6] = Family::ALL;
    for (family, size, mtu) in
        [(v4, 4096, 1024), (v6, 4096, 1024), (v4, 1, 256), (v6, 20_001, 4096)]
    {
        let transport = Transport::Uc;
        pair.pingpong(lab, Pingpong { transport, count: 100, ..Pingpong::new(family, size, mtu) })?;
    }
    Ok(())
}

/// Up to the longest that the link of the guests has.
fn datagrams(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    let [v4, v6] = Family::ALL;
    for (family, size) in [(v4, 2048), (v6, 2048), (v4, 4096), (v6, 1)] {
        let transport = Transport::Ud;
        let run = Pingpong { transport, count: 100, ..Pingpong::new(family, size, 4096) };
        pair.pingpong(lab, run)?;
    }
    Ok(())
}

fn operations_sizes(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    for size in [0, 1, 1023, 65536] {
        pair.play(lab, Play::new(Family::V4, MESSAGES, size, 1024))?;
    }
    // One by one: the shorter a run, the less a busy machine disturbs it.
    MESSAGES.chunks(1).try_for_each(|operation| {
        pair.play(lab, Play { count: 4, ..Play::new(Family::V4, operation, 1 << 20, 4096) })
    })
}

fn operations_path_mtus(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    for mtu in [256, 512, 1024, 2048, 4096] {
        pair.play(lab, Play::new(Family::V6, MESSAGES, 20_001, mtu))?;
    }
    Ok(())
}

fn atomics(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    pair.play(lab, Play { count: 100, ..Play::new(Family::V4, ATOMICS, 8, 1024) })
}

/// Of the server; the client uses and invalidates them.
fn memory_windows(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    let operations = &["MW_WRITE", "MW_READ", "MW1_WRITE", "SEND_INV"];
    pair.play(lab, Play::new(Family::V4, operations, 5000, 1024))?;
    pair.play(lab, Play { count: 32, ..Play::new(Family::V6, operations, 1, 4096) })?;
    pair.play(lab, Play::new(Family::V4, operations, 0, 256))?;
    // A key that was invalidated is good for nothing, and not only said to be gone.
    let play = Play { count: 4, ..Play::new(Family::V4, &["INV_THEN_WRITE"], 64, 1024) };
    play.fails_with(lab, pair.nodes(lab), "wc status 10 (remote access error)")?;
    let play = Play { more: "-k 100", count: 1, ..Play::new(Family::V4, &["MW_WRITE"], 64, 1024) };
    play.fails_with(lab, pair.nodes(lab), "wc status 10 (remote access error)")
}

/// 6.1 has neither.
fn newer(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    for family in Family::ALL {
        pair.play(lab, Play { count: 100, ..Play::new(family, &["ATOMIC_WRITE"], 8, 1024) })?;
        for size in [1, 4096, 40_000] {
            pair.play(lab, Play::new(family, &["FLUSH"], size, 1024))?;
        }
    }
    let play =
        Play { more: "-k 100", count: 1, ..Play::new(Family::V4, &["ATOMIC_WRITE"], 8, 1024) };
    play.fails_with(lab, pair.nodes(lab), "wc status 10 (remote access error)")
}

fn inline_and_pieces(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    let inline: &[&str] = &["SEND", "SEND_IMM", "WRITE", "WRITE_IMM"];
    pair.play(lab, Play { more: "-I", ..Play::new(Family::V4, inline, 200, 1024) })?;
    pair.play(lab, Play { more: "-S 7", ..Play::new(Family::V6, MESSAGES, 9001, 1024) })
}

/// As between most machines: an Ethernet MTU of 1500 carries a path MTU of 1024.
fn link_of_1500(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    let guest = lab.guest(pair.series);
    lab.network().set_bridge_mtu(1500)?;
    guest.set_mtu(1500)?;
    let outcome = pair
        .play(lab, Play::new(Family::V4, MESSAGES, 100_000, 1024))
        .and_then(|()| pair.pingpong(lab, Pingpong::new(Family::V6, 100_000, 1024)));
    guest.set_mtu(lab.network().mtu())?;
    lab.network().set_bridge_mtu(lab.network().mtu())?;
    outcome
}

fn wrong_key(pair: Pair, lab: &Lab) -> Result<(), Failure> {
    for operation in [&["WRITE"], &["READ"]] {
        let play = Play { more: "-k 100", count: 1, ..Play::new(Family::V4, operation, 64, 1024) };
        play.fails_with(lab, pair.nodes(lab), "wc status 10 (remote access error)")?;
    }
    Ok(())
}

fn under(pair: Pair, lab: &Lab, impairment: Impairment) -> Result<(), Failure> {
    // rdma_rxe obeys one sequence NAK for each acknowledgement of something new, and a NAK that
    // overtakes its acknowledgement is in vain: then it waits 67 ms for its timer, dozens of times
    // in a run like the others.
    let fewer = if impairment.reorder > 0.0 { 4 } else { 1 };
    let impaired = lab.guest(pair.series).impair(impairment)?;
    let (patience, count) = (Patience::Usual, 20 / fewer);
    pair.pingpong(lab, Pingpong { patience, count, ..Pingpong::new(Family::V4, 16_384, 1024) })?;
    let play = Play { patience, count, ..Play::new(Family::V6, MESSAGES, 20_000, 1024) };
    let (server, client) = pair.nodes(lab);
    let ends = books(lab, || play.once(lab, server, client))?;
    pair.play(lab, Play { patience, count: 50, ..Play::new(Family::V4, ATOMICS, 8, 1024) })?;
    if impairment.loss > 0.0 {
        assert!(impaired.lost()? > 0, "netem lost nothing");
        assert!(balance(&ends).is_err(), "the check of clean links must see packets that are lost");
    }
    Ok(impaired.heal()?)
}
