"""Rounds of measurement, side by side, with an eye on what else the machine is doing."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from parapet import _ffi, cpu_info
from parapet.bench._providers import Run

QUIET = 0.94
"""The part of the best multiply-add rate at which a round counts as undisturbed."""


class Machine:
    """The rates that this machine gives, and gave at its best."""

    def __init__(self) -> None:
        self.threads = cpu_info().num_threads
        single = max(_ffi.measure_fma_rate(1, 0.05) for _ in range(5))
        self.fma_of_single_threads: float = single * self.threads
        self.fma_gflops = 0.0
        self.read_gbs = 0.0
        self.fma()
        self.read()

    @property
    def peak_gflops(self) -> float:
        """What all threads would give undisturbed, as far as that was seen."""
        return max(self.fma_gflops, self.fma_of_single_threads)

    @property
    def is_quiet(self) -> bool:
        """Whether all threads together came near the sum of single ones at any moment."""
        return self.fma_gflops >= QUIET * self.peak_gflops

    def fma(self) -> float:
        """Measures the multiply-add rate of all threads at this moment, GFLOP/s."""
        rate: float = _ffi.measure_fma_rate(self.threads, 0.01)
        self.fma_gflops = max(self.fma_gflops, rate)
        return rate

    def read(self) -> float:
        """Measures the read bandwidth of all threads at this moment, GB/s."""
        rate: float = _ffi.measure_read_bandwidth(self.threads, 0.05)
        self.read_gbs = max(self.read_gbs, rate)
        return rate

    def wait_until_quiet(self, until: float) -> float:
        """Waits for a quiet moment, at most to the time `until`; returns the last rate."""
        while (rate := self.fma()) < QUIET * self.fma_gflops and time.monotonic() < until:
            time.sleep(0.02)
        return rate


@dataclass
class Round:
    """One provider's part of a round."""

    ms: float
    fma_gflops: float
    quiet: bool


@dataclass
class Rounds:
    """All rounds of one provider."""

    rounds: list[Round] = field(default_factory=list)

    def counted(self) -> list[int]:
        """Returns which rounds count: the quiet ones, or all where none is."""
        quiet = [i for i, one in enumerate(self.rounds) if one.quiet]
        return quiet or list(range(len(self.rounds)))

    @property
    def ms(self) -> float:
        """The median of the rounds that count."""
        return statistics.median(self.rounds[i].ms for i in self.counted())


@dataclass
class Measured:
    """One case, all providers."""

    limit: str
    """What bounds it on this machine: "fma" or "read"."""
    limit_rate: float = 0.0
    """The best such rate that was seen round the case, GFLOP/s or GB/s."""
    providers: dict[str, Rounds] = field(default_factory=dict)


def ratio(peer: Rounds, ours: Rounds) -> float:
    """Returns how many times longer the peer takes: the median over rounds that count for both."""
    counted = sorted(set(peer.counted()) & set(ours.counted())) or range(len(ours.rounds))
    return statistics.median(peer.rounds[i].ms / ours.rounds[i].ms for i in counted)


def measure(
    machine: Machine, runs: Mapping[str, Run], limit: str, rounds: int, wait: float
) -> Measured:
    """Times all providers in turn, round after round.

    Args:
        machine: Where the rates are measured and kept.
        runs: The call of each provider. Each has run once.
        limit: What bounds the calls: "fma" or "read".
        rounds: How many rounds are wanted undisturbed.
        wait: For at most how many seconds in all quiet moments are waited for.
    """
    measured = Measured(limit, providers={name: Rounds() for name in runs})
    repeats = {name: _repeats(run) for name, run in runs.items()}
    patience = time.monotonic() + wait

    def is_enough() -> bool:
        done = [one.rounds for one in measured.providers.values()]
        undisturbed = sum(all(part.quiet for part in parts) for parts in zip(*done, strict=True))
        return undisturbed >= rounds or (len(done[0]) >= rounds and time.monotonic() > patience)

    while not is_enough():
        before = machine.wait_until_quiet(patience)
        for name, run in runs.items():
            ms = _time(run, repeats[name])
            after = machine.fma()
            lower = min(before, after)
            quiet = lower >= QUIET * machine.fma_gflops
            measured.providers[name].rounds.append(Round(ms, lower, quiet))
            rate = max(before, after) if limit == "fma" else machine.read()
            measured.limit_rate = max(measured.limit_rate, rate)
            before = after
    return measured


def _repeats(run: Run) -> int:
    """How many calls take 20 milliseconds."""
    return max(1, math.ceil(20 / max(_time(run, 1), 1e-3)))


def _time(run: Run, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return 1e3 * (time.perf_counter() - start) / repeats
