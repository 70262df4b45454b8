"""Producer and consumer for asyncio: the same native halves, waited for by an event loop."""

from __future__ import annotations

import asyncio
import builtins
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from . import _ottla, _process
from ._errors import BufferFullError, ClosedError, TimeoutError
from ._options import ConsumerOptions, ProducerOptions
from ._ottla import Batch, Delivery, Pending, Queued, Record, Report, Sent
from ._places import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ._reactor import Reactor
from ._sync import (
    Consumer,
    Producer,
    offsets,
    offsets_and_metadata,
    offsets_and_times,
    told_beside,
)
from ._types import Bytes, Committable, Headers, Sendable

_T = TypeVar("_T")


class Sending:
    """A record on its way: ``await`` gives its Delivery, or raises what it failed with.

    Dropped, the record is sent all the same; close() and flush() then tell of a failure.
    """

    __slots__ = ("_awaited", "_reactor", "_sent")

    def __init__(self, reactor: Reactor, sent: Sent | asyncio.Future[Sent]) -> None:
        self._awaited = False
        self._reactor = reactor
        self._sent = sent

    def __await__(self) -> Generator[Any, Any, Delivery]:
        self._awaited = True
        self._reactor.bind()
        sent = self._sent
        if isinstance(sent, asyncio.Future):
            sent = self._sent = yield from sent.__await__()
        delivery = sent._poll()
        if delivery is None:
            delivery = yield from self._reactor.deliver(sent).__await__()
        return delivery


class _Waiting:
    """A record that waits for room."""

    __slots__ = ("future", "record", "sending", "until")

    def __init__(
        self, sending: Sending, future: asyncio.Future[Sent], record: Queued, until: float
    ) -> None:
        self.sending = sending
        self.future = future
        self.record: Queued | None = record
        self.until = until


