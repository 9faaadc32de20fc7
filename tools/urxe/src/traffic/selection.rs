//! The options `-d` and `--link`, which all commands that use devices share, and the devices that
//! they select.
//!
//! | options | devices |
//! |---|---|
//! | none | the list: `URXE_DEVICES`, the file of `urxe link`, or the built-in device |
//! | `--link NAME=ADDRESS` | the given ones, as the list |
//! | `-d NAME` | the one of the list with this name |
//! | `-d ADDRESS`, `-d NAME=ADDRESS` | one that is in no list |

use std::net::IpAddr;
use std::str::FromStr;

use urxe::{LinkError, LinkSpec, Source};
use urxe_stack::link::{self, Configured, LinkName, Origin, ParseError};

use crate::output;

/// The end of errors about devices.
pub const CHOOSE: &str = "choose a device by -d NAME or --link NAME=ADDRESS";

/// The option `--link`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LinkArgs {
    /// A device, instead of the configured ones; may be given several times
    #[arg(long = "link", value_name = "NAME=ADDRESS|INTERFACE")]
    links: Vec<LinkSpec>,
}

/// The options that select devices.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DeviceArgs {
    /// The device: a name of `urxe link` or --link, an address of this machine, or rxe0=eth0
    /// [default: all; pingpong and perf: the first]
    #[arg(short, long, value_name = "DEV", visible_alias = "ib-dev")]
    device: Option<DeviceWord>,
    #[command(flatten)]
    links: LinkArgs,
}

/// The value of `-d`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceWord {
    /// A name in the list.
    Name(LinkName),
    /// A device in no list.
    Spec(LinkSpec),
}

impl FromStr for DeviceWord {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.contains('=') {
            return text.parse().map(Self::Spec);
        }
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(Self::Spec(at(address))),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

/// Returns a device on `address` that is in no list.
pub fn at(address: IpAddr) -> LinkSpec {
    LinkSpec { source: Source::Address(address), ..LinkSpec::built_in() }
}

/// The selected devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The devices, at least one.
    pub links: Vec<LinkSpec>,
    /// The list that names them, for errors.
    pub origin: Option<Origin>,
    /// Whether `-d` names the device.
    pub is_named: bool,
}

/// The list of devices cannot be read, or has no device of the given name.
#[derive(Debug, thiserror::Error)]
#[error("{}; {CHOOSE}", output::describe(.0))]
pub struct SelectionError(LinkError);

impl LinkArgs {
    /// Returns the options with `device` for `-d`.
    pub fn with(&self, device: Option<DeviceWord>) -> DeviceArgs {
        DeviceArgs { device, links: self.clone() }
    }

    /// Returns the list: the devices of `--link`, or the configured ones.
    fn listed(&self) -> Result<Configured, LinkError> {
        if self.links.is_empty() {
            link::configured()
        } else {
            Configured::from_option(&self.links)
        }
    }
}

impl DeviceArgs {
    /// Returns whether an option selects devices.
    pub fn is_given(&self) -> bool {
        self.device.is_some() || !self.links.links.is_empty()
    }

    /// Returns the selected devices.
    ///
    /// # Errors
    /// [`SelectionError`].
    pub fn select(&self) -> Result<Selection, SelectionError> {
        if let Some(DeviceWord::Spec(spec)) = &self.device {
            return Ok(Selection { links: vec![spec.clone()], origin: None, is_named: true });
        }
        let Configured { origin, links } = match &self.device {
            Some(DeviceWord::Name(name)) => self.links.listed().and_then(|listed| {
                let link = listed.find(name)?.clone();
                Ok(Configured { links: vec![link], ..listed })
            }),
            _ => self.links.listed(),
        }
        .map_err(SelectionError)?;
        Ok(Selection { links, origin: Some(origin), is_named: self.device.is_some() })
    }
}

impl Selection {
    /// Returns the first device.
    pub fn first(&self) -> LinkSpec {
        self.links.first().cloned().unwrap_or_else(LinkSpec::built_in)
    }

    /// Returns the text of devices with the list that names them, for errors: `rxe0=eth0
    /// (URXE_DEVICES)`.
    pub fn describe(&self, links: &[LinkSpec]) -> String {
        let links = links.iter().map(LinkSpec::to_string).collect::<Vec<_>>().join(", ");
        self.origin.as_ref().map_or(links.clone(), |origin| format!("{links} ({origin})"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        devices: DeviceArgs,
    }

    fn select(words: &str) -> Result<Selection, SelectionError> {
        let words = std::iter::once("urxe").chain(words.split_whitespace());
        Cli::try_parse_from(words).unwrap().devices.select()
    }

    fn texts(words: &str) -> Vec<String> {
        select(words).unwrap().links.iter().map(LinkSpec::to_string).collect()
    }

    #[test]
    fn devices_by_name_by_source_and_by_address() {
        assert_eq!("rxe3".parse(), Ok(DeviceWord::Name("rxe3".parse().unwrap())));
        assert_eq!("r=eth0".parse(), Ok(DeviceWord::Spec("r=eth0".parse().unwrap())));
        for address in ["10.0.0.1", "::1"] {
            let DeviceWord::Spec(spec) = address.parse().unwrap() else { panic!("{address}") };
            assert_eq!(spec.source.to_string(), address);
        }
        assert!("r=".parse::<DeviceWord>().is_err());
        assert!("10.0.0".parse::<DeviceWord>().is_err());
    }

    #[test]
    fn the_option_link_is_the_list_and_d_selects_from_it() {
        assert_eq!(texts("--link a=127.0.0.5 --link b=lo"), ["a=127.0.0.5", "b=lo"]);
        assert_eq!(texts("--link a=127.0.0.5 --link b=lo -d b"), ["b=lo"]);
        assert_eq!(texts("--link a=127.0.0.5 -d 127.0.0.6"), ["rxe0=127.0.0.6"]);
        assert_eq!(texts("--ib-dev c=lo"), ["c=lo"]);
        assert!(select("-d c=lo").unwrap().is_named);
        let named = select("--link a=127.0.0.5").unwrap();
        assert_eq!(named.describe(&named.links), "a=127.0.0.5 (--link)");
        assert!(!named.is_named);
    }

    #[test]
    fn errors_name_the_options() {
        for (words, start) in [
            ("--link a=lo -d b", "no link b in --link; there are: a; "),
            ("--link a=lo --link a=127.0.0.5", "--link: line 1, column 6: the device a is listed"),
        ] {
            let error = select(words).unwrap_err().to_string();
            assert!(error.starts_with(start) && error.ends_with(CHOOSE), "{error}");
        }
    }
}
