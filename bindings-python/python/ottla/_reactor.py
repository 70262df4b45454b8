"""What one client has open in an event loop, which watches one descriptor for all of it.

No thread of the client's ever runs Python. It marks what has ended and makes the descriptor
readable, once for all that waits there; the loop settles it.
"""

from __future__ import annotations

import asyncio
import builtins
from typing import TypeVar

from . import _ottla
from ._errors import Error, InvalidStateError, TimeoutError
from ._ottla import Delivery, Pending, Sent

_T = TypeVar("_T")


class Reactor:
    """What one client has open in the event loop that it is bound to."""

    def __init__(self) -> None:
        self.signal = _ottla.Signal()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left = False
        self._calls: dict[int, asyncio.Future[None]] = {}
        self._records: dict[int, list[tuple[Sent, asyncio.Future[Delivery]]]] = {}

    def bind(self) -> asyncio.AbstractEventLoop:
        """Give the running loop, which is the client's from the first call on."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise InvalidStateError("the client belongs to another event loop")
            loop.add_reader(self.signal.fileno(), self._ready)
            self._loop = loop
        return loop

    def leave(self) -> None:
        """Leave the loop, now or when the last that waits has its answer: the client is closed."""
        self._left = True
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if self._left and self._loop is not None and not self._calls and not self._records:
            self._loop.remove_reader(self.signal.fileno())
            self._loop = None

    async def run(self, pending: Pending[_T], timeout: float | None = None, what: str = "") -> _T:
        """Wait for a call of the core. Cancelling gives it up; nothing that it had is lost."""
        # Polled by its own task alone, so that a result never sits in a cancelled task.
        if (done := pending.poll()) is not None:
            return done[0]
        try:
            async with asyncio.timeout(timeout):
                while True:
                    woken = self._calls[pending.number] = self.bind().create_future()
                    if (done := pending.poll()) is not None:
                        return done[0]
                    await woken
        except builtins.TimeoutError as over:
            if isinstance(over, Error):
                raise
            raise TimeoutError(f"{what} did not end within {timeout} s") from None
        finally:
            self._calls.pop(pending.number, None)
            self._leave_if_idle()

    def deliver(self, sent: Sent) -> asyncio.Future[Delivery]:
        """Ask for a record's result."""
        future: asyncio.Future[Delivery] = self.bind().create_future()
        batch = sent._notify(self.signal)
        self._records.setdefault(batch, []).append((sent, future))
        return future

    def _ready(self) -> None:
        """Settle what has ended; called by the loop."""
        batches, calls = self.signal.drain()
        for batch in batches:
            open_ = []
            for sent, future in self._records.pop(batch.batch, ()):
                if future.done():
                    continue
                result = batch.result(sent)
                if result is None:
                    # Records of a topic that was not known yet end in different batches.
                    open_.append((sent, future))
                elif isinstance(result, Delivery):
                    future.set_result(result)
                else:
                    future.set_exception(result)
            if open_:
                self._records.setdefault(batch.batch, []).extend(open_)
        for number in calls:
            woken = self._calls.get(number)
            if woken is not None and not woken.done():
                woken.set_result(None)
        self._leave_if_idle()
