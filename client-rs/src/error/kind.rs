//! The table of error kinds, from which every language's error classes are generated.

use ottla_protocol::ErrorCode;

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Try again: the cause may pass.
    Retriable,
    /// Give up what was begun (a transaction, a membership), then go on with the client.
    Abortable,
    /// The client is of no more use, or the cluster will not take it as it is.
    Fatal,
    /// The call was wrong, and will be wrong again.
    Usage,
}

impl ErrorClass {
    /// The class as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retriable => "Retriable",
            Self::Abortable => "Abortable",
            Self::Fatal => "Fatal",
            Self::Usage => "Usage",
        }
    }
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal $class:ident,)+) => {
        /// What went wrong. Numbers are never used again for another kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[doc = $doc])+ $name,)+
        }

        impl ErrorKind {
            /// All kinds, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The kind's number.
            pub const fn number(self) -> u16 {
                match self { $(Self::$name => $number),+ }
            }

            /// The kind's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// What a caller can do about it.
            pub const fn class(self) -> ErrorClass {
                match self { $(Self::$name => ErrorClass::$class),+ }
            }

            /// What it means, in a sentence or two.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+)),+ }
            }
        }
    };
}

kinds! {
    /// There is no such option, or it does not take the value, or two options contradict each other.
    InvalidOption = 1 Usage,
    /// An argument of a call makes no sense.
    InvalidArgument = 2 Usage,
    /// The record is larger than the producer or the broker accepts.
    RecordTooLarge = 3 Usage,
    /// The topic has no such partition.
    InvalidPartition = 4 Usage,
    /// The name cannot be that of a topic.
    InvalidTopic = 5 Usage,
    /// The client was closed.
    Closed = 6 Usage,
    /// The call does not fit the state the client is in.
    InvalidState = 7 Usage,
    /// The client was made in another process, and did not survive the fork.
    Forked = 8 Usage,
    /// A key or a value could not be turned into bytes.
    Serialization = 9 Usage,
    /// A key or a value is not what its deserializer reads.
    Deserialization = 10 Usage,

    /// There is no room for the record now; nothing was kept of it.
    BufferFull = 20 Retriable,
    /// The time given to the call was over; what it began goes on.
    Timeout = 21 Retriable,
    /// The record was not delivered within its delivery timeout.
    DeliveryTimeout = 22 Retriable,
    /// Another thread asked this call to return. No call fails with it so far: a poll that is woken
    /// gives nothing.
    Wakeup = 23 Retriable,

    /// No connection to a broker could be opened.
    Connect = 30 Retriable,
    /// A broker's name could not be resolved.
    Dns = 31 Retriable,
    /// The connection to a broker was lost.
    Disconnected = 32 Retriable,
    /// A broker did not answer within the request timeout.
    RequestTimeout = 33 Retriable,
    /// What came from the broker is not the Kafka protocol.
    Protocol = 34 Retriable,
    /// The broker does not speak a version of an API that this client needs.
    UnsupportedVersion = 35 Fatal,
    /// The broker refused who we are.
    Authentication = 36 Fatal,
    /// A right is missing: for a topic, a group or the cluster.
    Authorization = 37 Fatal,

    /// The cluster has no such topic or partition.
    UnknownTopic = 50 Retriable,
    /// The partition has no leader now, or another one than was asked.
    NotLeader = 51 Retriable,
    /// Too few replicas are in sync to take the record.
    NotEnoughReplicas = 52 Retriable,
    /// The broker found the batch damaged.
    CorruptBatch = 53 Retriable,
    /// The broker's checks refused the record.
    InvalidRecord = 54 Usage,
    /// The broker does not accept the record's timestamp, or it is before the epoch.
    InvalidTimestamp = 55 Usage,
    /// A policy of the cluster refused what was asked.
    PolicyViolation = 56 Usage,
    /// The broker lost count of this producer's records.
    OutOfOrderSequence = 57 Retriable,
    /// Another producer took this one's place.
    ProducerFenced = 58 Fatal,
    /// The broker has a disk or quota fault, or another trouble of its own.
    BrokerFault = 59 Retriable,

    /// The group is sharing out its partitions anew.
    RebalanceInProgress = 70 Abortable,
    /// The offsets belong to partitions that this member no longer owns.
    CommitFenced = 71 Abortable,
    /// The group's coordinator is not there now.
    CoordinatorUnavailable = 72 Retriable,
    /// Another member took this one's fixed name.
    FencedInstance = 73 Fatal,
    /// The group's members do not share a way to assign partitions, or the group is full.
    InconsistentGroup = 74 Fatal,
    /// The group's name, or a setting sent with it, is not accepted.
    InvalidGroup = 75 Usage,
    /// There is no committed offset, and none was asked to be made up.
    NoOffset = 76 Usage,
    /// The offset lies outside the partition's log.
    OffsetOutOfRange = 77 Usage,
    /// Records that had been read are gone from the log.
    DataLost = 78 Abortable,
    /// The program did not poll in time, so its partitions went to other members. No call fails with
    /// it so far: the log and an event tell it, and the next poll joins again.
    MaxPollExceeded = 79 Abortable,
    /// The partition is not assigned to this consumer.
    NotAssigned = 80 Usage,

    /// What was to be made is there already.
    AlreadyExists = 85 Usage,
    /// There is no such group, transaction, folder or other thing.
    NotFound = 86 Usage,
    /// It is in use: a group's members read it, or a change of it is not through.
    InUse = 87 Usage,
    /// A broker refused what was asked: a count, an assignment, an option's value, a switched-off call.
    InvalidRequest = 88 Usage,

    /// The embedded broker could not be started, used or stopped.
    Broker = 90 Fatal,
    /// A broker answered with an error that this client has no kind for.
    Other = 98 Fatal,
    /// A fault in this client; nothing that was open is tried again.
    Internal = 99 Fatal,
}

