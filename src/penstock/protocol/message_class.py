"""Creates the classes of messages and their structs from descriptions of their fields.

Not dataclasses: those compile up to seven functions per class, 0.9 ms each, and a broker needs 600
of them (docs/decisions/0024-start-up-without-tricks.md). A message is immutable, takes its fields
by keyword, and equals a message of the same class with equal fields.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

STRUCT = "struct"


class Required:
    """The default of a field that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = Required()


class FieldShape(NamedTuple):
    """One field of a message and its wire format."""

    name: str
    kafka_type: str  # STRUCT, or a primitive
    entity: "type[WireMessage] | None"  # the class of a struct
    is_array: bool
    is_nullable: bool  # of an array: the array itself, not its items
    tag: int | None
    default: object  # REQUIRED if the schema has none; a tagged field always has one


class WireMessage:
    """The base of every message class."""

    __slots__: tuple[str, ...] = ()
    __fields__: ClassVar[tuple[FieldShape, ...]]
    __api_key__: ClassVar[int]
    __version__: ClassVar[int]
    __flexible__: ClassVar[bool]  # compact lengths and tagged fields (KIP-482)

    if TYPE_CHECKING:  # fields are slots, which type checkers do not see

        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r} of {type(self).__name__}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r} of {type(self).__name__}")

    def __replace__(self, **changes: Any) -> Self:
        """A copy with these fields changed; copy.replace calls it, from Python 3.13 on."""
        return type(self)(**{name: getattr(self, name) for name in self.__slots__} | changes)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


def make_message_class(
    name: str, fields: Sequence[FieldShape], *, api_key: int, version: int, is_flexible: bool
) -> type[WireMessage]:
    names = tuple(field.name for field in fields)
    members = {
        "__slots__": names,
        "__fields__": tuple(fields),
        "__api_key__": api_key,
        "__version__": version,
        "__flexible__": is_flexible,
        **_comparison(attrgetter(*names) if names else _read_nothing),
    }
    made: type[WireMessage] = type(name, (WireMessage,), members)
    made.__init__ = _initializer(made, fields)  # type: ignore[method-assign]
    return made


def _comparison(read: Callable[[object], object]) -> dict[str, Callable[..., Any]]:
    def equals(self: WireMessage, other: object) -> bool:
        return bool(read(self) == read(other)) if type(other) is type(self) else NotImplemented

    return {"__eq__": equals, "__hash__": lambda self: hash(read(self))}


def _read_nothing(_: object) -> tuple[()]:
    return ()


def _initializer(made: type[WireMessage], fields: Sequence[FieldShape]) -> Callable[..., None]:
    setters = tuple((field.name, getattr(made, field.name).__set__) for field in fields)
    defaults = {field.name: field.default for field in fields if field.default is not REQUIRED}

    def initialize(self: WireMessage, **values: Any) -> None:
        if len(values) != len(setters):
            values = {**defaults, **values}
        try:
            for name, put in setters:  # a slot's own setter: __setattr__ refuses
                put(self, values[name])
        except KeyError:
            raise _wrong_fields(made, values) from None
        if len(values) != len(setters):
            raise _wrong_fields(made, values)

    return initialize


def _wrong_fields(made: type[WireMessage], values: Mapping[str, Any]) -> TypeError:
    names = [field.name for field in made.__fields__]
    missing = [name for name in names if name not in values]
    unknown = [name for name in values if name not in names]
    return TypeError(f"{made.__name__}: missing fields {missing}, unknown fields {unknown}")
