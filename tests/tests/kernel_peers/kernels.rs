//! Kernel to kernel: the harness itself must pass these tests before its results count.

use std::time::Duration;

use urxe_tests::kernel::{Guest, Impairment, Series, Testbed};
use urxe_tests::programs::refusals::check_original;

use crate::{
    case::{Case, Failure, GuestBody, output_with},
    nodes::{Family, Node, OperationRun, Pingpong, RetryTimeout},
};

pub fn cases(both: [Series; 2]) -> Vec<Case> {
    let mut cases = vec![
        Case::new("kernels::devices", devices),
        Case::new("kernels::commands", commands),
        Case::new("kernels::faults", faults),
        Case::new("kernels::wrong_key", wrong_key),
    ];
    for series in both {
        let mut case = |what: &str, body: GuestBody| {
            let name = format!("kernels::{what}_{}", series.name());
            cases.push(Case::with_guest(name, series, body));
        };
        case("refusals", refusals);
        case("events", events);
        case("lifetimes", lifetimes);
    }
    let [old, new] = both;
    for (server, client) in [(old, new), (new, old)] {
        let pair = format!("{}_serves_{}", server.name(), client.name());
        for family in Family::ALL {
            cases.push(Case::new(
                format!("kernels::pingpong::{pair}::{}", family.name()),
                move |testbed| {
                    let (server, client) = (kernel(testbed, server), kernel(testbed, client));
                    Pingpong::new(family, 65536, 4096).run(testbed, server, client)
                },
            ));
        }
        cases.push(Case::new(format!("kernels::operations::{pair}"), move |testbed| {
            operations(testbed, kernel(testbed, server), kernel(testbed, client))
        }));
    }
    cases
}

fn kernel(testbed: &Testbed, series: Series) -> Node<'_> {
    Node::Kernel(testbed.guest(series))
}

fn devices(testbed: &Testbed) -> Result<(), Failure> {
    for guest in testbed.guests() {
        let wanted = ["PORT_ACTIVE", "active_mtu:\t\t4096", "GID[  1]"];
        output_with(guest.run("ibv_devinfo -d rxe0 -v")?, &wanted)?;
    }
    Ok(())
}

