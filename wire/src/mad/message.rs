//! Every message of communication management, declared as one table: its fields, their types and
//! where they stand.
//!
//! Offsets are bytes and bits from the end of the MAD header (IBTA tables 106 to 120; the kernel's
//! `include/rdma/ibta_vol1_c12.h`). Bits of no field are reserved: written as zero, ignored when
//! read.

use super::code::{Answered, ApStatus, RejReason, SidrStatus, TransportType};
use super::field::{Bits, Body, Field, InfoLength, MadValue, PrivateData, SpreadVendorId};
use super::header::{Attribute, MadError};
use super::id::{CommId, Guid, ServiceId};
use crate::{Gid, PKey, Psn, QKey, Qpn};

/// Declares the messages: structs, parsing, emitting, listing.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty, $byte:literal, $bit:literal;)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $ty,)*
            }

            impl $name {
                fn parse(body: &Body) -> Result<Self, MadError> {
                    Ok(Self { $($field: Field::read(Attribute::$name, body, $byte * 8 + $bit)?,)* })
                }

                fn emit(&self, body: &mut Body) {
                    body.fill(0);
                    $(self.$field.write(body, $byte * 8 + $bit);)*
                }

                fn fields(&self) -> Vec<(&'static str, MadValue<'_>)> {
                    vec![$((stringify!($field), self.$field.shown()),)*]
                }
            }

            impl From<$name> for CmMessage {
                fn from(message: $name) -> Self {
                    Self::$name(message)
                }
            }
        )*

        /// A message of communication management.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CmMessage {
            $($(#[$doc])* $name($name),)*
        }

        impl CmMessage {
            /// Which one it is.
            #[must_use]
            pub const fn attribute(&self) -> Attribute {
                match self {
                    $(Self::$name(_) => Attribute::$name,)*
                }
            }

            pub(super) fn parse(attribute: Attribute, body: &Body) -> Result<Self, MadError> {
                match attribute {
                    $(Attribute::$name => $name::parse(body).map(Self::$name),)*
                }
            }

            pub(super) fn emit(&self, body: &mut Body) {
                match self {
                    $(Self::$name(message) => message.emit(body),)*
                }
            }

            /// Every field with its name, in the order of the specification's table.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, MadValue<'_>)> {
                match self {
                    $(Self::$name(message) => message.fields(),)*
                }
            }
        }
    };
}

