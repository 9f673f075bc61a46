"""The program: `python -m parapet.bench WORKLOAD ... [--peers torch] [--json FILE]`."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from parapet import cpu_info
from parapet.bench._measure import Machine, Measured, measure, ratio
from parapet.bench._overhead import measure_overheads
from parapet.bench._providers import PEERS, Parapet, Provider, Run, UnsupportedError, random_tensors
from parapet.bench._workload import ITEM_SIZES, Case, read_workload

TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 4e-3}


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
        "workloads", nargs="*", default=["cpu-grid"], help="names or files (default: cpu-grid)"
    )
    parser.add_argument("--peers", type=names(PEERS), default=(), help="such as torch")
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
    cases = [
        case
        for name in options.workloads
        for case in read_workload(name, options.dtype)
        if options.row is None or case.row in options.row
    ]
    providers: list[Provider] = [Parapet(), *(PEERS[name]() for name in options.peers)]
    machine = Machine()
    info = cpu_info()
    print(
        f"{_cpu_name()}, {info.num_threads} threads, {info.simd_target}, "
        + ", ".join(f"{one.name} {one.version}" for one in providers)
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
        f"multiply-add peak {machine.fma_gflops:.1f} GFLOP/s, reads {machine.read_gbs:.1f} GB/s"
        + ("" if quiet else "; the machine was busy: do not trust these figures")
    )
    if options.json:
        report = {
            "schema": "parapet-bench",
            "version": 1,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {
                "cpu": _cpu_name(),
                "threads": info.num_threads,
                "simd_target": info.simd_target,
                "fma_gflops": machine.fma_gflops,
                "read_gbs": machine.read_gbs,
                "quiet": quiet,
            },
            "providers": {one.name: one.version for one in providers},
            "results": results,
            "skipped": skipped,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
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
    tensors = random_tensors(case)
    runs: dict[str, Run] = {}
    expected = None
    for provider in providers:
        try:
            run = provider.prepare(case, tensors)
        except UnsupportedError as reason:
            skip(provider, str(reason))
            continue
        output = provider.output(case, run())
        if expected is None:
            expected = output
        elif not np.allclose(output, expected, rtol=0, atol=TOLERANCES[case.dtype]):
            worst = np.abs(output - expected).max()
            raise ValueError(
                f"{case.workload}: case {case.row}: {provider.name} computes something else than "
                f"{providers[0].name}: they differ by {worst:.3g}"
            )
        runs[provider.name] = run
    reads = case.bytes / machine.read_gbs > case.flop / machine.fma_gflops
    return measure(machine, runs, "read" if reads else "fma", options.rounds, options.wait)


def _result(case: Case, provider: str, measured: Measured) -> dict[str, Any]:
    rounds = measured.providers[provider]
    gflops, gbs = case.flop / rounds.ms / 1e6, case.bytes / rounds.ms / 1e6
    return {
        "workload": case.workload,
        "row": case.row,
        "case": case.to_json(),
        "dtype": case.dtype,
        "provider": provider,
        "flop": case.flop,
        "bytes": case.bytes,
        "rounds": [vars(one) for one in rounds.rounds],
        "ms": rounds.ms,
        "gflops": gflops,
        "gbs": gbs,
        "limit": measured.limit,
        "limit_rate": measured.limit_rate,
        "share": (gbs if measured.limit == "read" else gflops) / measured.limit_rate,
    }


def _print_case(case: Case, entries: list[dict[str, Any]], measured: Measured) -> None:
    for entry in entries:
        name, rounds = entry["provider"], measured.providers[entry["provider"]]
        rate = (
            f"{entry['gflops']:7.1f} GFLOP/s"
            if entry["limit"] == "fma"
            else (f"{entry['gbs']:7.1f} GB/s   ")
        )
        line = (
            f"{case.label():44} {case.dtype:9} {name:8} {entry['ms']:10.3f} ms {rate} "
            f"{100 * entry['share']:5.1f} % of {entry['limit']}"
        )
        if name != "parapet":
            line += f"  {ratio(rounds, measured.providers['parapet']):6.2f}x parapet's time"
        quiet = sum(one.quiet for one in rounds.rounds)
        if quiet < len(rounds.rounds):
            line += f"  ({quiet} of {len(rounds.rounds)} rounds quiet)"
        print(line, flush=True)


def _overhead(options: argparse.Namespace) -> int:
    for name in options.peers:
        importlib.import_module(name)
    overheads = list(measure_overheads())
    print(f"{'tensors of':12} {'call':12} {'Python':>10} {'kernel':>10} {'overhead':>10}")
    for one in overheads:
        times = (one.python_us, one.kernel_us, one.overhead_us)
        print(f"{one.framework:12} {one.call:12}" + "".join(f" {us:7.2f} us" for us in times))
    if options.json:
        report = {"overhead": [one.to_json() for one in overheads]}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
