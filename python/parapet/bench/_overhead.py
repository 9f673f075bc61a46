"""What a call from Python costs above the computation, on tensors where nothing else counts."""

from __future__ import annotations

import sys
import timeit
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

import parapet
from parapet import _ffi


@dataclass
class Overhead:
    """Microseconds of one kind of call."""

    framework: str
    call: str
    python_us: float
    kernel_us: float

    @property
    def overhead_us(self) -> float:
        """What Python adds to the C++ call."""
        return self.python_us - self.kernel_us

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and the overhead."""
        return asdict(self) | {"overhead_us": self.overhead_us}


def measure_overheads(repeats: int = 2000, rounds: int = 15) -> Iterator[Overhead]:
    """Measures calls on NumPy arrays, and on PyTorch tensors where PyTorch was imported."""
    dense = np.ones((1, 4, 1, 8), np.float32)
    packed, offsets = dense[0], np.array([0, 4], np.int32)
    converters: dict[str, Callable[[Any], Any]] = {"numpy": np.asarray}
    if (torch := sys.modules.get("torch")) is not None:
        converters["torch"] = torch.from_numpy
    for framework, convert in converters.items():
        x, rows, lengths = map(convert, (dense, packed, offsets))
        varlen = {"cu_seqlens_q": lengths, "cu_seqlens_k": lengths}
        calls = {
            "dense": partial(parapet.flash_attn_func, x, x, x),
            "dense, lse": partial(parapet.flash_attn_func, x, x, x, return_lse=True),
            "packed": partial(parapet.flash_attn_varlen_func, rows, rows, rows, **varlen),
        }
        kernels = {
            "dense": _kernel(dense, None, None),
            "dense, lse": _kernel(dense, np.empty((1, 1, 4), np.float32), None),
            "packed": _kernel(packed, None, offsets),
        }
        for name, call in calls.items():
            # Round by round, so that both see the same machine; the fastest rounds count.
            python, kernel = zip(
                *(
                    (timeit.timeit(call, number=repeats) / repeats, kernels[name](repeats))
                    for _ in range(rounds)
                ),
                strict=True,
            )
            yield Overhead(framework, name, 1e6 * min(python), 1e6 * min(kernel))


def _kernel(x: Any, lse: Any, cu_seqlens: Any) -> Any:
    """The seconds of the C++ call alone, as a function of the number of repeats."""
    tensors = (x, x, x, np.empty_like(x), lse, cu_seqlens, cu_seqlens, None, None, None)
    options = (None, False, None, None, 0.0, 1)
    return lambda repeats: _ffi.measure_forward(repeats, True, *tensors, *options)
