//! Pairs of Debian's programs, a server and a client, and the checks of their outputs. Pairs run
//! between two processes of urxe (`tests/tests/programs`), and between urxe and a real kernel
//! (`tests/tests/kernel_peers`).
//!
//! The programs report failures by their exit status. [`Pair::check`] also checks the outputs: each
//! size was measured with the requested number of messages, and no byte was wrong.

use std::ops::RangeInclusive;
use std::time::Duration;
use std::{env, fmt, fs, thread};

pub mod deaths;
pub mod lists;
pub mod perftest;
pub mod pingpong;
pub mod refusals;

/// The program and options of both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The program.
    pub program: &'static str,
    /// Options of both ends.
    pub options: String,
    /// The expected output.
    pub expects: Expects,
}

/// The expected output of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expects {
    /// Both ends print the time taken, and no report of invalid data.
    Figures,
    /// Both ends print this line.
    Line(&'static str),
    /// The client prints a row for each of these sizes, with this number of messages.
    Rows {
        /// The message sizes, in bytes.
        sizes: Vec<u64>,
        /// The number of messages of each size.
        messages: u64,
    },
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program, self.options)
    }
}

impl Pair {
    /// Returns the option for the GID index, which differs between the ends.
    #[must_use]
    pub fn gid_flag(&self) -> &'static str {
        if self.is_perftest() { "-x" } else { "-g" }
    }

    /// Returns whether the program is one of perftest.
    #[must_use]
    pub fn is_perftest(&self) -> bool {
        self.program.starts_with("ib_")
    }

    /// Checks the outputs of two ends that exited with status 0.
    ///
    /// # Errors
    /// The missing or wrong output, as a text.
    pub fn check(&self, server: &str, client: &str) -> Result<(), String> {
        let both = [("server", server), ("client", client)];
        let each = |what: &str, fine: &dyn Fn(&str) -> bool| {
            both.iter().find(|(_, output)| !fine(output)).map_or(Ok(()), |(end, output)| {
                Err(format!("{self}: the {end} did not print {what}:\n{output}"))
            })
        };
        match &self.expects {
            Expects::Figures => each("a duration without invalid data", &|output| {
                output.contains("bytes in")
                    && output.contains("usec/iter")
                    && !output.contains("invalid data")
            }),
            Expects::Line(text) => each(text, &|output| output.lines().any(|line| line == *text)),
            Expects::Rows { sizes, messages } => {
                let wanted: Vec<[u64; 2]> = sizes.iter().map(|size| [*size, *messages]).collect();
                let rows: Vec<[u64; 2]> = client.lines().filter_map(row).collect();
                if rows == wanted {
                    return Ok(());
                }
                Err(format!("{self}: rows are {rows:?}, expected {wanted:?}\n{client}"))
            }
        }
    }
}

/// Returns the pair numbers of `URXE_PAIRS` (`351-548`, or `351` for all from there on), at most
/// `count`. Without the variable, returns all numbers.
///
/// # Panics
/// If the variable has another form.
#[must_use]
pub fn selected_pairs(count: usize) -> RangeInclusive<usize> {
    let Ok(text) = env::var("URXE_PAIRS") else { return 1..=count };
    let (first, last) = text.split_once('-').unwrap_or((&text, "1000000"));
    let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number > 0);
    let numbers = number(first).zip(number(last));
    let (first, last) =
        numbers.unwrap_or_else(|| panic!("URXE_PAIRS={text}: not FIRST or FIRST-LAST"));
    first..=last.min(count)
}

/// Returns whether a client of `rdma_cm` reports that the server does not listen yet, in the words
/// of any of these programs.
#[must_use]
pub fn is_early(client: &str) -> bool {
    let words = [
        "error 8",
        "error: 8",
        "blka 8",
        "Connection refused",
        "UNREACHABLE, error: 1",
        "UNREACHABLE; error: 1",
        "no program listens on port",
        "rpoll: Operation now",
    ];
    words.iter().any(|early| client.contains(early))
}

