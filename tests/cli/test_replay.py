"""replay: right captures, wrong results, damaged and hostile files."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cli_program import Program
from safetensors import safe_open
from safetensors_file import capture_bytes, container, write_capture

Tensors = dict[str, np.ndarray]


def dense(dtype: Any = np.float32, dv: int = 8, rows: int = 5) -> Tensors:
    rng = np.random.default_rng(1)
    shapes = {"q": (2, rows, 4, 8), "k": (2, 7, 2, 8), "v": (2, 7, 2, dv)}
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def packed(dtype: Any = np.float32) -> Tensors:
    rng = np.random.default_rng(2)
    shapes = {"q": (9, 4, 8), "k": (12, 2, 8), "v": (12, 2, 6)}
    tensors = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    tensors["cu_seqlens_q"] = np.array([0, 4, 4, 7], np.int32)
    tensors["cu_seqlens_k"] = np.array([0, 5, 8, 12], np.int32)
    return tensors


def attention(tensors: Tensors, causal: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Dense attention in float64."""
    q, k, v = (tensors[name].astype(np.float64) for name in "qkv")
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
    if causal:
        rows, keys = scores.shape[-2:]
        scores[..., ~np.tri(rows, keys, keys - rows, dtype=bool)] = -np.inf
    lse = np.logaddexp.reduce(scores, axis=-1)
    out = np.einsum("bhij,bjhd->bihd", np.exp(scores - lse[..., None]), v)
    return out, lse


