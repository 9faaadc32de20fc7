//! Any bytes as a MAD, as one of each message, and as a header of the RDMA IP CM service.

use urxe_wire::mad::{Attribute, CmaHeader, MAD_LEN, Mad, MadError, MadHeader, MadIds};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    mad(bytes);
    if let Ok(header) = CmaHeader::parse(bytes) {
        let mut again = [0xa5; CmaHeader::LEN];
        header.emit(&mut again);
        assert_eq!(CmaHeader::parse(&again), Ok(header));
    }
    // The same bytes as every message, so that the fuzzer need not find each header.
    for attribute in Attribute::ALL {
        let mut whole = [0; MAD_LEN];
        for (to, from) in whole.iter_mut().zip(bytes) {
            *to = *from;
        }
        let tid = MadHeader::parse(&whole).map(|header| header.tid).unwrap_or_default();
        if let Some(header) = whole.first_chunk_mut() {
            MadHeader::new(attribute, tid).emit(header);
        }
        mad(&whole);
    }
}

fn mad(bytes: &[u8]) {
    let mad = match Mad::parse(bytes) {
        Ok(mad) => mad,
        Err(reason) => {
            assert!(!reason.to_string().is_empty());
            assert!(MadError::NAMES.contains(&reason.name()));
            return;
        }
    };
    assert!(!mad.to_string().is_empty());
    for (name, value) in mad.message.fields() {
        assert!(!name.is_empty() && !value.to_string().is_empty());
    }
    let again = mad.to_bytes();
    // Reserved bits become zero; all other bits are unchanged.
    assert_eq!(Mad::parse(&again), Ok(mad));
    assert_eq!(MadIds::parse(&again), MadIds::parse(bytes));
    assert!(
        again[MadHeader::LEN..]
            .iter()
            .zip(&bytes[MadHeader::LEN..])
            .all(|(new, old)| new & !old == 0)
    );
}
