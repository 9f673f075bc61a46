"""Workload files: the shapes of attention calls as JSON, without data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

import parapet

ITEM_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}

_LENGTHS = ("batch", "seqlen", "seqlen_q", "seqlen_k", "q_lens", "k_lens")
_OFFSETS = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
_HEADS = ("dtype", "num_heads", "num_heads_k", "head_dim", "head_dim_v")
_OPTIONS = ("causal", "window_left", "window_right", "softcap", "softmax_scale", "sink")
_CASE_KEYS = frozenset((*_LENGTHS, *_OFFSETS, *_HEADS, *_OPTIONS))
_FILE_KEYS = frozenset(("name", "source", "tflop", "grid"))


@dataclass(frozen=True)
class Case:
    """One call. Packed when it has cu_seqlens, else dense: segments of equal lengths."""

    workload: str
    row: int
    dtype: str
    num_heads: int
    num_heads_k: int
    head_dim: int
    head_dim_v: int
    q_lens: tuple[int, ...]
    k_lens: tuple[int, ...]
    packed: bool
    options: Mapping[str, Any]

    @property
    def causal(self) -> bool:
        """Whether the last query sees the last key and none after."""
        return bool(self.options.get("causal", False))

    @property
    def window(self) -> tuple[int | None, int | None]:
        """(left, right), None where unlimited; causal is in it."""
        left, right = (
            None if reach is None or reach < 0 else reach
            for reach in (self.options.get("window_left"), self.options.get("window_right"))
        )
        return left, 0 if self.causal else right

    @property
    def flop(self) -> int:
        """Operations of the visible (query, key) pairs."""
        pairs = sum(map(self._visible_pairs, self.q_lens, self.k_lens))
        return 2 * (self.head_dim + self.head_dim_v) * self.num_heads * pairs

    @property
    def bytes(self) -> int:
        """Bytes of q, k, v and out."""
        width = self.head_dim + self.head_dim_v
        rows = self.num_heads * sum(self.q_lens) + self.num_heads_k * sum(self.k_lens)
        return ITEM_SIZES[self.dtype] * width * rows

    def _visible_pairs(self, queries: int, keys: int) -> int:
        left, right = self.window
        if left is None and right is None:
            return queries * keys
        at = np.arange(queries) + (keys - queries)
        first = np.zeros_like(at) if left is None else np.maximum(0, at - left)
        last = np.full_like(at, keys - 1) if right is None else np.minimum(keys - 1, at + right)
        return int(np.maximum(0, last - first + 1).sum())

    def label(self) -> str:
        """Returns the case in a few words, queries before keys where they differ."""

        def both(queries: int, keys: int) -> str:
            return str(queries) if queries == keys else f"{queries}/{keys}"

        if self.packed:
            lengths = f"{len(self.q_lens)} segments S{both(sum(self.q_lens), sum(self.k_lens))}"
        else:
            lengths = f"B{len(self.q_lens)} S{both(self.q_lens[0], self.k_lens[0])}"
        words = [lengths, f"H{both(self.num_heads, self.num_heads_k)}"]
        words.append(f"D{both(self.head_dim, self.head_dim_v)}")
        if self.causal:
            words.append("causal")
        left, right = self.window
        if left is not None or (right is not None and not self.causal):
            words.append(f"window {'inf' if left is None else left},{right}")
        if self.options.get("softcap"):
            words.append(f"softcap {self.options['softcap']:g}")
        if self.options.get("sink"):
            words.append("sink")
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Returns the case in full, as benchmark files have it."""
        if self.packed:
            lengths: dict[str, Any] = {
                "cu_seqlens_q": [0, *accumulate(self.q_lens)],
                "cu_seqlens_k": [0, *accumulate(self.k_lens)],
            }
        else:
            lengths = {
                "batch": len(self.q_lens),
                "seqlen_q": self.q_lens[0],
                "seqlen_k": self.k_lens[0],
            }
        heads = {
            key: getattr(self, key)
            for key in ("num_heads", "num_heads_k", "head_dim", "head_dim_v")
        }
        options = {key: value for key, value in self.options.items() if value is not None}
        return lengths | heads | {"causal": self.causal} | options


