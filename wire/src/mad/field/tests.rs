use super::*;

#[test]
fn bits_at_every_place_and_width() {
    for width in 1..=64 {
        // The last place ends with the message.
        for bit in (0..=72).chain([8 * MESSAGE_LEN - width]) {
            let value =
                0xa5c3_96e1_7b2d_8f04_u64.rotate_left(bit as u32) & (u64::MAX >> (64 - width));
            let mut body = [0; MESSAGE_LEN];
            put(&mut body, bit, width, value);
            assert_eq!(get(&body, bit, width), value, "{width} bits at {bit}");
            // By definition, bit n of the message is bit 7 - n % 8 of byte n / 8.
            let by_bits = (bit..bit + width)
                .fold(0, |v, n| v << 1 | u64::from(body[n / 8] >> (7 - n % 8) & 1));
            assert_eq!(by_bits, value);
            let set: u32 = body.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(set, value.count_ones(), "nothing outside");
        }
    }
}

#[test]
fn narrow_numbers_refuse_what_does_not_fit() {
    assert_eq!(Bits::<5>::new(31), Some(Bits::MAX));
    assert_eq!(Bits::<5>::new(32), None);
    assert_eq!(Bits::<5>::masked(32 + 7).value(), 7);
    assert_eq!(Bits::<32>::MAX.value(), u32::MAX);
    assert_eq!(InfoLength::<7>::new(72).map(InfoLength::value), Some(72));
    assert_eq!(InfoLength::<7>::new(73), None);
}

#[test]
fn texts_of_fields() {
    assert_eq!(format!("{:>3}", Bits::<5>::masked(7)), "  7");
    let data = |bytes: &[u8]| format!("{:?}", PrivateData::<4>::new(bytes).unwrap());
    assert_eq!(data(b"\x01\x00\xab"), "PrivateData<4>([01, 00, ab] and zeros)");
    assert_eq!(data(b""), "PrivateData<4>([] and zeros)");
}

#[test]
fn private_data_says_when_it_is_too_long() {
    assert_eq!(PrivateData::<4>::new(b"abc").map(|data| *data.bytes()), Ok(*b"abc\0"));
    assert_eq!(PrivateData::<4>::new(b"abcd").map(|data| *data.bytes()), Ok(*b"abcd"));
    let error = PrivateData::<4>::new(b"abcde").unwrap_err();
    assert_eq!(error.to_string(), "5 bytes of private data exceed the 4 bytes of the message");
}
