"""A program with the values it reads from outside, so that changing one of them is seen by compiled code.

Compiled code is found again by the program's identity. A function that reads a global `SCALE`, or an object whose
attribute is set anew, keeps its identity while its meaning changes; so both become part of the key.
"""

import hashlib
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Current:
    """The program, and what it reads at this moment; equal where both are."""

    program: Callable
    reads: Any

    def __call__(self, inputs: Any, targets: Any = None) -> Any:
        """Run the program."""
        return self.program(inputs, targets)

    def __getattr__(self, name: str) -> Any:
        """Attributes are the program's."""
        if name.startswith("__") or name in ("program", "reads"):
            raise AttributeError(name)
        return getattr(self.program, name)


def current(model: Callable) -> Callable:
    """The model itself where it is equal by value; else with what it reads: closures, globals, attributes, defaults.

    Numbers, strings, tuples, lists, dicts and NumPy arrays count by value, functions of the model's own module by what
    they read in turn, classes of that module and their objects by their attributes; other objects by identity, so a
    change inside them is not seen.
    """
    if isinstance(model, Current) or type(model).__eq__ is not object.__eq__:
        return model
    return Current(model, _value(model, _module(model), set()))


def _module(model: Any) -> str:
    """Where the program was written."""
    inner = model.func if isinstance(model, partial) else model
    return getattr(inner, "__module__", "")


class _Same:
    """Equal to the same object alone."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.of is other.of


def _value(value: Any, module: str, seen: set[int]) -> Any:
    if isinstance(value, types.ModuleType) or (isinstance(value, type) and value.__module__ != module):
        return None
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return type(value).__name__, value
    if id(value) in seen:  # met before on this walk: recursive functions, shared objects
        return _Same(value)
    seen.add(id(value))
    if isinstance(value, type):  # of the program's own module: it may hold settings
        own = {name: entry for name, entry in vars(value).items() if not name.startswith("__")}
        return _Same(value), _value(own, module, seen)
    if isinstance(value, (tuple, list)):
        return tuple(_value(entry, module, seen) for entry in value)
    if isinstance(value, dict):
        return tuple((str(key), _value(entry, module, seen)) for key, entry in value.items())
    if isinstance(value, np.ndarray) and value.dtype != object:
        return (
            value.shape,
            value.dtype.str,
            hashlib.blake2b(np.ascontiguousarray(value).tobytes()).hexdigest(),
        )
    if isinstance(value, partial):
        return _value((value.func, value.args, value.keywords), module, seen)
    if isinstance(value, types.MethodType):
        return _value((value.__func__, value.__self__), module, seen)
    if isinstance(value, types.FunctionType) and value.__module__ == module:
        return _Same(value.__code__), _function(value, module, seen)
    attributes = getattr(value, "__dict__", None) if type(value).__eq__ is object.__eq__ else None
    if not isinstance(attributes, dict) or not (callable(value) or type(value).__module__ == module):
        return _Same(value)
    return _Same(value), _value(attributes, module, seen), _value(type(value), module, seen)


def _function(function: types.FunctionType, module: str, seen: set[int]) -> Any:
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_set(cell)]
    outside = [
        function.__globals__[name]
        for name in sorted(_names(function.__code__))
        if name in function.__globals__
    ]
    return tuple(
        _value(each, module, seen)
        for each in (*cells, *outside, function.__defaults__, function.__kwdefaults__)
    )


def _names(code: types.CodeType) -> set[str]:
    """Names that the code, or a function written inside it, may look up in its module."""
    inner = [_names(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*inner)


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