fn commands(testbed: &Testbed) -> Result<(), Failure> {
    const LIMIT: Duration = Duration::from_secs(20);
    let [guest, _] = testbed.old_and_new();
    let slow = guest.start(r#"echo 'it'"'"'s on'; sleep 0.3; echo end; exit 7"#)?;
    let quick = guest.run("echo quick; ls /nowhere")?;
    let slow = slow.finish(LIMIT)?;
    assert_eq!((slow.status, slow.output.as_str()), (7, "it's on\nend\n"));
    assert_eq!(quick.status, 1);
    assert!(
        quick.output.starts_with("quick\n") && quick.output.contains("/nowhere"),
        "{}",
        quick.output
    );
    // Dropping a job kills all its processes.
    let mut dropped = guest.start("sleep 1000 & echo started; sleep 1000")?;
    dropped.wait_for("started", LIMIT)?;
    let sleepers = || {
        guest.run("ps | grep -c '[s]leep 1000$'").map(|counted| counted.output.trim().to_owned())
    };
    assert_eq!(sleepers()?, "2");
    drop(dropped);
    assert_eq!(sleepers()?, "0");
    Ok(())
}

fn operations(testbed: &Testbed, server: Node<'_>, client: Node<'_>) -> Result<(), Failure> {
    const ALL: &[&str] = &["SEND", "SEND_IMM", "SEND_INV", "WRITE", "WRITE_IMM", "READ"];
    let of_size = |size, mtu| OperationRun::new(Family::V4, ALL, size, mtu);
    of_size(0, 1024).run(testbed, server, client)?;
    of_size(1, 1024).run(testbed, server, client)?;
    OperationRun { more: "-S 4", ..of_size(5000, 256) }.run(testbed, server, client)?;
    let operations = &["SEND", "SEND_IMM", "WRITE", "WRITE_IMM"];
    OperationRun { more: "-I", operations, ..of_size(100, 1024) }.run(testbed, server, client)?;
    OperationRun { count: 8, family: Family::V6, ..of_size(1 << 20, 4096) }
        .run(testbed, server, client)?;
    OperationRun::new(Family::V4, &["FAA", "CAS", "CAS_MISS"], 8, 1024).run(testbed, server, client)
}

/// Checks the errors of the original, with which urxe's are compared.
fn refusals(_: &Testbed, guest: &Guest) -> Result<(), Failure> {
    let output = guest.run("refusals")?.ok()?;
    check_original(&output).map_err(Failure::Program)
}

/// Checks a kernel's events when an interface and its addresses change, with which urxe's `events`
/// (of the programs) are compared. urxe also raises client reregistration, and reports the port
/// before the addresses that disappear with it. A kernel removes these addresses in a work item, so
/// it reports them before or after the port. The test uses an interface of its own, because the
/// other carries the shell.
fn events(_: &Testbed, guest: &Guest) -> Result<(), Failure> {
    const DEVICE: &str = "ip=/usr/bin/ip; $ip link add port0 type ifb && \
        $ip link set port0 addrgenmode none && $ip address add 10.99.0.1/24 dev port0 && \
        $ip link set port0 up && rdma link add rxe1 type rxe netdev port0";
    /// The events of each change, sorted.
    const CHANGES: [(&str, &[&str]); 8] = [
        ("link set port0 down", &["PORT_ERR (10)"]),
        ("link set port0 up", &["PORT_ACTIVE (9)"]),
        ("address add 10.99.0.2/24 dev port0", &["GID_CHANGE (18)"]),
        ("address del 10.99.0.2/24 dev port0", &["GID_CHANGE (18)"]),
        ("address add fd99::1/64 dev port0 nodad", &["GID_CHANGE (18)"]),
        ("address del fd99::1/64 dev port0", &["GID_CHANGE (18)"]),
        ("address add fd99::2/64 dev port0 nodad", &["GID_CHANGE (18)"]),
        ("link set port0 down again", &["GID_CHANGE (18)", "PORT_ERR (10)"]),
    ];
    // Waits up to 5 s for a number of lines, and then for events that are too many.
    const WAIT: &str = "wait_for() { for i in $(seq 50); do \
        [ $(grep -c \"$1\" /tmp/events) -ge $2 ] && break; sleep 0.1; done; sleep 0.2; }";
    let mut script = format!(
        "{DEVICE}; {WAIT}; : > /tmp/events; ibv_asyncwatch -d rxe1 >> /tmp/events & \
         wait_for 'async event FD' 1; "
    );
    let (mut due, mut count) = (Vec::new(), 0);
    for (change, expected) in CHANGES {
        let command = change.trim_end_matches(" again");
        count += expected.len();
        script += &format!(
            "echo '{change}' >> /tmp/events; $ip {command}; wait_for event_type {count}; "
        );
        due.push(change.to_owned());
        let line = |event: &&str| format!("  event_type IBV_EVENT_{event}, port 1");
        due.extend(expected.iter().map(line));
    }
    script += "ibv_devinfo -d rxe1 -v | grep PORT_DOWN; kill $!; cat /tmp/events; \
               rdma link delete rxe1; $ip link del port0";
    let output = output_with(guest.run(&script)?, &["PORT_DOWN (1)"])?;
    let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
    lines.drain(..lines.iter().position(|line| *line == due[0]).unwrap_or(0));
    for events in lines.chunk_by_mut(|a, b| a.starts_with(' ') && b.starts_with(' ')) {
        events.sort_unstable();
    }
    if lines == due { Ok(()) } else { Err(Failure::missing_output(script, output, due.join("\n"))) }
}

/// The expectations of this program about urxe's librdmacm hold for the original.
fn lifetimes(_: &Testbed, guest: &Guest) -> Result<(), Failure> {
    guest.start(&format!("cm_lifetimes {}", guest.v4()))?.finish(Duration::from_secs(100))?.ok()?;
    Ok(())
}

/// Both the harness and the kernel refuse a wrong key.
fn wrong_key(testbed: &Testbed) -> Result<(), Failure> {
    for operation in [&["WRITE"], &["READ"]] {
        let operation_run = OperationRun {
            more: "-k 100",
            count: 1,
            ..OperationRun::new(Family::V4, operation, 64, 1024)
        };
        let pair = testbed.old_and_new().map(Node::Kernel).into();
        operation_run.fails_with(testbed, pair, "wc status 10 (remote access error)")?;
    }
    Ok(())
}

fn faults(testbed: &Testbed) -> Result<(), Failure> {
    let [server, client] = testbed.old_and_new();
    let impaired =
        client.impair(Impairment { loss: 2.0, duplicate: 2.0, reorder: 20.0, delay_ms: 2 })?;
    let (retry_timeout, count) = (RetryTimeout::Usual, 10);
    Pingpong { retry_timeout, count, ..Pingpong::new(Family::V4, 16384, 1024) }.run(
        testbed,
        Node::Kernel(server),
        Node::Kernel(client),
    )?;
    OperationRun {
        retry_timeout,
        count,
        ..OperationRun::new(Family::V6, &["WRITE", "READ", "SEND"], 20_000, 1024)
    }
    .run(testbed, Node::Kernel(server), Node::Kernel(client))?;
    assert!(impaired.lost()? > 0);
    Ok(impaired.remove()?)
}
