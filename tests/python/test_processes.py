"""Threads and processes that call at the same time."""

import multiprocessing
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from calls import dense, packed


def test_threads_that_call_at_once(rng):
    calls = [dense(rng, dtype, sq=100) for dtype in ("float32", "bfloat16", "float16")] * 2
    expected = [call.run() for call in calls]
    failures = []

    def work(index):
        for _ in range(20):
            for found, same in zip(calls[index].run(), expected[index], strict=True):
                if not np.array_equal(found, same):
                    failures.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_other_threads_run_during_a_call(rng):
    """The interpreter's lock is released while the library computes."""
    call = dense(rng, b=1, sq=4000, sk=4000, h=4, hk=4, d=64)
    ticks = []
    stop = threading.Event()

    def count():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    start = time.perf_counter()
    call.run()
    end = time.perf_counter()
    stop.set()
    thread.join()
    during = [tick for tick in ticks if start + 0.1 * (end - start) < tick < end]
    assert len(during) >= 3


def test_two_processes(rng):
    program = (
        "import numpy as np, parapet, sys\n"
        "x = np.random.default_rng(0).standard_normal((2, 200, 4, 64), dtype=np.float32)\n"
        "first, _ = parapet.flash_attn_func(x, x, x, causal=True)\n"
        "for _ in range(20):\n"
        "    assert np.array_equal(parapet.flash_attn_func(x, x, x, causal=True)[0], first)\n"
        "sys.stdout.buffer.write(first.tobytes())\n"
    )
    command = [sys.executable, "-c", program]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1] != b""


def test_no_memory_is_an_error():
    """And one that a program survives: the next call that fits is right."""
    program = (
        "import numpy as np, parapet, resource\n"
        "x = np.ones((1, 400_000, 1, 64), np.float16)\n"  # 51 MB, to be packed into four times that
        "def call(keys):\n"
        "    return parapet.flash_attn_func(x[:, :1000], x[:, :keys], x[:, :keys])[0]\n"
        "first = call(1000)\n"
        "sizes = dict(line.split(':') for line in open('/proc/self/status'))\n"
        "used = 1024 * int(sizes['VmSize'].split()[0])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))\n"
        "try:\n"
        "    call(400_000)\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
        "assert np.array_equal(call(1000), first)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert "out of memory for the work space" in result.stdout


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process(rng, method):
    """OpenMP's threads do not survive a fork; a call in the child must not wait for them."""
    call = packed(rng, [200, 50], [300, 90])
    expected, _ = call.run()
    with multiprocessing.get_context(method).Pool(2) as pool:
        results = pool.map_async(type(call).run, [call] * 4).get(timeout=30)
    for out, _ in results:
        np.testing.assert_array_equal(out, expected)
