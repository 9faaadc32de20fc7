use pcap_parser::{Block, PcapNGReader, traits::PcapReaderIterator};

use super::*;

/// Interface, timestamp, bytes, original length, options.
type Read = (u32, u64, Vec<u8>, u32, Vec<(u16, Vec<u8>)>);

/// Reads a capture with an independent reader. Returns the name of the application and the packets.
fn read(bytes: &[u8]) -> (Vec<u8>, Vec<Read>) {
    let mut reader = PcapNGReader::new(1 << 20, bytes).unwrap();
    let mut packets = Vec::new();
    let (mut application, mut resolutions) = (Vec::new(), Vec::new());
    loop {
        match reader.next() {
            Ok((used, block)) => {
                match block {
                    pcap_parser::PcapBlockOwned::NG(Block::SectionHeader(s)) => {
                        assert_eq!(s.major_version, 1);
                        let named = s.options.iter().find(|o| o.code.0 == OPT_SHB_USER_APPLICATION);
                        let named = named.unwrap();
                        application = named.value[..usize::from(named.len)].to_vec();
                    }
                    pcap_parser::PcapBlockOwned::NG(Block::InterfaceDescription(i)) => {
                        assert_eq!(i.linktype.0, LinkType::Ethernet as i32);
                        resolutions.push(i.if_tsresol);
                    }
                    pcap_parser::PcapBlockOwned::NG(Block::EnhancedPacket(p)) => packets.push((
                        p.if_id,
                        u64::from(p.ts_high) << 32 | u64::from(p.ts_low),
                        p.data[..p.caplen as usize].to_vec(),
                        p.origlen,
                        p.options
                            .iter()
                            .map(|o| (o.code.0, o.value[..usize::from(o.len)].to_vec()))
                            .collect(),
                    )),
                    _ => panic!("a block of an unexpected kind"),
                }
                reader.consume(used);
            }
            Err(pcap_parser::PcapError::Eof) => break,
            Err(pcap_parser::PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(e) => panic!("{e:?}"),
        }
    }
    let interfaces = packets.iter().map(|packet| packet.0 as usize + 1).max();
    assert!(interfaces <= Some(resolutions.len()), "each interface is described");
    assert!(resolutions.iter().all(|&r| r == 9));
    (application, packets)
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "the reader needs the machine's byte order")]
fn an_independent_reader_reads_it_back() {
    let mut out = Vec::new();
    section_header(&mut out, "urxe 0.1");
    interface_description(&mut out, LinkType::Ethernet, "rxe0");
    interface_description(&mut out, LinkType::Ethernet, "rxe1");
    let timestamp_ns = 1_790_000_000_123_456_789;
    for len in 0..5u8 {
        let data: Vec<u8> = (0..len).collect();
        enhanced_packet(
            &mut out,
            &PacketRecord {
                interface: u32::from(len & 1),
                timestamp_ns: timestamp_ns + u64::from(len),
                data: &data,
                snap_len: SNAP_LEN,
                direction: (len > 2).then_some(Direction::Outbound),
                comment: if len == 4 { "dropped: bad ICRC" } else { "" },
            },
        );
        assert!(out.len().is_multiple_of(4));
    }
    let (application, packets) = read(&out);
    assert_eq!(application, b"urxe 0.1");
    assert_eq!(packets.len(), 5);
    for (i, (interface, ts, data, origlen, _)) in packets.iter().enumerate() {
        assert_eq!(*interface, i as u32 & 1);
        assert_eq!(*ts, timestamp_ns + i as u64);
        assert_eq!(*data, (0..i as u8).collect::<Vec<_>>());
        assert_eq!(*origlen, i as u32);
    }
    assert!(packets[2].4.is_empty());
    assert_eq!(packets[3].4[0], (OPT_EPB_FLAGS, vec![2, 0, 0, 0]));
    assert_eq!(packets[4].4[0], (OPT_COMMENT, b"dropped: bad ICRC".to_vec()));
    assert_eq!(packets[4].4[1], (OPT_EPB_FLAGS, vec![2, 0, 0, 0]));
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "the reader needs the machine's byte order")]
fn too_long_values_are_cut() {
    let mut out = Vec::new();
    section_header(&mut out, &"ü".repeat(40_000));
    interface_description(&mut out, LinkType::Ethernet, "");
    let data = vec![7; SNAP_LEN + 1];
    for snap_len in [usize::MAX, 9] {
        let record = PacketRecord {
            interface: 0,
            timestamp_ns: 0,
            data: &data,
            snap_len,
            direction: None,
            comment: "",
        };
        enhanced_packet(&mut out, &record);
    }
    let (application, packets) = read(&out);
    // 65,535 bytes fit, and the last character would be cut.
    assert_eq!(String::from_utf8(application).unwrap(), "ü".repeat(32_767));
    let lengths = packets.iter().map(|packet| (packet.2.len(), packet.3 as usize));
    assert!(lengths.eq([(SNAP_LEN, SNAP_LEN + 1), (9, SNAP_LEN + 1)]));
}
