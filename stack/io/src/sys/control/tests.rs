use proptest::prelude::*;

use super::*;

#[test]
fn layout_is_that_of_the_c_library() {
    assert_eq!(HEADER, size_of::<libc::cmsghdr>());
    assert_eq!(std::mem::offset_of!(libc::cmsghdr, cmsg_level), ALIGNMENT);
    assert_eq!(std::mem::offset_of!(libc::cmsghdr, cmsg_type), ALIGNMENT + 4);
}

#[test]
fn what_is_pushed_is_read() {
    let mut control = Control::EMPTY;
    assert!(control.push(17, 103, &1024_u16.to_ne_bytes()));
    assert!(control.push(0, 1, &184_i32.to_ne_bytes()));
    assert!(control.push(0, 2, &[7]));
    let read: Vec<_> = control.messages().map(|m| (m.level, m.kind, m.int())).collect();
    assert_eq!(read, [(17, 103, Some(1024)), (0, 1, Some(184)), (0, 2, Some(7))]);
}

#[test]
fn a_full_buffer_refuses() {
    let mut control = Control::EMPTY;
    assert!(control.push(1, 1, &[0xaa; 200]));
    let before = control.as_bytes().to_vec();
    assert!(!control.push(1, 2, &[0xbb; 100]));
    assert_eq!(control.as_bytes(), before);
    assert_eq!(control.messages().count(), 1);
}

#[test]
fn lengths_that_lie_end_the_reading() {
    for lie in [0, 1, HEADER - 1, HEADER + 5, CAPACITY + 1, usize::MAX - 3, usize::MAX] {
        let mut control = Control::EMPTY;
        assert!(control.push(1, 1, &[1, 2, 3, 4]));
        let start = control.length;
        assert!(control.push(2, 2, &[5, 6, 7, 8]));
        control.bytes[start..start + ALIGNMENT].copy_from_slice(&lie.to_ne_bytes());
        control.length = start + HEADER + 4;
        let read: Vec<_> = control.messages().collect();
        assert_eq!(read, [Message { level: 1, kind: 1, data: &[1, 2, 3, 4] }], "length {lie}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_within_bounds(
        bytes in proptest::collection::vec(any::<u8>(), 0..128),
        first in 0_usize..160,
    ) {
        let mut bytes = bytes;
        if let Some(length) = bytes.first_chunk_mut::<ALIGNMENT>() {
            *length = first.to_ne_bytes();
        }
        let mut total = 0;
        for message in Messages::new(&bytes) {
            total += HEADER + message.data.len();
            let _ = message.int();
        }
        prop_assert!(total <= bytes.len());
    }
}
