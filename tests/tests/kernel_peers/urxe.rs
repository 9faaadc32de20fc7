//! urxe, as an unprivileged user, with each kernel, in both roles.

use urxe_tests::kernel::{Impairment, Series, Testbed};

use crate::{
    case::{Case, Failure},
    clean::{check_all_received, counters_during},
    nodes::{Family, Node, OperationRun, Pingpong, RetryTimeout, Transport, roles},
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
    fn nodes(self, testbed: &Testbed) -> (Node<'_>, Node<'_>) {
        roles(testbed, self.series, self.serves)
    }

    fn pingpong(self, testbed: &Testbed, run: Pingpong) -> Result<(), Failure> {
        let (server, client) = self.nodes(testbed);
        run.run(testbed, server, client)
    }

    fn run_operations(self, testbed: &Testbed, operation_run: OperationRun) -> Result<(), Failure> {
        let (server, client) = self.nodes(testbed);
        operation_run.run(testbed, server, client)
    }
}

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let mut cases = Vec::new();
    for series in both {
        for (role, serves) in [("serves", true), ("client_of", false)] {
            let pair = Pair { series, serves };
            let name = format!("urxe::{role}_{}", series.name());
            let mut case = |what: &str, body: fn(Pair, &Testbed) -> Result<(), Failure>| {
                cases
                    .push(Case::new(format!("{name}::{what}"), move |testbed| body(pair, testbed)));
            };
            case("pingpong_sizes_v4", |pair, testbed| pingpong_sizes(pair, testbed, Family::V4));
            case("pingpong_sizes_v6", |pair, testbed| pingpong_sizes(pair, testbed, Family::V6));
            case("pingpong_1_mib", |pair, testbed| {
                Family::ALL.into_iter().try_for_each(|family| {
                    let run = Pingpong { count: 4, ..Pingpong::new(family, 1 << 20, 4096) };
                    pair.pingpong(testbed, run)
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
            case("loss", |pair, testbed| {
                under(pair, testbed, Impairment { loss: 2.0, ..Impairment::default() })
            });
            case("duplication", |pair, testbed| {
                under(pair, testbed, Impairment { duplicate: 10.0, ..Impairment::default() })
            });
            case("reordering", |pair, testbed| {
                under(
                    pair,
                    testbed,
                    Impairment { reorder: 30.0, delay_ms: 2, ..Impairment::default() },
                )
            });
            if series >= Series::V6_12 {
                case("atomic_write_and_flush", newer);
            }
        }
    }
    cases
}

fn pingpong_sizes(pair: Pair, testbed: &Testbed, family: Family) -> Result<(), Failure> {
    for size in [1, 2, 255, 1024, 1025, 65536] {
        pair.pingpong(testbed, Pingpong::new(family, size, 1024))?;
    }
    Ok(())
}

fn pingpong_path_mtus(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    let [v4, v6] = Family::ALL;
    for (mtu, family) in [(256, v4), (256, v6), (512, v4), (1024, v6), (2048, v4), (4096, v6)] {
        pair.pingpong(testbed, Pingpong { count: 10, ..Pingpong::new(family, 40_000, mtu) })?;
    }
    Ok(())
}

fn shared_receive_queue(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    let [v4, v6] = Family::ALL;
    for (family, size, qps, count) in
        [(v4, 4096, 16, 1000), (v6, 1, 1, 100), (v4, 20_001, 100, 500)]
    {
        pair.pingpong(testbed, Pingpong::shared(family, size, qps, count))?;
    }
    Ok(())
}

fn unreliable_connection(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    let [v4, v6] = Family::ALL;
    for (family, size, mtu) in
        [(v4, 4096, 1024), (v6, 4096, 1024), (v4, 1, 256), (v6, 20_001, 4096)]
    {
        let transport = Transport::Uc;
        pair.pingpong(
            testbed,
            Pingpong { transport, count: 100, ..Pingpong::new(family, size, mtu) },
        )?;
    }
    Ok(())
}

/// Datagrams up to the longest on the guests' link.
fn datagrams(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    let [v4, v6] = Family::ALL;
    for (family, size) in [(v4, 2048), (v6, 2048), (v4, 4096), (v6, 1)] {
        let transport = Transport::Ud;
        let run = Pingpong { transport, count: 100, ..Pingpong::new(family, size, 4096) };
        pair.pingpong(testbed, run)?;
    }
    Ok(())
}

fn operations_sizes(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    for size in [0, 1, 1023, 65536] {
        pair.run_operations(testbed, OperationRun::new(Family::V4, MESSAGES, size, 1024))?;
    }
    // The operations run one by one, because a short run is disturbed less by a busy machine.
    MESSAGES.chunks(1).try_for_each(|operation| {
        pair.run_operations(
            testbed,
            OperationRun { count: 4, ..OperationRun::new(Family::V4, operation, 1 << 20, 4096) },
        )
    })
}

fn operations_path_mtus(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    for mtu in [256, 512, 1024, 2048, 4096] {
        pair.run_operations(testbed, OperationRun::new(Family::V6, MESSAGES, 20_001, mtu))?;
    }
    Ok(())
}

fn atomics(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    pair.run_operations(
        testbed,
        OperationRun { count: 100, ..OperationRun::new(Family::V4, ATOMICS, 8, 1024) },
    )
}

/// The server's memory windows, which the client uses and invalidates.
fn memory_windows(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    let operations = &["MW_WRITE", "MW_READ", "MW1_WRITE", "SEND_INV"];
    pair.run_operations(testbed, OperationRun::new(Family::V4, operations, 5000, 1024))?;
    pair.run_operations(
        testbed,
        OperationRun { count: 32, ..OperationRun::new(Family::V6, operations, 1, 4096) },
    )?;
    pair.run_operations(testbed, OperationRun::new(Family::V4, operations, 0, 256))?;
    // An invalidated key must grant nothing.
    let operation_run =
        OperationRun { count: 4, ..OperationRun::new(Family::V4, &["INV_THEN_WRITE"], 64, 1024) };
    operation_run.fails_with(testbed, pair.nodes(testbed), "wc status 10 (remote access error)")?;
    let operation_run = OperationRun {
        more: "-k 100",
        count: 1,
        ..OperationRun::new(Family::V4, &["MW_WRITE"], 64, 1024)
    };
    operation_run.fails_with(testbed, pair.nodes(testbed), "wc status 10 (remote access error)")
}

/// 6.1 supports neither operation.
fn newer(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    for family in Family::ALL {
        pair.run_operations(
            testbed,
            OperationRun { count: 100, ..OperationRun::new(family, &["ATOMIC_WRITE"], 8, 1024) },
        )?;
        for size in [1, 4096, 40_000] {
            pair.run_operations(testbed, OperationRun::new(family, &["FLUSH"], size, 1024))?;
        }
    }
    let operation_run = OperationRun {
        more: "-k 100",
        count: 1,
        ..OperationRun::new(Family::V4, &["ATOMIC_WRITE"], 8, 1024)
    };
    operation_run.fails_with(testbed, pair.nodes(testbed), "wc status 10 (remote access error)")
}

fn inline_and_pieces(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    let inline: &[&str] = &["SEND", "SEND_IMM", "WRITE", "WRITE_IMM"];
    pair.run_operations(
        testbed,
        OperationRun { more: "-I", ..OperationRun::new(Family::V4, inline, 200, 1024) },
    )?;
    pair.run_operations(
        testbed,
        OperationRun { more: "-S 7", ..OperationRun::new(Family::V6, MESSAGES, 9001, 1024) },
    )
}

/// The usual link: an Ethernet MTU of 1500 carries a path MTU of 1024.
fn link_of_1500(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    let guest = testbed.guest(pair.series);
    testbed.network().set_bridge_mtu(1500)?;
    guest.set_mtu(1500)?;
    let outcome = pair
        .run_operations(testbed, OperationRun::new(Family::V4, MESSAGES, 100_000, 1024))
        .and_then(|()| pair.pingpong(testbed, Pingpong::new(Family::V6, 100_000, 1024)));
    guest.set_mtu(testbed.network().mtu())?;
    testbed.network().set_bridge_mtu(testbed.network().mtu())?;
    outcome
}

fn wrong_key(pair: Pair, testbed: &Testbed) -> Result<(), Failure> {
    for operation in [&["WRITE"], &["READ"]] {
        let operation_run = OperationRun {
            more: "-k 100",
            count: 1,
            ..OperationRun::new(Family::V4, operation, 64, 1024)
        };
        operation_run.fails_with(
            testbed,
            pair.nodes(testbed),
            "wc status 10 (remote access error)",
        )?;
    }
    Ok(())
}

fn under(pair: Pair, testbed: &Testbed, impairment: Impairment) -> Result<(), Failure> {
    // rdma_rxe obeys one sequence NAK for each acknowledgement of something new, and ignores a NAK
    // that overtakes its acknowledgement. It then waits 67 ms for its timer, dozens of times in a
    // run of full length.
    let fewer = if impairment.reorder > 0.0 { 4 } else { 1 };
    let impaired = testbed.guest(pair.series).impair(impairment)?;
    let (retry_timeout, count) = (RetryTimeout::Usual, 20 / fewer);
    pair.pingpong(
        testbed,
        Pingpong { retry_timeout, count, ..Pingpong::new(Family::V4, 16_384, 1024) },
    )?;
    let operation_run = OperationRun {
        retry_timeout,
        count,
        ..OperationRun::new(Family::V6, MESSAGES, 20_000, 1024)
    };
    let (server, client) = pair.nodes(testbed);
    let ends = counters_during(testbed, || operation_run.once(testbed, server, client))?;
    pair.run_operations(
        testbed,
        OperationRun {
            retry_timeout,
            count: 50,
            ..OperationRun::new(Family::V4, ATOMICS, 8, 1024)
        },
    )?;
    if impairment.loss > 0.0 {
        assert!(impaired.lost()? > 0, "netem lost nothing");
        assert!(
            check_all_received(&ends).is_err(),
            "the check of clean links must see packets that are lost"
        );
    }
    Ok(impaired.remove()?)
}
