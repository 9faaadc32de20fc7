//! Requests of `NETLINK_RDMA` and their answers.
//!
//! Messages and attributes are those of the kernel's `rdma_netlink.h`; the sets of attributes are
//! those of `fill_dev_info` and `fill_port_info` in `drivers/infiniband/core/nldev.c`.
//!
//! | request | answer |
//! |---|---|
//! | `RDMA_NLDEV_CMD_GET` | the device of `DEV_INDEX`, or all (`NLM_F_DUMP`) |
//! | `RDMA_NLDEV_CMD_PORT_GET` | port 1 of `DEV_INDEX`, or all ports of it (`NLM_F_DUMP`) |
//! | others | an error: EOPNOTSUPP, and EINVAL for other clients than `RDMA_NL_NLDEV` |

use crate::view;

/// Maximum length in bytes of a request.
pub const REQUEST_MAX: usize = 4096;
/// Length in bytes of `struct nlmsghdr`, and of `struct nlattr`.
const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, …)`: the client in the upper bits, the request in the lower.
const CLIENT_SHIFT: u32 = 10;
const NLDEV: u16 = 5;
const GET: u16 = 1;
const PORT_GET: u16 = 5;

/// `enum rdma_nldev_attr`
mod attribute {
    pub const DEV_INDEX: u16 = 1;
    pub const DEV_NAME: u16 = 2;
    pub const PORT_INDEX: u16 = 3;
    pub const FW_VERSION: u16 = 5;
    pub const NODE_GUID: u16 = 6;
    pub const SYS_IMAGE_GUID: u16 = 7;
    pub const PORT_STATE: u16 = 12;
    pub const PORT_PHYS_STATE: u16 = 13;
    pub const DEV_NODE_TYPE: u16 = 14;
    pub const NDEV_NAME: u16 = 51;
    pub const DEV_PROTOCOL: u16 = 68;
}

/// The files of devices.
pub trait Devices {
    /// Returns the name of the device with this index.
    fn name(&self, index: u32) -> Option<String>;
    /// Returns the line of a file of a device.
    fn line(&self, device: &str, file: &str) -> Option<String>;
}

/// The files of the replacement directory.
pub struct Files;

impl Devices for Files {
    fn name(&self, index: u32) -> Option<String> {
        view::name(index)
    }

    fn line(&self, device: &str, file: &str) -> Option<String> {
        view::attribute(device, file)
    }
}

/// The fields of `struct nlmsghdr` that an answer repeats.
#[derive(Clone, Copy)]
struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

impl Header {
    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let len = u32_at(bytes, 0)? as usize;
        let header = Self {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            port: u32_at(bytes, 12)?,
        };
        Some((header, bytes.get(HEADER..len)?))
    }

    /// Returns a message of this kind with these flags.
    fn message(self, kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER + payload.len());
        message.extend(((HEADER + payload.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(self.port.to_ne_bytes());
        message.extend(payload);
        message
    }

    /// Returns an acknowledgement (`NLMSG_ERROR`), which repeats the request. `errno` 0 is success.
    fn acknowledgement(self, errno: i32, request: &[u8]) -> Vec<u8> {
        let mut payload = (-errno).to_ne_bytes().to_vec();
        payload.extend(request.get(..HEADER).unwrap_or_default());
        self.message(libc::NLMSG_ERROR as u16, 0, &payload)
    }
}

/// Returns the messages that answer a request, in order. A request that is no message of netlink
/// has no answer.
pub fn answers(request: &[u8], devices: &dyn Devices) -> Vec<Vec<u8>> {
    let Some((header, payload)) = Header::parse(request) else { return Vec::new() };
    let is_dump = header.flags & libc::NLM_F_DUMP as u16 == libc::NLM_F_DUMP as u16;
    match found(header, payload, is_dump, devices) {
        Err(errno) => vec![header.acknowledgement(errno, request)],
        Ok(parts) => {
            let flags = if is_dump { libc::NLM_F_MULTI as u16 } else { 0 };
            let message = |part: &Vec<u8>| header.message(header.kind, flags, part);
            let mut messages: Vec<Vec<u8>> = parts.iter().map(message).collect();
            if is_dump {
                messages.push(header.message(libc::NLMSG_DONE as u16, flags, &[0; 4]));
            } else if header.flags & libc::NLM_F_ACK as u16 != 0 {
                messages.push(header.acknowledgement(0, request));
            }
            messages
        }
    }
}

/// Returns the payloads of the answers, or an error number.
fn found(
    header: Header,
    payload: &[u8],
    is_dump: bool,
    devices: &dyn Devices,
) -> Result<Vec<Vec<u8>>, i32> {
    if header.kind >> CLIENT_SHIFT != NLDEV {
        return Err(libc::EINVAL);
    }
    let index = number(payload, attribute::DEV_INDEX);
    let describe: fn(u32, &str, &dyn Devices) -> Vec<u8> =
        match header.kind & ((1 << CLIENT_SHIFT) - 1) {
            GET => device,
            PORT_GET => port,
            _ => return Err(libc::EOPNOTSUPP),
        };
    let is_port = header.kind & ((1 << CLIENT_SHIFT) - 1) == PORT_GET;
    if is_dump && !is_port {
        let all = (0..).map_while(|index| devices.name(index).map(|name| (index, name)));
        return Ok(all.map(|(index, name)| describe(index, &name, devices)).collect());
    }
    let index = index.ok_or(libc::EINVAL)?;
    let name = devices.name(index).ok_or(libc::ENODEV)?;
    if is_port && !is_dump && number(payload, attribute::PORT_INDEX) != Some(1) {
        return Err(libc::EINVAL);
    }
    Ok(vec![describe(index, &name, devices)])
}

/// Returns the attributes of a device. Devices of type SMI alone have the attribute `DEV_TYPE`.
fn device(index: u32, name: &str, devices: &dyn Devices) -> Vec<u8> {
    let line = |file| devices.line(name, file).unwrap_or_default();
    let mut list = Attributes::of(index, name);
    list.push(attribute::FW_VERSION, &text(&line("fw_ver")));
    for (kind, file) in
        [(attribute::NODE_GUID, "node_guid"), (attribute::SYS_IMAGE_GUID, "sys_image_guid")]
    {
        let guid = u64::from_str_radix(&line(file).replace(':', ""), 16).unwrap_or_default();
        list.push(kind, &guid.to_ne_bytes());
    }
    list.push(attribute::DEV_NODE_TYPE, &[leading(&line("node_type"))]);
    list.push(attribute::DEV_PROTOCOL, &text("roce"));
    list.0
}

/// Returns the attributes of a device's port.
fn port(index: u32, name: &str, devices: &dyn Devices) -> Vec<u8> {
    let line = |file| devices.line(name, file).unwrap_or_default();
    let mut list = Attributes::of(index, name);
    list.push(attribute::PORT_STATE, &[leading(&line("ports/1/state"))]);
    list.push(attribute::PORT_PHYS_STATE, &[leading(&line("ports/1/phys_state"))]);
    list.push(attribute::NDEV_NAME, &text(&line("parent")));
    list.0
}

/// A list of attributes.
struct Attributes(Vec<u8>);

impl Attributes {
    /// Returns the attributes that each answer has: index and name of the device, and its port.
    fn of(index: u32, name: &str) -> Self {
        let mut list = Self(Vec::new());
        list.push(attribute::DEV_INDEX, &index.to_ne_bytes());
        list.push(attribute::DEV_NAME, &text(name));
        list.push(attribute::PORT_INDEX, &1_u32.to_ne_bytes());
        list
    }

    fn push(&mut self, kind: u16, value: &[u8]) {
        self.0.extend(((ATTRIBUTE_HEADER + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(ATTRIBUTE_HEADER), 0);
    }
}

/// Returns a text with its terminating zero.
fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// Returns the number before the colon (`4: ACTIVE`).
fn leading(line: &str) -> u8 {
    line.split(':').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Returns the value of an attribute of four bytes.
fn number(mut list: &[u8], kind: u16) -> Option<u32> {
    loop {
        let len = usize::from(u16_at(list, 0)?);
        if len < ATTRIBUTE_HEADER {
            return None;
        }
        if u16_at(list, 2)? == kind {
            return u32_at(list.get(..len)?, ATTRIBUTE_HEADER);
        }
        list = list.get(len.next_multiple_of(ATTRIBUTE_HEADER)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests;
