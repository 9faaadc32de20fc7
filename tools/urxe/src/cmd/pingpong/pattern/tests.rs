//! Every single wrong byte shows, and so does a message at the wrong place or of another number.

use super::*;

fn message(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; len];
    fill(number, &mut bytes);
    bytes
}

#[test]
fn a_message_is_itself_at_every_length() {
    for len in 0..40 {
        assert_eq!(check(7, &message(7, len)), Ok(()), "{len}");
    }
}

#[test]
fn each_wrong_byte_is_found() {
    for len in [1, 7, 8, 9, 64, 131] {
        let right = message(3, len);
        for offset in 0..len {
            let mut wrong = right.clone();
            wrong[offset] ^= 0x10;
            let found =
                Mismatch { message: 3, offset, found: wrong[offset], expected: right[offset] };
            assert_eq!(check(3, &wrong), Err(found));
        }
    }
}

#[test]
fn other_messages_and_shifted_ones_differ() {
    let this = message(5, 4096);
    for number in (0..300).filter(|number| *number != 5) {
        assert!(check(number, &this).is_err(), "{number}");
        let same = this.iter().zip(message(number, 4096)).filter(|(a, b)| *a == b).count();
        assert!(same < 100, "{same} of 4096 bytes are those of message {number}");
    }
    for shift in [1, 8, 256, 1024, 2048] {
        assert!(check(5, &this[shift..]).is_err(), "{shift}");
    }
}
