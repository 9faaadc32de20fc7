//! Codes within messages: reject reasons, statuses and message types.

use std::fmt;

/// Declares a code of which every value is valid, with constants for the defined values.
macro_rules! codes {
    (
        $(#[$doc:meta])*
        $name:ident($int:ty) { $($constant:ident = $value:literal $text:literal,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        #[allow(missing_docs)]
        impl $name {
            $(pub const $constant: Self = Self($value);)*

            /// Returns the name in the specification, if the code is defined.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "code {}", self.0),
                }
            }
        }
    };
}

codes! {
    /// The reason of a REJ (IBTA table 109; `enum ib_cm_rej_reason`).
    RejReason(u16) {
        NO_QP = 1 "no QP",
        NO_EEC = 2 "no EEC",
        NO_RESOURCES = 3 "no resources",
        TIMEOUT = 4 "timeout",
        UNSUPPORTED = 5 "unsupported request",
        INVALID_COMM_ID = 6 "invalid communication id",
        INVALID_COMM_INSTANCE = 7 "invalid communication instance",
        INVALID_SERVICE_ID = 8 "invalid service id",
        INVALID_TRANSPORT_TYPE = 9 "invalid transport type",
        STALE_CONN = 10 "stale connection",
        RDC_NOT_EXIST = 11 "RDC does not exist",
        INVALID_GID = 12 "invalid GID",
        INVALID_LID = 13 "invalid LID",
        INVALID_SL = 14 "invalid SL",
        INVALID_TRAFFIC_CLASS = 15 "invalid traffic class",
        INVALID_HOP_LIMIT = 16 "invalid hop limit",
        INVALID_PACKET_RATE = 17 "invalid packet rate",
        INVALID_ALT_GID = 18 "invalid alternate GID",
        INVALID_ALT_LID = 19 "invalid alternate LID",
        INVALID_ALT_SL = 20 "invalid alternate SL",
        INVALID_ALT_TRAFFIC_CLASS = 21 "invalid alternate traffic class",
        INVALID_ALT_HOP_LIMIT = 22 "invalid alternate hop limit",
        INVALID_ALT_PACKET_RATE = 23 "invalid alternate packet rate",
        PORT_CM_REDIRECT = 24 "port and CM redirection",
        PORT_REDIRECT = 25 "port redirection",
        INVALID_MTU = 26 "invalid path MTU",
        INSUFFICIENT_RESP_RESOURCES = 27 "insufficient responder resources",
        CONSUMER_DEFINED = 28 "consumer reject",
        INVALID_RNR_RETRY = 29 "RNR retry count rejected",
        DUPLICATE_LOCAL_COMM_ID = 30 "duplicate local communication id",
        INVALID_CLASS_VERSION = 31 "unsupported class version",
        INVALID_FLOW_LABEL = 32 "invalid flow label",
        INVALID_ALT_FLOW_LABEL = 33 "invalid alternate flow label",
        VENDOR_OPTION_NOT_SUPPORTED = 35 "vendor option not supported",
    }
}

codes! {
    /// The result of a LAP (IBTA table 117; `enum ib_cm_apr_status`).
    ApStatus(u8) {
        SUCCESS = 0 "loaded",
        INVALID_COMM_ID = 1 "invalid communication id",
        UNSUPPORTED = 2 "not supported",
        REJECT = 3 "rejected",
        REDIRECT = 4 "redirected",
        IS_CURRENT = 5 "is the current path",
        INVALID_QPN_EECN = 6 "invalid QPN",
        INVALID_LID = 7 "invalid LID",
        INVALID_GID = 8 "invalid GID",
        INVALID_FLOW_LABEL = 9 "invalid flow label",
        INVALID_TCLASS = 10 "invalid traffic class",
        INVALID_HOP_LIMIT = 11 "invalid hop limit",
        INVALID_PACKET_RATE = 12 "invalid packet rate",
        INVALID_SL = 13 "invalid SL",
    }
}

codes! {
    /// The result of a SIDR_REQ (IBTA table 121; `enum ib_cm_sidr_status`).
    SidrStatus(u8) {
        SUCCESS = 0 "success",
        UNSUPPORTED = 1 "service id not supported",
        REJECT = 2 "rejected by the service",
        NO_QP = 3 "no QP",
        REDIRECT = 4 "redirected",
        UNSUPPORTED_VERSION = 5 "version not supported",
    }
}

crate::named_enum! {
    /// The message that an MRA acknowledges or a REJ rejects.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Answered: name {
        /// A REQ.
        #[default]
        Req = 0 => "REQ",
        /// A REP.
        Rep = 1 => "REP",
        /// For an MRA, a LAP. For a REJ, no message, because of a timeout.
        Other = 2 => "other",
        /// Not defined.
        Reserved = 3 => "reserved",
    }
}

crate::named_enum! {
    /// The transport service that a REQ requests.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum TransportType: name {
        /// Reliable connection.
        #[default]
        Rc = 0 => "RC",
        /// Unreliable connection.
        Uc = 1 => "UC",
        /// Reliable datagram.
        Rd = 2 => "RD",
        /// The service in the extended transport type, where 1 is XRC.
        Extended = 3 => "extended",
    }
}
