"""Rounds of measurement, side by side, with an eye on what else the machine is doing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parapet.bench._machine import QUIET, Machine
from parapet.bench._providers import Run


@dataclass
class Round:
    """One provider's part of a round."""

    ms: float
    fma_gflops: float
    quiet: bool
    call_ms: float | None = None
    """Of a call on a GPU that is made and waited for, while `ms` is the GPU's own time."""

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that have a value."""
        return {name: value for name, value in vars(self).items() if value is not None}


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

    @property
    def call_ms(self) -> float | None:
        """Likewise."""
        times = [self.rounds[i].call_ms for i in self.counted()]
        return statistics.median(time for time in times if time is not None) if all(times) else None


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
    timers = {name: machine.timer(run) for name, run in runs.items()}
    patience = time.monotonic() + wait

    def is_enough() -> bool:
        done = [one.rounds for one in measured.providers.values()]
        undisturbed = sum(all(part.quiet for part in parts) for parts in zip(*done, strict=True))
        return undisturbed >= rounds or (len(done[0]) >= rounds and time.monotonic() > patience)

    while not is_enough():
        before = machine.wait_until_quiet(patience)
        for name, timer in timers.items():
            times = timer()
            after = machine.fma()
            lower = min(before, after)
            quiet = lower >= QUIET * machine.fma_gflops
            measured.providers[name].rounds.append(Round(times.ms, lower, quiet, times.call_ms))
            rate = max(before, after) if limit == "fma" else machine.read()
            measured.limit_rate = max(measured.limit_rate, rate)
            before = after
    return measured
