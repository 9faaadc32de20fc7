//! Texts for numbers: `ibv_wc_status_str` and the like. Programs print these texts, so they equal
//! the texts of the original (`libibverbs/enum_strs.c`).

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::LazyLock;

use urxe_stack::cma::CmaEventType;
use urxe_stack::cq::{AsyncEventType, WcStatus};

use crate::ffi;

/// The text of the original for an unknown number.
const UNKNOWN: &CStr = c"unknown";

const NODE_TYPES: [&CStr; 8] = [
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATES: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

/// `enum ibv_wr_opcode`; numbers without a name are empty.
const WR_OPCODES: [&CStr; 16] = [
    c"IBV_WR_RDMA_WRITE",
    c"IBV_WR_RDMA_WRITE_WITH_IMM",
    c"IBV_WR_SEND",
    c"IBV_WR_SEND_WITH_IMM",
    c"IBV_WR_RDMA_READ",
    c"IBV_WR_ATOMIC_CMP_AND_SWP",
    c"IBV_WR_ATOMIC_FETCH_AND_ADD",
    c"IBV_WR_LOCAL_INV",
    c"IBV_WR_BIND_MW",
    c"IBV_WR_SEND_WITH_INV",
    c"IBV_WR_TSO",
    c"IBV_WR_DRIVER1",
    c"unknown",
    c"unknown",
    c"IBV_WR_FLUSH",
    c"IBV_WR_ATOMIC_WRITE",
];

/// Names from the stack as C strings, by number, created on first use.
type Names = LazyLock<Vec<CString>>;

static EVENT_TYPES: Names =
    Names::new(|| names("", AsyncEventType::ALL.map(|event| event.as_str())));
static WC_STATUSES: Names = Names::new(|| names("", WcStatus::ALL.map(|status| status.as_str())));
static CM_EVENTS: Names = Names::new(|| {
    let mut all = names("RDMA_CM_EVENT_", CmaEventType::ALL.map(|event| event.name()));
    all.extend(names("RDMA_CM_EVENT_", ["ADDRINFO_RESOLVED", "ADDRINFO_ERROR"]));
    all
});

fn names<const N: usize>(prefix: &str, names: [&str; N]) -> Vec<CString> {
    names.map(|name| CString::new(format!("{prefix}{name}")).unwrap_or_default()).into()
}

fn name<T: AsRef<CStr>>(names: &[T], number: c_int, unknown: &'static CStr) -> *const c_char {
    let found = usize::try_from(number).ok().and_then(|number| names.get(number));
    found.map_or(unknown, AsRef::as_ref).as_ptr()
}

/// `ibv_node_type_str`
pub extern "C" fn node_type_str(number: c_int) -> *const c_char {
    name(&NODE_TYPES, number, UNKNOWN)
}

/// `ibv_port_state_str`
pub extern "C" fn port_state_str(number: c_int) -> *const c_char {
    name(&PORT_STATES, number, UNKNOWN)
}

/// `ibv_event_type_str`
pub extern "C" fn event_type_str(number: c_int) -> *const c_char {
    ffi::catch_panic(UNKNOWN.as_ptr(), || name(&EVENT_TYPES, number, UNKNOWN))
}

/// `ibv_wc_status_str`
pub extern "C" fn wc_status_str(number: c_int) -> *const c_char {
    ffi::catch_panic(UNKNOWN.as_ptr(), || name(&WC_STATUSES, number, UNKNOWN))
}

/// `rdma_event_str`
pub extern "C" fn event_str(number: u32) -> *const c_char {
    let unknown = c"UNKNOWN EVENT";
    ffi::catch_panic(unknown.as_ptr(), || name(&CM_EVENTS, number.cast_signed(), unknown))
}

/// `ibv_wr_opcode_str`, used by rdma-core's own programs.
pub extern "C" fn wr_opcode_str(number: c_int) -> *const c_char {
    name(&WR_OPCODES, number, UNKNOWN)
}

/// `IBV_RATE_MAX`
const MAX_RATE: c_int = 0;

/// The numbers of `enum ibv_rate`, each with the multiple of 2.5 Gb/s (-1 if the original has none)
/// and the rate in Mb/s (IBTA vol. 1, 9.11; `libibverbs/verbs.c`).
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, -1, 14_062),
    (12, -1, 56_250),
    (13, -1, 112_500),
    (14, -1, 168_750),
    (15, -1, 25_781),
    (16, -1, 103_125),
    (17, -1, 206_250),
    (18, -1, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// `ibv_rate_to_mult`
pub extern "C" fn rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.1)
}

/// `mult_to_ibv_rate`
pub extern "C" fn mult_to_rate(mult: c_int) -> c_int {
    RATES.iter().find(|row| row.1 == mult && mult > 0).map_or(MAX_RATE, |row| row.0)
}

/// `ibv_rate_to_mbps`
pub extern "C" fn rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.2)
}

/// `mbps_to_ibv_rate`
pub extern "C" fn mbps_to_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|row| row.2 == mbps).map_or(MAX_RATE, |row| row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_stack() {
        for status in WcStatus::ALL {
            assert_eq!(WC_STATUSES[usize::from(status.number())].to_str(), Ok(status.as_str()));
        }
        for event in AsyncEventType::ALL {
            assert_eq!(EVENT_TYPES[usize::from(event.number())].to_str(), Ok(event.as_str()));
        }
        for event in CmaEventType::ALL {
            let name = CM_EVENTS[usize::from(event.number())].to_str().unwrap();
            assert_eq!(name.strip_prefix("RDMA_CM_EVENT_"), Some(event.name()));
        }
    }

    #[test]
    fn a_number_outside_the_table_is_unknown() {
        for number in [-1, 24, c_int::MAX, c_int::MIN] {
            // SAFETY: a static string.
            assert_eq!(unsafe { CStr::from_ptr(wc_status_str(number)) }, c"unknown");
        }
    }
}
