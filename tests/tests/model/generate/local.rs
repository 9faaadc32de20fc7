//! Local requests: bind, register and invalidate.

use urxe_stack::memory::{Access, Bind, inc_rkey};
use urxe_stack::qp::work_request::SendOp;
use urxe_stack::rng::Rng;
use urxe_wire::{Lkey, Rkey};

use super::Generator;
use crate::keys::{CHANGES, Key, Kind};
use crate::operation::{Data, Operation, QPS, Send, To};
use crate::specification::Model;

impl Generator {
    /// Returns a local request, alone in its list.
    pub(super) fn local_request(&mut self, model: &Model, qp: usize) -> Operation {
        let device = QPS[qp].device;
        let keys: Vec<&Key> =
            model.keys.0.iter().filter(|key| key.exists && key.device == device).collect();
        let of = |wanted: fn(&Key) -> bool| {
            keys.iter().copied().filter(|key| wanted(key)).collect::<Vec<_>>()
        };
        let windows = of(|key| matches!(key.kind, Kind::Window { .. }) && !key.is_valid);
        let bindable = of(|key| key.is_valid && key.access.contains(Access::MW_BIND));
        let free = of(|key| matches!(key.kind, Kind::Fast { .. }) && !key.is_valid);
        let lent = of(|key| key.is_valid && !matches!(key.kind, Kind::Region));
        let any = |rng: &mut Rng, list: &[&Key]| {
            if list.is_empty() { None } else { Some(rng.pick(list).clone()) }
        };
        let wild = self.percent(6);
        let op = match self.rng.index(3) {
            0 => {
                let (window, region) = if wild {
                    (any(&mut self.rng, &keys), any(&mut self.rng, &keys))
                } else {
                    (any(&mut self.rng, &windows), any(&mut self.rng, &bindable))
                };
                window.zip(region).map(|(window, region)| {
                    let length =
                        8 * (1 + self.rng.index(region.len / 8 + usize::from(wild)) as u64);
                    let room = (region.len as u64).saturating_sub(length) / 8;
                    let addr = region.start + 8 * self.rng.below(room + 1);
                    let access = self.access() & !Access::MW_BIND;
                    let access = if region.access.contains(Access::LOCAL_WRITE) {
                        access
                    } else {
                        access & !CHANGES
                    };
                    let window = Rkey(window.value);
                    SendOp::BindMw(Bind {
                        window,
                        new_rkey: inc_rkey(window),
                        region: Lkey(region.value),
                        addr,
                        length: if wild && self.percent(30) { 0 } else { length },
                        access,
                    })
                })
            }
            1 => any(&mut self.rng, if wild { &keys } else { &free }).map(|key| {
                let access = self.access();
                SendOp::RegMr { key: inc_rkey(Rkey(key.value)), access }
            }),
            _ => any(&mut self.rng, if wild { &keys } else { &lent })
                .map(|key| SendOp::LocalInv { rkey: Rkey(key.value) }),
        };
        let op = op.unwrap_or(SendOp::LocalInv { rkey: Rkey(self.rng.next_u32()) });
        let data = Data::Pieces(Vec::new());
        let (signaled, solicited) = (self.percent(70), self.percent(40));
        let (wr_id, to) = (self.wr_id(), To::Peer);
        let send = Send { wr_id, op, to, signaled, fence: false, solicited, data };
        Operation::Send { qp, list: vec![send] }
    }
}