@pytest.fixture
def file(program: Program) -> Path:
    return program.directory / "call.safetensors"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_call_with_its_right_result(program: Program, file: Path, dtype: Any) -> None:
    tensors = dense(dtype)
    out, lse = attention(tensors, causal=True)
    tensors |= {"out": out.astype(dtype), "lse": lse.astype(np.float32)}
    write_capture(file, tensors, {"causal": True}, function="flash_attn_func", framework="numpy")
    text = program.run("replay", file).stdout
    assert "PASSED" in text
    assert "causal" in text and "flash_attn_func, numpy" in text
    replay = program.json("replay", file)
    assert replay["passed"] is True
    assert replay["all_rows"] is True
    assert replay["computed"]["rows"] == 2 * 4 * 5
    assert replay["recorded"]["wrong_rows"] == 0
    assert replay["difference"]["numbers"] == 2 * 4 * 5 * (8 + 1)
    assert replay["flop"] == 2 * 2 * 4 * (8 + 8) * (3 + 4 + 5 + 6 + 7)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"window_left": 2, "window_right": 1},
    {"window_left": -1, "window_right": None, "softmax_scale": None},
    {"softcap": 5.0, "softmax_scale": 0.3},
    {"num_splits": 3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_are_honoured(program: Program, file: Path, options: dict[str, Any]) -> None:
    write_capture(file, packed(), options)
    replay = program.json("replay", file)
    assert replay["passed"] is True
    assert replay["recorded"] is None and replay["difference"] is None
    assert replay["computed"]["rows"] == (4 + 3) * 4


def test_lengths_and_sink(program: Program, file: Path) -> None:
    tensors = packed(ml_dtypes.bfloat16) | {
        "seqused_q": np.array([3, 0, 3], np.int32),
        "seqused_k": np.array([5, 0, 1], np.int32),
        "learnable_sink": np.array([0.5, -1, 2, 0], np.float32),
    }
    write_capture(file, tensors)
    replay = program.json("replay", file)
    assert replay["passed"] is True
    assert replay["computed"]["rows"] == (3 + 3) * 4
    assert "used lengths" in replay["call"] and "sink" in replay["call"]


def test_an_empty_call(program: Program, file: Path) -> None:
    write_capture(file, dense(rows=0))
    assert program.json("replay", file)["computed"]["rows"] == 0


def test_a_wrong_record_is_found_and_named(program: Program, file: Path) -> None:
    tensors = dense()
    out, lse = attention(tensors)
    out[1, 3, 2, 5] += 0.25
    write_capture(file, tensors | {"out": out.astype(np.float32), "lse": lse.astype(np.float32)})
    text = program.run("replay", file, code=1).stdout
    assert "segment 1, head 2, row 3, dim 5" in text
    assert "FAILED: the recorded result is wrong in 1 of 40 checked rows." in text
    replay = program.json("replay", file, code=1)
    assert replay["passed"] is False
    assert replay["computed"]["wrong_rows"] == 0
    assert replay["recorded"]["wrong_rows"] == 1
    worst = replay["difference"]["worst"]
    assert (worst["segment"], worst["head"], worst["row"], worst["dim"]) == (1, 2, 3, 5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_record_that_is_not_finite_is_wrong(program: Program, file: Path, value: float) -> None:
    tensors = dense()
    out, _ = attention(tensors)
    out[0, 1, 1, 0] = value
    write_capture(file, tensors | {"out": out.astype(np.float32)})
    assert "segment 0, head 1, row 1" in program.run("replay", file, code=1).stdout


def test_a_record_with_rubbish_in_unused_rows_is_wrong(program: Program, file: Path) -> None:
    tensors = packed()
    write_capture(file, tensors)
    saved = program.directory / "saved.safetensors"
    program.run("replay", file, "--save", saved)
    with safe_open(saved, "np") as opened:
        out = opened.get_tensor("out")
    assert not out[7:].any()
    out[8, 3, 2] = 1
    write_capture(file, tensors | {"out": out})
    text = program.run("replay", file, code=1).stdout
    assert "the recorded result is wrong in a row that no segment uses" in text


def test_sampling_still_sees_the_row_that_differs(program: Program, file: Path) -> None:
    rng = np.random.default_rng(3)
    tensors = {name: rng.standard_normal((1, 700, 2, 16), dtype=np.float32) for name in "qkv"}
    out, _ = attention(tensors)
    out[0, 345, 1, 3] += 0.5
    write_capture(file, tensors | {"out": out.astype(np.float32)})
    replay = program.json("replay", file, "--rows", "1", code=1)
    assert replay["all_rows"] is False
    assert replay["computed"]["rows"] < 30
    assert replay["recorded"]["wrong_rows"] == 1
    everything = program.json("replay", file, "--all-rows", code=1)
    assert everything["computed"]["rows"] == 1400
    assert everything["recorded"]["wrong_rows"] == 1


def test_visible_nan_is_right_where_the_definition_has_it(program: Program, file: Path) -> None:
    tensors = dense()
    tensors["v"][0, 6] = np.nan
    tensors["q"][1, 2, 1, 0] = np.inf
    write_capture(file, tensors, {"causal": True})
    assert program.json("replay", file)["passed"] is True


def test_save_gives_a_capture_that_passes(program: Program, file: Path) -> None:
    write_capture(file, packed(ml_dtypes.bfloat16), {"causal": True}, function="f")
    saved = program.directory / "saved.safetensors"
    program.run("replay", file, "--save", saved)
    with safe_open(saved, "np") as opened:
        assert set(opened.keys()) == {"q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "out", "lse"}
        metadata = json.loads(opened.metadata()["parapet"])
    assert metadata["options"]["causal"] is True
    assert metadata["function"] == "f"
    replay = program.json("replay", saved)
    assert replay["passed"] is True
    assert replay["difference"]["different"] == 0


def test_threads_change_nothing(program: Program, file: Path) -> None:
    write_capture(file, packed())
    saved = program.directory / "saved.safetensors"
    program.run("replay", file, "--threads", "1", "--save", saved)
    assert program.json("replay", saved, "--threads", "3")["difference"]["different"] == 0


# What a valid container holds may still be no valid call: the library refuses it.
CALLS: list[tuple[Tensors, dict[str, Any], str]] = [
    (dense() | {"k": dense()["k"][..., :4]}, {}, "k: expected shape[3]"),
    (dense() | {"v": dense()["v"].astype(np.float16)}, {}, "v: expected dtype float32"),
    (dense() | {"q": dense()["q"][0]}, {}, "q: expected 4 dimensions"),
    (dense() | {"q": np.float32(1).reshape(())}, {}, "q: expected 4 dimensions"),
    (dense() | {"v": np.float32(1).reshape(())}, {}, "v: expected 4 dimensions"),
    (dense() | {"q": dense()["q"].astype(np.int32)}, {}, "q: expected dtype float32"),
    (dense() | {"out": dense()["q"][:1]}, {}, "out: expected shape[0]"),
    (dense() | {"out": dense()["q"], "lse": dense()["q"]}, {}, "lse: expected 3 dimensions"),
    (packed() | {"cu_seqlens_q": np.array([0, 4, 3, 7], np.int32)}, {}, "cu_seqlens_q[2]: "),
    (packed() | {"cu_seqlens_k": np.array([0, 4, 5, 13], np.int32)}, {}, "cu_seqlens_k[3]: "),
    (packed() | {"seqused_k": np.array([0, 9, 0], np.int32)}, {}, "seqused_k[1]: "),
    (packed() | {"learnable_sink": np.zeros(3, np.float32)}, {}, "learnable_sink: "),
    (dense(), {"softcap": -1}, "softcap: "),
    (dense(), {"num_splits": 100000}, "num_splits: "),
]


@pytest.mark.parametrize(("tensors", "options", "message"), CALLS, ids=[c[2] for c in CALLS])
def test_calls_that_the_library_refuses(
    program: Program, file: Path, tensors: Tensors, options: dict[str, Any], message: str
) -> None:
    write_capture(file, tensors, options)
    assert program.error("replay", file).startswith(f"{file}: {message}")


GOOD = capture_bytes(dense())
FILES = {
    "empty": (b"", "expected at least 8 bytes, found 0"),
    "short": (b"abc", "expected at least 8 bytes, found 3"),
    "text": (b"this is a text file, not a capture", "header of at most 1048576 bytes"),
    "zip": (b"PK\x03\x04" + bytes(100), "header"),
    "no header": (struct.pack("<Q", 0), "does not begin with {"),
    "huge header": (struct.pack("<Q", 2**64 - 1) + b"{}", "found a length of 18446744073709551615"),
    "long header": (struct.pack("<Q", 1000) + b"{}", "cut short: expected a header of 1000 bytes"),
    "cut in the data": (GOOD[:-1], "data_offsets[1]: expected an integer from"),
    "more data": (GOOD + b"x", "bytes of tensors, found"),
    "no metadata": (container(b"{}"), "not a capture"),
    "other metadata": (container(b'{"__metadata__": {"format": "pt"}}'), "not a capture"),
    "deep": (container(b'{"a":' + b"[" * 100000), "levels deep"),
    "not utf-8": (container(b'{"\xff": 1}'), "not valid JSON"),
    "twice": (container(b'{"q": {}, "q": {}}'), '"q" twice'),
    "escapes": (container(b'{"\\u001b[31m\\n": {"a": 1}}'), 'unknown key "a"'),
    "no q": (capture_bytes({"k": dense()["k"], "v": dense()["v"]}), "tensor q is missing"),
    "extra": (capture_bytes(dense() | {"mask": dense()["q"]}), 'unknown tensor "mask"'),
    "option": (capture_bytes(dense(), {"dropout": 0.1}), 'unknown key "dropout"'),
    "format": (
        GOOD.replace(b'\\"format\\": 1', b'\\"format\\": 9'),
        "format: expected 1, the format that this version reads, found 9",
    ),
    "huge shape": (
        container(
            json.dumps(
                {
                    "q": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]},
                    "__metadata__": {"parapet": "{}"},
                }
            ).encode()
        ),
        "q.shape: expected fewer than 2^63 bytes",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_damaged_and_hostile_files(program: Program, file: Path, name: str) -> None:
    content, message = FILES[name]
    file.write_bytes(content)
    error = program.error("replay", file)
    assert error.startswith(f"{file}: ")
    assert message in error
    assert "\x1b" not in error


def test_every_truncation_is_refused(program: Program, file: Path) -> None:
    for size in range(0, len(GOOD), 97):
        file.write_bytes(GOOD[:size])
        program.error("replay", file)


def test_a_file_that_claims_more_than_the_memory(program: Program, file: Path) -> None:
    file.write_bytes(b"")
    os.truncate(file, 1 << 42)  # sparse
    assert "of memory, and" in program.error("replay", file)
    # v without rows may have any head dim, and out has it too.
    header = {
        "q": {"dtype": "F32", "shape": [1, 64, 1, 1], "data_offsets": [0, 256]},
        "k": {"dtype": "F32", "shape": [1, 0, 1, 1], "data_offsets": [256, 256]},
        "v": {"dtype": "F32", "shape": [1, 0, 1, 2**40], "data_offsets": [256, 256]},
        "__metadata__": {"parapet": '{"format": 1, "options": {}}'},
    }
    file.write_bytes(container(json.dumps(header).encode(), bytes(256)))
    assert "out needs " in program.error("replay", file)


def test_no_more_rows_than_there_are(program: Program, file: Path) -> None:
    write_capture(file, dense())
    assert program.json("replay", file, "--rows", "2000000000")["computed"]["rows"] == 2 * 4 * 5
    assert "2147483647" in program.error("replay", file, "--rows", "-1")


@pytest.mark.parametrize("key", ["function", "framework", "parapet"])
def test_text_that_controls_a_terminal(program: Program, file: Path, key: str) -> None:
    write_capture(file, dense(), **{key: "\x1b[31m\n"})
    error = program.error("replay", file)
    assert f"__metadata__.parapet.{key}: expected text without control characters" in error


def test_special_files(program: Program) -> None:
    os.mkfifo(program.directory / "pipe")
    assert "pipe: not a regular file" in program.error("replay", "pipe")
    assert "/dev/null: not a regular file" in program.error("replay", "/dev/null")


def test_captures_of_the_python_package(program: Program) -> None:
    parapet = pytest.importorskip("parapet")
    tensors = packed()
    path = program.directory / "captured.safetensors"
    with parapet.capture(path):
        parapet.flash_attn_varlen_func(
            tensors["q"],
            tensors["k"],
            tensors["v"],
            cu_seqlens_q=tensors["cu_seqlens_q"],
            cu_seqlens_k=tensors["cu_seqlens_k"],
            causal=True,
            softcap=3.5,
            return_lse=True,
        )
    replay = program.json("replay", path)
    assert replay["passed"] is True
    assert replay["function"] == "flash_attn_varlen_func"
    assert replay["difference"]["different"] == 0