messages! {
    /// Request for communication (IBTA 12.6.5).
    Req {
        /// The active side's communication id.
        local_comm_id: CommId, 0, 0;
        /// Enhanced connection establishment: whose options the attribute modifier of the MAD
        /// holds.
        ece_vendor_id: Bits<24>, 5, 0;
        /// What is asked for.
        service_id: ServiceId, 8, 0;
        /// The active side's node.
        local_ca_guid: Guid, 16, 0;
        /// Reliable Datagram only.
        local_qkey: QKey, 28, 0;
        /// The active side's queue pair.
        local_qpn: Qpn, 32, 0;
        /// READs and atomics that the active side answers at a time.
        responder_resources: u8, 35, 0;
        /// Reliable Datagram only.
        local_eecn: Bits<24>, 36, 0;
        /// READs and atomics that the active side asks for at a time.
        initiator_depth: u8, 39, 0;
        /// Reliable Datagram only.
        remote_eecn: Bits<24>, 40, 0;
        /// How long the passive side may take to answer: 4.096 µs · 2^n.
        remote_cm_response_timeout: Bits<5>, 43, 0;
        /// RC, UC, or what the extended transport type says.
        transport_type: TransportType, 43, 5;
        /// Whether the active side's receive queue gives credits.
        end_to_end_flow_control: bool, 43, 7;
        /// The PSN with which the passive side's packets begin.
        starting_psn: Psn, 44, 0;
        /// How long the active side may take to answer: 4.096 µs · 2^n.
        local_cm_response_timeout: Bits<5>, 47, 0;
        /// `retry_cnt` for the passive side.
        retry_count: Bits<3>, 47, 5;
        /// The partition.
        pkey: PKey, 48, 0;
        /// The path MTU as a code: 1 is 256 bytes, 5 is 4096.
        path_mtu: Bits<4>, 50, 0;
        /// Reliable Datagram only.
        rdc_exists: bool, 50, 4;
        /// `rnr_retry` for the passive side.
        rnr_retry_count: Bits<3>, 50, 5;
        /// How often either side sends a message again before it gives up.
        max_cm_retries: Bits<4>, 51, 0;
        /// Whether the active side's queue pair receives from a shared queue.
        srq: bool, 51, 4;
        /// With [`TransportType::Extended`]: 1 is XRC.
        extended_transport_type: Bits<3>, 51, 5;
        /// 0xffff in RoCE.
        primary_local_lid: u16, 52, 0;
        /// 0xffff in RoCE.
        primary_remote_lid: u16, 54, 0;
        /// The active side's address.
        primary_local_gid: Gid, 56, 0;
        /// The passive side's address.
        primary_remote_gid: Gid, 72, 0;
        /// Of the IPv6 header.
        primary_flow_label: Bits<20>, 88, 0;
        /// Static rate code; 0 in RoCE.
        primary_packet_rate: Bits<6>, 91, 2;
        /// Of the IP header.
        primary_traffic_class: u8, 92, 0;
        /// Of the IP header.
        primary_hop_limit: u8, 93, 0;
        /// Service level.
        primary_sl: Bits<4>, 94, 0;
        /// Whether no router is in between.
        primary_subnet_local: bool, 94, 4;
        /// ACK timeout for the passive side's queue pair: 4.096 µs · 2^n.
        primary_ack_timeout: Bits<5>, 95, 0;
        /// 0: there is no alternate path.
        alternate_local_lid: u16, 96, 0;
        /// As its primary one.
        alternate_remote_lid: u16, 98, 0;
        /// As its primary one.
        alternate_local_gid: Gid, 100, 0;
        /// As its primary one.
        alternate_remote_gid: Gid, 116, 0;
        /// As its primary one.
        alternate_flow_label: Bits<20>, 132, 0;
        /// As its primary one.
        alternate_packet_rate: Bits<6>, 135, 2;
        /// As its primary one.
        alternate_traffic_class: u8, 136, 0;
        /// As its primary one.
        alternate_hop_limit: u8, 137, 0;
        /// As its primary one.
        alternate_sl: Bits<4>, 138, 0;
        /// As its primary one.
        alternate_subnet_local: bool, 138, 4;
        /// As its primary one.
        alternate_ack_timeout: Bits<5>, 139, 0;
        /// Whether the sender can suggest an alternate path.
        sap_supported: bool, 139, 5;
        /// The programs' data; of the RDMA IP CM service, behind a [`CmaHeader`](super::CmaHeader).
        private_data: PrivateData<92>, 140, 0;
    }

    /// Message receipt acknowledgement: the answer takes longer (IBTA 12.6.6).
    Mra {
        /// The sender's communication id.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id.
        remote_comm_id: CommId, 4, 0;
        /// Which message has come.
        answered: Answered, 8, 0;
        /// How long the answer takes at most: 4.096 µs · 2^n.
        service_timeout: Bits<5>, 9, 0;
        /// The programs' data.
        private_data: PrivateData<222>, 10, 0;
    }

    /// Reject (IBTA 12.6.7).
    Rej {
        /// The sender's communication id; none if it has refused a REQ at once.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id; none if the sender gave up before an answer had come.
        remote_comm_id: CommId, 4, 0;
        /// Which message is refused.
        answered: Answered, 8, 0;
        /// Bytes of additional information.
        info_length: InfoLength<7>, 9, 0;
        /// Why.
        reason: RejReason, 10, 0;
        /// Additional information: what would do instead, or with a timeout the sender's GUID.
        info: PrivateData<72>, 12, 0;
        /// The programs' data.
        private_data: PrivateData<148>, 84, 0;
    }

    /// Reply to a REQ (IBTA 12.6.8).
    Rep {
        /// The passive side's communication id.
        local_comm_id: CommId, 0, 0;
        /// The active side's communication id.
        remote_comm_id: CommId, 4, 0;
        /// Reliable Datagram only.
        local_qkey: QKey, 8, 0;
        /// The passive side's queue pair.
        local_qpn: Qpn, 12, 0;
        /// Enhanced connection establishment: whose options the attribute modifier of the MAD
        /// holds.
        ece_vendor_id: SpreadVendorId, 15, 0;
        /// In XRC the passive side's queue pair.
        local_eecn: Bits<24>, 16, 0;
        /// The PSN with which the active side's packets begin.
        starting_psn: Psn, 20, 0;
        /// READs and atomics that the passive side answers at a time.
        responder_resources: u8, 24, 0;
        /// READs and atomics that the passive side asks for at a time.
        initiator_depth: u8, 25, 0;
        /// How long the passive side's device takes to acknowledge: 4.096 µs · 2^n.
        target_ack_delay: Bits<5>, 26, 0;
        /// Whether the alternate path of the REQ is loaded.
        failover_accepted: Bits<2>, 26, 5;
        /// Whether the passive side's receive queue gives credits.
        end_to_end_flow_control: bool, 26, 7;
        /// `rnr_retry` for the active side.
        rnr_retry_count: Bits<3>, 27, 0;
        /// Whether the passive side's queue pair receives from a shared queue.
        srq: bool, 27, 3;
        /// The passive side's node.
        local_ca_guid: Guid, 28, 0;
        /// The programs' data.
        private_data: PrivateData<196>, 36, 0;
    }

    /// Ready to use (IBTA 12.6.9).
    Rtu {
        /// The active side's communication id.
        local_comm_id: CommId, 0, 0;
        /// The passive side's communication id.
        remote_comm_id: CommId, 4, 0;
        /// The programs' data.
        private_data: PrivateData<224>, 8, 0;
    }

    /// Disconnect request (IBTA 12.6.10).
    Dreq {
        /// The sender's communication id.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id.
        remote_comm_id: CommId, 4, 0;
        /// The receiver's queue pair.
        remote_qpn: Qpn, 8, 0;
        /// The programs' data.
        private_data: PrivateData<220>, 12, 0;
    }

    /// Disconnect reply (IBTA 12.6.11).
    Drep {
        /// The sender's communication id.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id.
        remote_comm_id: CommId, 4, 0;
        /// The programs' data.
        private_data: PrivateData<224>, 8, 0;
    }

    /// Service id resolution request (IBTA 12.11.1).
    SidrReq {
        /// Ties the reply to the request.
        request_id: CommId, 0, 0;
        /// The partition.
        pkey: PKey, 4, 0;
        /// What is asked for.
        service_id: ServiceId, 8, 0;
        /// The programs' data; of the RDMA IP CM service, behind a [`CmaHeader`](super::CmaHeader).
        private_data: PrivateData<216>, 16, 0;
    }

    /// Service id resolution reply (IBTA 12.11.2).
    SidrRep {
        /// The request's.
        request_id: CommId, 0, 0;
        /// Whether there is such a service.
        status: SidrStatus, 4, 0;
        /// Bytes of additional information.
        info_length: InfoLength<8>, 5, 0;
        /// The service's queue pair.
        qpn: Qpn, 8, 0;
        /// The request's.
        service_id: ServiceId, 12, 0;
        /// The service's Q_Key.
        qkey: QKey, 20, 0;
        /// Additional information, such as where else to ask.
        info: PrivateData<72>, 24, 0;
        /// The programs' data.
        private_data: PrivateData<136>, 96, 0;
    }

    /// Load alternate path (IBTA 12.8.1).
    Lap {
        /// The sender's communication id.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id.
        remote_comm_id: CommId, 4, 0;
        /// The receiver's queue pair.
        remote_qpn: Qpn, 12, 0;
        /// How long the receiver may take to answer: 4.096 µs · 2^n.
        remote_cm_response_timeout: Bits<5>, 15, 0;
        /// As in a REQ.
        alternate_local_lid: u16, 20, 0;
        /// As in a REQ.
        alternate_remote_lid: u16, 22, 0;
        /// As in a REQ.
        alternate_local_gid: Gid, 24, 0;
        /// As in a REQ.
        alternate_remote_gid: Gid, 40, 0;
        /// As in a REQ.
        alternate_flow_label: Bits<20>, 56, 0;
        /// As in a REQ.
        alternate_traffic_class: u8, 59, 0;
        /// As in a REQ.
        alternate_hop_limit: u8, 60, 0;
        /// As in a REQ.
        alternate_packet_rate: Bits<6>, 61, 2;
        /// As in a REQ.
        alternate_sl: Bits<4>, 62, 0;
        /// As in a REQ.
        alternate_subnet_local: bool, 62, 4;
        /// As in a REQ.
        alternate_ack_timeout: Bits<5>, 63, 0;
        /// The programs' data.
        private_data: PrivateData<168>, 64, 0;
    }

    /// Alternate path response (IBTA 12.8.2).
    Apr {
        /// The sender's communication id.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id.
        remote_comm_id: CommId, 4, 0;
        /// Bytes of additional information.
        info_length: InfoLength<8>, 8, 0;
        /// Whether the path is loaded.
        status: ApStatus, 9, 0;
        /// Additional information.
        info: PrivateData<72>, 12, 0;
        /// The programs' data.
        private_data: PrivateData<148>, 84, 0;
    }
}
