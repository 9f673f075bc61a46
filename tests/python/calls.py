"""Makers of calls for the tests."""

from __future__ import annotations

import numpy as np
from oracle import Array, Call, random


def dense(rng: np.random.Generator, dtype: str = "float32", **shape: int) -> Call:
    sizes = {"b": 2, "sq": 37, "sk": 53, "h": 4, "hk": 2, "d": 32} | shape
    b, sq, sk, h, hk, d = (sizes[name] for name in ("b", "sq", "sk", "h", "hk", "d"))
    dv = sizes.get("dv", d)
    return Call(
        random(rng, (b, sq, h, d), dtype),
        random(rng, (b, sk, hk, d), dtype),
        random(rng, (b, sk, hk, dv), dtype),
    )


def packed(rng: np.random.Generator, q: list[int], k: list[int], dtype: str = "float32") -> Call:
    h, hk, d = 4, 2, 32
    return Call(
        random(rng, (sum(q), h, d), dtype),
        random(rng, (sum(k), hk, d), dtype),
        random(rng, (sum(k), hk, d), dtype),
        cu_seqlens_q=offsets(q),
        cu_seqlens_k=offsets(k),
    )


def offsets(lengths: list[int]) -> Array:
    return np.cumsum([0, *lengths], dtype=np.int32)
