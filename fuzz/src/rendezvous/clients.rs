//! Connections of other processes to a rendezvous server.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arbitrary::Arbitrary;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, recv, socketpair};
use urxe_stack::port::Datagrams;
use urxe_stack::port::sharing::{PortSet, forward, join};
use urxe_stack::port::udp::UdpConfig;
use urxe_stack::sys::unix::{self, Name};

use super::{address, server_name};

/// The maximum number of connections and of messages of a plan.
const MAX_CLIENTS: usize = 6;
const MAX_MESSAGES: usize = 600;
/// The most messages that the server takes from one connection.
const MAX_TAKEN: usize = 256;
const LISTING: &[u8] = b"the listing";

/// A connection, with its messages.
#[derive(Arbitrary, Debug)]
pub struct Client {
    messages: Vec<Message>,
}

#[derive(Arbitrary, Debug)]
struct Message {
    kind: u8,
    /// The number of descriptors that come with the message.
    descriptors: u8,
    /// How often the message is sent.
    count: u8,
    segment_size: u32,
    bytes: Vec<u8>,
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        let first = |bytes: &[u8]| [bytes, &self.bytes[..]].concat();
        match self.kind {
            0..48 => b"J\x01".to_vec(),
            48..96 => b"C\x01".to_vec(),
            96..176 => {
                let mut bytes = first(b"F\x01");
                let len = bytes.len().max(forward::HEADER_LEN + 1);
                bytes.resize(len, self.kind);
                bytes[4..8].copy_from_slice(&self.segment_size.to_ne_bytes());
                bytes
            }
            176..192 => first(b"F"),
            192..200 => first(b"J"),
            200..208 => first(b"C"),
            _ => self.bytes.clone(),
        }
    }
}

/// The server's work for one connection, by the documented format.
#[derive(Debug, Default)]
struct Expected {
    packets: Vec<Vec<u8>>,
    /// The head of the reply, and its number of descriptors.
    reply: Option<([u8; 2], usize)>,
}

impl Expected {
    fn of(messages: &[Vec<u8>]) -> Self {
        let mut expected = Self::default();
        for bytes in messages.iter().take(MAX_TAKEN) {
            match bytes[..] {
                [b'F', ..] => {
                    let has_payload = bytes.len() > forward::HEADER_LEN;
                    if has_payload && bytes[1] == 1 && bytes[4..8] != [0; 4] {
                        expected.packets.push(bytes.clone());
                    }
                    continue;
                }
                [b'J', 1] => expected.reply = Some((*b"W\x01", 3)),
                [b'C', 1] => expected.reply = Some((*b"C\x01", 1)),
                [] => {}
                // The description of the library.
                _ => expected.reply = Some((*b"V\x01", 0)),
            }
            break;
        }
        expected
    }
}

/// Runs a plan of connections.
pub fn run(clients: &[Client]) {
    // All inputs share the device, because opening one takes longer than serving.
    thread_local!(static DEVICE: PortSet = {
        join(&[UdpConfig::new(address(0))], || 1).expect("the address is free")
    });
    DEVICE.with(|device| clients.iter().take(MAX_CLIENTS).for_each(|client| client.run(device)));
}

impl Client {
    fn run(&self, device: &PortSet) {
        let connection =
            unix::connect_to(Name::Abstract(&server_name(address(0)))).expect("the server listens");
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (kept, passed) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .expect("two descriptors");
        let sent = self.send(&connection, passed.as_fd());
        drop(passed);
        rustix::net::shutdown(&connection, Shutdown::Write).expect("it is connected");
        let mut taken = Vec::new();
        let sink = |datagrams: &Datagrams<'_>| {
            taken.push([&forward::header(datagrams)[..], datagrams.bytes].concat());
        };
        let mut buffer = Vec::new();
        device.members[0].serve(&mut buffer, sink, |_| (), || LISTING.to_vec());
        assert!(buffer.len() <= forward::HEADER_LEN + 65_536);
        let expected = Expected::of(&sent);
        assert_eq!(taken, expected.packets);
        check_replies(&connection, expected.reply);
        drop(connection);
        let end = recv(&kept, &mut [0; 1], RecvFlags::empty());
        assert_eq!(end.map(|(len, _)| len), Ok(0), "the server keeps a descriptor");
    }

    /// Sends the messages, up to the first for which the queue has no room.
    fn send(&self, connection: &OwnedFd, passed: BorrowedFd<'_>) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for message in &self.messages {
            let (bytes, descriptors) =
                (message.bytes(), vec![passed; message.descriptors as usize % 3]);
            let count = usize::from(message.count).saturating_sub(200).max(1) * 5;
            for _ in 0..if count > 5 { count } else { 1 } {
                if sent.len() == MAX_MESSAGES
                    || unix::send(connection, &[&bytes], &descriptors).is_err()
                {
                    return sent;
                }
                sent.push(bytes.clone());
            }
        }
        sent
    }
}

/// Checks the only reply. The server has closed the connection.
fn check_replies(connection: &OwnedFd, expected: Option<([u8; 2], usize)>) {
    let mut replies = Vec::new();
    loop {
        let (mut bytes, mut descriptors) = ([0; 16], Vec::new());
        match unix::receive(connection, &mut bytes, &mut descriptors, false) {
            Ok(0) => break,
            Ok(len) => replies.push((bytes[..len].to_vec(), descriptors)),
            // The server left messages unread. Its reply comes after this error.
            Err(Errno::CONNRESET) => {}
            Err(errno) => panic!("{errno}"),
        }
    }
    let found: Vec<_> = replies.iter().map(|(head, passed)| (&head[..2], passed.len())).collect();
    let expected: Vec<_> = expected.iter().map(|(head, count)| (&head[..], *count)).collect();
    assert_eq!(found, expected);
    if let [(head, passed)] = &replies[..]
        && head == b"C\x01"
    {
        let mut bytes = [0; LISTING.len() + 1];
        assert_eq!(rustix::io::pread(&passed[0], &mut bytes, 0), Ok(LISTING.len()));
        assert_eq!(&bytes[..LISTING.len()], LISTING);
    }
}
