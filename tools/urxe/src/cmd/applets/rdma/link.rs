//! `rdma link`: shows, adds and deletes devices.

use urxe_stack::link::{LinkError, LinkSpec, OperState, Source};

use super::record::Record;
use super::{Answer, Request, USAGE, is};
use crate::cmd::applets::AppletError;
use crate::cmd::applets::devices::{self, Device};

/// `rdma link WORDS`
pub fn link(request: &Request, words: &[&str]) -> Result<Answer, AppletError> {
    match words {
        [] => show(request, &[]),
        [word, rest @ ..] if is("add", word) => add(rest),
        [word, rest @ ..] if is("delete", word) => delete(rest),
        [word, rest @ ..] if is("show", word) || is("list", word) => show(request, rest),
        [word, ..] if is("help", word) => Ok(Answer::Text(USAGE.to_owned())),
        [word, ..] => Ok(Answer::unknown("link command", word)),
    }
}

fn show(request: &Request, words: &[&str]) -> Result<Answer, AppletError> {
    let devices = devices::all()?;
    let chosen = match chosen(&devices, words) {
        Some(chosen) => chosen,
        None => return Ok(Answer::wrong("Wrong device name")),
    };
    Ok(Answer::Records(chosen.iter().map(|device| record(device, request.details)).collect()))
}

/// Returns all devices, or that of `NAME/1`. `None` if there is no such port.
pub fn chosen<'a>(devices: &'a [Device], words: &[&str]) -> Option<Vec<&'a Device>> {
    let Some(word) = words.first() else { return Some(devices.iter().collect()) };
    let name = word.strip_suffix("/1")?;
    devices.iter().find(|device| device.name() == name).map(|device| vec![device])
}

fn record(device: &Device, details: bool) -> Record {
    let (state, physical_state) = match device.state() {
        OperState::Up => ("ACTIVE", "LINK_UP"),
        OperState::NoCarrier => ("DOWN", "POLLING"),
        OperState::Disabled => ("DOWN", "DISABLED"),
    };
    let record = Record::of_link(device.index, device.name())
        .key("state", state)
        .key("physical_state", physical_state);
    match device.netdev() {
        None => record,
        Some((name, index)) if details => record.key("netdev", name).key("netdev_index", index),
        Some((name, index)) => record.key("netdev", name).hidden("netdev_index", index),
    }
}

fn add(words: &[&str]) -> Result<Answer, AppletError> {
    match words {
        [] => Ok(Answer::wrong("Please provide a link name to add.")),
        [name, kind, "rxe", netdev, interface] if is("type", kind) && is("netdev", netdev) => {
            add_rxe(name, interface)
        }
        [_, kind, _] | [_, kind, _, _] if is("type", kind) => Ok(Answer::Text(USAGE.to_owned())),
        [_, kind, _, _, _, ..] if is("type", kind) => Ok(Answer::PassOn),
        [_, kind] if is("type", kind) => Ok(Answer::wrong("Please provide a link type name.")),
        [_] => Ok(Answer::Text(USAGE.to_owned())),
        [_, word, ..] => Ok(Answer::unknown("parameter", word)),
    }
}

fn add_rxe(name: &str, interface: &str) -> Result<Answer, AppletError> {
    let (Ok(name), Ok(source)) = (name.parse(), interface.parse::<Source>()) else {
        return Ok(Answer::wrong("error: Invalid argument"));
    };
    if let Source::Interface(interface) = &source
        && !devices::has_interface(interface)?
    {
        return Ok(Answer::wrong("error: No such device"));
    }
    match devices::add(&LinkSpec::new(name, source)) {
        Ok(()) => Ok(Answer::Text(String::new())),
        Err(AppletError::Exists { .. } | AppletError::Link(LinkError::NameTaken { .. })) => {
            Ok(Answer::wrong("error: File exists"))
        }
        Err(error) => Err(error),
    }
}

fn delete(words: &[&str]) -> Result<Answer, AppletError> {
    let Some(word) = words.first() else {
        return Ok(Answer::wrong("Please provide device name."));
    };
    let devices = devices::all()?;
    let Some(device) = devices.iter().find(|device| device.name() == *word) else {
        return Ok(Answer::wrong(format!("Wrong device name - {word}")));
    };
    match devices::remove(&device.spec.name) {
        // The built-in device is there while no other is.
        Ok(()) | Err(AppletError::Link(LinkError::BuiltIn { .. })) => {
            Ok(Answer::Text(String::new()))
        }
        Err(error) => Err(error),
    }
}
