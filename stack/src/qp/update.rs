//! Taking over the attributes that a call names.

use super::attr::{QpAttr, QpAttrMask};

impl QpAttr {
    /// Takes the attributes of `mask` from `new`; the state and the sizes of the queues are not
    /// among them.
    pub(crate) fn update(&mut self, new: &Self, mask: QpAttrMask) {
        let mut take = |bit: QpAttrMask, copy: fn(&mut Self, &Self)| {
            if mask.contains(bit) {
                copy(self, new);
            }
        };
        take(QpAttrMask::EN_SQD_ASYNC_NOTIFY, |to, from| {
            to.en_sqd_async_notify = from.en_sqd_async_notify
        });
        take(QpAttrMask::ACCESS_FLAGS, |to, from| to.access_flags = from.access_flags);
        take(QpAttrMask::PKEY_INDEX, |to, from| to.pkey_index = from.pkey_index);
        take(QpAttrMask::PORT, |to, from| to.port_num = from.port_num);
        take(QpAttrMask::QKEY, |to, from| to.qkey = from.qkey);
        take(QpAttrMask::AV, |to, from| to.ah = from.ah);
        take(QpAttrMask::PATH_MTU, |to, from| to.path_mtu = from.path_mtu);
        take(QpAttrMask::TIMEOUT, |to, from| to.timeout = from.timeout);
        take(QpAttrMask::RETRY_CNT, |to, from| to.retry_cnt = from.retry_cnt);
        take(QpAttrMask::RNR_RETRY, |to, from| to.rnr_retry = from.rnr_retry);
        take(QpAttrMask::RQ_PSN, |to, from| to.rq_psn = from.rq_psn);
        take(QpAttrMask::MAX_QP_RD_ATOMIC, |to, from| to.max_rd_atomic = from.max_rd_atomic);
        take(QpAttrMask::ALT_PATH, |to, from| {
            to.alt_ah = from.alt_ah;
            to.alt_pkey_index = from.alt_pkey_index;
            to.alt_port_num = from.alt_port_num;
            to.alt_timeout = from.alt_timeout;
        });
        take(QpAttrMask::MIN_RNR_TIMER, |to, from| to.min_rnr_timer = from.min_rnr_timer);
        take(QpAttrMask::SQ_PSN, |to, from| to.sq_psn = from.sq_psn);
        take(QpAttrMask::MAX_DEST_RD_ATOMIC, |to, from| {
            to.max_dest_rd_atomic = from.max_dest_rd_atomic
        });
        take(QpAttrMask::PATH_MIG_STATE, |to, from| to.path_mig_state = from.path_mig_state);
        take(QpAttrMask::DEST_QPN, |to, from| to.dest_qp_num = from.dest_qp_num);
        take(QpAttrMask::RATE_LIMIT, |to, from| to.rate_limit = from.rate_limit);
    }
}