impl ErrorKind {
    /// The kind of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The kind of a number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.number() == number)
    }

    /// The kind that an error code of a broker's answer belongs to.
    pub(crate) fn from_kafka(code: ErrorCode) -> Self {
        match code {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID => Self::UnknownTopic,
            ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
            | ErrorCode::REPLICA_NOT_AVAILABLE => Self::NotLeader,
            ErrorCode::NOT_ENOUGH_REPLICAS | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND => {
                Self::NotEnoughReplicas
            }
            ErrorCode::REQUEST_TIMED_OUT => Self::RequestTimeout,
            ErrorCode::NETWORK_EXCEPTION => Self::Disconnected,
            ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE => Self::RecordTooLarge,
            ErrorCode::CORRUPT_MESSAGE => Self::CorruptBatch,
            ErrorCode::INVALID_RECORD
            | ErrorCode::UNSUPPORTED_COMPRESSION_TYPE
            | ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT => Self::InvalidRecord,
            ErrorCode::INVALID_TIMESTAMP => Self::InvalidTimestamp,
            ErrorCode::INVALID_TOPIC_EXCEPTION => Self::InvalidTopic,
            ErrorCode::POLICY_VIOLATION => Self::PolicyViolation,
            ErrorCode::TOPIC_AUTHORIZATION_FAILED
            | ErrorCode::GROUP_AUTHORIZATION_FAILED
            | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
            | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => Self::Authorization,
            ErrorCode::SASL_AUTHENTICATION_FAILED
            | ErrorCode::UNSUPPORTED_SASL_MECHANISM
            | ErrorCode::ILLEGAL_SASL_STATE => Self::Authentication,
            ErrorCode::UNSUPPORTED_VERSION => Self::UnsupportedVersion,
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode::UNKNOWN_PRODUCER_ID => {
                Self::OutOfOrderSequence
            }
            ErrorCode::INVALID_PRODUCER_EPOCH | ErrorCode::PRODUCER_FENCED => Self::ProducerFenced,
            ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::BROKER_NOT_AVAILABLE
            | ErrorCode::THROTTLING_QUOTA_EXCEEDED
            | ErrorCode::UNKNOWN_SERVER_ERROR => Self::BrokerFault,
            _ => Self::from_kafka_group(code),
        }
    }

    fn from_kafka_group(code: ErrorCode) -> Self {
        match code {
            ErrorCode::REBALANCE_IN_PROGRESS => Self::RebalanceInProgress,
            ErrorCode::ILLEGAL_GENERATION
            | ErrorCode::UNKNOWN_MEMBER_ID
            | ErrorCode::STALE_MEMBER_EPOCH
            | ErrorCode::FENCED_MEMBER_EPOCH => Self::CommitFenced,
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::NOT_COORDINATOR => Self::CoordinatorUnavailable,
            ErrorCode::FENCED_INSTANCE_ID | ErrorCode::UNRELEASED_INSTANCE_ID => {
                Self::FencedInstance
            }
            ErrorCode::INCONSISTENT_GROUP_PROTOCOL | ErrorCode::GROUP_MAX_SIZE_REACHED => {
                Self::InconsistentGroup
            }
            ErrorCode::INVALID_GROUP_ID
            | ErrorCode::INVALID_SESSION_TIMEOUT
            | ErrorCode::OFFSET_METADATA_TOO_LARGE
            | ErrorCode::INVALID_COMMIT_OFFSET_SIZE => Self::InvalidGroup,
            ErrorCode::OFFSET_OUT_OF_RANGE => Self::OffsetOutOfRange,
            _ => Self::from_kafka_admin(code),
        }
    }

    fn from_kafka_admin(code: ErrorCode) -> Self {
        match code {
            ErrorCode::TOPIC_ALREADY_EXISTS
            | ErrorCode::DUPLICATE_RESOURCE
            | ErrorCode::DUPLICATE_VOTER => Self::AlreadyExists,
            ErrorCode::GROUP_ID_NOT_FOUND
            | ErrorCode::TRANSACTIONAL_ID_NOT_FOUND
            | ErrorCode::RESOURCE_NOT_FOUND
            | ErrorCode::LOG_DIR_NOT_FOUND
            | ErrorCode::BROKER_ID_NOT_REGISTERED
            | ErrorCode::NO_REASSIGNMENT_IN_PROGRESS
            | ErrorCode::VOTER_NOT_FOUND => Self::NotFound,
            ErrorCode::NON_EMPTY_GROUP
            | ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
            | ErrorCode::REASSIGNMENT_IN_PROGRESS => Self::InUse,
            ErrorCode::INVALID_REQUEST
            | ErrorCode::INVALID_CONFIG
            | ErrorCode::INVALID_PARTITIONS
            | ErrorCode::INVALID_REPLICATION_FACTOR
            | ErrorCode::INVALID_REPLICA_ASSIGNMENT
            | ErrorCode::INVALID_REQUIRED_ACKS
            | ErrorCode::INVALID_FETCH_SIZE
            | ErrorCode::INVALID_TRANSACTION_TIMEOUT
            | ErrorCode::INVALID_REGULAR_EXPRESSION
            | ErrorCode::UNSUPPORTED_ASSIGNOR
            | ErrorCode::TOPIC_DELETION_DISABLED
            | ErrorCode::SECURITY_DISABLED => Self::InvalidRequest,
            // What may pass by itself, and has no kind of its own.
            code if code.is_retriable() => Self::BrokerFault,
            _ => Self::Other,
        }
    }

    /// The same for an answer to an admin client, which is in no group: where a member would have
    /// lost its place, others have one.
    pub(crate) fn from_kafka_for_admin(code: ErrorCode) -> Self {
        match Self::from_kafka(code) {
            Self::CommitFenced | Self::RebalanceInProgress => Self::InUse,
            kind => kind,
        }
    }
}
