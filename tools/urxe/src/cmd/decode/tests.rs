//! Captures of real kernels, damaged: whatever the bytes, decoding ends with text or with an error
//! that has a place.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

const CAPTURES: [&[u8]; 4] = [
    include_bytes!("../../../../../wire/testdata/atomic_fa.pcap"),
    include_bytes!("../../../../../wire/testdata/reject.pcap"),
    include_bytes!("../../../../../wire/testdata/rc_pingpong_ipv6.pcap"),
    include_bytes!("../../../../../wire/testdata/udaddy.pcap"),
];

/// What is printed, and how it ended.
fn decoded(file: &[u8], verbose: bool, json: bool) -> (String, Result<Tally, CmdError>) {
    let args = Args { file: PathBuf::new(), verbose, json };
    let mut out = Vec::new();
    let result = args.decode(file, &mut out);
    (String::from_utf8(out).unwrap(), result)
}

proptest! {
    #[test]
    fn damaged_captures(
        which in any::<Index>(),
        damage in proptest::collection::vec((any::<Index>(), any::<u8>()), 0..40),
        kept in any::<Index>(),
        cut in any::<bool>(),
    ) {
        let mut file = which.get(&CAPTURES).to_vec();
        for (at, value) in damage {
            let at = at.index(file.len());
            file[at] = value;
        }
        if cut {
            file.truncate(kept.index(file.len()));
        }
        let (lines, result) = decoded(&file, false, false);
        if let Ok(tally) = &result {
            prop_assert_eq!(tally.packets, lines.lines().count() as u64);
        } else {
            prop_assert!(matches!(result, Err(CmdError::Capture(_))));
        }
        let (fields, _) = decoded(&file, true, false);
        let numbered = fields.lines().filter(|line| !line.starts_with("      ")).count();
        prop_assert!(numbered >= lines.lines().count().min(1));
        let (objects, _) = decoded(&file, false, true);
        prop_assert_eq!(objects.lines().count(), lines.lines().count());
        for object in objects.lines() {
            prop_assert!(serde_json::from_str::<serde_json::Value>(object).is_ok());
        }
    }
}
