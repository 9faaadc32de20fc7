//! A producer and a consumer on private memory, and each of them against another end that stores
//! anything.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::*;
use urxe_types::rng::Rng;

const CAPACITY: usize = 256 << 10;

/// The memory of a ring within a test.
struct Private {
    control: Control,
    bytes: RefCell<Vec<u8>>,
    /// The highest place that was written.
    highest: Cell<usize>,
}

impl Private {
    fn new() -> Self {
        let bytes = RefCell::new(vec![0; CAPACITY]);
        Self { control: Control::private(), bytes, highest: Cell::new(0) }
    }

    fn store_header(&self, position: u64, length: u32, segment_size: u16) {
        let record = Record { segment_size, ..RECORD };
        self.write(position, &record.header(length));
    }

    fn store_head(&self, head: u64) {
        self.control.head().store(head, Ordering::Relaxed);
    }
}

impl Area for Private {
    fn control(&self) -> &Control {
        &self.control
    }

    fn capacity(&self) -> u64 {
        CAPACITY as u64
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        for (position, byte) in (position..).zip(bytes) {
            let place = position as usize % CAPACITY;
            self.highest.set(self.highest.get().max(place));
            self.bytes.borrow_mut()[place] = *byte;
        }
    }

    fn read(&self, position: u64, out: &mut [u8]) {
        for (position, byte) in (position..).zip(out) {
            *byte = self.bytes.borrow()[position as usize % CAPACITY];
        }
    }
}

const RECORD: Record =
    Record { segment_size: 4160, from_port: 50_000, traffic_class: 2, hop_limit: 64 };
const DONE: Result<Push, Broken> = Ok(Push::Done { wake: false });

fn room() -> Vec<u8> {
    vec![0; MAX_RUN_BYTES]
}

#[test]
fn runs_arrive_in_order_whatever_their_lengths_and_a_full_ring_takes_none() {
    let (area, mut rng) = (Private::new(), Rng::stream(11, 0));
    let (mut producer, mut consumer, mut out) = (Producer::default(), Consumer::default(), room());
    let (mut sent, mut was_full, mut taken, mut built) = (VecDeque::new(), 0, 0, 0);
    for number in 0..20_000_u64 {
        // Phases in which the ring fills, and phases in which it becomes empty.
        let is_filling = number / 500 % 2 == 0;
        if rng.next_u64() % 4 < if is_filling { 3 } else { 1 } {
            let long = rng.next_u64().is_multiple_of(8);
            let limit = if long { MAX_RUN_BYTES } else { 300 };
            let bytes = vec![number as u8; 1 + (rng.next_u64() as usize) % limit];
            let record = Record { from_port: number as u16, ..RECORD };
            // Room for any run, which most runs use in part, and some callers do not use.
            let is_built_here = rng.next_u64().is_multiple_of(2);
            let room = match is_built_here || rng.next_u64().is_multiple_of(8) {
                true => producer.reserve(&area, MAX_RUN_BYTES).unwrap(),
                false => None,
            };
            let outcome = match room.filter(|_| is_built_here) {
                Some(position) => {
                    area.write(position, &bytes);
                    built += 1;
                    Push::Done { wake: producer.publish(&area, record, bytes.len()) }
                }
                None => producer.push(&area, record, &bytes).unwrap(),
            };
            match outcome {
                Push::Done { wake } => {
                    assert!(!wake);
                    sent.push_back((record, bytes));
                }
                Push::Full => was_full += 1,
            }
        } else if let Some((record, length)) = pop(&mut consumer, &area, &mut out).unwrap() {
            let expected = sent.pop_front().unwrap();
            assert_eq!((record, &out[..length]), (expected.0, &expected.1[..]), "{number}");
            taken += 1;
        } else {
            assert!(sent.is_empty());
        }
    }
    assert!(was_full > 100 && taken > 5_000 && built > 1_000, "{was_full} {taken} {built}");
}

#[test]
#[should_panic = "a run of 65 bytes without room"]
fn a_run_must_not_be_longer_than_its_room() {
    let (area, mut producer) = (Private::new(), Producer::default());
    // The room ends at a multiple of 64 bytes.
    assert_eq!(producer.reserve(&area, 48), Ok(Some(HEADER_LEN as u64)));
    producer.publish(&area, RECORD, 65);
}