class AsyncProducer:
    """Sends records, within one event loop: that of the first call that waits.

    AsyncProducer(bootstrap=None, /, **options): as Producer.

    >>> async with AsyncProducer("localhost:9092") as p:
    ...     at = await p.send("orders", b"v", key=b"k")  # one await: delivered
    ...     p.send("orders", b"w")  # fire and forget

    Leaving ``async with`` flushes and closes, and raises if records that nobody awaited have
    failed.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        /,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._native = Producer(bootstrap, **options)
        self._reactor = Reactor()
        self._waiting: deque[_Waiting] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._unreported: BaseException | None = None

    def send(
        self,
        topic: str,
        value: Bytes | None = None,
        *,
        key: Bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Sending:
        """Send a record; ``await`` what this gives for its Delivery, or drop it.

        The arguments are those of Producer.send. It never blocks: over buffer_memory the record
        waits its turn, up to max_block_ms, behind those that waited before. BufferFullError if
        records of as many bytes wait already (of 16 MiB if that is more, each with 1 KiB for
        itself), or if no loop runs.
        """
        try:
            return self.try_send(
                topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
            )
        except BufferFullError:
            pass
        record = self._native._queue(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )
        return self._wait_for_room(record)

    def try_send(
        self,
        topic: str,
        value: Bytes | None = None,
        *,
        key: Bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Sending:
        """Send a record if there is room for it now, else raise BufferFullError. See drain()."""
        if self._waiting:
            raise BufferFullError("other records wait for room")
        sent = self._native.try_send(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )
        return Sending(self._reactor, sent)

    async def send_many(self, topic: str, records: Iterable[Sendable]) -> Report:
        """Send records in one crossing, and wait until each is delivered or has failed.

        records: as in Producer.send_many. The report tells what became of each; none is raised.
        For room, and for records that waited for it before, it waits max_block_ms in all; what
        finds none then is reported as BufferFullError.
        """
        report = self._native._send_many(topic, records)
        await self._turn()
        while (room := self._native._send_more(self._reactor.signal, report)) is not None:
            await self._reactor.run(room)
        await self._reactor.run(report._settle(self._reactor.signal))
        return report

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent before is delivered or has failed.

        timeout: seconds; None waits as long as delivery_timeout_ms lets it take. Raises if records
        that nobody awaited have failed, and TimeoutError when the time is over.
        """
        _ottla.check_timeout(timeout)
        await self._turn()
        await self._reactor.run(self._native._flush(self._reactor.signal), timeout, "flush")
        self._raise_unreported()

    async def drain(self) -> None:
        """Wait until there is room, so that try_send() can go on.

        BufferFullError if there was none within max_block_ms.
        """
        await self._turn()
        await self._reactor.run(self._native._room(self._reactor.signal))

    async def close(self, timeout: float | None = None) -> None:
        """Send what is held, then end the producer.

        timeout: seconds; None is the option delivery_timeout_ms and a second. Raises what kept
        records that nobody awaited from being delivered. A second call does nothing.
        """
        _ottla.check_timeout(timeout)
        loop = asyncio.get_running_loop()
        until = loop.time() + (self._native._close_timeout if timeout is None else timeout)
        try:
            async with asyncio.timeout_at(until):
                await self._turn()
        except builtins.TimeoutError:
            pass  # the rest is refused, and told below
        left = max(0.0, until - loop.time())
        try:
            await self._reactor.run(self._native._close(self._reactor.signal, left))
            await self._turn()
        finally:
            _process.forget(self._native)
            self._reactor.leave()
        self._raise_unreported()

    def _wait_for_room(self, record: Queued) -> Sending:
        """Put a record in the queue for room."""
        try:
            loop = self._reactor.bind()
        except RuntimeError:
            raise BufferFullError("there is no room now, and no event loop to wait in") from None
        future: asyncio.Future[Sent] = loop.create_future()
        until = loop.time() + self._native._max_block
        waiting = _Waiting(Sending(self._reactor, future), future, record, until)
        self._waiting.append(waiting)
        if self._pump is None or self._pump.done():
            self._pump = loop.create_task(self._send_waiting())
        return waiting.sending

    async def _send_waiting(self) -> None:
        """Send what waits for room, in order, as room comes."""
        while self._waiting:
            first = self._waiting[0]
            try:
                await self._send_first(first)
            except BaseException as failed:
                self._fail(first, failed)
                if not isinstance(failed, Exception):
                    raise
            self._waiting.popleft()
            # What is raised may keep this frame, and must not keep the record.
            first.record = None

    async def _send_first(self, first: _Waiting) -> None:
        loop = self._reactor.bind()
        # A future that is done was cancelled by who awaited it: it is not sent.
        while not first.future.done() and first.record is not None:
            # Only the first asks for room: what is kept for one behind it would be missing here.
            left = first.until - loop.time()
            room = self._native._room(self._reactor.signal, first.record, max(0.0, left))
            await self._reactor.run(room)
            if first.future.done():
                return
            try:
                sent = self._native._send_queued(first.record)
            except BufferFullError:
                if left <= 0:
                    raise
                await asyncio.sleep(0)
            else:
                first.future.set_result(sent)

    def _fail(self, waiting: _Waiting, failed: BaseException) -> None:
        if waiting.future.done():
            return
        waiting.future.set_exception(failed)
        if not waiting.sending._awaited:
            waiting.future.exception()  # told by close() and flush()
            self._unreported = self._unreported or failed

    async def _turn(self) -> None:
        """Wait until no record waits for room."""
        while self._pump is not None and not self._pump.done():
            await asyncio.wait([self._pump])

    def _raise_unreported(self) -> None:
        failed, self._unreported = self._unreported, None
        if failed is not None:
            raise failed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with told_beside(raised):
            await self.close()