/// Waits until a socket of this network namespace listens on a TCP port. The function does not
/// connect, because the server would take the connection for the client.
///
/// # Errors
/// Fails if `server_ended` returns true, or no socket listens within half a minute.
pub fn wait_listening(port: u16, mut server_ended: impl FnMut() -> bool) -> Result<(), String> {
    let wanted = format!(":{port:04X}");
    let listening = |table: &str| {
        let text = fs::read_to_string(table).unwrap_or_default();
        // Fields: number, local address, remote address, state; 0A is LISTEN.
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| {
            fields.get(1).is_some_and(|local| local.ends_with(&wanted))
                && fields.get(3) == Some(&"0A")
        })
    };
    for _ in 0..6_000 {
        if listening("/proc/thread-self/net/tcp") || listening("/proc/thread-self/net/tcp6") {
            return Ok(());
        }
        if server_ended() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err(format!("no process listens on TCP port {port}"))
}

/// Returns bytes and messages of a row of perftest, whose other columns are figures.
fn row(line: &str) -> Option<[u64; 2]> {
    let mut columns = line.split_whitespace();
    let row = [columns.next()?.parse().ok()?, columns.next()?.parse().ok()?];
    let figures: Option<Vec<f64>> = columns.map(|column| column.parse().ok()).collect();
    figures.filter(|figures| !figures.is_empty()).map(|_| row)
}

/// Returns the milliseconds of one step for all connections, from the table that `cmtime` prints
/// for a client that makes and ends them.
fn step_ms(table: &str, step: &str) -> Option<f64> {
    steps(table).find(|(name, _)| *name == step).map(|(_, ms)| ms)
}

/// Returns the connections per second over the whole table of `cmtime`: from creating an identifier
/// over addresses, routes, queue pairs, connecting and disconnecting to destroying.
#[must_use]
pub fn whole_per_second(table: &str, connections: usize) -> Option<f64> {
    step_ms(table, "destroy")?;
    Some(connections as f64 * 1e3 / steps(table).map(|(_, ms)| ms).sum::<f64>())
}

/// Returns the connections per second from the table of `cmtime`, counting only connecting and
/// disconnecting.
#[must_use]
pub fn connected_per_second(table: &str, connections: usize) -> Option<f64> {
    Some(connections as f64 * 1e3 / (step_ms(table, "connect")? + step_ms(table, "disconnect")?))
}

fn steps(table: &str) -> impl Iterator<Item = (&str, f64)> {
    table.lines().filter_map(|line| {
        let (name, figures) = line.split_once(':')?;
        Some((name.trim(), figures.split_whitespace().next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = concat!(
        " #bytes     #iterations    BW peak[MB/sec]\n",
        " 2          100              0.22               0.18\n"
    );

    fn rows(sizes: &[u64], messages: u64) -> Pair {
        let expects = Expects::Rows { sizes: sizes.to_vec(), messages };
        Pair { program: "ib_write_bw", options: String::new(), expects }
    }

    #[test]
    fn each_size_must_have_its_row_with_all_messages() {
        assert_eq!(rows(&[2], 100).check("", ROWS), Ok(()));
        for wrong in [rows(&[2, 4], 100), rows(&[2], 200), rows(&[4], 100), rows(&[], 100)] {
            assert!(wrong.check("", ROWS).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn both_ends_must_say_it() {
        let figures = "8192 bytes in 0.01 seconds\n10 iters in 0.01 seconds = 1.00 usec/iter\n";
        let pair = pingpong::Pingpong::new("ibv_rc_pingpong").pair();
        assert_eq!(pair.check(figures, figures), Ok(()));
        assert!(pair.check("", figures).is_err() && pair.check(figures, "").is_err());
        assert!(pair.check(figures, &format!("{figures}invalid data in page 0\n")).is_err());
        let pair = pingpong::Pingpong::new("ibv_xsrq_pingpong").pair();
        assert_eq!(pair.check("success\n", "success\n"), Ok(()));
        assert!(pair.check("success\n", "no success\n").is_err());
    }

    #[test]
    fn figures_of_a_table() {
        let table = "step              total ms     max ms     min us  us / conn\n\
                     create id    :        1.00       0.04       5.00      10.00\n\
                     connect      :       30.00       9.00      50.00     300.00\n\
                     disconnect   :       10.00       1.00      20.00     100.00\n\
                     destroy      :        9.00       0.10       9.00      90.00\n";
        assert_eq!(step_ms(table, "connect"), Some(30.0));
        assert_eq!(connected_per_second(table, 100), Some(2_500.0));
        assert_eq!(whole_per_second(table, 100), Some(2_000.0));
        assert_eq!(whole_per_second("cmtime: failed\nconnect : 1", 1), None);
    }
}