#[test]
#[should_panic = "a run of 1 bytes without room"]
fn room_is_for_one_run() {
    let (area, mut producer) = (Private::new(), Producer::default());
    producer.reserve(&area, 48).unwrap();
    producer.publish(&area, RECORD, 1);
    producer.publish(&area, RECORD, 1);
}

#[test]
fn a_run_has_its_place_until_it_is_released() {
    let (area, mut producer, mut consumer) =
        (Private::new(), Producer::default(), Consumer::default());
    while producer.push(&area, RECORD, &[1; 8000]) == DONE {}
    let first = consumer.next(&area).unwrap().unwrap();
    assert_eq!((first.position, first.length), (HEADER_LEN as u64, 8000));
    assert_eq!(producer.push(&area, RECORD, &[2; 8000]), Ok(Push::Full));
    assert_eq!(consumer.position(), 0);
    consumer.release(&area);
    assert_eq!(producer.push(&area, RECORD, &[2; 8000]), DONE);
    consumer.release(&area);
    assert_eq!(consumer.position(), record_len(8000), "there is nothing to release");
    let second = consumer.next(&area).unwrap().unwrap();
    let third = consumer.next(&area).unwrap().unwrap();
    assert_eq!(third.position - second.position, record_len(8000), "the call released the second");
}

#[test]
fn a_run_that_no_port_sends_is_not_taken() {
    let (area, mut producer) = (Private::new(), Producer::default());
    assert_eq!(producer.push(&area, RECORD, &[]), Ok(Push::Full));
    assert_eq!(producer.push(&area, RECORD, &vec![0; MAX_RUN_BYTES + 1]), Ok(Push::Full));
    assert_eq!(producer.push(&area, RECORD, &vec![0; MAX_RUN_BYTES]), DONE);
}

#[test]
fn small_messages_stay_at_the_beginning_of_the_ring() {
    let (area, mut out) = (Private::new(), room());
    let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
    for _ in 0..100_000 {
        assert_eq!(producer.push(&area, RECORD, &[1; 80]), DONE);
        assert_eq!(pop(&mut consumer, &area, &mut out), Ok(Some((RECORD, 80))));
    }
    assert!(area.highest.get() < 2 * RESTART as usize + 128, "{}", area.highest.get());
    assert!(consumer.position() > CAPACITY as u64, "it went round");
}

#[test]
fn the_whole_ring_has_room_after_a_restart_that_the_consumer_has_not_seen() {
    let (area, mut out) = (Private::new(), room());
    let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
    for len in [80, 4000] {
        for _ in 0..CAPACITY {
            assert_eq!(producer.push(&area, RECORD, &vec![1; len]), DONE);
            assert!(pop(&mut consumer, &area, &mut out).unwrap().is_some());
            let place = consumer.position() % CAPACITY as u64;
            if place >= RESTART && consumer.position() >= producer.check_at {
                break;
            }
        }
        // The next record restarts the ring.
        for number in 0..CAPACITY / 4096 {
            assert_eq!(producer.push(&area, RECORD, &[2; 4080]), DONE, "{number}");
        }
        assert_eq!(producer.head % CAPACITY as u64, 0);
        assert_eq!(producer.push(&area, RECORD, &[2; 1]), Ok(Push::Full));
        assert_eq!(producer.is_half_full(&area), Ok(true));
        for _ in 0..CAPACITY / 4096 {
            assert_eq!(pop(&mut consumer, &area, &mut out), Ok(Some((RECORD, 4080))));
            assert_eq!(&out[..4080], [2; 4080]);
        }
        assert_eq!(pop(&mut consumer, &area, &mut out), Ok(None));
    }
}

