//! `rdma`: shows and changes urxe's devices in the words of iproute2's command.
//!
//! The output is that of iproute2 6.1 over the kernel's `rdma_rxe`: plain, with `-j` as JSON, with
//! `-j -p` as indented JSON. As there, a word may be shortened (`rdma l`), options may stand
//! anywhere, and an unknown word is reported with exit code 0.
//!
//! | words | does |
//! |---|---|
//! | `link [show [DEV/PORT]]`, `dev [show [DEV]]` | shows the devices |
//! | `link add NAME type rxe netdev INTERFACE`, `link delete NAME` | changes the user's list |
//! | `resource [show [DEV \| OBJECT]]` | numbers of objects; `cm_id` and `ctx` one by one |
//! | `statistic [show [link DEV/PORT]]` | counters, summed over the processes of the device |
//! | `system [show]` | the mode of network namespaces |
//! | everything else | is passed on to the system's `rdma` |
//!
//! | file | subject |
//! |---|---|
//! | `record` | one device of the output, as text and as JSON |
//! | `link` | `link` |
//! | `show` | `dev`, `resource`, `statistic`, `system` |

mod link;
mod record;
mod show;

use std::io::Write;
use std::process::ExitCode;

use super::{AppletError, Call, system};
use crate::output;
use record::{Format, Record};

const USAGE: &str = "\
Usage: rdma [ -d | -j | -p ] OBJECT [ COMMAND ]
       rdma link [show [DEV/PORT]]
       rdma link add NAME type rxe netdev INTERFACE
       rdma link delete NAME
       rdma dev [show [DEV]]
       rdma resource [show [DEV | cm_id | ctx]]
       rdma statistic [show [link DEV/PORT]]
       rdma system [show]
These words concern urxe's devices (urxe run). Others are passed on to the
system's rdma.";

/// The options and the words of a call.
#[derive(Debug, Default)]
struct Request {
    format: Format,
    details: bool,
    words: Vec<String>,
}

/// The end of a request.
enum Answer {
    /// Devices to print. They have a form in JSON.
    Records(Vec<Record>),
    /// A text, or nothing.
    Text(String),
    /// A complaint in iproute2's words, with the exit code.
    Complaint(String, u8),
    /// Not for urxe.
    PassOn,
}

impl Answer {
    fn wrong(text: impl Into<String>) -> Self {
        Self::Complaint(text.into(), 1)
    }

    /// Returns iproute2's answer to an unknown word, which is no failure there.
    fn unknown(what: &str, word: &str) -> Self {
        Self::Complaint(format!("Unknown {what} '{word}'."), 0)
    }
}

/// `rdma`
pub fn run(call: &Call) -> Result<ExitCode, AppletError> {
    let Some(request) = parse(&call.words()) else { return system::pass_on(call) };
    let words: Vec<&str> = request.words.iter().map(String::as_str).collect();
    let answer = match &words[..] {
        [] => Answer::Text(USAGE.to_owned()),
        [object, rest @ ..] => match object {
            word if is("help", word) => Answer::Text(USAGE.to_owned()),
            word if is("dev", word) => show::dev(&request, rest)?,
            word if is("link", word) => link::link(&request, rest)?,
            word if is("resource", word) => show::resource(rest)?,
            word if is("system", word) => show::system(rest),
            word if is("statistic", word) => show::statistic(&request, rest)?,
            word if is("monitor", word) => Answer::PassOn,
            word => Answer::unknown("object", word),
        },
    };
    let mut out = output::stdout();
    let code = match answer {
        Answer::PassOn => return system::pass_on(call),
        Answer::Records(records) => {
            request.format.print(&mut out, &records)?;
            0
        }
        Answer::Text(text) if text.is_empty() => 0,
        Answer::Text(text) => {
            writeln!(out, "{text}")?;
            0
        }
        Answer::Complaint(text, code) => {
            output::error_line(&text);
            code
        }
    };
    out.flush()?;
    Ok(ExitCode::from(code))
}

/// Returns whether `word` is `full` or its beginning.
fn is(full: &str, word: &str) -> bool {
    full.starts_with(word)
}

/// Separates options from words. `None` for options that urxe passes on.
fn parse(words: &[String]) -> Option<Request> {
    let mut request = Request::default();
    for word in words {
        match word.as_str() {
            "--json" => request.format.json = true,
            "--pretty" => request.format.pretty = true,
            "--details" => request.details = true,
            "--raw" | "--oneline" => {}
            short if short.len() > 1 && short.starts_with('-') && !short.starts_with("--") => {
                for letter in short.chars().skip(1) {
                    match letter {
                        'j' => request.format.json = true,
                        'p' => request.format.pretty = true,
                        'd' => request.details = true,
                        'r' | 'o' => {}
                        _ => return None,
                    }
                }
            }
            long if long.starts_with("--") => return None,
            word => request.words.push(word.to_owned()),
        }
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_anywhere_and_together() {
        let parsed = |text: &str| parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for text in ["-jp link show", "link -j show --pretty", "--json link -p show"] {
            let request = parsed(text).unwrap();
            assert!(request.format.json && request.format.pretty && !request.details, "{text}");
            assert_eq!(request.words, ["link", "show"], "{text}");
        }
        assert!(parsed("-d dev").unwrap().details);
        for foreign in ["-b file", "-V", "--version", "-f link"] {
            assert!(parsed(foreign).is_none(), "{foreign}");
        }
    }
}
