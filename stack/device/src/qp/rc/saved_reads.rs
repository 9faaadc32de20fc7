//! The data of READ responses that a later request would change before they are sent.
//!
//! The data of a READ response is read when the response is sent. A request behind the READ is
//! executed when it arrives, so it may change the memory first:
//!
//! ```text
//!   arrives      effect                                    sent
//!   READ 10      response pending
//!   WRITE 11     data of READ 10 saved, memory changed
//!                                                          response 10 with the saved data
//! ```
//!
//! IBTA vol. 1, 10.8.3.3 leaves the order of a READ and a later request to the requester's fence.
//! `rdma_rxe` completes a READ response before it takes the next request (`get_req` in
//! `rxe_resp.c`). Programs depend on it: the `MPI_Get_accumulate` of Open MPI 4.1 posts a READ and
//! a WRITE of one range without a fence.
//!
//! | later request | READ | data of at most [`MAX`] bytes | more |
//! |---|---|---|---|
//! | WRITE, atomic, ATOMIC WRITE | of the same bytes | saved | sequence NAK |
//! | SEND with invalidate | by the key | saved | sequence NAK |
//! | each other SEND, WRITE with immediate | any | saved | executed at once |
//!
//! The sequence NAK follows the READ responses, so the peer sends the request again after them.
//! Other SENDs are never refused. Their receiver may write to the memory of a longer READ too
//! early, which the specification allows.

use urxe_wire::{Psn, Rkey};

/// The most bytes that one queue pair saves.
pub(super) const MAX: usize = 64 << 10;

/// The change that a request makes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// The first address and the length of the memory that the request writes.
    pub range: Option<(u64, u64)>,
    /// The key that the request invalidates.
    pub invalidates: Option<Rkey>,
    /// The request completes a receive, or writes to the memory of one.
    pub is_seen: bool,
}

impl Change {
    /// Returns whether the request changes a READ's data of `len` bytes, or its key.
    pub fn affects(&self, va: u64, len: u32, rkey: Rkey) -> bool {
        let overlaps = |(start, size): (u64, u64)| {
            // The distances wrap, because a region may end at the last address.
            let starts_within = start.wrapping_sub(va) < u64::from(len);
            va.wrapping_sub(start) < size || (starts_within && size > 0)
        };
        self.range.is_some_and(overlaps) || self.invalidates == Some(rkey)
    }
}

/// The saved data of a queue pair. Usually there is none, and nothing is allocated.
#[derive(Debug, Default)]
pub(super) struct SavedReads {
    /// The PSN of the last packet of each READ response, and the data of the end of it.
    reads: Vec<(Psn, Vec<u8>)>,
}

impl SavedReads {
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Returns whether `len` bytes more may be saved.
    pub fn has_room(&self, len: u32) -> bool {
        let used: usize = self.reads.iter().map(|(_, data)| data.len()).sum();
        used + len as usize <= MAX
    }

    /// Saves the data of the response that ends with PSN `last`.
    pub fn save(&mut self, last: Psn, data: Vec<u8>) {
        self.reads.push((last, data));
    }

    /// Returns the saved data of the last `left` bytes of a response.
    pub fn rest(&self, last: Psn, left: u32) -> Option<&[u8]> {
        let (_, data) = self.reads.iter().find(|(of, _)| *of == last)?;
        data.get(data.len().checked_sub(left as usize)?..)
    }

    /// Drops the data of the responses for which `is_pending` is false.
    pub fn retain(&mut self, is_pending: impl Fn(Psn) -> bool) {
        self.reads.retain(|(last, _)| is_pending(*last));
    }

    pub fn clear(&mut self) {
        self.reads = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_affects_the_reads_of_its_bytes_and_its_key() {
        let key = Rkey(7);
        let write = |va, len| Change { range: Some((va, len)), ..Change::default() };
        for (change, va, len, expected) in [
            (write(100, 8), 100, 8, true),
            (write(100, 8), 107, 1, true),
            (write(100, 8), 108, 1, false),
            (write(100, 8), 92, 8, false),
            (write(100, 8), 92, 9, true),
            (write(100, 8), 0, 1000, true),
            (write(u64::MAX - 7, 8), u64::MAX, 1, true),
            (write(100, 0), 100, 8, false),
            (Change { invalidates: Some(key), ..Change::default() }, 0, 1, true),
            (Change { invalidates: Some(Rkey(8)), ..Change::default() }, 0, 1, false),
            (Change { is_seen: true, ..Change::default() }, 0, 1, false),
        ] {
            assert_eq!(change.affects(va, len, key), expected, "{change:?} {va} {len}");
        }
    }

    #[test]
    fn the_rest_of_a_response_is_the_end_of_its_data() {
        let mut saved = SavedReads::default();
        saved.save(Psn::new(5), vec![1, 2, 3]);
        assert_eq!(saved.rest(Psn::new(5), 2), Some(&[2, 3][..]));
        assert_eq!(saved.rest(Psn::new(5), 4), None, "the data was saved later");
        assert_eq!(saved.rest(Psn::new(6), 1), None);
        assert!(saved.has_room(MAX as u32 - 3) && !saved.has_room(MAX as u32 - 2));
        saved.retain(|last| last != Psn::new(5));
        assert!(saved.is_empty());
    }
}