#[test]
fn a_ring_that_rested_goes_on_at_its_beginning_whatever_its_bytes_are() {
    let (area, mut out) = (Private::new(), room());
    let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
    // Up to a place at which the next search for a restart is not due.
    for _ in 0..CAPACITY / 8192 {
        assert_eq!(producer.push(&area, RECORD, &[1; 4000]), DONE);
    }
    assert_eq!(producer.rest(&area), Ok(false), "there are records");
    while pop(&mut consumer, &area, &mut out).unwrap().is_some() {}
    assert_eq!(producer.rest(&area), Ok(true));
    area.bytes.borrow_mut().fill(0);
    assert_eq!(producer.push(&area, RECORD, &[1; 80]), DONE);
    assert_eq!(pop(&mut consumer, &area, &mut out), Ok(Some((RECORD, 80))));
    assert_eq!(consumer.position() % CAPACITY as u64, 128);
}

#[test]
fn a_sleeping_consumer_is_woken_once() {
    let (area, mut producer) = (Private::new(), Producer::default());
    fall_asleep(&area.control);
    assert!(!has_records(&area.control, 0));
    assert_eq!(producer.push(&area, RECORD, &[1]), Ok(Push::Done { wake: true }));
    assert!(has_records(&area.control, 0));
    assert_eq!(producer.push(&area, RECORD, &[1]), DONE, "the first message wakes it");
    fall_asleep(&area.control);
    wake_up(&area.control);
    assert_eq!(producer.push(&area, RECORD, &[1]), DONE, "it is awake");
}

#[test]
fn an_impossible_position_of_the_consumer_ends_the_ring() {
    for (before, tail) in [(0, 129), (0, u64::MAX), (64, 0), (128, 64)] {
        let (area, mut producer) = (Private::new(), Producer::default());
        for _ in 0..2 {
            assert_eq!(producer.push(&area, RECORD, &[1]), DONE);
        }
        area.control.tail().store(before, Ordering::Relaxed);
        assert_eq!(producer.is_half_full(&area), Ok(false));
        area.control.tail().store(tail, Ordering::Relaxed);
        assert_eq!(producer.is_half_full(&area), Err(Broken), "{before} {tail}");
    }
}

#[test]
fn an_impossible_position_of_the_producer_ends_the_ring() {
    let capacity = CAPACITY as u64;
    for head in [1, 63, 65, capacity + 64, u64::MAX, u64::MAX - 63, 1 << 63] {
        let area = Private::new();
        area.store_header(0, 10, 10);
        area.store_head(head);
        assert_eq!(pop(&mut Consumer::default(), &area, &mut room()), Err(Broken), "{head}");
    }
    // A position that goes back.
    let (area, mut consumer) = (Private::new(), Consumer::default());
    area.store_header(0, 10, 10);
    area.store_head(64);
    assert!(pop(&mut consumer, &area, &mut room()).unwrap().is_some());
    area.store_head(0);
    assert_eq!(pop(&mut consumer, &area, &mut room()), Err(Broken));
}

#[test]
fn an_impossible_record_ends_the_ring() {
    let long = MAX_RUN_BYTES as u32 + 1;
    for (head, length, segment_size) in [
        (64, 0, 10),
        (64, 10, 0),
        // Longer than the producer has written.
        (64, 49, 10),
        (CAPACITY as u64, long, 10),
        (CAPACITY as u64, u32::MAX, 10),
    ] {
        let area = Private::new();
        area.store_header(0, length, segment_size);
        area.store_head(head);
        let result = pop(&mut Consumer::default(), &area, &mut room());
        assert_eq!(result, Err(Broken), "{head} {length} {segment_size}");
    }
}

#[test]
fn an_impossible_restart_ends_the_ring_and_others_are_ignored() {
    let capacity = CAPACITY as u64;
    // The last value: whether the consumer reads the record at 64, or the ring ends.
    for (restart, head, reads) in [
        // To the next beginning, where no record was published.
        (64, 128, false),
        (64, capacity, false),
        (64, 3 * capacity, false),
        // From where the consumer is not.
        (0, 128, true),
        (128, 128, true),
        (u64::MAX, 128, true),
    ] {
        let (area, mut consumer) = (Private::new(), Consumer::default());
        area.store_header(0, 10, 10);
        area.store_head(64);
        assert!(pop(&mut consumer, &area, &mut room()).unwrap().is_some());
        area.store_header(64, 10, 10);
        area.control.restart().store(restart, Ordering::Relaxed);
        area.store_head(head);
        let result = pop(&mut consumer, &area, &mut room()).map(|run| run.is_some());
        assert_eq!(result, if reads { Ok(true) } else { Err(Broken) }, "{restart} {head}");
    }
    // Restarts without a record.
    let (area, mut consumer) = (Private::new(), Consumer::default());
    area.store_header(0, 10, 10);
    area.store_head(64);
    assert!(pop(&mut consumer, &area, &mut room()).unwrap().is_some());
    area.control.restart().store(64, Ordering::Relaxed);
    assert_eq!(pop(&mut consumer, &area, &mut room()), Ok(None));
    assert_eq!(consumer.position(), 64);
}

