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


def measure_overheads(
    device: str = "cpu", repeats: int = 200, rounds: int = 50
) -> Iterator[Overhead]:
    """Measures calls on NumPy arrays and, where PyTorch was imported, on its tensors.

    On a GPU a call is queued and not waited for; `repeats` of them fit into its queue.
    """
    torch = sys.modules.get("torch")
    converters: dict[str, Callable[[Any], Any]] = {}
    if device == "cpu":
        converters["numpy"] = np.asarray
    if torch is not None:
        converters["torch"] = lambda array: torch.from_numpy(array).to(device)
    for framework, convert in converters.items():
        x, lse = np.ones((1, 4, 1, 8), np.float16), np.empty((1, 1, 4), np.float32)
        dense, rows, out, lse, lengths = map(
            convert, (x, x[0], np.empty_like(x), lse, np.array([0, 4], np.int32))
        )
        varlen = {"cu_seqlens_q": lengths, "cu_seqlens_k": lengths}
        calls = {
            "dense": partial(parapet.flash_attn_func, dense, dense, dense),
            "dense, lse": partial(parapet.flash_attn_func, dense, dense, dense, return_lse=True),
            "packed": partial(parapet.flash_attn_varlen_func, rows, rows, rows, **varlen),
        }
        kernels = {
            "dense": _kernel(dense, out, None, None),
            "dense, lse": _kernel(dense, out, lse, None),
            "packed": _kernel(rows, out[0], None, lengths),
        }
        wait = torch.cuda.synchronize if torch is not None and device != "cpu" else lambda: None
        for name, call in calls.items():
            # Round by round, so that both see the same machine; the fastest rounds count.
            python, kernel = [], []
            for _ in range(rounds):
                wait()
                python.append(timeit.timeit(call, number=repeats) / repeats)
                wait()
                kernel.append(kernels[name](repeats))
            yield Overhead(framework, name, 1e6 * min(python), 1e6 * min(kernel))


def _kernel(x: Any, out: Any, lse: Any, cu_seqlens: Any) -> Any:
    """The seconds of the C++ call alone, as a function of the number of repeats."""
    tensors = (x, x, x, out, lse, cu_seqlens, cu_seqlens, None, None, None)
    options = (None, False, None, None, 0.0, 1)
    return lambda repeats: _ffi.measure_forward(repeats, False, *tensors, *options, None)
