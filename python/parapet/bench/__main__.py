"""The program: `python -m parapet.bench WORKLOAD ... [--device cuda] [--peers NAMES]`."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parapet._files import whole_or_absent
from parapet.bench import _gpu, _providers
from parapet.bench._machine import Cpu, Machine
from parapet.bench._measure import Measured, measure, ratio
from parapet.bench._overhead import measure_overheads
from parapet.bench._providers import Parapet, Provider, Run, Tensors, UnsupportedError
from parapet.bench._workload import ITEM_SIZES, Case, read_workload

TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 4e-3}
LIMITS = {"cpu": "multiply-add peak", "cuda": "matrix product"}


@dataclass
class Device:
    """Where calls run: how its machine and data are made, and the peers that run there."""

    workload: str
    """What is measured when nothing is named."""
    machine: Callable[[], Machine]
    random_tensors: Callable[[Case], Tensors]
    peers: dict[str, Callable[[], Provider]]


DEVICES = {
    "cpu": Device("cpu-grid", Cpu, _providers.random_tensors, _providers.PEERS),
    "cuda": Device("paper-grid", _gpu.Gpu, _gpu.random_tensors, _gpu.PEERS),
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.overhead:
            return _overhead(options)
        return _bench(options)
    except (ImportError, OSError, ValueError) as error:
        print(f"parapet.bench: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m parapet.bench",
        description="Time attention calls, parapet and its peers side by side.",
    )

    def names(allowed: Any) -> Any:
        def parse(text: str) -> tuple[str, ...]:
            for name in (chosen := tuple(filter(None, text.split(",")))):
                if name not in allowed:
                    raise argparse.ArgumentTypeError(f"{name!r}: expected {', '.join(allowed)}")
            return chosen

        return parse

    parser.add_argument(
        "workloads",
        nargs="*",
        help="names or files (default: "
        + "; ".join(f"{name}: {one.workload}" for name, one in DEVICES.items())
        + ")",
    )
    parser.add_argument(
        "--device", choices=DEVICES, default="cpu", help="cuda: PyTorch's current GPU"
    )
    parser.add_argument(
        "--peers",
        type=names([name for device in DEVICES.values() for name in device.peers]),
        default=(),
        help="; ".join(f"{name}: {', '.join(one.peers)}" for name, one in DEVICES.items()),
    )
    parser.add_argument("--dtype", type=names(ITEM_SIZES), default=(), help="instead of the file's")
    parser.add_argument("--row", type=int, action="append", help="only this case of each file")
    parser.add_argument("--rounds", type=int, default=5, help="undisturbed rounds (default: 5)")
    parser.add_argument(
        "--wait", type=float, default=10.0, help="seconds that a case may wait for a quiet machine"
    )
    parser.add_argument(
        "--max-seconds", type=float, default=60.0, help="skip calls that would take longer"
    )
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument(
        "--overhead", action="store_true", help="what a call from Python costs on tiny tensors"
    )
    return parser


def _bench(options: argparse.Namespace) -> int:
    device = DEVICES[options.device]
    cases = [
        case
        for name in options.workloads or [device.workload]
        for case in read_workload(name, options.dtype)
        if options.row is None or case.row in options.row
    ]
    for name in options.peers:
        if name not in device.peers:
            raise ValueError(f"--peers {name}: not on {options.device}")
    machine = device.machine()
    providers: list[Provider] = [Parapet(), *(device.peers[name]() for name in options.peers)]
    print(
        f"{machine.name()}, " + ", ".join(f"{one.name} {one.version}" for one in providers),
        flush=True,
    )
    results: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for case in cases:
        try:
            measured = _measure(case, providers, machine, options, skipped)
        except KeyboardInterrupt:
            break
        if measured is not None:
            entries = [_result(case, name, measured) for name in measured.providers]
            results += entries
            _print_case(case, entries, measured)
    quiet = machine.is_quiet and all(
        2 * sum(one["quiet"] for one in entry["rounds"]) >= len(entry["rounds"])
        for entry in results
    )
    print(
        f"{LIMITS[options.device]} {_rate('fma', machine.fma_gflops).strip()}, "
        f"memory {machine.read_gbs:.1f} GB/s"
        + ("" if quiet else "; the machine was busy: do not trust these figures")
    )
    if options.json:
        report = {
            "schema": "parapet-bench",
            "version": 1,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine.to_json() | {"quiet": quiet},
            "providers": {one.name: one.version for one in providers},
            "results": results,
            "skipped": skipped,
        }
        _write_json(options.json, report)
    return 0


def _measure(
    case: Case,
    providers: list[Provider],
    machine: Machine,
    options: argparse.Namespace,
    skipped: list[dict[str, Any]],
) -> Measured | None:
    """Prepares a case for each provider, compares what they compute, and times them."""

    def skip(provider: Provider, reason: str) -> None:
        where = {"workload": case.workload, "row": case.row, "dtype": case.dtype}
        skipped.append(where | {"provider": provider.name, "reason": reason})
        print(f"{case.label()}  {case.dtype}  {provider.name}: skipped, {reason}")

    seconds = case.flop / (0.5e9 * machine.peak_gflops)
    if seconds > options.max_seconds:
        for provider in providers:
            skip(
                provider,
                f"about {seconds:.0f} s a call, more than --max-seconds {options.max_seconds:g}",
            )
        return None
    tensors = DEVICES[options.device].random_tensors(case)
    runs: dict[str, Run] = {}
    expected = None
    for provider in providers:
        try:
            run = provider.prepare(case, tensors)
            result = run()
        except (UnsupportedError, NotImplementedError) as reason:
            skip(provider, str(reason))
            continue
        output = provider.output(case, result)
        if expected is None:
            expected = output
        elif not (worst := float(abs(output - expected).max())) <= TOLERANCES[case.dtype]:
            raise ValueError(
                f"{case.workload}: case {case.row}: {provider.name} computes something else than "
                f"{providers[0].name}: they differ by {worst:.3g}"
            )
        runs[provider.name] = run
    if not runs:
        return None
    reads = case.bytes / machine.read_gbs > case.flop / machine.fma_gflops
    return measure(machine, runs, "read" if reads else "fma", options.rounds, options.wait)


def _result(case: Case, provider: str, measured: Measured) -> dict[str, Any]:
    rounds = measured.providers[provider]
    gflops, gbs = case.flop / rounds.ms / 1e6, case.bytes / rounds.ms / 1e6
    call = {} if rounds.call_ms is None else {"call_ms": rounds.call_ms}
    return {
        "workload": case.workload,
        "row": case.row,
        "case": case.to_json(),
        "dtype": case.dtype,
        "provider": provider,
        "flop": case.flop,
        "bytes": case.bytes,
        "rounds": [one.to_json() for one in rounds.rounds],
        "ms": rounds.ms,
        **call,
        "gflops": gflops,
        "gbs": gbs,
        "limit": measured.limit,
        "limit_rate": measured.limit_rate,
        "share": (gbs if measured.limit == "read" else gflops) / measured.limit_rate,
    }


def _rate(limit: str, rate: float) -> str:
    """A rate of operations or of bytes, in words of equal length."""
    if limit == "read":
        return f"{rate:7.1f} GB/s   "
    return f"{rate:7.1f} GFLOP/s" if rate < 1e4 else f"{rate / 1e3:7.1f} TFLOP/s"


def _print_case(case: Case, entries: list[dict[str, Any]], measured: Measured) -> None:
    for entry in entries:
        name, rounds = entry["provider"], measured.providers[entry["provider"]]
        rate = entry["gbs" if entry["limit"] == "read" else "gflops"]
        line = (
            f"{case.label():44} {case.dtype:9} {name:8} {entry['ms']:10.3f} ms "
            f"{_rate(entry['limit'], rate)} {100 * entry['share']:5.1f} % of {entry['limit']}"
        )
        if "call_ms" in entry:
            line += f"  a call {entry['call_ms']:.3f} ms"
        if name != "parapet" and "parapet" in measured.providers:
            line += f"  {ratio(rounds, measured.providers['parapet']):6.2f}x parapet's time"
        quiet = sum(one.quiet for one in rounds.rounds)
        if quiet < len(rounds.rounds):
            line += f"  ({quiet} of {len(rounds.rounds)} rounds quiet)"
        print(line, flush=True)


def _overhead(options: argparse.Namespace) -> int:
    if options.device == "cuda" or "torch" in options.peers:
        importlib.import_module("torch")
    overheads = list(measure_overheads(options.device))
    print(f"{'tensors of':12} {'call':12} {'Python':>10} {'kernel':>10} {'overhead':>10}")
    for one in overheads:
        times = (one.python_us, one.kernel_us, one.overhead_us)
        print(f"{one.framework:12} {one.call:12}" + "".join(f" {us:7.2f} us" for us in times))
    if options.json:
        report = {"overhead": [one.to_json() for one in overheads]}
        _write_json(options.json, report)
    return 0


def _write_json(path: Path, report: Any) -> None:
    with whole_or_absent(path) as written:
        written.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
