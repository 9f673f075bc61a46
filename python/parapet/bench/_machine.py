"""What calls are timed on, and the rates that it gives."""

from __future__ import annotations

import math
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parapet import _ffi, cpu_info

QUIET = 0.94
"""The part of the best multiply-add rate at which a round counts as undisturbed."""


@dataclass
class Times:
    """Milliseconds of one call."""

    ms: float
    call_ms: float | None = None


class Machine(ABC):
    """The rates that a machine gives, and gave at its best."""

    def __init__(self) -> None:
        self.fma_gflops = 0.0
        self.read_gbs = 0.0

    @abstractmethod
    def name(self) -> str:
        """Returns what it is, in a few words."""

    @abstractmethod
    def _fma(self) -> float:
        """Measures the multiply-add rate at this moment, GFLOP/s."""

    @abstractmethod
    def _read(self) -> float:
        """Measures the memory bandwidth at this moment, GB/s."""

    @abstractmethod
    def timer(self, run: Callable[[], Any]) -> Callable[[], Times]:
        """Returns what times a call, which has run once."""

    @property
    def peak_gflops(self) -> float:
        """What the machine would give undisturbed, as far as that was seen."""
        return self.fma_gflops

    @property
    def is_quiet(self) -> bool:
        """Whether the machine came near its peak at any moment."""
        return self.fma_gflops >= QUIET * self.peak_gflops

    def fma(self) -> float:
        """Measures the multiply-add rate, and keeps the best."""
        rate = self._fma()
        self.fma_gflops = max(self.fma_gflops, rate)
        return rate

    def read(self) -> float:
        """Measures the memory bandwidth, and keeps the best."""
        rate = self._read()
        self.read_gbs = max(self.read_gbs, rate)
        return rate

    def wait_until_quiet(self, until: float) -> float:
        """Waits for a quiet moment, at most to the time `until`; returns the last rate."""
        while (rate := self.fma()) < QUIET * self.fma_gflops and time.monotonic() < until:
            time.sleep(0.02)
        return rate

    def to_json(self) -> dict[str, Any]:
        """Returns what benchmark files say of it, but for whether it was quiet."""
        info = cpu_info()
        return {
            "cpu": cpu_name(),
            "threads": info.num_threads,
            "simd_target": info.simd_target,
            "fma_gflops": self.fma_gflops,
            "read_gbs": self.read_gbs,
        }


class Cpu(Machine):
    """All threads of a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self._threads = cpu_info().num_threads
        single = max(_ffi.measure_fma_rate(1, 0.05) for _ in range(5))
        self._fma_of_single_threads: float = single * self._threads
        self.fma()
        self.read()

    def name(self) -> str:
        return f"{cpu_name()}, {self._threads} threads, {cpu_info().simd_target}"

    @property
    def peak_gflops(self) -> float:
        return max(self.fma_gflops, self._fma_of_single_threads)

    def _fma(self) -> float:
        return float(_ffi.measure_fma_rate(self._threads, 0.01))

    def _read(self) -> float:
        return float(_ffi.measure_read_bandwidth(self._threads, 0.05))

    def timer(self, run: Callable[[], Any]) -> Callable[[], Times]:
        repeats = repeats_in(20, _time(run, 1))
        return lambda: Times(_time(run, repeats))


def repeats_in(whole_ms: float, ms: float) -> int:
    """Returns how many calls of `ms` take `whole_ms`."""
    return max(1, math.ceil(whole_ms / max(ms, 1e-3)))


def _time(run: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return 1e3 * (time.perf_counter() - start) / repeats


def cpu_name() -> str:
    """Returns the processor's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.machine()
