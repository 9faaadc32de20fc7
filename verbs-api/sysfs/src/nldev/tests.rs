//! Requests as UCX and the command `rdma` make them.

use super::*;

/// Two devices.
struct Two;

impl Devices for Two {
    fn name(&self, index: u32) -> Option<String> {
        ["rxe0", "rxe1"].get(index as usize).map(|name| (*name).to_owned())
    }

    fn line(&self, _device: &str, file: &str) -> Option<String> {
        Some(match file {
            "node_guid" => "0000:5efe:7f00:0001".to_owned(),
            "node_type" => "1: CA".to_owned(),
            "ports/1/state" => "4: ACTIVE".to_owned(),
            _ => file.to_owned(),
        })
    }
}

const DUMP: u16 = libc::NLM_F_DUMP as u16;

fn request(kind: u16, flags: u16, attributes: &[(u16, u32)]) -> Vec<u8> {
    let mut list = Attributes(Vec::new());
    for (kind, value) in attributes {
        list.push(*kind, &value.to_ne_bytes());
    }
    let header = Header { kind, flags, sequence: 7, port: 9 };
    header.message(kind, flags, &list.0)
}

fn nldev(request: u16) -> u16 {
    NLDEV << CLIENT_SHIFT | request
}

/// Returns the error number of the only answer.
fn refusal(answers: &[Vec<u8>]) -> i32 {
    let [answer] = answers else { panic!("{answers:?}") };
    let (header, payload) = Header::parse(answer).unwrap();
    assert_eq!(i32::from(header.kind), libc::NLMSG_ERROR);
    -u32_at(payload, 0).unwrap().cast_signed()
}

#[test]
fn a_device_is_found_by_its_index() {
    let asked = request(nldev(GET), 0, &[(attribute::DEV_INDEX, 1)]);
    let answers = answers(&asked, &Two);
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    let (header, payload) = Header::parse(answer).unwrap();
    assert_eq!((header.kind, header.sequence, header.port), (nldev(GET), 7, 9));
    assert_eq!(number(payload, attribute::DEV_INDEX), Some(1));
    assert_eq!(number(payload, attribute::DEV_NAME), Some(u32::from_ne_bytes(*b"rxe1")));
    assert_eq!(number(payload, attribute::PORT_INDEX), Some(1));
    // UCX takes a device with the attribute DEV_TYPE 1 as a management device.
    assert_eq!(number(payload, 99), None);
}

#[test]
fn a_dump_has_each_device_and_an_end() {
    let answers = answers(&request(nldev(GET), DUMP, &[]), &Two);
    let kinds: Vec<u16> =
        answers.iter().map(|answer| Header::parse(answer).unwrap().0.kind).collect();
    assert_eq!(kinds, [nldev(GET), nldev(GET), libc::NLMSG_DONE as u16]);
}

#[test]
fn a_port_has_its_state() {
    let asked = [(attribute::DEV_INDEX, 0), (attribute::PORT_INDEX, 1)];
    for (flags, attributes, messages) in [(0, &asked[..], 1), (DUMP, &asked[..1], 2)] {
        let answers = answers(&request(nldev(PORT_GET), flags, attributes), &Two);
        assert_eq!(answers.len(), messages);
        let (_, payload) = Header::parse(&answers[0]).unwrap();
        let bytes = payload.windows(5).any(|five| five == [5, 0, 12, 0, 4]);
        assert!(bytes, "port state ACTIVE in {payload:?}");
    }
}

#[test]
fn bad_requests_are_refused() {
    let refused =
        |kind, attributes: &[(u16, u32)]| refusal(&answers(&request(kind, 0, attributes), &Two));
    assert_eq!(refused(nldev(GET), &[(attribute::DEV_INDEX, 2)]), libc::ENODEV);
    assert_eq!(refused(nldev(GET), &[]), libc::EINVAL);
    assert_eq!(refused(nldev(2), &[(attribute::DEV_INDEX, 0)]), libc::EOPNOTSUPP);
    assert_eq!(refused(1 << CLIENT_SHIFT, &[]), libc::EINVAL);
    let port_two = [(attribute::DEV_INDEX, 0), (attribute::PORT_INDEX, 2)];
    assert_eq!(refused(nldev(PORT_GET), &port_two), libc::EINVAL);
    let mut whole = request(nldev(GET), 0, &[(attribute::DEV_INDEX, 0)]);
    whole[0] += 1;
    assert!(answers(&whole, &Two).is_empty(), "longer than the message");
    assert!(answers(&whole[..8], &Two).is_empty());
    whole[0] -= 1;
    whole[HEADER] = 3;
    assert_eq!(refusal(&answers(&whole, &Two)), libc::EINVAL, "an attribute without end");
}
