"""Partitions, and places in them, as named tuples."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic; a plain tuple of the two will do wherever one is taken."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """An offset to read on at, with what a group keeps beside it.

    metadata: a text of the program's own. Brokers take 4,096 bytes unless they are told otherwise
    (``offset.metadata.max.bytes``), and no client can send more than 32,767. leader_epoch: that of
    the record before the offset; None if it is not known.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """A record's place and time.

    timestamp: milliseconds since the epoch. leader_epoch: that of the leader that took the record;
    None if it is not known.
    """

    offset: int
    timestamp: int
    leader_epoch: int | None = None
