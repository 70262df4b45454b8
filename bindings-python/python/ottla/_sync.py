"""Producer, Consumer and Broker for threads: the native classes, with context managers."""

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from . import _ottla, _process
from ._errors import ClosedError, Error
from ._options import ConsumerOptions, ProducerOptions
from ._ottla import Batch
from ._places import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class Producer(_ottla.Producer):
    """Sends records, from any thread.

    Producer(bootstrap=None, /, **options)

    bootstrap: ``"host:port"``, or several, in one text or a list; the option bootstrap_servers.
    options: see ``ottla._options.ProducerOptions``; an unknown name raises InvalidOptionError with
    the nearest one. Nothing is connected before the first send.

    >>> with Producer("localhost:9092", compression="lz4") as p:
    ...     p.send("orders", b"v", key=b"k")  # fire and forget
    ...     at = p.send("orders", b"w").result(timeout=10)  # delivered

    Leaving ``with`` flushes and closes, and raises if records sent without asking for their result
    have failed.
    """

    __slots__ = ("__weakref__",)

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        /,
        **options: Unpack[ProducerOptions],
    ) -> None:
        _process.close_at_exit(self)

    def close(self, timeout: float | None = None) -> None:
        """Send what is held, then end the producer.

        timeout: seconds; None is the option delivery_timeout_ms and a second, by which every record
        is either delivered or failed. Raises what kept records from being delivered, with their
        number. A second call does nothing.
        """
        _ottla.check_timeout(timeout)
        _process.forget(self)
        super().close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with told_beside(raised):
            self.close()


