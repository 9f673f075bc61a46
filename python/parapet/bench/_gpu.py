"""Benchmarks on a GPU: PyTorch makes the data, keeps the time, and has the peers."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

from parapet.bench._machine import Machine, Times, repeats_in
from parapet.bench._providers import Provider, Run, Tensors, UnsupportedError
from parapet.bench._workload import Case

MISSING = "--device cuda: needs PyTorch and a GPU that it can use"


class Gpu(Machine):
    """A GPU through PyTorch. Its multiply-add rate is that of a large bfloat16 matrix product."""

    def __init__(self) -> None:
        super().__init__()
        try:
            self._torch = importlib.import_module("torch")
        except ImportError as error:
            raise ImportError(f"{MISSING}: {error}") from None
        if not self._torch.cuda.is_available():
            raise ValueError(MISSING)
        self._name = str(self._torch.cuda.get_device_name())
        self._matrices = [
            self._torch.randn(8192, 8192, device="cuda", dtype=self._torch.bfloat16)
            for _ in range(3)
        ]
        self._memory = [
            self._torch.empty(1 << 30, device="cuda", dtype=self._torch.int8) for _ in range(2)
        ]
        for _ in range(3):
            self.fma()
            self.read()

    def name(self) -> str:
        return self._name

    def to_json(self) -> dict[str, Any]:
        return {"gpu": self._name} | super().to_json()

    def _fma(self) -> float:
        a, b, product = self._matrices
        ms = self._elapsed(lambda: [self._torch.mm(a, b, out=product) for _ in range(4)])
        return 4 * 2 * 8192**3 / ms / 1e6

    def _read(self) -> float:
        to, source = self._memory
        ms = self._elapsed(lambda: [to.copy_(source) for _ in range(4)])
        return float(4 * 2 * to.nbytes / ms / 1e6)

    def _elapsed(self, work: Callable[[], Any]) -> float:
        """The milliseconds that the GPU takes."""
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def timer(self, run: Callable[[], Any]) -> Callable[[], Times]:
        """Times a graph of calls, which the GPU works off without waiting for Python.

        Beside that, calls one by one: from Python until the GPU is done.
        """
        repeats = min(100, repeats_in(20, min(self._elapsed(run) for _ in range(3))))
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph):
            for _ in range(repeats):
                run()
        graph.replay()

        def call() -> float:
            self._torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            self._torch.cuda.synchronize()
            return 1e3 * (time.perf_counter() - start)

        return lambda: Times(
            self._elapsed(graph.replay) / repeats, statistics.median(call() for _ in range(5))
        )


def random_tensors(case: Case) -> Tensors:
    """Returns normal random data, the same for every provider."""
    torch = importlib.import_module("torch")
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> Any:
        dtype = getattr(torch, case.dtype)
        return torch.randn(*shape, generator=generator, device="cuda", dtype=dtype)

    def int32(values: Any) -> Any:
        return torch.tensor(list(values), device="cuda", dtype=torch.int32)

    return Tensors.make(case, normal, lambda lengths: int32([0, *accumulate(lengths)]))


class FlashAttention2(Provider):
    """FlashAttention-2 as PyTorch has it, on the tensors as they are."""

    name = "fa2"

    def __init__(self) -> None:
        torch = importlib.import_module("torch")
        self._attend = torch.ops.aten._flash_attention_forward
        self.version = f"torch {torch.__version__}"

    def prepare(self, case: Case, tensors: Tensors) -> Run:
        _refuse(case, ("softcap", "sink"))
        if case.head_dim != case.head_dim_v or case.head_dim > 256:
            raise UnsupportedError("no head dims that differ or pass 256")
        if case.dtype == "float32":
            raise UnsupportedError("no float32")
        left, right = (-1 if reach is None else reach for reach in case.window)
        return partial(
            self._attend,
            *(tensors.q, tensors.k, tensors.v, tensors.cu_seqlens_q, tensors.cu_seqlens_k),
            *(max(case.q_lens), max(case.k_lens), 0.0, case.causal, False),
            scale=case.options.get("softmax_scale"),
            window_size_left=left,
            window_size_right=right,
        )

    def output(self, case: Case, result: Any) -> Any:
        return result[0].float()


class CuDnn(Provider):
    """cuDNN through PyTorch's scaled_dot_product_attention, which has no packed calls."""

    name = "cudnn"

    def __init__(self) -> None:
        self._torch = importlib.import_module("torch")
        self._attention = importlib.import_module("torch.nn.attention")
        self.version = str(self._torch.backends.cudnn.version())

    def prepare(self, case: Case, tensors: Tensors) -> Run:
        _refuse(case, ("softcap", "sink"))
        if case.packed:
            raise UnsupportedError("no packed calls")
        left, right = case.window
        if left is not None or (right is not None and not case.causal):
            raise UnsupportedError("no window")
        if case.causal and case.q_lens != case.k_lens:
            raise UnsupportedError("causal only for as many queries as keys")
        q, k, v = (x.transpose(1, 2) for x in (tensors.q, tensors.k, tensors.v))
        attend = partial(
            self._torch.nn.functional.scaled_dot_product_attention,
            *(q, k, v),
            is_causal=case.causal,
            scale=case.options.get("softmax_scale"),
            enable_gqa=case.num_heads != case.num_heads_k,
        )

        def run() -> Any:
            with self._attention.sdpa_kernel(self._attention.SDPBackend.CUDNN_ATTENTION):
                return attend()

        try:
            run()
        except RuntimeError as error:
            raise UnsupportedError(str(error).splitlines()[0]) from None
        return run

    def output(self, case: Case, result: Any) -> Any:
        return result.transpose(1, 2).float()


def _refuse(case: Case, options: tuple[str, ...]) -> None:
    for option in options:
        if case.options.get(option):
            raise UnsupportedError(f"no {option}")


PEERS: dict[str, Callable[[], Provider]] = {"fa2": FlashAttention2, "cudnn": CuDnn}
