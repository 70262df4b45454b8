"""What the clients take, as types."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._ottla import Batch, Record
    from ._places import OffsetAndMetadata, TopicPartition

Bytes: TypeAlias = "Buffer | str"
"""A key or a value: bytes, anything with a contiguous buffer, or a text, sent as UTF-8."""

Headers: TypeAlias = "Mapping[str, Bytes | None] | Iterable[tuple[str, Bytes | None]]"
"""Headers of a record, in order; a name may come more than once in the pairs."""

Sendable: TypeAlias = "Bytes | tuple[Bytes | None, Bytes | None] | Record | None"
"""What send_many takes one record from: a value, (key, value), or a Record."""

Offset: TypeAlias = "int | OffsetAndMetadata"
"""An offset to read on at, with what is kept beside it or without."""

Offsets: TypeAlias = "Mapping[TopicPartition, Offset] | Mapping[tuple[str, int], Offset]"
"""For each partition an offset."""

Committable: TypeAlias = "Record | Batch | Offsets | None"
"""What is committed: a record or a batch with all before it, offsets, or all given so far."""
