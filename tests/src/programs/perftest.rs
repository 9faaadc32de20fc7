//! The programs of `perftest`, without librdmacm (`-R`).

use super::{Expects, Pair};

/// Messages of each queue pair: a multiple of every posting list used here, as perftest requires.
const MESSAGES: u64 = 96;
/// The largest size of `-a`; the smallest is 2.
const LARGEST: u64 = 8 << 20;
/// The largest size of a datagram, which is one packet.
const LARGEST_DATAGRAM: u64 = 4096;

/// A program with the options that change its rows, and further options.
#[derive(Clone, Debug)]
pub struct Perftest {
    program: &'static str,
    connection: &'static str,
    size: Option<u64>,
    qps: u64,
    messages: u64,
    more: Vec<String>,
}

impl Perftest {
    /// Creates a run with messages of 2048 bytes.
    #[must_use]
    pub fn new(program: &'static str, connection: &'static str) -> Self {
        Self { program, connection, size: Some(2048), qps: 1, messages: MESSAGES, more: Vec::new() }
    }

    /// Sets the message size.
    #[must_use]
    pub fn size(self, bytes: u64) -> Self {
        Self { size: Some(bytes), ..self }
    }

    /// Runs all sizes.
    #[must_use]
    pub fn all_sizes(self) -> Self {
        Self { size: None, ..self }
    }

    /// Sets the number of queue pairs.
    #[must_use]
    pub fn qps(self, qps: u64) -> Self {
        Self { qps, ..self }
    }

    /// Sets the number of messages of each queue pair.
    #[must_use]
    pub fn messages(self, messages: u64) -> Self {
        Self { messages, ..self }
    }

    /// Adds options.
    #[must_use]
    pub fn with(mut self, options: &str) -> Self {
        self.more.extend(options.split_whitespace().map(str::to_owned));
        self
    }

    fn is_atomic(&self) -> bool {
        self.program.starts_with("ib_atomic")
    }

    fn sizes(&self) -> Vec<u64> {
        // The sum of both directions, then each direction.
        let times = if self.more.iter().any(|option| option == "--report-both") { 3 } else { 1 };
        self.sizes_once().repeat(times)
    }

    fn sizes_once(&self) -> Vec<u64> {
        let largest = if self.connection == "UD" { LARGEST_DATAGRAM } else { LARGEST };
        match self.size {
            _ if self.is_atomic() => vec![8],
            Some(size) => vec![size],
            None => (1..).map(|log2| 1 << log2).take_while(|size| *size <= largest).collect(),
        }
    }

    /// Returns the pair. `-F` suppresses the warning about the processor's clock.
    #[must_use]
    pub fn pair(self) -> Pair {
        let mut options = format!("-F -c {} -n {}", self.connection, self.messages);
        if !self.is_atomic() {
            options += &self.size.map_or_else(|| " -a".to_owned(), |size| format!(" -s {size}"));
        }
        if self.qps > 1 {
            options += &format!(" -q {}", self.qps);
        }
        for option in &self.more {
            options += " ";
            options += option;
        }
        let expects = Expects::Rows { sizes: self.sizes(), messages: self.messages * self.qps };
        Pair { program: self.program, options, expects }
    }
}

/// Returns the columns of a client's last row: bytes, messages, and the figures.
#[must_use]
pub fn figures(client: &str) -> Option<Vec<f64>> {
    let row = client.lines().rfind(|line| super::row(line).is_some())?;
    row.split_whitespace().map(|column| column.parse().ok()).collect()
}

/// Every program with its services. XRC is last, because `rdma_rxe` does not support XRC.
pub const SERVICES: [(&str, &[&str]); 8] = [
    ("ib_write_bw", &["RC", "UC", "XRC"]),
    ("ib_read_bw", &["RC", "XRC"]),
    ("ib_send_bw", &["RC", "UC", "UD", "XRC"]),
    ("ib_atomic_bw", &["RC", "XRC"]),
    ("ib_write_lat", &["RC", "UC", "XRC"]),
    ("ib_read_lat", &["RC", "XRC"]),
    ("ib_send_lat", &["RC", "UC", "UD", "XRC"]),
    ("ib_atomic_lat", &["RC", "XRC"]),
];

