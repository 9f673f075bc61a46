"""Options of a call as Python's own numbers, which is what the library takes."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from parapet import _ffi

Number = float | int | bool | None

_EXPECTED = {
    "softmax_scale": "a number or None",
    "causal": "a bool",
    "window_left": "an integer or None",
    "window_right": "an integer or None",
    "softcap": "a number",
    "num_splits": "an integer",
}
_PLAIN = frozenset((float, int, bool, type(None)))


def plain_numbers(values: Sequence[Any]) -> Sequence[Number]:
    """Returns `_ffi.OPTIONS` without other libraries' types; raises for what is no number.

    The library then checks that each is of its option's kind and range.
    """
    if _PLAIN.issuperset(map(type, values)):  # the usual case
        return values
    return [_plain_number(*option) for option in zip(_ffi.OPTIONS, values, strict=True)]


def _plain_number(name: str, value: Any) -> Number:
    if type(value) in _PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{name}: expected {_EXPECTED[name]}, found {type(value).__qualname__}")