class AsyncConsumer:
    """Reads as Consumer does, within one event loop: that of the first await.

    AsyncConsumer(bootstrap=None, /, *, topics=None, **options): as Consumer.

    >>> async with AsyncConsumer("localhost:9092", group="g", topics=["orders"]) as c:
    ...     async for record in c:
    ...         await handle(record)

    The iteration ends when the consumer is closed. With auto_commit (the default), a record counts
    as finished when the loop asks for the next one. Leaving ``async with`` commits what is
    finished, leaves the group and closes.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        /,
        *,
        topics: str | Iterable[str] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._native = Consumer(bootstrap, topics=topics, **options)
        self._reactor = Reactor()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        try:
            while True:
                if (record := await self._next(None)) is not None:
                    return record
        except ClosedError:
            raise StopAsyncIteration from None

    async def poll(self, timeout: float | None = None) -> Record | None:
        """Give the next record, or None if the time is over before one comes.

        timeout: seconds; None waits for ever. What the call before gave counts as finished.
        Cancelling loses no record.
        """
        return await self._next(timeout)

    async def _next(self, timeout: float | None) -> Record | None:
        _ottla.check_timeout(timeout)
        if (record := self._native._begun()) is not None:
            return record
        # A loop over records that are there would keep all other tasks from running.
        await asyncio.sleep(0)
        return await self._wait(self._native._next(self._reactor.signal), timeout)

    async def poll_batch(
        self, max_records: int | None = None, timeout: float | None = None
    ) -> Batch | None:
        """Give the next batch of one partition, or None if the time is over before one comes.

        max_records: how many records at most; None gives what was fetched.
        timeout: seconds; None waits for ever. Cancelling loses no record.
        """
        _ottla.check_timeout(timeout)
        await asyncio.sleep(0)
        pending = self._native._next_batch(self._reactor.signal, max_records)
        return await self._wait(pending, timeout)

    async def _wait(self, pending: Pending[_T], timeout: float | None) -> _T | Any:
        try:
            return await self._reactor.run(pending, timeout, "poll")
        except TimeoutError:
            if timeout is None:
                raise
            # Tells why there is nothing, if it is known.
            return self._native._obstacle()

    async def batches(
        self, max_records: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[Batch]:
        """Iterate over batches, each of one partition; as Consumer.batches."""
        while True:
            try:
                batch = await self.poll_batch(max_records, timeout)
            except ClosedError:
                return
            if batch is not None:
                yield batch
            elif timeout is not None:
                return

    async def commit(self, what: Committable = None, timeout: float | None = None) -> None:
        """Commit, and wait until the group's coordinator has it; as Consumer.commit."""
        await self._reactor.run(self._native._commit(self._reactor.signal, what, timeout))

    def commit_soon(self, what: Committable = None) -> None:
        """Commit without waiting; as Consumer.commit_soon."""
        self._native.commit_soon(what)

    def acknowledge(self, what: Record | Batch) -> None:
        """Say that the work on a record, or on a batch, is finished; as Consumer.acknowledge."""
        self._native.acknowledge(what)

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Read these topics, and no others from now on; as Consumer.subscribe."""
        self._native.subscribe(topics)

    def subscribe_pattern(self, pattern: str) -> None:
        """Read the topics whose names match, also later ones; as Consumer.subscribe_pattern."""
        self._native.subscribe_pattern(pattern)

    def unsubscribe(self) -> None:
        """Leave the group, after what is finished was committed, and read nothing."""
        self._native.unsubscribe()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions, and no others from now on; as Consumer.assign."""
        self._native.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """List the partitions that are this consumer's now."""
        return self._native.assignment()

    def position(self, topic: str, partition: int) -> int | None:
        """Give the offset of the next record to come of a partition; None if it is not known."""
        return self._native.position(topic, partition)

    def current_lag(self, topic: str, partition: int) -> int | None:
        """Give how far the next record is from a partition's end; as Consumer.current_lag."""
        return self._native.current_lag(topic, partition)

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up where partitions begin; as Consumer.beginning_offsets."""
        signal, which = self._reactor.signal, list(partitions)
        call = self._native._beginning_offsets(signal, which, timeout)
        return offsets(await self._reactor.run(call))

    async def end_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up where partitions end; as Consumer.end_offsets."""
        signal, which = self._reactor.signal, list(partitions)
        return offsets(await self._reactor.run(self._native._end_offsets(signal, which, timeout)))

    async def offsets_for_times(
        self,
        times: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up the first records of a time or later; as Consumer.offsets_for_times."""
        signal, rows = self._reactor.signal, list(times.items())
        call = self._native._offsets_for_times(signal, rows, timeout)
        return offsets_and_times(await self._reactor.run(call))

    async def committed(
        self, partitions: Iterable[tuple[str, int]], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Look up what the group has committed; as Consumer.committed."""
        signal, which = self._reactor.signal, list(partitions)
        call = self._native._committed(signal, which, timeout)
        return offsets_and_metadata(await self._reactor.run(call))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on with a partition from this offset; as Consumer.seek."""
        self._native.seek(topic, partition, offset)

    async def seek_before_end(
        self, topic: str, partition: int, records: int, timeout: float | None = None
    ) -> int:
        """Go on so many records before a partition's end; as Consumer.seek_before_end."""
        signal = self._reactor.signal
        call = self._native._seek_before_end(signal, topic, partition, records, timeout)
        return await self._reactor.run(call)

    def keep_alive(self) -> None:
        """Tell that the program lives while it works long; as Consumer.keep_alive."""
        self._native.keep_alive()

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Give no records of these partitions until resume(); as Consumer.pause."""
        self._native.pause(partitions)

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Give records of these partitions again."""
        self._native.resume(partitions)

    async def close(self, timeout: float | None = None) -> None:
        """Commit what is finished, leave the group, and end the consumer; as Consumer.close."""
        _ottla.check_timeout(timeout)
        try:
            closing = self._native._close(self._reactor.signal, timeout)
            await self._reactor.run(closing)
        finally:
            _process.forget(self._native)
            self._reactor.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with told_beside(raised):
            await self.close()
