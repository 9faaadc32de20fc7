//! `urxe link add` and `urxe link del`: changes of the user's list of devices.

use urxe_stack::link::{self, LinkName, LinkSpec, Source, config};
use urxe_stack::sys::environment;

use crate::cmd::{CmdError, Outcome};
use crate::output;

const USAGE: &str = "\
urxe link add NAME ADDRESS|INTERFACE
       urxe link add NAME type rxe netdev ADDRESS|INTERFACE
       urxe link add NAME ADDRESS|INTERFACE profile mlx5";

/// Arguments of `urxe link add`.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE)]
pub struct AddArgs {
    /// The new device's name, such as rxe0
    name: LinkName,
    /// An address of this machine or a network interface; "type rxe netdev" may precede it,
    /// and the identity of a NIC may follow ("profile mlx5")
    #[arg(value_name = "ADDRESS|INTERFACE", required = true, num_args = 1..=6)]
    words: Vec<String>,
}

impl AddArgs {
    /// Checks that the device can exist on this machine, then adds it.
    pub fn run(self) -> Result<Outcome, CmdError> {
        let (words, profile) = match &self.words[..] {
            [words @ .., key, profile] if key == "profile" => (words, Some(profile)),
            words => (words, None),
        };
        let mut spec = LinkSpec::new(self.name, source(words)?);
        if let Some(profile) = profile {
            // The grammar of links names the profiles in its error.
            spec = format!("{spec},profile={profile}").parse()?;
        }
        link::resolve(&spec)
            .map_err(|error| CmdError::Device { device: spec.to_string(), error })?;
        let path = config::file_path()?;
        let was_built_in =
            config::configured_from(None, Some(&path))?.origin == link::Origin::BuiltIn;
        config::add(&path, &spec)?;
        if was_built_in && spec.name != LinkSpec::built_in().name {
            output::note(
                "the built-in device rxe0 on 127.0.0.1 is not there while the list has others",
            );
        }
        note_environment();
        Ok(Outcome::Done)
    }
}

/// Arguments of `urxe link del`.
#[derive(Debug, clap::Args)]
pub struct DelArgs {
    /// The device's name
    name: LinkName,
}

impl DelArgs {
    /// Deletes the device from the list. Programs that have the device open keep it.
    pub fn run(self) -> Result<Outcome, CmdError> {
        config::remove(&config::file_path()?, &self.name)?;
        note_environment();
        Ok(Outcome::Done)
    }
}

/// Prints a note if the environment variable overrides the list.
fn note_environment() {
    let value = environment::value(link::ENVIRONMENT).unwrap_or_default();
    if !value.to_string_lossy().trim().is_empty() {
        output::note("URXE_DEVICES is set here and overrides the list; unset it to use the list");
    }
}

/// Returns the address or interface from the words, with or without `type rxe` and `netdev`.
fn source(words: &[String]) -> Result<Source, CmdError> {
    let all: Vec<&str> = words.iter().map(String::as_str).collect();
    let rest = match &all[..] {
        ["type", "rxe", rest @ ..] | [rest @ .., "type", "rxe"] => rest,
        ["type", _, ..] | [.., "type", _] => {
            return Err(CmdError::Usage(
                "the only type of device is rxe: urxe link add NAME type rxe netdev eth0",
            ));
        }
        rest => rest,
    };
    match *rest {
        ["netdev", word] => Ok(word.parse()?),
        [word] if word != "netdev" && word != "type" => Ok(word.parse()?),
        _ => Err(CmdError::Usage(
            "expected: urxe link add NAME ADDRESS|INTERFACE, or urxe link add NAME type rxe netdev \
             ADDRESS|INTERFACE",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Source, CmdError> {
        source(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn word_orders() {
        let eth0 = Source::Interface("eth0".to_owned());
        for text in
            ["eth0", "netdev eth0", "type rxe netdev eth0", "type rxe eth0", "netdev eth0 type rxe"]
        {
            assert_eq!(of(text).unwrap(), eth0, "{text}");
        }
        assert_eq!(
            of("type rxe netdev 10.0.0.1").unwrap(),
            Source::Address("10.0.0.1".parse().unwrap())
        );
    }

    #[test]
    fn wrong_words() {
        for text in ["type siw netdev eth0", "netdev", "type rxe", "eth0 eth1", "type", "dev eth0"]
        {
            assert!(matches!(of(text), Err(CmdError::Usage(_))), "{text}");
        }
        assert!(matches!(of("eth0/1"), Err(CmdError::Word(_))));
    }
}