def read_workload(name_or_path: str, dtypes: tuple[str, ...] = ()) -> list[Case]:
    """Reads a workload's cases, for each of `dtypes` or for the dtype that the file says.

    Args:
        name_or_path: One of the workloads that come with parapet, or a file.
        dtypes: Names of dtypes that replace the file's.

    Raises:
        ValueError: The file is malformed; the message names file and key.
        OSError: It cannot be read.
    """
    path = Path(name_or_path)
    for folder in parapet.__path__:
        if (builtin := Path(folder, "workloads", f"{name_or_path}.json")).exists():
            path = builtin
    try:
        file = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    _require(isinstance(file, dict), path, "expected a JSON object")
    _allow_only(file, _CASE_KEYS | _FILE_KEYS, str(path))
    common = {key: value for key, value in file.items() if key in _CASE_KEYS}
    entries = file.get("grid", [{}])
    for row, entry in enumerate(entries):
        _allow_only(entry, _CASE_KEYS, f"{path}: grid[{row}]")
    name = file.get("name", path.stem)
    return [
        _read_case({**common, **entry}, f"{path}: case {row}", name, row, dtype)
        for row, entry in enumerate(entries)
        for dtype in dtypes or (None,)
    ]


def case_of_result(result: Mapping[str, Any]) -> Case:
    """Returns the case of an entry of a benchmark file."""
    where = f"{result['workload']}: case {result['row']}"
    return _read_case(result["case"], where, result["workload"], result["row"], result["dtype"])


def _read_case(
    entry: Mapping[str, Any], where: str, name: str, row: int, dtype: str | None
) -> Case:
    dtype = dtype or entry.get("dtype", "bfloat16")
    _require(dtype in ITEM_SIZES, f"{where}: dtype", f"expected {', '.join(ITEM_SIZES)}")
    packed = any(key in entry for key in ("q_lens", "cu_seqlens_q"))
    q_lens, k_lens = (_lengths(entry, side, packed, where) for side in "qk")
    _require(len(q_lens) == len(k_lens), where, "expected as many segments of k as of q")
    num_heads = _extent(entry, "num_heads", where)
    head_dim = _extent(entry, "head_dim", where)
    return Case(
        workload=name,
        row=row,
        dtype=dtype,
        num_heads=num_heads,
        num_heads_k=_extent(entry, "num_heads_k", where, num_heads),
        head_dim=head_dim,
        head_dim_v=_extent(entry, "head_dim_v", where, head_dim),
        q_lens=q_lens,
        k_lens=k_lens,
        packed=packed,
        options={key: entry[key] for key in _OPTIONS if key in entry},
    )


def _lengths(entry: Mapping[str, Any], side: str, packed: bool, where: str) -> tuple[int, ...]:
    """The lengths of the segments of one side."""
    if not packed:
        key = "seqlen" if "seqlen" in entry else f"seqlen_{side}"
        return (_extent(entry, key, where),) * _extent(entry, "batch", where)
    if f"cu_seqlens_{side}" in entry:
        key, offsets = f"cu_seqlens_{side}", entry[f"cu_seqlens_{side}"]
        lengths = tuple(end - start for start, end in pairwise(offsets))
    else:
        key = f"{side}_lens"
        _require(key in entry, where, f"expected {key} or cu_seqlens_{side}")
        lengths = tuple(entry[key])
    _require(
        bool(lengths) and all(isinstance(n, int) and n >= 0 for n in lengths),
        f"{where}: {key}",
        "expected lengths of at least 0 of at least one segment",
    )
    return lengths


def _extent(entry: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = entry.get(key, default)
    _require(
        isinstance(value, int) and value > 0,
        f"{where}: {key}",
        f"expected a positive integer, found {value}",
    )
    return int(value)


def _allow_only(entry: Mapping[str, Any], keys: frozenset[str], where: str) -> None:
    for key in entry:
        _require(key in keys, where, f"expected no key {key!r}")


def _require(condition: bool, where: Any, message: str) -> None:
    if not condition:
        raise ValueError(f"{where}: {message}")


def batches(lengths: tuple[int, ...]) -> Iterator[slice]:
    """Where each segment's rows lie in a packed tensor."""
    for start, end in pairwise([0, *accumulate(lengths)]):
        yield slice(start, end)
