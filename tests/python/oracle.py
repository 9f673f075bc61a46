"""Attention straight from docs/semantics.md in NumPy, a segment and a head at a time.

In float64 it is what parapet is compared with. In the input's precision it says how large an error
is normal: parapet may have twice that, and a floor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import ml_dtypes
import numpy as np

import parapet

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = ("float32", "bfloat16", "float16")
# Half of the distance from 1 to the next number, with room for a few roundings.
FLOORS = {"float32": 2.0**-21, "bfloat16": 2.0**-9, "float16": 2.0**-11}
# Of such a sum float32 loses so much, in scaling and in adding up.
FLOOR_OF_SCORES = 2.0**-23


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@dataclass
class Call:
    """The arguments of one call, and what it means."""

    q: Array
    k: Array
    v: Array
    cu_seqlens_q: Array | None = None
    cu_seqlens_k: Array | None = None
    seqused_q: Array | None = None
    seqused_k: Array | None = None
    learnable_sink: Array | None = None
    softmax_scale: float | None = None
    causal: bool = False
    window_size: tuple[int | None, int | None] = (None, None)
    softcap: float = 0.0
    num_splits: int = 1

    def arguments(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def run(self) -> tuple[Array, Array]:
        out, lse = parapet.flash_attn_varlen_func(**self.arguments(), return_lse=True)
        assert lse is not None
        return out, lse


@dataclass
class Result:
    """out and lse, and what the rounding errors of each row come from."""

    out: Array
    lse: Array
    values: Array  # the largest weighted mean of |v| of a row: errors of out are relative to it
    scores: Array  # the largest sum of |products| that makes a score of a row, or its |sink|


def attend(call: Call, dtype: str = "float64") -> Result:
    """Computes a call in float64, or as a plain program does in the precision of its input."""
    real = np.float64 if dtype == "float64" else np.float32
    rounded = np.dtype(dtype)
    *_, rows, heads, _ = call.q.shape
    batch = () if call.cu_seqlens_q is not None else (call.q.shape[0],)
    out = np.zeros((*batch, rows, heads, call.v.shape[-1]))
    lse = np.full((*batch, heads, rows), -np.inf)
    sizes = np.zeros((2, *batch, rows, heads))
    for index, q, k, v in _segments(call):
        for head in range(heads):
            key_head = head * k.shape[1] // heads
            sink = None if call.learnable_sink is None else call.learnable_sink[head]
            sink_size = 0.0 if sink is None or np.isinf(sink) else abs(float(sink))
            rows_q, rows_k = q[:, head].astype(real), k[:, key_head].astype(real)
            scores = _scores(call, rows_q, rows_k)
            masses = np.abs(_scale(call)) * (np.abs(rows_q) @ np.abs(rows_k).T)
            for row, visible in enumerate(_visible(call, len(q), len(k))):
                s, values = scores[row, visible], v[visible, key_head].astype(real)
                logits = s if sink is None else np.append(s, real(sink))
                if logits.size == 0:
                    continue
                largest = logits.max()
                weights = np.exp(s - largest)
                total = np.exp(logits - largest).sum()
                parts = weights.astype(rounded).astype(real)
                at = (*index, row) if batch else (index[0].start + row,)
                out[(*at, head)] = ((parts @ values) / total).astype(rounded)
                sizes[(0, *at, head)] = (parts @ np.abs(values) / total).max(initial=0.0)
                sizes[(1, *at, head)] = masses[row, visible].max(initial=sink_size)
                lse[(*at[:-1], head, at[-1])] = largest + np.log(total)
    return Result(out, lse, *sizes)


def _segments(call: Call) -> Iterator[tuple[tuple[Any, ...], Array, Array, Array]]:
    """Where each segment's queries lie in the tensor, and its used queries, keys and values."""
    lengths = (call.cu_seqlens_q, call.cu_seqlens_k, call.seqused_q, call.seqused_k)
    cu_q, cu_k, used_q, used_k = lengths
    batch = len(call.q) if cu_q is None else len(cu_q) - 1
    for b in range(batch):
        at_q: Any = b if cu_q is None else slice(cu_q[b], cu_q[b + 1])
        at_k: Any = b if cu_k is None else slice(cu_k[b], cu_k[b + 1])
        q, k, v = call.q[at_q], call.k[at_k], call.v[at_k]
        queries = len(q) if used_q is None else used_q[b]
        keys = len(k) if used_k is None else used_k[b]
        yield (at_q,), q[:queries], k[:keys], v[:keys]


def _scale(call: Call) -> float:
    return call.q.shape[-1] ** -0.5 if call.softmax_scale is None else call.softmax_scale


def _scores(call: Call, q: Array, k: Array) -> Array:
    scores = (q @ k.T) * q.dtype.type(_scale(call))
    if call.softcap > 0:
        cap = q.dtype.type(call.softcap)
        scores = cap * np.tanh(scores / cap)
    return scores


def _visible(call: Call, queries: int, keys: int) -> Iterator[Array]:
    """For each query, which keys it sees."""
    left, right = call.window_size
    right = 0 if call.causal else right
    j = np.arange(keys)
    for i in range(queries):
        at = i + keys - queries
        visible = np.ones(keys, bool)
        if left is not None and left >= 0:
            visible &= j >= at - left
        if right is not None and right >= 0:
            visible &= j <= at + right
        yield visible


def check(call: Call, lse_dtype: str = "float32") -> tuple[Array, Array]:
    """Runs a call, compares it with the oracle, and returns what it gave.

    lse_dtype: What the weights that lse is the sum of may be rounded to.
    """
    out, lse = call.run()
    dtype = call.q.dtype.name
    assert out.dtype == call.q.dtype
    assert lse.dtype == np.float32
    with np.errstate(invalid="ignore", over="ignore"):
        exact, plain = attend(call), attend(call, dtype)
    rounding = FLOOR_OF_SCORES * exact.scores
    _compare("out", out, exact.out, plain.out, exact.values[..., None], dtype, rounding[..., None])
    lse_size = np.maximum(1, np.where(np.isfinite(exact.lse), np.abs(exact.lse), 1))
    rounding = rounding.swapaxes(-1, -2) / lse_size
    _compare("lse", lse, exact.lse, plain.lse, lse_size, lse_dtype, rounding)
    return out, lse


def _compare(
    name: str, found: Array, exact: Array, plain: Array, size: Array, dtype: str, rounding: Array
) -> None:
    """Compares `found` with `exact`; errors are relative to `size`."""
    found = found.astype(np.float64)
    assert found.shape == exact.shape
    for kind in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(kind(found), kind(exact), f"{name}: {kind.__name__}")
    if not np.isfinite(exact).any():
        return

    def error_of(result: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(exact), np.abs(result - exact), 0) / np.maximum(size, 1e-30)

    error = error_of(found)
    allowed = (
        2 * np.nanmax(error_of(plain)) + FLOORS[dtype] + np.broadcast_to(rounding, error.shape)
    )
    worst = np.unravel_index(np.argmax(error - allowed), error.shape)
    assert error[worst] <= allowed[worst], (
        f"{name}{[int(i) for i in worst]}: expected {exact[worst]}, found {found[worst]}; "
        f"relative error {error[worst]:.3g}, allowed {allowed[worst]:.3g}"
    )
