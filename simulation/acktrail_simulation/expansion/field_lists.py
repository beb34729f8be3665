"""Messages as lists of fields, in Kafka's primitive types: to bytes, to JSON objects, and back.

The encoding is that of Kafka's protocol before flexible versions: int16 lengths of strings, int32 lengths of arrays.
JSON objects may have a field under an earlier name; the latest one is written. Bytes are hexadecimal in JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar, get_args, get_origin, get_type_hints

from acktrail.format.wire.primitives import INT16, INT32, INT64, Reader
from acktrail_simulation.messages.batch_json import one_of

ValueT = TypeVar("ValueT")


class FieldType(Protocol):
    """One type of the protocol. `least` is the size in bytes of the shortest value."""

    @property
    def least(self) -> int:
        """In bytes."""

    def write(self, value: Any) -> bytes:
        """The bytes of `value`."""

    def read(self, reader: Reader) -> Any:
        """The value whose bytes come next. Raises MalformedRecord."""

    def to_json(self, value: Any) -> Any:
        """`value` as JSON has it."""

    def from_json(self, value: Any) -> Any:
        """The reverse of `to_json`."""


@dataclass(frozen=True, slots=True)
class IntegerType:
    """A big-endian integer with a sign."""

    kind: Struct

    @property
    def least(self) -> int:
        """Its size."""
        return self.kind.size

    def write(self, value: Any) -> bytes:
        """`kind.size` bytes."""
        return self.kind.pack(value)

    def read(self, reader: Reader) -> int:
        """Any bytes are an integer."""
        return reader.integer(self.kind)

    def to_json(self, value: Any) -> Any:
        """A number."""
        return value

    from_json = to_json


@dataclass(frozen=True, slots=True)
class BooleanType:
    """One byte; 0 is false, as in Kafka every other is true."""

    least: int = 1

    def write(self, value: Any) -> bytes:
        """0 or 1."""
        return b"\1" if value else b"\0"

    def read(self, reader: Reader) -> bool:
        """Any byte is a boolean."""
        return reader.raw(1) != b"\0"

    def to_json(self, value: Any) -> Any:
        """True or false."""
        return value

    from_json = to_json


@dataclass(frozen=True, slots=True)
class StringType:
    """UTF-8 of at most 32767 bytes after its int16 length; -1 is null."""

    nullable: bool = False
    least: int = 2

    def write(self, value: Any) -> bytes:
        """Length and text."""
        return INT16.pack(-1) if value is None else INT16.pack(len(value.encode())) + value.encode()

    def read(self, reader: Reader) -> str | None:
        """Null only where it may be."""
        if self.nullable and reader.buffer[reader.position : reader.position + 2] == b"\xff\xff":
            reader.raw(2)
            return None
        return reader.string()

    def to_json(self, value: Any) -> Any:
        """Text, or null."""
        return value

    from_json = to_json


@dataclass(frozen=True, slots=True)
class BytesType:
    """Bytes after their int32 length."""

    least: int = 4

    def write(self, value: Any) -> bytes:
        """Length and bytes."""
        return INT32.pack(len(value)) + bytes(value)

    def read(self, reader: Reader) -> bytes:
        """Never null."""
        return reader.raw(reader.integer(INT32))

    def to_json(self, value: Any) -> str:
        """Two hexadecimal digits a byte."""
        return bytes(value).hex()

    def from_json(self, value: Any) -> bytes:
        """The reverse."""
        return bytes.fromhex(value)


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Items after their int32 count; a tuple here, never null."""

    item: FieldType
    least: int = 4

    def write(self, value: Any) -> bytes:
        """Count and items."""
        return INT32.pack(len(value)) + b"".join(map(self.item.write, value))

    def read(self, reader: Reader) -> tuple[Any, ...]:
        """A count that does not fit into the bytes is malformed before an item is read."""
        start, count = reader.position, reader.integer(INT32)
        if count < 0 or count * self.item.least > reader.left:
            raise reader.malformed(f"{count} items announced", start)
        return tuple(self.item.read(reader) for _ in range(count))

    def to_json(self, value: Any) -> list[Any]:
        """A list."""
        return [self.item.to_json(each) for each in value]

    def from_json(self, value: Any) -> tuple[Any, ...]:
        """A list."""
        return tuple(self.item.from_json(each) for each in value)


@dataclass(frozen=True, slots=True)
class Named:
    """One field: the name in the document and in the class, its type, and its earlier names."""

    name: str
    type: FieldType
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StructType(Generic[ValueT]):
    """Fields one after the other; a value is an instance of `make`."""

    make: Callable[..., ValueT]
    fields: tuple[Named, ...]

    @property
    def least(self) -> int:
        """The sum of its fields'."""
        return sum(each.type.least for each in self.fields)

    def write(self, value: ValueT) -> bytes:
        """All fields in order."""
        return b"".join(each.type.write(getattr(value, each.name)) for each in self.fields)

    def read(self, reader: Reader) -> ValueT:
        """All fields in order."""
        return self.make(**{each.name: each.type.read(reader) for each in self.fields})

    def decode(self, data: bytes) -> ValueT:
        """The value that is all of `data`.

        Raises:
            MalformedRecord: there is too little or too much of it.
        """
        reader = Reader(data, "value")
        value = self.read(reader)
        reader.end()
        return value

    def to_json(self, value: ValueT) -> dict[str, Any]:
        """An object with the latest names."""
        return {each.name: each.type.to_json(getattr(value, each.name)) for each in self.fields}

    def from_json(self, value: Any) -> ValueT:
        """An object with either name of each field. Raises InputError: a field is given twice, or missing."""
        return self.make(
            **{each.name: each.type.from_json(one_of(value, (each.name, *each.earlier))) for each in self.fields}
        )


def struct_of(make: type[ValueT]) -> StructType[ValueT]:
    """The field list of a class, by its annotations: types of this module with earlier names, classes, tuples."""
    hints = get_type_hints(make, include_extras=True)
    return StructType(make, tuple(Named(name, _type_of(hint), _earlier(hint)) for name, hint in hints.items()))


def _type_of(hint: Any) -> FieldType:
    if get_origin(hint) is tuple:
        return ArrayType(_type_of(get_args(hint)[0]))
    found: FieldType = hint.__metadata__[0] if get_origin(hint) is Annotated else struct_of(hint)
    return found


def _earlier(hint: Any) -> tuple[str, ...]:
    noted = hint.__metadata__ if get_origin(hint) is Annotated else ()
    return tuple(name for names in noted[1:] for name in names)


int16: Final = IntegerType(INT16)
int32: Final = IntegerType(INT32)
int64: Final = IntegerType(INT64)
boolean: Final = BooleanType()
string: Final = StringType()
nullable_string: Final = StringType(nullable=True)
raw_bytes: Final = BytesType()
