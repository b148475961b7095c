"""`dataclass` as in the standard library, but its methods are compiled when first called.

The standard library compiles up to six methods for each class as soon as the class is defined:
0.5 ms for each, 80 of the 180 ms that a program needed to open a store. Few of these methods are
ever called. Here the definition of a class costs a tenth of that, and so its methods cost nothing
until they are used; then they are those of the standard library:

    - the constructor, with defaults, factories and `__post_init__`;
    - `repr`, equality and hash; assignment to a frozen value raises `FrozenInstanceError`;
    - copies and pickles, whose state is that of the standard library;
    - `dataclasses.fields`, `replace`, `asdict` and `is_dataclass`; `inspect.signature`; `match`.

A class always has slots. Type checkers see the names of the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    import inspect

__all__ = ["dataclass", "field", "fields", "replace"]

_T = TypeVar("_T")
_Method = Callable[..., Any]


class _Missing:
    """Stands for a default that a field does not have, and in signatures for what is made."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<factory>"


_MISSING: Final = _Missing()
_NO_METADATA: Final[Mapping[Any, Any]] = MappingProxyType({})


class Field:
    """A field of a value class: what was written for it, and its name and annotation."""

    __slots__ = ("default", "default_factory", "kw_only", "metadata", "name", "repr", "type")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        repr: bool = True,
        metadata: Mapping[Any, Any] | None = None,
    ) -> None:
        if default is not _MISSING and default_factory is not _MISSING:
            raise ValueError("cannot specify both default and default_factory")
        self.name = ""
        self.type: Any = None
        self.default = default
        self.default_factory = default_factory
        self.repr = repr
        self.kw_only = False
        self.metadata = MappingProxyType(dict(metadata)) if metadata else _NO_METADATA


class _Plan:
    """What the methods of one class are made from. Made with the class, never changed after."""

    __slots__ = ("fields", "is_frozen", "owner")

    def __init__(self, fields: dict[str, Field], *, is_frozen: bool) -> None:
        self.fields = fields
        self.is_frozen = is_frozen
        self.owner: type[Any] = object

    def complete(self, name: str) -> _Method:
        """Compile a method and put it in its place. Two threads may: the results are equal."""
        method: _Method = _MAKERS[name](self)
        method.__qualname__ = f"{self.owner.__qualname__}.{name}"
        method.__module__ = self.owner.__module__
        setattr(self.owner, name, method)
        return method


# --- the class -------------------------------------------------------------------------------


