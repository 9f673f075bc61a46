"""Files of recorded calls: docs/capture-format.md."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from calls import dense, packed
from oracle import DTYPES
from safetensors import safe_open

import parapet

PROGRAM = os.environ.get("PARAPET_PROGRAM")


def read(path: Path):
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
        assert set(metadata) == {"parapet"}
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(  # noqa: SIM118
            metadata["parapet"]
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_call_and_its_result(rng, tmp_path, dtype):
    call = packed(rng, [20, 30], [60, 11], dtype)
    call.seqused_q = np.array([20, 3], np.int32)
    call.seqused_k = np.array([50, 11], np.int32)
    call.learnable_sink = np.ones(4, np.float32)
    call.softmax_scale, call.window_size, call.softcap = float(np.float32(0.1)), (5, None), 3.0
    call.num_splits = 2
    with parapet.capture(tmp_path / "call.safetensors") as recording:
        out, lse = call.run()
    assert recording.files == [tmp_path / "call.safetensors"]
    assert os.listdir(tmp_path) == ["call.safetensors"]
    tensors, header = read(recording.files[0])
    expected = {
        name: value for name, value in call.arguments().items() if isinstance(value, np.ndarray)
    } | {"out": out, "lse": lse}
    assert tensors.keys() == expected.keys()
    for name, value in expected.items():
        assert tensors[name].dtype == value.dtype
        np.testing.assert_array_equal(tensors[name], value)
    assert header == {
        "format": 1,
        "parapet": parapet.__version__,
        "function": "flash_attn_varlen_func",
        "framework": f"numpy {np.__version__}",
        "options": {
            "softmax_scale": float(np.float32(0.1)),
            "causal": False,
            "window_left": 5,
            "window_right": None,
            "softcap": 3.0,
            "num_splits": 2,
        },
    }


def test_strides_are_not_kept_but_elements_are(rng, tmp_path):
    call = dense(rng, "bfloat16")
    call.k = np.ascontiguousarray(call.k.swapaxes(1, 3)).swapaxes(1, 3)[:, ::-1]
    call.v = np.broadcast_to(call.v[:, :1], call.v.shape)
    with parapet.capture(tmp_path / "call.safetensors"):
        call.run()
    tensors, _ = read(tmp_path / "call.safetensors")
    np.testing.assert_array_equal(tensors["k"], call.k)
    np.testing.assert_array_equal(tensors["v"], call.v)


def test_lse_only_where_it_was_asked_for(rng, tmp_path):
    call = dense(rng, sq=0)
    with parapet.capture(tmp_path / "call.safetensors"):
        parapet.flash_attn_func(call.q, call.k, call.v)
    tensors, header = read(tmp_path / "call.safetensors")
    assert tensors.keys() == {"q", "k", "v", "out"}
    assert header["function"] == "flash_attn_func"


def test_torch_tensors(rng, tmp_path):
    torch = pytest.importorskip("torch")
    q = torch.randn(1, 5, 2, 8).bfloat16()
    with parapet.capture(tmp_path / "call.safetensors"):
        out, _ = parapet.flash_attn_func(q, q, q, causal=True)
    with safe_open(tmp_path / "call.safetensors", "pt") as file:
        assert torch.equal(file.get_tensor("q"), q)
        assert torch.equal(file.get_tensor("out"), out)


def test_several_calls(rng, tmp_path):
    call = dense(rng)
    with parapet.capture(tmp_path / "a" / "call.safetensors") as recording:
        for _ in range(3):
            call.run()
    names = ["call.safetensors", "call-2.safetensors", "call-3.safetensors"]
    assert [path.name for path in recording.files] == names


def test_a_folder(rng, tmp_path):
    call = dense(rng)
    for _ in range(2):
        with parapet.capture(tmp_path / "calls"):
            call.run()
            call.run()
    assert len(list((tmp_path / "calls").iterdir())) == 4


def test_blocks_nest_and_end(rng, tmp_path):
    call = dense(rng)
    with parapet.capture(tmp_path / "outer"):
        with parapet.capture(tmp_path / "inner"):
            call.run()
        call.run()
    call.run()
    assert len(list((tmp_path / "outer").iterdir())) == 1
    assert len(list((tmp_path / "inner").iterdir())) == 1


def test_only_the_block_of_this_thread(rng, tmp_path):
    call = dense(rng)
    with parapet.capture(tmp_path / "calls") as recording:
        thread = threading.Thread(target=call.run)
        thread.start()
        thread.join()
    assert not recording.files


def test_a_refused_call_is_not_recorded(rng, tmp_path):
    call = dense(rng)
    call.softcap = -1.0
    with parapet.capture(tmp_path / "calls") as recording, pytest.raises(ValueError):  # noqa: PT011
        call.run()
    assert not recording.files
    assert not (tmp_path / "calls").exists()


def test_a_file_that_cannot_be_written_leaves_nothing(rng, tmp_path, monkeypatch):
    call = dense(rng)

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", fail)
    with parapet.capture(tmp_path / "call.safetensors"), pytest.raises(OSError, match="no space"):
        call.run()
    assert not list(tmp_path.iterdir())


def test_the_environment_records_a_program(tmp_path):
    program = (
        "import numpy as np, parapet, threading\n"
        "x = np.ones((1, 2, 1, 4), np.float32)\n"
        "def work():\n"
        "    for _ in range(5): parapet.flash_attn_func(x, x, x)\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
    )
    environment = os.environ | {"PARAPET_CAPTURE": str(tmp_path / "calls")}
    command = [sys.executable, "-c", program]
    for _ in range(2):
        subprocess.run(command, env=environment, check=True, timeout=120)
    files = sorted((tmp_path / "calls").iterdir())
    assert len(files) == 40
    for file in files:
        assert file.name.startswith("call-")
        assert read(file)[0]["out"].shape == (1, 2, 1, 4)


@pytest.mark.skipif(PROGRAM is None, reason="PARAPET_PROGRAM does not name the parapet program")
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_program_replays_a_recording(rng, tmp_path, dtype):
    call = packed(rng, [20, 30], [60, 11], dtype)
    call.causal, call.softmax_scale = True, 0.3
    with parapet.capture(tmp_path / "call.safetensors"):
        call.run()
    command = [PROGRAM, "replay", str(tmp_path / "call.safetensors")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
