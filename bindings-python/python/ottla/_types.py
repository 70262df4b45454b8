"""What the clients take, as types."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._ottla import Batch, Record

Bytes: TypeAlias = "Buffer | str"
"""A key or a value: bytes, anything with a contiguous buffer, or a text, sent as UTF-8."""

Headers: TypeAlias = "Mapping[str, Bytes | None] | Iterable[tuple[str, Bytes | None]]"
"""Headers of a record, in order; a name may come more than once in the pairs."""

Sendable: TypeAlias = "Bytes | tuple[Bytes | None, Bytes | None] | Record | None"
"""What send_many takes one record from: a value, (key, value), or a Record."""

Committable: TypeAlias = "Record | Batch | dict[tuple[str, int], int] | None"
"""What is committed: a record or a batch with all before it, offsets, or all given so far."""
