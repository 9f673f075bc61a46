"""Pictures of benchmark files: `python -m parapet.report bench.json -o bench.png`.

Draws what `parapet bench --json` and `python -m parapet.bench --json` write, a panel a dtype, a
group of bars a case, a bar a provider. Needs matplotlib: pip install 'parapet-attention[report]'.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parapet.bench._workload import case_of_result

SCHEMA, VERSION = "parapet-bench", 1
COLORS = ("#0b6e99", "#e07a3f", "#6b8f3c", "#8d5fa8", "#a8323e", "#7a7a7a")
MISSING = "parapet.report needs matplotlib: pip install 'parapet-attention[report]'"


def read(path: Path) -> dict[str, Any]:
    """Reads a benchmark file.

    Raises:
        ValueError: It is not one, or of a version that this parapet does not know.
        OSError: It cannot be read.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise ValueError(f"{path}: expected a benchmark file, its schema {SCHEMA!r}")
    if report.get("version") != VERSION:
        raise ValueError(f"{path}: expected version {VERSION}, found {report.get('version')}")
    if not report.get("results"):
        raise ValueError(f"{path}: expected results, found none")
    return report


def draw(report: dict[str, Any], path: Path) -> None:
    """Draws a benchmark file as a PNG, SVG or PDF.

    Args:
        report: What `read` returned.
        path: The picture; its suffix names the format.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: matplotlib does not know the suffix.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(MISSING) from error

    results = report["results"]
    dtypes = list(dict.fromkeys(result["dtype"] for result in results))
    cases = list(dict.fromkeys((result["workload"], result["row"]) for result in results))
    providers = list(dict.fromkeys(result["provider"] for result in results))
    by_key = {
        (result["dtype"], result["workload"], result["row"], result["provider"]): result
        for result in results
    }
    labels = {
        (result["workload"], result["row"]): case_of_result(result).label() for result in results
    }

    figure = Figure(
        figsize=(3.2 + 4.6 * len(dtypes), 2.1 + len(cases) * (0.24 + 0.26 * len(providers))),
        layout="constrained",
    )
    panels = figure.subplots(1, len(dtypes), sharey=True, squeeze=False)[0]
    height = 0.8 / len(providers)
    for panel, dtype in zip(panels, dtypes, strict=True):
        for index, provider in enumerate(providers):
            found = [
                (position, by_key[(dtype, *case, provider)])
                for position, case in enumerate(cases)
                if (dtype, *case, provider) in by_key
            ]
            bars = panel.barh(
                [position + (index - (len(providers) - 1) / 2) * height for position, _ in found],
                [result["gflops"] for _, result in found],
                0.92 * height,
                color=COLORS[index % len(COLORS)],
                label=f"{provider} {report['providers'].get(provider, '')}".strip(),
            )
            ours = [by_key.get((dtype, *cases[position], providers[0])) for position, _ in found]
            panel.bar_label(
                bars,
                [_note(result, first) for (_, result), first in zip(found, ours, strict=True)],
                padding=3,
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
        limit = report["machine"]["fma_gflops"]
        panel.axvline(limit, color="#444444", linewidth=1, linestyle="--", zorder=0)
        panel.set_title(dtype)
        panel.set_xlabel("GFLOP/s (more is better)")
        panel.set_xlim(0, 1.3 * limit)
        panel.grid(axis="x", alpha=0.3)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(cases)), [labels[case] for case in cases])
    panels[0].invert_yaxis()
    figure.suptitle(_title(report), fontsize=11)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _note(result: dict[str, Any], first: dict[str, Any] | None) -> str:
    """The words beside a bar; other providers are compared with the first."""
    note = f"{result['ms']:.3g} ms"
    if result["limit"] == "read":
        note += f", {result['gbs']:.3g} GB/s"
    if first is not None and first is not result:
        note += f", {result['ms'] / first['ms']:.3g} x"
    return note


def _title(report: dict[str, Any]) -> str:
    machine = report["machine"]
    workloads = ", ".join(dict.fromkeys(result["workload"] for result in report["results"]))
    if "gpu" in machine:
        name, limit = machine["gpu"], "a large matrix product"
    else:
        name = f"{machine['cpu']}, {machine['threads']} threads, {machine['simd_target']}"
        limit = "the machine's multiply-adds"
    lines = [f"{workloads} on {name}", f"dashed: {limit}, {machine['fma_gflops']:.0f} GFLOP/s"]
    if not machine["quiet"]:
        lines.append("measured on a busy machine: do not trust it")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m parapet.report", description="Draw a benchmark file."
    )
    parser.add_argument("file", type=Path, help="what --json wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a .png, .svg or .pdf")
    options = parser.parse_args(arguments)
    try:
        draw(read(options.file), options.output)
    except (ImportError, OSError, ValueError) as error:
        print(f"parapet.report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