def _define(cls: type[_T], *, is_frozen: bool, is_keyword_only: bool, has_eq: bool) -> type[_T]:
    fields = _inherited_fields(cls)
    namespace = dict(cls.__dict__)
    own = _own_fields(cls, namespace, is_keyword_only=is_keyword_only)
    namespace["__slots__"] = tuple(name for name in own if name not in fields)
    fields.update(own)
    _refuse_required_after_optional(fields)
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    plan = _Plan(fields, is_frozen=is_frozen)
    _add_methods(namespace, plan, has_eq=has_eq)
    namespace["__value_plan__"] = plan
    namespace["__dataclass_fields__"] = _STANDARD_FIELDS
    namespace["__signature__"] = _SIGNATURE
    namespace.setdefault(
        "__match_args__", tuple(found.name for found in fields.values() if not found.kw_only)
    )
    metaclass: Any = type(cls)
    made: type[_T] = metaclass(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    plan.owner = made
    return made


def _inherited_fields(cls: type) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        plan = base.__dict__.get("__value_plan__")
        if plan is not None:
            fields.update(plan.fields)
        elif "__dataclass_fields__" in base.__dict__:
            raise TypeError(f"{cls.__qualname__}: a base is a dataclass of the standard library")
    return fields


def _own_fields(cls: type, namespace: dict[str, Any], *, is_keyword_only: bool) -> dict[str, Field]:
    """The fields that the body of the class declares; their defaults leave its namespace."""
    fields: dict[str, Field] = {}
    for name, annotation in _annotations(cls).items():
        if _is_class_variable(annotation):
            continue
        written = namespace.pop(name, _MISSING)
        found = written if isinstance(written, Field) else Field(default=written)
        if found.default.__class__.__hash__ is None:
            raise ValueError(
                f"mutable default {type(found.default)} for field {name} is not allowed: "
                "use default_factory"
            )
        found.name, found.type, found.kw_only = name, annotation, is_keyword_only
        fields[name] = found
    return fields


def _annotations(cls: type) -> Mapping[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.STRING)
    # `inspect.get_annotations` does the same here, but `inspect` takes 5 ms to import.
    found: Mapping[str, Any] = cls.__dict__.get("__annotations__", {})  # noqa: RUF063
    return found


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return getattr(annotation, "__origin__", annotation) is ClassVar


def _refuse_required_after_optional(fields: Mapping[str, Field]) -> None:
    last_optional = ""
    for found in fields.values():
        if found.kw_only:
            continue
        if found.default is not _MISSING or found.default_factory is not _MISSING:
            last_optional = found.name
        elif last_optional:
            raise TypeError(
                f"non-default argument {found.name!r} follows default argument {last_optional!r}"
            )


# --- methods, compiled when they are first called ---------------------------------------------


def _add_methods(namespace: dict[str, Any], plan: _Plan, *, has_eq: bool) -> None:
    has_own_hash = "__hash__" in namespace and not (
        namespace["__hash__"] is None and "__eq__" in namespace
    )
    _put_new(namespace, "__init__", _stub(plan, "__init__"))
    _put_new(namespace, "__repr__", _stub(plan, "__repr__"))
    _put_new(namespace, "__replace__", _replace)
    if has_eq:
        _put_new(namespace, "__eq__", _stub(plan, "__eq__"))
        if not has_own_hash:
            namespace["__hash__"] = _stub(plan, "__hash__") if plan.is_frozen else None
    if plan.is_frozen:
        if "__setattr__" in namespace or "__delattr__" in namespace:
            raise TypeError("a frozen class cannot define __setattr__ or __delattr__")
        namespace["__setattr__"], namespace["__delattr__"] = _frozen_setters(plan)
        _put_new(namespace, "__getstate__", _get_state)
        _put_new(namespace, "__setstate__", _set_state)


def _put_new(namespace: dict[str, Any], name: str, value: object) -> None:
    if name not in namespace:
        namespace[name] = value


def _stub(plan: _Plan, name: str) -> _Method:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return plan.complete(name)(self, *args, **kwargs)

    method.__name__ = name
    return method


def _frozen_setters(plan: _Plan) -> tuple[_Method, _Method]:
    def refuse(what: str, name: str) -> NoReturn:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {what} field {name!r}")

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if type(self) is plan.owner or name in plan.fields:
            refuse("assign to", name)
        super(plan.owner, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is plan.owner or name in plan.fields:
            refuse("delete", name)
        super(plan.owner, self).__delattr__(name)

    return __setattr__, __delattr__


def _make_init(plan: _Plan) -> _Method:
    known: dict[str, Any] = {"_missing": _MISSING, "_set": object.__setattr__}
    positional = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    for found in plan.fields.values():
        name = found.name
        parameter, value = name, name
        if found.default is not _MISSING:
            known[f"_default_{name}"] = found.default
            parameter = f"{name}=_default_{name}"
        elif found.default_factory is not _MISSING:
            known[f"_make_{name}"] = found.default_factory
            parameter = f"{name}=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}"
        (by_name if found.kw_only else positional).append(parameter)
        body.append(
            f"_set(self, {name!r}, {value})" if plan.is_frozen else f"self.{name} = {value}"
        )
    if hasattr(plan.owner, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = [*positional, "*", *by_name] if by_name else positional
    made = _compiled("__init__", ", ".join(parameters), body or ["pass"], known)
    made.__annotations__ = {found.name: found.type for found in plan.fields.values()}
    made.__annotations__["return"] = None
    return made


def _make_repr(plan: _Plan) -> _Method:
    from reprlib import recursive_repr

    shown = ", ".join(
        f"{found.name}={{self.{found.name}!r}}" for found in plan.fields.values() if found.repr
    )
    line = f'return f"{{self.__class__.__qualname__}}({shown})"'
    return recursive_repr()(_compiled("__repr__", "self", [line], {}))


def _make_eq(plan: _Plan) -> _Method:
    mine, theirs = _tuple_of(plan, "self"), _tuple_of(plan, "other")
    body = [
        "if other.__class__ is self.__class__:",
        f"    return {mine} == {theirs}",
        "return NotImplemented",
    ]
    return _compiled("__eq__", "self, other", body, {})


def _make_hash(plan: _Plan) -> _Method:
    return _compiled("__hash__", "self", [f"return hash({_tuple_of(plan, 'self')})"], {})


def _tuple_of(plan: _Plan, instance: str) -> str:
    return "(" + "".join(f"{instance}.{name}, " for name in plan.fields) + ")"


def _compiled(name: str, parameters: str, body: list[str], known: dict[str, Any]) -> _Method:
    lines = "".join(f"    {line}\n" for line in body)
    made: dict[str, Any] = {}
    exec(f"def {name}({parameters}):\n{lines}", known, made)
    method: _Method = made[name]
    return method


_MAKERS: Final[dict[str, Callable[[_Plan], _Method]]] = {
    "__init__": _make_init,
    "__repr__": _make_repr,
    "__eq__": _make_eq,
    "__hash__": _make_hash,
}


# --- what all classes share ------------------------------------------------------------------


def _get_state(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__value_plan__.fields]


def _set_state(self: Any, state: list[object]) -> None:
    for name, value in zip(self.__value_plan__.fields, state, strict=True):
        object.__setattr__(self, name, value)


def _replace(self: _T, /, **changes: Any) -> _T:
    plan: _Plan = self.__value_plan__  # type: ignore[attr-defined]
    for name in plan.fields:
        if name not in changes:
            changes[name] = getattr(self, name)
    return self.__class__(**changes)


class _StandardFields:
    """`__dataclass_fields__`: the fields of the standard library, made when asked for."""

    def __get__(self, instance: object, owner: type[Any]) -> Mapping[str, Any]:
        import dataclasses

        plan: _Plan = owner.__value_plan__
        rows = []
        for found in plan.fields.values():
            options: dict[str, Any] = {"repr": found.repr, "metadata": found.metadata}
            if found.default is not _MISSING:
                options["default"] = found.default
            elif found.default_factory is not _MISSING:
                options["default_factory"] = found.default_factory
            rows.append(
                (found.name, found.type, dataclasses.field(kw_only=found.kw_only, **options))
            )
        made: Any = dataclasses.make_dataclass(plan.owner.__name__, rows)
        standard: Mapping[str, Any] = made.__dataclass_fields__
        type.__setattr__(plan.owner, "__dataclass_fields__", standard)
        return standard


class _Signature:
    """`__signature__` of a class: that of its constructor, which may not have been compiled yet."""

    def __get__(self, instance: object, owner: type[Any]) -> inspect.Signature | None:
        import inspect

        plan: _Plan = owner.__value_plan__
        for base in owner.__mro__:
            if "__init__" in base.__dict__:
                break
        if base is not plan.owner:
            return None  # it has a constructor of its own
        if base.__dict__["__init__"].__code__ is _STUB_CODE:
            plan.complete("__init__")
        signature = inspect.signature(owner.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


_STANDARD_FIELDS: Final = _StandardFields()
_SIGNATURE: Final = _Signature()
_STUB_CODE: Final = _stub(_Plan({}, is_frozen=True), "").__code__


def _dataclass(
    cls: type[_T] | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    eq: bool = True,
) -> Any:
    if not slots:
        raise TypeError("a value class has slots: write slots=True")

    def decorate(found: type[_T]) -> type[_T]:
        return _define(found, is_frozen=frozen, is_keyword_only=kw_only, has_eq=eq)

    return decorate if cls is None else decorate(cls)


def _fields(value: Any) -> tuple[Field, ...]:
    return tuple(value.__value_plan__.fields.values())


if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace
else:
    dataclass = _dataclass
    field = Field
    fields = _fields

    def replace(value: _T, /, **changes: Any) -> _T:
        """As in the standard library; a value of a class from there is passed on to it."""
        if hasattr(value, "__value_plan__"):
            return _replace(value, **changes)
        import dataclasses

        return dataclasses.replace(value, **changes)
