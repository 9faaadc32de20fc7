//! The table of all messages of the connection manager, with the type and the offset of every
//! field.
//!
//! Offsets are bytes and bits after the MAD header (IBTA tables 106 to 120; the kernel's
//! `include/rdma/ibta_vol1_c12.h`). Bits without a field are reserved: they are sent as zero and
//! ignored on receipt.

use super::code::{Answered, ApStatus, RejReason, SidrStatus, TransportType};
use super::field::{Bits, Body, Field, InfoLength, MadValue, PrivateData, SpreadVendorId};
use super::header::{Attribute, MadError};
use super::id::{CommId, Guid, ServiceId};
use crate::{Gid, PKey, Psn, QKey, Qpn};

/// Declares the messages: structs, parsing, emitting and listing of fields.
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty, $byte:literal, $bit:literal;)*
        }
    )*) => {
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
                    vec![$((stringify!($field), self.$field.display_value()),)*]
                }
            }

            impl From<$name> for CmMessage {
                fn from(message: $name) -> Self {
                    Self::$name(message)
                }
            }
        )*

        /// A message of the connection manager.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CmMessage {
            $($(#[$doc])* $name($name),)*
        }

        impl CmMessage {
            /// Returns the message type.
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

            /// Returns every field with its name, in the order of the specification's table.
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
        /// Vendor of the options of enhanced connection establishment, which are in the attribute
        /// modifier of the MAD.
        ece_vendor_id: Bits<24>, 5, 0;
        /// The requested service.
        service_id: ServiceId, 8, 0;
        /// Node GUID of the active side.
        local_ca_guid: Guid, 16, 0;
        /// Reliable Datagram only.
        local_qkey: QKey, 28, 0;
        /// The active side's queue pair.
        local_qpn: Qpn, 32, 0;
        /// Number of READs and atomics that the active side answers at a time.
        responder_resources: u8, 35, 0;
        /// Reliable Datagram only.
        local_eecn: Bits<24>, 36, 0;
        /// Number of READs and atomics that the active side requests at a time.
        initiator_depth: u8, 39, 0;
        /// Reliable Datagram only.
        remote_eecn: Bits<24>, 40, 0;
        /// Longest time until the passive side replies: 4.096 µs · 2^n.
        remote_cm_response_timeout: Bits<5>, 43, 0;
        /// RC, UC, or the service in the extended transport type.
        transport_type: TransportType, 43, 5;
        /// Whether the active side's receive queue uses end-to-end flow control.
        end_to_end_flow_control: bool, 43, 7;
        /// First PSN of the passive side's packets.
        starting_psn: Psn, 44, 0;
        /// Longest time until the active side replies: 4.096 µs · 2^n.
        local_cm_response_timeout: Bits<5>, 47, 0;
        /// `retry_cnt` for the passive side.
        retry_count: Bits<3>, 47, 5;
        /// Partition key.
        pkey: PKey, 48, 0;
        /// The path MTU as a code: 1 is 256 bytes, 5 is 4096.
        path_mtu: Bits<4>, 50, 0;
        /// Reliable Datagram only.
        rdc_exists: bool, 50, 4;
        /// `rnr_retry` for the passive side.
        rnr_retry_count: Bits<3>, 50, 5;
        /// Number of times that either side resends a message.
        max_cm_retries: Bits<4>, 51, 0;
        /// Whether the active side's queue pair uses a shared receive queue.
        srq: bool, 51, 4;
        /// Service for [`TransportType::Extended`]: 1 is XRC.
        extended_transport_type: Bits<3>, 51, 5;
        /// LID, 0xffff in RoCE.
        primary_local_lid: u16, 52, 0;
        /// LID, 0xffff in RoCE.
        primary_remote_lid: u16, 54, 0;
        /// GID of the active side.
        primary_local_gid: Gid, 56, 0;
        /// GID of the passive side.
        primary_remote_gid: Gid, 72, 0;
        /// Flow label of the IPv6 header.
        primary_flow_label: Bits<20>, 88, 0;
        /// Static rate code, 0 in RoCE.
        primary_packet_rate: Bits<6>, 91, 2;
        /// Traffic class of the IP header.
        primary_traffic_class: u8, 92, 0;
        /// Hop limit of the IP header.
        primary_hop_limit: u8, 93, 0;
        /// Service level.
        primary_sl: Bits<4>, 94, 0;
        /// Whether there is no router between the sides.
        primary_subnet_local: bool, 94, 4;
        /// ACK timeout for the passive side's queue pair: 4.096 µs · 2^n.
        primary_ack_timeout: Bits<5>, 95, 0;
        /// LID, 0 if there is no alternate path.
        alternate_local_lid: u16, 96, 0;
        /// As for the primary path.
        alternate_remote_lid: u16, 98, 0;
        /// As for the primary path.
        alternate_local_gid: Gid, 100, 0;
        /// As for the primary path.
        alternate_remote_gid: Gid, 116, 0;
        /// As for the primary path.
        alternate_flow_label: Bits<20>, 132, 0;
        /// As for the primary path.
        alternate_packet_rate: Bits<6>, 135, 2;
        /// As for the primary path.
        alternate_traffic_class: u8, 136, 0;
        /// As for the primary path.
        alternate_hop_limit: u8, 137, 0;
        /// As for the primary path.
        alternate_sl: Bits<4>, 138, 0;
        /// As for the primary path.
        alternate_subnet_local: bool, 138, 4;
        /// As for the primary path.
        alternate_ack_timeout: Bits<5>, 139, 0;
        /// Whether the sender can suggest an alternate path.
        sap_supported: bool, 139, 5;
        /// Data of the program. With the RDMA IP CM service, a [`CmaHeader`](super::CmaHeader)
        /// precedes the data.
        private_data: PrivateData<92>, 140, 0;
    }

    /// Message receipt acknowledgement: the reply takes longer (IBTA 12.6.6).
    Mra {
        /// The sender's communication id.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id.
        remote_comm_id: CommId, 4, 0;
        /// The message that was received.
        answered: Answered, 8, 0;
        /// Longest time until the reply: 4.096 µs · 2^n.
        service_timeout: Bits<5>, 9, 0;
        /// Data of the program.
        private_data: PrivateData<222>, 10, 0;
    }

    /// Reject (IBTA 12.6.7).
    Rej {
        /// The sender's communication id, or none if the sender rejects a REQ at once.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id, or none if the sender gave up without a reply.
        remote_comm_id: CommId, 4, 0;
        /// The rejected message.
        answered: Answered, 8, 0;
        /// Length of additional information in bytes.
        info_length: InfoLength<7>, 9, 0;
        /// The reason.
        reason: RejReason, 10, 0;
        /// Additional information: an acceptable value, or the sender's GUID after a timeout.
        info: PrivateData<72>, 12, 0;
        /// Data of the program.
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
        /// Vendor of the options of enhanced connection establishment, which are in the attribute
        /// modifier of the MAD.
        ece_vendor_id: SpreadVendorId, 15, 0;
        /// Queue pair of the passive side, in XRC.
        local_eecn: Bits<24>, 16, 0;
        /// First PSN of the active side's packets.
        starting_psn: Psn, 20, 0;
        /// Number of READs and atomics that the passive side answers at a time.
        responder_resources: u8, 24, 0;
        /// Number of READs and atomics that the passive side requests at a time.
        initiator_depth: u8, 25, 0;
        /// Longest time until the passive side's device acknowledges: 4.096 µs · 2^n.
        target_ack_delay: Bits<5>, 26, 0;
        /// Whether the passive side loaded the alternate path of the REQ.
        failover_accepted: Bits<2>, 26, 5;
        /// Whether the passive side's receive queue uses end-to-end flow control.
        end_to_end_flow_control: bool, 26, 7;
        /// `rnr_retry` for the active side.
        rnr_retry_count: Bits<3>, 27, 0;
        /// Whether the passive side's queue pair uses a shared receive queue.
        srq: bool, 27, 3;
        /// Node GUID of the passive side.
        local_ca_guid: Guid, 28, 0;
        /// Data of the program.
        private_data: PrivateData<196>, 36, 0;
    }

    /// Ready to use (IBTA 12.6.9).
    Rtu {
        /// The active side's communication id.
        local_comm_id: CommId, 0, 0;
        /// The passive side's communication id.
        remote_comm_id: CommId, 4, 0;
        /// Data of the program.
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
        /// Data of the program.
        private_data: PrivateData<220>, 12, 0;
    }

    /// Disconnect reply (IBTA 12.6.11).
    Drep {
        /// The sender's communication id.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id.
        remote_comm_id: CommId, 4, 0;
        /// Data of the program.
        private_data: PrivateData<224>, 8, 0;
    }

    /// Service id resolution request (IBTA 12.11.1).
    SidrReq {
        /// Request id, which the reply repeats.
        request_id: CommId, 0, 0;
        /// Partition key.
        pkey: PKey, 4, 0;
        /// The requested service.
        service_id: ServiceId, 8, 0;
        /// Data of the program. With the RDMA IP CM service, a [`CmaHeader`](super::CmaHeader)
        /// precedes the data.
        private_data: PrivateData<216>, 16, 0;
    }

    /// Service id resolution reply (IBTA 12.11.2).
    SidrRep {
        /// Request id of the request.
        request_id: CommId, 0, 0;
        /// The result.
        status: SidrStatus, 4, 0;
        /// Length of additional information in bytes.
        info_length: InfoLength<8>, 5, 0;
        /// The service's queue pair.
        qpn: Qpn, 8, 0;
        /// Service id of the request.
        service_id: ServiceId, 12, 0;
        /// The service's Q_Key.
        qkey: QKey, 20, 0;
        /// Additional information, for example another address of the service.
        info: PrivateData<72>, 24, 0;
        /// Data of the program.
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
        /// Longest time until the receiver replies: 4.096 µs · 2^n.
        remote_cm_response_timeout: Bits<5>, 15, 0;
        /// As in a REQ's alternate path.
        alternate_local_lid: u16, 20, 0;
        /// As in a REQ's alternate path.
        alternate_remote_lid: u16, 22, 0;
        /// As in a REQ's alternate path.
        alternate_local_gid: Gid, 24, 0;
        /// As in a REQ's alternate path.
        alternate_remote_gid: Gid, 40, 0;
        /// As in a REQ's alternate path.
        alternate_flow_label: Bits<20>, 56, 0;
        /// As in a REQ's alternate path.
        alternate_traffic_class: u8, 59, 0;
        /// As in a REQ's alternate path.
        alternate_hop_limit: u8, 60, 0;
        /// As in a REQ's alternate path.
        alternate_packet_rate: Bits<6>, 61, 2;
        /// As in a REQ's alternate path.
        alternate_sl: Bits<4>, 62, 0;
        /// As in a REQ's alternate path.
        alternate_subnet_local: bool, 62, 4;
        /// As in a REQ's alternate path.
        alternate_ack_timeout: Bits<5>, 63, 0;
        /// Data of the program.
        private_data: PrivateData<168>, 64, 0;
    }

    /// Alternate path response (IBTA 12.8.2).
    Apr {
        /// The sender's communication id.
        local_comm_id: CommId, 0, 0;
        /// The receiver's communication id.
        remote_comm_id: CommId, 4, 0;
        /// Length of additional information in bytes.
        info_length: InfoLength<8>, 8, 0;
        /// The result.
        status: ApStatus, 9, 0;
        /// Additional information.
        info: PrivateData<72>, 12, 0;
        /// Data of the program.
        private_data: PrivateData<148>, 84, 0;
    }
}