class Consumer(_ottla.Consumer):
    """Reads topics as a member of a group, or partitions that it is told to (``assign``).

    One thread asks for records at a time.

    Consumer(bootstrap=None, /, *, topics=None, **options)

    bootstrap: ``"host:port"``, or several, in one text or a list; the option bootstrap_servers.
    topics: a name, or several, to subscribe to at once.
    options: see ``ottla._options.ConsumerOptions``; an unknown name raises InvalidOptionError with
    the nearest one.

    >>> with Consumer("localhost:9092", group="billing", topics=["orders"], start="earliest") as c:
    ...     for record in c:
    ...         print(record.offset, record.value)

    The iteration ends when the consumer is closed.
    With auto_commit (the default), a record counts as finished when the loop asks for the next one.
    Leaving ``with`` commits what is finished, leaves the group and closes.
    """

    __slots__ = ("__weakref__",)

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        /,
        *,
        topics: str | Iterable[str] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        _process.close_at_exit(self)

    def batches(
        self, max_records: int | None = None, timeout: float | None = None
    ) -> Iterator[Batch]:
        """Iterate over batches, each of one partition.

        max_records: how many records a batch has at most; None gives what was fetched.
        timeout: seconds; the iteration ends when no batch came for so long. None waits for ever.
        It ends too when the consumer is closed.
        """
        while True:
            try:
                batch = self.poll_batch(max_records, timeout)
            except ClosedError:
                return
            if batch is not None:
                yield batch
            elif timeout is not None:
                return

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions, and no others from now on, without a group that shares them out.

        partitions: (topic, partition) each; none at all is unsubscribe(). What was read before and
        is among them is read on from where it stands. With the option group, reading begins at what
        the group has committed, and commits go there; the group should have no members, or it
        refuses them with CommitFencedError. Without it reading begins by the option start, and
        commits are refused. No time between polls is too long. A partition that does not exist yet
        is waited for, then read from its beginning; a poll that ends without records meanwhile
        raises UnknownTopicError. InvalidStateError while topics are subscribed to.
        """
        self._assign(list(partitions))

    def assignment(self) -> list[TopicPartition]:
        """List the partitions that are this consumer's now."""
        return [TopicPartition(*one) for one in self._assignment()]

    def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up the offset of the first record of each partition; of the next, if there is none.

        partitions: (topic, partition) each; they need not be assigned.
        timeout: seconds; None is the option default_api_timeout_ms. Faults that may pass, such as a
        topic that does not exist, are tried again until it is over; TimeoutError then names the
        last. InvalidTopicError and InvalidPartitionError for what cannot be.
        """
        return offsets(self._beginning_offsets(None, list(partitions), timeout))

    def end_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up the offset behind the last record of each partition: the next one to be written.

        partitions, timeout, errors: as in beginning_offsets().
        """
        return offsets(self._end_offsets(None, list(partitions), timeout))

    def offsets_for_times(
        self,
        times: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up the first record of each partition of a time or later; None where there is none.

        times: {(topic, partition): milliseconds since the epoch}; InvalidArgumentError for one
        before that. timeout, errors: as in beginning_offsets().
        """
        return offsets_and_times(self._offsets_for_times(None, list(times.items()), timeout))

    def committed(
        self, partitions: Iterable[tuple[str, int]], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Look up what the group has committed for each partition; None for nothing.

        partitions, timeout: as in beginning_offsets(). InvalidGroupError without the option group.
        """
        return offsets_and_metadata(self._committed(None, list(partitions), timeout))

    def seek_before_end(
        self, topic: str, partition: int, records: int, timeout: float | None = None
    ) -> int:
        """Go on so many records before a partition's end, or at its beginning if it has fewer.

        Returns the offset at which that is. Compaction and transactions leave gaps: then it is so
        many offsets. timeout: as in beginning_offsets(). NotAssignedError if the partition is not
        this consumer's.
        """
        return self._seek_before_end(None, topic, partition, records, timeout)

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Give no records of these partitions until resume(); what was fetched is kept.

        partitions: (topic, partition) each. NotAssignedError if one is not this consumer's.
        """
        self._pause(list(partitions))

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Give records of these partitions again.

        partitions: (topic, partition) each. NotAssignedError if one is not this consumer's.
        """
        self._resume(list(partitions))

    def close(self, timeout: float | None = None) -> None:
        """Commit what is finished, leave the group, and end the consumer.

        timeout: seconds; None is the option default_api_timeout_ms. A second call does nothing.
        Batches and records stay good.
        """
        _ottla.check_timeout(timeout)
        _process.forget(self)
        super().close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with told_beside(raised):
            self.close()


def offsets(rows: Iterable[tuple[tuple[str, int], int]]) -> dict[TopicPartition, int]:
    """Name the parts of what the native half found."""
    return {TopicPartition(*where): offset for where, offset in rows}


def offsets_and_times(
    rows: Iterable[tuple[tuple[str, int], tuple[int, int, int | None] | None]],
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Name them where each offset has a time, or where there is none."""
    return {TopicPartition(*where): at and OffsetAndTimestamp(*at) for where, at in rows}


def offsets_and_metadata(
    rows: Iterable[tuple[tuple[str, int], tuple[int, str, int | None] | None]],
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Name them where each offset has metadata, or where there is none."""
    return {TopicPartition(*where): at and OffsetAndMetadata(*at) for where, at in rows}


@contextlib.contextmanager
def told_beside(raised: BaseException | None) -> Iterator[None]:
    """Close a client at the end of its block: what the block raised comes first, if it did."""
    try:
        yield
    except Error as failure:
        if raised is None:
            raise
        raised.add_note(f"and closing the client: {failure}")


class Broker(_ottla.Broker):
    """A broker in this process, for tests and first steps; any Kafka client can talk to it.

    Broker(*, listen="127.0.0.1:0", data_dir=None, **options)

    listen: ``"host:port"``; port 0 takes a free one.
    data_dir: the folder that keeps the data, created if need be; None keeps it in memory.
    options: Kafka's broker options, dots as underscores, such as num_partitions=3; an unknown name
    raises InvalidOptionError with the nearest one.

    >>> with Broker(num_partitions=3) as broker:
    ...     producer = Producer(broker.address)

    It serves inside ``with`` (or ``async with``), or between start() and stop().
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        listen: str = "127.0.0.1:0",
        data_dir: str | os.PathLike[str] | None = None,
        **options: str | float | bool,
    ) -> None:
        pass

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)
