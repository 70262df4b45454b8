"""A client for the Apache Kafka protocol, with a broker to embed.

>>> import ottla
>>> with ottla.Broker() as broker, ottla.Producer(broker.address) as producer:
...     at = producer.send("orders", b"v", key=b"k").result(timeout=10)

``Producer`` and ``Consumer`` are for threads, ``AsyncProducer`` and ``AsyncConsumer`` for asyncio;
both are faces of one client. Errors are subclasses of ``ottla.Error``. What could not be delivered
at the interpreter's end is told by the logger ``ottla``.

The client's own log lines go to the loggers ``ottla.producer``, ``ottla.consumer``,
``ottla.client``, ``ottla.broker`` and ``ottla.storage``; without a handler for them nothing is
kept. What handlers want is looked at when a client is made and when it is first used after that. A
thread of Python's hands the lines on; if handlers fall behind by 10,000, further lines are counted,
and the next one tells how many those were.
"""

from ._aio import AsyncConsumer, AsyncProducer
from ._errors import *  # noqa: F403
from ._errors import __all__ as _error_names
from ._ottla import Batch, Delivery, Record, Report, Sent, __version__
from ._places import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ._sync import Broker, Consumer, Producer

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "Batch",
    "Broker",
    "Consumer",
    "Delivery",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "Record",
    "Report",
    "Sent",
    "TopicPartition",
    "__version__",
    *_error_names,
]
