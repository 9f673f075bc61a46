"""The compiled library: functions that take tensors and numbers, checked there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import parapet


class _NoTorch:
    """A finder that says, to one thread, that there is no torch."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("torch is not imported by parapet", name=name)
        return None


@contextmanager
def _without_importing_torch() -> Iterator[None]:
    finder = _NoTorch()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


# tvm_ffi imports torch wherever it is installed, which takes seconds and is the caller's choice.
with _without_importing_torch():
    import tvm_ffi

# tvm_ffi knows the names of the other two exceptions that parapet raises.
tvm_ffi.register_error("NotImplementedError", NotImplementedError)


def _load() -> tvm_ffi.Module:
    name = "libparapet_ffi.so"
    for folder in parapet.__path__:
        if (library := Path(folder, name)).exists():
            return tvm_ffi.load_module(library)
    raise ImportError(f"parapet was not built: no {name} in {', '.join(parapet.__path__)}")


_library = _load()

# forward(uint16_is_bfloat16, *TENSORS, *OPTIONS, stream) computes a call; what is absent is None.
# Without a stream, a GPU's is the one that tvm_ffi asks the tensors' library for.
# measure_forward(repeats, uint16_is_bfloat16, *TENSORS, *OPTIONS, stream) returns the seconds of
# one.
LENGTHS = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")
TENSORS = ("q", "k", "v", "out", "lse", *LENGTHS, "learnable_sink")
OPTIONS = ("softmax_scale", "causal", "window_left", "window_right", "softcap", "num_splits")
forward = _library.get_function("forward")
forward.release_gil = True
check = _library.get_function("check")
check.release_gil = True
dense_bits = _library.get_function("dense_bits")
empty = _library.get_function("empty")
measure_forward = _library.get_function("measure_forward")
measure_fma_rate = _library.get_function("measure_fma_rate")
measure_read_bandwidth = _library.get_function("measure_read_bandwidth")
wait = _library.get_function("wait")
wait.release_gil = True
version: str = _library.get_function("version")()

Tensor = tvm_ffi.Tensor
from_dlpack = tvm_ffi.from_dlpack


class CpuInfo(NamedTuple):
    """What parapet uses of this CPU."""

    simd_target: str
    """The SIMD instructions in use: "AVX3", "AVX2", "SSE4", "NEON", ..."""
    simd_targets: tuple[str, ...]
    """All that this CPU has and parapet knows, best first."""
    num_threads: int
    """Threads of a call: what OpenMP gives, so OMP_NUM_THREADS."""


def cpu_info() -> CpuInfo:
    """Returns what parapet uses of this CPU."""
    target, targets, num_threads = _library.get_function("cpu_info")()
    return CpuInfo(str(target), tuple(map(str, targets)), num_threads)
