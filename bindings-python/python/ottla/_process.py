"""What the life of the process means for clients: forks, and the interpreter's end."""

import atexit
import logging
import os
import time
import weakref
from typing import Protocol

from . import _log

EXIT_DEADLINE = 5.0
"""Seconds that all clients together get at the interpreter's end: to send, commit and leave."""

_logger = logging.getLogger("ottla")


class _Closes(Protocol):
    def close(self, timeout: float | None = None) -> None: ...


_open: "weakref.WeakSet[_Closes]" = weakref.WeakSet()


def close_at_exit(client: _Closes) -> None:
    """Have a client closed at the interpreter's end, if it lives and is open then."""
    _open.add(client)


def forget(client: _Closes) -> None:
    """Leave a client alone at the interpreter's end: it is closed."""
    _open.discard(client)


def _close_all() -> None:
    _log.begin_end()
    until = time.monotonic() + EXIT_DEADLINE
    for client in list(_open):
        try:
            client.close(timeout=max(0.0, until - time.monotonic()))
        except Exception as failure:
            _logger.error("at exit: %s", failure)
    _log.end()


def _in_child() -> None:
    # Threads do not survive a fork: what was open is the parent's, and raises ForkedError here.
    _open.clear()
    _log.in_child()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_in_child)
