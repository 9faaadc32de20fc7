//! `rdma dev`, `rdma resource`, `rdma statistic` and `rdma system`.
//!
//! A device has its objects and counters in the processes that have it open. Each such process
//! tells them by its listing ([`Listing`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;
use urxe_stack::device::counters::Counter;
use urxe_stack::listing::{ListedId, ListedQp, Listing};

use super::link::chosen;
use super::record::Record;
use super::{Answer, Request, USAGE, is};
use crate::cmd::applets::AppletError;
use crate::cmd::applets::devices::{self, Device};
use crate::cmd::devinfo::{DEVICE_CAP_FLAGS, cap_flags};
use crate::cmd::processes::{self, Connections, Process};

/// The objects of `rdma resource`, in the kernel's order.
const OBJECTS: [&str; 7] = ["pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"];
/// The number of counters of `rdma_rxe`, which are the first ones of [`Counter`].
const KERNEL_COUNTERS: usize = 15;

/// `rdma dev WORDS`
pub fn dev(request: &Request, words: &[&str]) -> Result<Answer, AppletError> {
    let name = match words {
        [] => None,
        [word] if is("show", word) || is("list", word) => None,
        [word, name, ..] if is("show", word) || is("list", word) => Some(*name),
        [word, ..] if is("help", word) => return Ok(Answer::Text(USAGE.to_owned())),
        [word, ..] if is("set", word) || is("add", word) || is("delete", word) => {
            return Ok(Answer::PassOn);
        }
        [word, ..] => return Ok(Answer::unknown("dev command", word)),
    };
    let devices = devices::all()?;
    if let Some(name) = name
        && !devices.iter().any(|device| device.name() == name)
    {
        return Ok(Answer::wrong(format!("Wrong device name - {name}")));
    }
    let shown = devices.iter().filter(|device| name.is_none_or(|name| device.name() == name));
    Ok(Answer::Records(shown.map(|device| device_record(device, request.details)).collect()))
}

fn device_record(device: &Device, details: bool) -> Record {
    let guid = device.guid();
    let record = Record::of_device(device.index, device.name())
        .key("node_type", "ca")
        .optional("fw", device.spec.profile.map(|nic| nic.fw_ver))
        .key("node_guid", guid.clone())
        .key("sys_image_guid", guid);
    if !details {
        return record;
    }
    let flags = cap_flags(&device.spec);
    let set = DEVICE_CAP_FLAGS.iter().filter(|(flag, _)| flags & flag != 0);
    let caps: Vec<&str> = set.map(|(_, name)| kernel_name(name)).collect();
    record
        .text("adaptive-moderation off ")
        .hidden("adaptive-moderation", false)
        .text(&format!("\n    caps: <{}>", caps.join(", ")))
        .hidden("caps", caps)
}

/// Returns the name of a flag in `rdma`, which differs from libibverbs' for one.
fn kernel_name(flag: &'static str) -> &'static str {
    if flag == "UD_AV_PORT_ENFORCE" { "UD_AV_PORT_ENFORCE_PORT_ENFORCE" } else { flag }
}

/// `rdma resource WORDS`
pub fn resource(words: &[&str]) -> Result<Answer, AppletError> {
    let words: &[&str] = match words {
        [] => &[],
        [word, rest @ ..] if is("show", word) || is("list", word) => rest,
        [word, ..] if is("help", word) => return Ok(Answer::Text(USAGE.to_owned())),
        [word, ..] if is("set", word) => return Ok(Answer::PassOn),
        [word, ..] => return Ok(Answer::unknown("resource command", word)),
    };
    let devices = devices::all()?;
    match words {
        [] => Ok(summaries(devices.iter().collect())),
        [name] if devices.iter().any(|device| device.name() == *name) => {
            Ok(summaries(devices.iter().filter(|device| device.name() == *name).collect()))
        }
        [object, rest @ ..] if OBJECTS.contains(object) => {
            let place = match rest {
                ["link" | "dev", place, ..] => Some(place.trim_end_matches("/1")),
                _ => None,
            };
            if let Some(name) = place
                && !devices.iter().any(|device| device.name() == name)
            {
                return Ok(Answer::wrong("Wrong device name"));
            }
            let of = devices.iter().filter(|device| place.is_none_or(|name| device.name() == name));
            Ok(objects(object, of.collect()))
        }
        [word, ..] => Ok(Answer::unknown("parameter", word)),
    }
}

fn summaries(devices: Vec<&Device>) -> Answer {
    let records = devices.into_iter().map(|device| {
        let processes = processes(device);
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, listing) in &processes {
            for object in OBJECTS {
                *counts.entry(object).or_default() +=
                    listing.resources.get(object).copied().unwrap_or_default();
            }
            *counts.entry("cm_id").or_default() += listing.ids.len() as u64;
            *counts.entry("ctx").or_default() += 1;
        }
        OBJECTS.iter().fold(Record::of_device(device.index, device.name()), |record, object| {
            record.key(object, counts.get(object).copied().unwrap_or_default())
        })
    });
    Answer::Records(records.collect())
}

