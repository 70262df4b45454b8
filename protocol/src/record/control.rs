//! Control records: transaction markers and the markers of the metadata log.

/// What a control record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlKind {
    /// The transaction of this producer was aborted.
    Abort,
    /// The transaction of this producer was committed.
    Commit,
    /// A new leader of the metadata log.
    LeaderChange,
    /// The beginning of a snapshot.
    SnapshotHeader,
    /// The end of a snapshot.
    SnapshotFooter,
    /// The version of the KRaft protocol.
    KraftVersion,
    /// The voters of the metadata log.
    KraftVoters,
    /// A kind that was added later; readers pass over it.
    Unknown(i16),
}

impl ControlKind {
    /// The kind's number in a key.
    pub const fn id(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::LeaderChange => 2,
            Self::SnapshotHeader => 3,
            Self::SnapshotFooter => 4,
            Self::KraftVersion => 5,
            Self::KraftVoters => 6,
            Self::Unknown(id) => id,
        }
    }

    /// The kind of a number.
    pub const fn from_id(id: i16) -> Self {
        match id {
            0 => Self::Abort,
            1 => Self::Commit,
            2 => Self::LeaderChange,
            3 => Self::SnapshotHeader,
            4 => Self::SnapshotFooter,
            5 => Self::KraftVersion,
            6 => Self::KraftVoters,
            other => Self::Unknown(other),
        }
    }
}

/// The key of a control record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlRecord {
    /// Version of the key; later ones only append.
    pub version: i16,
    /// What the record says.
    pub kind: ControlKind,
}

impl ControlRecord {
    /// The version that is written.
    pub const VERSION: i16 = 0;

    /// Reads a control record's key; `None` where it is cut or of a negative version.
    pub fn parse(key: &[u8]) -> Option<Self> {
        let &[v0, v1, k0, k1] = key.first_chunk()?;
        let version = i16::from_be_bytes([v0, v1]);
        let kind = ControlKind::from_id(i16::from_be_bytes([k0, k1]));
        (version >= 0).then_some(Self { version, kind })
    }

    /// The key's bytes.
    pub const fn key(self) -> [u8; 4] {
        let [v0, v1] = self.version.to_be_bytes();
        let [k0, k1] = self.kind.id().to_be_bytes();
        [v0, v1, k0, k1]
    }

    /// The key of a kind in the version that is written.
    pub const fn of(kind: ControlKind) -> Self {
        Self { version: Self::VERSION, kind }
    }
}

/// The value of a marker that ends a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndTxnMarker {
    /// Epoch of the transaction coordinator that wrote it.
    pub coordinator_epoch: i32,
}

impl EndTxnMarker {
    /// Reads a marker's value; `None` where it is cut or of a negative version.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let &[v0, v1, e0, e1, e2, e3] = value.first_chunk()?;
        let coordinator_epoch = i32::from_be_bytes([e0, e1, e2, e3]);
        (i16::from_be_bytes([v0, v1]) >= 0).then_some(Self { coordinator_epoch })
    }

    /// The value's bytes, in version 0.
    pub const fn value(self) -> [u8; 6] {
        let [e0, e1, e2, e3] = self.coordinator_epoch.to_be_bytes();
        [0, 0, e0, e1, e2, e3]
    }
}
