//! Numbers of the descriptors of rsockets.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use crate::error::Result;

/// Numbers of the descriptors of rsockets, while one is free and the process may have so many.
///
/// librspreload opens a descriptor for the program first, and makes the rsocket afterwards. Before
/// rdma-core 63, its `select` finds the rsocket only if the rsocket has the higher number. The
/// lowest free number may be lower, because another thread may close a descriptor in between.
/// `rselect` takes descriptors below `FD_SETSIZE`.
const NUMBERS: Range<RawFd> = 512..libc::FD_SETSIZE as RawFd;

/// Makes the descriptor of an rsocket: a duplicate of `fd`, closed on `exec`.
///
/// # Errors
/// EMFILE.
pub fn numbered(fd: impl AsFd) -> Result<OwnedFd> {
    numbered_in(NUMBERS, fd)
}

fn numbered_in(numbers: Range<RawFd>, fd: impl AsFd) -> Result<OwnedFd> {
    match rustix::io::fcntl_dupfd_cloexec(&fd, numbers.start) {
        Ok(made) if made.as_raw_fd() < numbers.end => Ok(made),
        // EINVAL: the process may not have so many descriptors.
        _ => rustix::io::fcntl_dupfd_cloexec(&fd, 0),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::FdFlags;
    use urxe_stack::driver::eventfd::EventFd;

    use super::*;

    /// The numbers of the test, which no other test uses.
    const FREE: Range<RawFd> = 300..302;

    #[test]
    fn numbers_are_taken_from_the_range_while_one_is_free() {
        let fd = EventFd::new().unwrap();
        let made = [(); 3].map(|()| numbered_in(FREE, &fd).unwrap());
        let [first, second, third] = made.each_ref().map(|fd| fd.as_raw_fd());
        assert_eq!([first, second], [FREE.start, FREE.start + 1]);
        assert!(third < FREE.start);
    }

    #[test]
    fn without_such_numbers_the_lowest_free_one_is_taken() {
        let fd = EventFd::new().unwrap();
        let made = numbered_in(RawFd::MAX - 1..RawFd::MAX, &fd).unwrap();
        assert!(made.as_raw_fd() < FREE.start);
        let flags = rustix::io::fcntl_getfd(&made).unwrap();
        assert!(flags.contains(FdFlags::CLOEXEC));
        // It is a duplicate: an event of one is an event of the other.
        EventFd::from(made).add(1);
        assert!(fd.try_take().unwrap());
    }
}
