//! Models of the order in which two ends access a ring.

use std::sync::Mutex;

use loom::cell::UnsafeCell;

use super::*;
use urxe_types::sync::Arc;

/// Two records of 64 bytes. loom reports an access to a record that is not ordered after that of
/// the other end.
struct Model {
    control: Control,
    records: [UnsafeCell<()>; 2],
    bytes: Mutex<[u8; 128]>,
}

impl Model {
    fn new() -> Arc<Self> {
        let records = [UnsafeCell::new(()), UnsafeCell::new(())];
        Arc::new(Self { control: Control::private(), records, bytes: Mutex::new([0; 128]) })
    }
}

impl Area for Model {
    fn control(&self) -> &Control {
        &self.control
    }

    fn capacity(&self) -> u64 {
        128
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        let at = position as usize % 128;
        self.records[at / 64].with_mut(|_| ());
        self.bytes.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, position: u64, out: &mut [u8]) {
        let at = position as usize % 128;
        self.records[at / 64].with(|_| ());
        out.copy_from_slice(&self.bytes.lock().unwrap()[at..at + out.len()]);
    }
}

const RECORD: Record = Record { segment_size: 1, from_port: 0, traffic_class: 0, hop_limit: 0 };

/// Records arrive whole and in order, also in a place that was used before.
#[test]
fn loom_a_record_is_read_after_it_was_written_and_before_it_is_overwritten() {
    loom::model(|| {
        let area = Model::new();
        let writes = {
            let area = Arc::clone(&area);
            loom::thread::spawn(move || {
                let (mut producer, mut next) = (Producer::default(), 1);
                while next <= 3 {
                    match producer.push(&*area, RECORD, &[next]).unwrap() {
                        Push::Done { .. } => next += 1,
                        Push::Full => loom::thread::yield_now(),
                    }
                }
            })
        };
        let (mut consumer, mut next) = (Consumer::default(), 1);
        while next <= 3 {
            let mut out = [0; 8];
            match pop(&mut consumer, &*area, &mut out).unwrap() {
                Some((_, length)) => {
                    assert_eq!(out[..length], [next]);
                    next += 1;
                }
                None => loom::thread::yield_now(),
            }
        }
        writes.join().unwrap();
    });
}

/// A consumer that falls asleep finds the record, or is woken.
#[test]
fn loom_no_record_is_left_with_a_sleeping_consumer() {
    loom::model(|| {
        let area = Model::new();
        let writes = {
            let area = Arc::clone(&area);
            loom::thread::spawn(move || Producer::default().push(&*area, RECORD, &[1]).unwrap())
        };
        fall_asleep(&area.control);
        let is_found = has_records(&area.control, 0);
        let Push::Done { wake } = writes.join().unwrap() else { unreachable!("there is room") };
        assert!(is_found || wake, "the record was neither seen nor announced");
    });
}
