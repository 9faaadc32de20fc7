//! What waits in a drained send queue names memory that a careful program leaves as it is until
//! then: a message whose data is gone in part may arrive in part.

use urxe_stack::qp::work_request::SendOp;

use super::Generator;
use crate::operation::{Data, Operation, QPS, Send};
use crate::specification::Model;

impl Generator {
    /// A drained queue pair whose requests name a key that an operation takes away or changes.
    pub(super) fn waits_for(model: &Model, operation: &Operation) -> Option<usize> {
        let (device, taken) = match operation {
            Operation::Deregister { key } | Operation::Reregister { key, .. } => {
                let key = &model.keys.0[*key];
                (key.device, vec![key.value])
            }
            Operation::Send { qp, list } => {
                let device = QPS[*qp].device;
                let by_itself = list.iter().any(|send| matches!(send.op, SendOp::LocalInv { .. }));
                let keys = list.iter().filter_map(|send| match send.op {
                    SendOp::LocalInv { rkey } | SendOp::SendInvalidate { rkey } => {
                        Some(rkey.value())
                    }
                    _ => None,
                });
                (if by_itself { device } else { 1 - device }, keys.collect())
            }
            _ => return None,
        };
        let names = |send: &Send| match &send.data {
            Data::Pieces(pieces) => pieces.iter().any(|piece| taken.contains(&piece.key)),
            Data::Inline(_) => false,
        };
        (0..QPS.len()).find(|&qp| QPS[qp].device == device && model.waiting[qp].iter().any(names))
    }
}