/// Options of every program, one at a time.
const OPTIONS: [&str; 12] = [
    "-x 0",
    "-x 1",
    "-m 256",
    "-m 512",
    "-m 1024",
    "-m 2048",
    "-m 4096",
    "--use_old_post_send",
    "--tclass=96",
    "-u 16",
    "-S 3",
    "--pkey_index=0",
];
/// Further options of the bandwidth programs. The warm-up waits for a completion that only `-Q 1`
/// requests.
const OPTIONS_BW: [&str; 8] = [
    "--report_gbits",
    "-N",
    "--reversed",
    "-b --report-both",
    "-t 16",
    "-Q 8",
    "--mr_per_qp",
    "--perform_warm_up -Q 1",
];
/// Further options of the latency programs.
const OPTIONS_LAT: [&str; 5] = ["-U", "-H", "-C", "--latency_gap=10", "--perform_warm_up"];
/// Returns pairs for every program and service: all combinations of the main options, all sizes,
/// and each other option alone.
#[must_use]
pub fn all() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (program, connections) in SERVICES {
        for &connection in connections {
            let new = || Perftest::new(program, connection);
            combine(&mut pairs, program, connection);
            let events: &[&str] = if program.contains("write") { &[""] } else { &["", "-e"] };
            let both: &[&str] = if program.ends_with("_bw") { &["", "-b"] } else { &[""] };
            if !new().is_atomic() {
                for (events, both) in events.iter().flat_map(|e| both.iter().map(move |b| (e, b))) {
                    // All sizes together are 16 MiB for each message.
                    pairs.push(new().all_sizes().messages(16).with(events).with(both).pair());
                }
            }
            let own: &[&str] = if program.ends_with("_bw") { &OPTIONS_BW } else { &OPTIONS_LAT };
            // A datagram fits the path MTU.
            let size = |option: &str| {
                if connection == "UD" && option.starts_with("-m") { 256 } else { 2048 }
            };
            let each = OPTIONS.iter().chain(own);
            pairs.extend(each.map(|option| new().size(size(option)).with(option).pair()));
            // perftest itself refuses on-demand paging over UC, and for atomics.
            let own = of_its_own(program)
                .iter()
                .filter(|option| connection != "UC" || **option != "--odp");
            // An unreliable message without a receive is lost. So there are as many receives as
            // messages.
            let depth = |option: &str| {
                if ["UC", "UD"].contains(&connection) && option.contains("-r ") {
                    "-r 96"
                } else {
                    ""
                }
            };
            pairs.extend(own.map(|option| new().size(16).with(option).with(depth(option)).pair()));
        }
        if program.contains("atomic") {
            let kind = |kind| Perftest::new(program, "RC").with("-A").with(kind).pair();
            pairs.extend(["CMP_AND_SWAP", "FETCH_AND_ADD"].map(kind));
        }
    }
    pairs
}

/// Returns further options of one program.
fn of_its_own(program: &str) -> &'static [&'static str] {
    match program {
        "ib_send_bw" => &["--recv_post_list=4 -r 64", "--inline_recv=32", "--odp", "-r 8 -t 4"],
        "ib_send_lat" => &["--inline_recv=32", "--odp"],
        "ib_read_bw" | "ib_read_lat" => &["-o 4", "--odp"],
        "ib_atomic_bw" | "ib_atomic_lat" => &["-o 4"],
        _ => &["--odp"],
    }
}

/// Adds pairs for all combinations of events, both directions, several queue pairs, lists, inline
/// data and a shared receive queue that the program supports.
fn combine(pairs: &mut Vec<Pair>, program: &'static str, connection: &'static str) {
    let if_so = |condition: bool, option| if condition { vec!["", option] } else { vec![""] };
    let is_bw = program.ends_with("_bw");
    let sends = program.contains("send");
    let axes = [
        if_so(!program.contains("write"), "-e"),
        if_so(is_bw, "-b"),
        if_so(is_bw, "-l 8"),
        if_so(sends || program.contains("write"), "-I 64"),
        // XRC always uses a shared receive queue.
        if_so(sends && ["RC", "UD"].contains(&connection), "--use-srq -r 512"),
    ];
    for qps in if is_bw { &[1, 4][..] } else { &[1][..] } {
        let mut some = vec![String::new()];
        for axis in &axes {
            some = some
                .iter()
                .flat_map(|before| axis.iter().map(move |more| format!("{before} {more}")))
                .collect();
        }
        for options in some {
            // perftest never posts more receives than one queue pair has messages
            // (perftest_parameters.c). Here they serve four queue pairs, and datagrams without a
            // receive are lost, with the kernel's device (rxe_resp.c) as well.
            if connection == "UD" && *qps > 1 && options.contains("srq") {
                continue;
            }
            let size = if options.contains("-I") { 64 } else { 2048 };
            pairs.push(
                Perftest::new(program, connection).size(size).qps(*qps).with(&options).pair(),
            );
        }
    }
}