/// Memory whose other end changes each word and each header right after it was read, as in
/// CVE-2026-74377 and CVE-2026-74378: the kernel's rxe checked a value that a program could change,
/// and read it once more to use it.
struct Changing {
    inner: Private,
    reads: RefCell<Vec<(u64, usize)>>,
    words: Cell<u32>,
}

impl Area for Changing {
    /// Each use of a word is a call. The second one finds words that are far away.
    fn control(&self) -> &Control {
        if self.words.replace(self.words.get() + 1) == 1 {
            self.inner.control.head().store(1 << 40, Ordering::Relaxed);
            self.inner.control.tail().store(1 << 40, Ordering::Relaxed);
        }
        &self.inner.control
    }

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        self.inner.write(position, bytes);
    }

    fn read(&self, position: u64, out: &mut [u8]) {
        self.inner.read(position, out);
        self.reads.borrow_mut().push((position, out.len()));
        self.inner.store_header(position, MAX_RUN_BYTES as u32, 0);
    }
}

#[test]
fn a_value_that_another_process_can_change_is_read_once() {
    let inner = Private::new();
    assert_eq!(Producer::default().push(&inner, RECORD, &[7; 100]), DONE);
    let area = Changing { inner, reads: RefCell::default(), words: Cell::new(0) };
    let mut out = room();
    // The first call for a word loads the head, the second one stores the tail.
    assert_eq!(pop(&mut Consumer::default(), &area, &mut out), Ok(Some((RECORD, 100))));
    assert_eq!(&out[16..100], [7; 84]);
    let read = [(0, HEADER_LEN), (HEADER_LEN as u64, 100)];
    assert_eq!(*area.reads.borrow(), read, "the header once, and the packets once");

    let area = Changing { inner: Private::new(), reads: RefCell::default(), words: Cell::new(0) };
    assert_eq!(Producer::default().is_half_full(&area), Ok(false));
    assert_eq!(area.words.get(), 1, "the position of the consumer once");
}

#[test]
fn no_bytes_of_another_process_lead_beyond_the_ring() {
    let mut out = room();
    let (mut runs, mut broken) = (0, 0);
    for seed in 0..2_000 {
        let (area, mut rng) = (Private::new(), Rng::stream(seed, 3));
        let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
        for _ in 0..20 {
            let small = rng.next_u64() % 2_000;
            match rng.next_u64() % 8 {
                0 => area.store_head(rng.next_u64()),
                1 => area.store_head((consumer.position() + small).next_multiple_of(ALIGN)),
                2 => area.control.tail().store(rng.next_u64(), Ordering::Relaxed),
                3 => area.control.asleep().store(small as u32, Ordering::Relaxed),
                4 if small % 4 == 0 => {
                    let restart = [consumer.position(), rng.next_u64()][small as usize / 4 % 2];
                    area.control.restart().store(restart, Ordering::Relaxed);
                }
                4 => area.store_header(consumer.position(), small as u32, small as u16),
                5 => area.store_header(consumer.position(), rng.next_u64() as u32, 1),
                6 => {
                    let _ = producer.push(&area, RECORD, &vec![1; small as usize]);
                }
                _ => match pop(&mut consumer, &area, &mut out) {
                    Ok(Some((_, length))) => {
                        runs += 1;
                        assert!((1..=MAX_RUN_BYTES).contains(&length));
                    }
                    Ok(None) => {}
                    Err(Broken) => {
                        broken += 1;
                        break;
                    }
                },
            }
        }
    }
    assert!(runs > 100 && broken > 100, "{runs} {broken}");
}
