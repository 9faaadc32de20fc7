//! Names of numbers: `ibv_wc_status_str` and the like. Programs print these, so they are the
//! original's (`libibverbs/enum_strs.c`).

use std::ffi::{CStr, c_char, c_int};

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

const EVENT_TYPES: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const WC_STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

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

fn name(names: &[&'static CStr], number: c_int) -> *const c_char {
    let found = usize::try_from(number).ok().and_then(|number| names.get(number));
    found.copied().unwrap_or(c"unknown").as_ptr()
}

/// `ibv_node_type_str`
pub extern "C" fn node_type_str(number: c_int) -> *const c_char {
    name(&NODE_TYPES, number)
}

/// `ibv_port_state_str`
pub extern "C" fn port_state_str(number: c_int) -> *const c_char {
    name(&PORT_STATES, number)
}

/// `ibv_event_type_str`
pub extern "C" fn event_type_str(number: c_int) -> *const c_char {
    name(&EVENT_TYPES, number)
}

/// `ibv_wc_status_str`
pub extern "C" fn wc_status_str(number: c_int) -> *const c_char {
    name(&WC_STATUSES, number)
}

/// `ibv_wr_opcode_str` of rdma-core's own programs.
pub extern "C" fn wr_opcode_str(number: c_int) -> *const c_char {
    name(&WR_OPCODES, number)
}

#[cfg(test)]
mod tests {
    use urxe_stack::cq::{AsyncEventType, WcStatus};

    use super::*;

    #[test]
    fn names_are_those_of_the_stack() {
        for status in WcStatus::ALL {
            assert_eq!(WC_STATUSES[usize::from(status.number())].to_str(), Ok(status.as_str()));
        }
        for event in AsyncEventType::ALL {
            assert_eq!(EVENT_TYPES[usize::from(event.number())].to_str(), Ok(event.as_str()));
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
