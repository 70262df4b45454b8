"""Log lines of the client and the embedded broker, handed on to ``logging``.

No thread of the client's ever runs Python: it puts lines into a queue, and a thread of Python's own
hands them on. That thread lives only while some handler wants the lines; without one nothing is
kept, and nothing started.
"""

import logging
import threading

from . import _ottla

SOURCES = ("client", "producer", "consumer", "broker", "storage")
"""The children of the logger ``ottla``: who writes a line."""

EXIT_DEADLINE = 5.0
"""Seconds that handlers get at the interpreter's end for the lines that are left."""

# The client's levels by their numbers, the least important first.
_LEVELS = {5: 5, 4: logging.DEBUG, 3: logging.INFO, 2: logging.WARNING, 1: logging.ERROR}

_loggers = {source: logging.getLogger(f"ottla.{source}") for source in SOURCES}
for _logger in _loggers.values():
    # Lest a program without logging has lines on its stderr.
    _logger.addHandler(logging.NullHandler())

# A signal handler that makes a client may come in between.
_lock = threading.RLock()
_level = 0
_thread: threading.Thread | None = None
_ending = False


def _is_heard(logger: logging.Logger, level: int) -> bool:
    """Tell whether a line of this level would come to a handler."""
    if not logger.isEnabledFor(level):
        return False
    at: logging.Logger | None = logger
    while at is not None:
        for handler in at.handlers:
            if level >= handler.level and not isinstance(handler, logging.NullHandler):
                return True
        at = at.parent if at.propagate else None
    return False


def _wanted() -> int:
    """Give the number of the least important level that anybody hears; 0 is none."""
    for number, level in _LEVELS.items():
        if any(_is_heard(logger, level) for logger in _loggers.values()):
            return number
    return 0


def look() -> None:
    """Take up what the loggers want now: when a client is made, and when it is first used."""
    global _level, _thread
    wanted = _wanted()
    with _lock:
        if _ending or wanted == _level:
            return
        _ottla.collect_log(wanted)
        _level = wanted
        if wanted and _thread is None:
            _thread = threading.Thread(target=_run, name="ottla-log", daemon=True)
            _thread.start()


def _run() -> None:
    """Hand lines on for as long as somebody wants them."""
    global _thread
    while True:
        with _lock:
            if not _level:
                _thread = None
                return
        if _ottla.wait_log():
            _hand()
            look()


def _hand() -> None:
    for number, source, target, time_ms, message in _ottla.take_log():
        logger, level = _loggers[source], _LEVELS[number]
        try:
            if logger.isEnabledFor(level):
                logger.handle(_record(logger, level, target, time_ms, message))
        except Exception as fault:
            # Of a filter of the program's; the other lines are handed on all the same.
            told = (type(fault), fault, fault.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(told))


def _record(
    logger: logging.Logger, level: int, target: str, time_ms: int, message: str
) -> logging.LogRecord:
    """Make a record with the time at which the line was written."""
    record = logger.makeRecord(logger.name, level, target, 0, message, (), None)
    created = time_ms / 1000
    record.relativeCreated -= (record.created - created) * 1000
    record.created, record.msecs = created, time_ms % 1000
    return record


def begin_end() -> None:
    """Start nothing any more: the interpreter ends."""
    global _ending
    with _lock:
        _ending = True


def end() -> None:
    """Hand on what is left, and end the thread."""
    global _level
    with _lock:
        thread, was, _level = _thread, _level, 0
        if was:
            _ottla.collect_log(0)
    if thread is not None:
        thread.join(EXIT_DEADLINE)
    if was and (thread is None or not thread.is_alive()):
        _hand()


def in_child() -> None:
    """Forget the parent's thread, which does not survive a fork, and its lock."""
    global _lock, _level, _thread, _ending
    _lock, _level, _thread, _ending = threading.RLock(), 0, None, False