/// Returns the objects one by one: queue pairs, identifiers and contexts. A process does not list
/// others.
fn objects(object: &str, devices: Vec<&Device>) -> Answer {
    let mut records = Vec::new();
    for device in devices {
        for (number, (process, listing)) in processes(device).into_iter().enumerate() {
            match object {
                "cm_id" => {
                    records.extend(listing.ids.iter().map(|id| identifier(device, id, &process)))
                }
                "qp" => {
                    records.extend(listing.qps.iter().map(|qp| queue_pair(device, qp, &process)))
                }
                "ctx" => {
                    let record = Record::default()
                        .hidden("ifindex", device.index)
                        .hidden("ifname", device.name())
                        .text(&format!("dev {} ", device.name()));
                    records.push(of_process(record.key("ctxn", number), &process));
                }
                _ => {}
            }
        }
    }
    Answer::Records(records)
}

fn identifier(device: &Device, id: &ListedId, process: &Process) -> Record {
    let record = Record::of_link(device.index, device.name()).key("cm-idn", id.cm_idn);
    let record = match id.lqpn {
        0 => record,
        lqpn => record.key("lqpn", lqpn).key("qp-type", id.qp_type.clone()),
    };
    let record = record.key("state", id.state.clone()).key("ps", id.ps.clone());
    let address = |address: SocketAddr| format!("{}:{}", address.ip(), address.port());
    let any = |local: SocketAddr| if local.is_ipv4() { "0.0.0.0:0" } else { ":::0" }.to_owned();
    let peer = id.dst_addr.map(address).or_else(|| id.src_addr.map(any));
    of_process(record, process)
        .optional("src-addr", id.src_addr.map(address))
        .optional("dst-addr", peer)
}

fn queue_pair(device: &Device, qp: &ListedQp, process: &Process) -> Record {
    let record = Record::of_link(device.index, device.name())
        .key("lqpn", qp.lqpn)
        .key("pdn", qp.pdn)
        .optional("rqpn", qp.rqpn)
        .key("type", qp.qp_type.clone())
        .key("state", qp.state.clone())
        .optional("rq-psn", qp.rq_psn)
        .key("sq-psn", qp.sq_psn)
        .optional("path-mig-state", qp.path_mig_state.clone());
    of_process(record, process)
}

fn of_process(record: Record, process: &Process) -> Record {
    let name = (!process.name.is_empty()).then(|| process.name.clone());
    record.optional("pid", process.pid).optional("comm", name)
}

/// Returns the processes that have the device open, each with its listing.
fn processes(device: &Device) -> Vec<(Process, Listing)> {
    let Some(link) = &device.link else { return Vec::new() };
    let listed = processes::with_connections(link).into_iter();
    // A process on several addresses has connections only at the first.
    let listed = listed.filter_map(|mut process| match process.connections.take()? {
        Connections::Listed(listing) => Some((process, listing)),
        Connections::Unavailable { .. } => Some((process, Listing::default())),
    });
    listed.collect()
}

/// `rdma statistic WORDS`
pub fn statistic(request: &Request, words: &[&str]) -> Result<Answer, AppletError> {
    let words: &[&str] = match words {
        [] => &[],
        [word, rest @ ..] if is("show", word) || is("list", word) => rest,
        [word, ..] if is("help", word) => return Ok(Answer::Text(USAGE.to_owned())),
        // No queue pair has counters of its own, and no optional counter exists.
        ["mode", ..] | ["qp", "show", ..] | ["qp"] => return Ok(Answer::Records(Vec::new())),
        [word, ..] if ["qp", "mr", "set", "unset"].contains(word) => return Ok(Answer::PassOn),
        [word, ..] => return Ok(Answer::unknown("statistic command", word)),
    };
    let devices = devices::all()?;
    let shown = match words {
        [] => chosen(&devices, &[]),
        [word, rest @ ..] if is("link", word) => chosen(&devices, rest),
        [word, ..] => return Ok(Answer::unknown("parameter", word)),
    };
    let Some(shown) = shown else { return Ok(Answer::wrong("Wrong device name")) };
    Ok(Answer::Records(shown.into_iter().map(|device| counters(device, request.details)).collect()))
}

fn counters(device: &Device, all: bool) -> Record {
    let processes = processes(device);
    let record = Record::default()
        .hidden("ifname", device.name())
        .hidden("port", 1)
        .text(&format!("link {}/1 ", device.name()));
    let wanted = Counter::ALL.iter().take(if all { usize::MAX } else { KERNEL_COUNTERS });
    wanted.fold(record, |record, counter| {
        let of = |(_, listing): &(Process, Listing)| {
            listing.hw_counters.get(counter.name()).copied().unwrap_or_default()
        };
        record.key(counter.name(), Value::from(processes.iter().map(of).sum::<u64>()))
    })
}

/// `rdma system WORDS`: without JSON, as in iproute2.
pub fn system(words: &[&str]) -> Answer {
    match words {
        [] => Answer::Text("netns shared copy-on-fork on".to_owned()),
        [word, ..] if is("show", word) => Answer::Text("netns shared copy-on-fork on".to_owned()),
        [word, ..] if is("help", word) => Answer::Text(USAGE.to_owned()),
        [word, ..] if is("set", word) => Answer::PassOn,
        [word, ..] => Answer::unknown("system command", word),
    }
}
