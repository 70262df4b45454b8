"""Producer, Consumer and Broker for threads: the native classes, with context managers."""

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self, Unpack

from . import _ottla, _process
from ._errors import ClosedError, Error
from ._options import ConsumerOptions, ProducerOptions
from ._ottla import Batch


class TopicPartition(NamedTuple):
    """A partition of a topic; a plain tuple of the two will do wherever one is taken."""

    topic: str
    partition: int


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
    """Reads topics as a member of a group. One thread asks for records at a time.

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

    def assignment(self) -> list[TopicPartition]:
        """List the partitions that are this consumer's now."""
        return [TopicPartition(*one) for one in self._assignment()]

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
