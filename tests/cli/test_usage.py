"""What all commands have in common: help, errors, exit codes, pipes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

COMMANDS = ["demo", "info", "plan", "replay", "bench", "precompile", "cache"]


def test_without_a_command_help_goes_to_standard_error(program: Program) -> None:
    result = program.run(code=2)
    assert result.stdout == ""
    for command in COMMANDS:
        assert command in result.stderr
    assert "Begin with `parapet demo`" in result.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help(program: Program, arguments: list[str]) -> None:
    result = program.run(*arguments)
    assert result.stderr == ""
    assert "Exit codes: 0 " in result.stdout
    for command in COMMANDS:
        assert command in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(program: Program, command: str) -> None:
    result = program.run(command, "--help")
    assert result.stderr == ""
    assert "--json" in result.stdout


def test_version(program: Program) -> None:
    assert program.run("--version").stdout.startswith("parapet ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "frobnicate"),
        (["info", "--frobnicate"], "--frobnicate"),
        (["info", "extra"], "extra"),
        (["plan"], "--workload"),
        (["replay"], "file"),
        (["demo", "--heads", "0"], "0"),
        (["demo", "--heads", "-1"], "-1"),
        (["demo", "--heads", "1.5"], "1.5"),
        (["demo", "--heads", "99999999999999999999"], "2147483647"),
        (["demo", "--heads", "57"], "--heads: expected a multiple of 1 up to 56"),
        (["demo", "--threads", "0"], "0"),
        (["demo", "--threads", "100000"], "100000"),
        (["demo", "--threads", "many"], "many"),
        (["bench", "--dtype", "float8"], "float8"),
        (["bench", "--rounds", "0"], "0"),
        (["bench", "--max-seconds", "-3"], "-3"),
        (["bench", "--max-seconds", "nan"], "nan"),
        (["replay", "f", "--rows", "1", "--all-rows"], "--all-rows"),
    ],
)
def test_wrong_usage_is_one_line(program: Program, arguments: list[str], message: str) -> None:
    assert message in program.error(*arguments)


@pytest.mark.parametrize("command", ["plan --workload", "demo --workload", "bench", "replay"])
def test_files_that_cannot_be_read(program: Program, command: str) -> None:
    words = command.split()
    assert "no/such/file: cannot open: No such file" in program.error(*words, "no/such/file")
    (program.directory / "folder").mkdir()
    error = program.error(*words, "folder")
    assert "is a directory" in error or "not a regular file" in error


def test_a_reader_that_goes_away_is_no_error(program: Program) -> None:
    command = [str(program.path), "plan", "-w", "llm-decode-gqa", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() in (0, -signal.SIGPIPE)


def test_a_full_disk_is_an_error(program: Program) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [program.path, "info"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 2
    assert "No space left on device" in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_escape_sequences_without_a_terminal(program: Program) -> None:
    for arguments in (["info"], ["plan", "-w", "cpu-grid"], ["demo", "--heads", "1"]):
        result = program.run(*arguments)
        assert "\x1b" not in result.stdout + result.stderr
        assert "\r" not in result.stdout + result.stderr


def on_terminal(program: Program, *arguments: str, **environment: str) -> bytes:
    leader, follower = os.openpty()
    process = subprocess.Popen(
        [program.path, *arguments],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **environment},
    )
    os.close(follower)
    output = b""
    try:
        while block := os.read(leader, 4096):
            output += block
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    assert process.wait() == 0
    return output


def test_colours_and_progress_on_a_terminal(
    program: Program, workload: Callable[..., Path]
) -> None:
    arguments = ["demo", "-w", str(workload())]
    output = on_terminal(program, *arguments)
    assert b"computing [" in output
    assert b"\x1b[1;32mPASSED" in output
    assert b"\x1b[1" not in on_terminal(program, *arguments, NO_COLOR="1")
    assert b"\x1b[1" not in on_terminal(program, *arguments, TERM="dumb")
