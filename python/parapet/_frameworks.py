"""Array libraries: how their tensors go into a call, and how its results become theirs.

A framework is found from the type of `q`. The other tensors have to be of the same one.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from parapet import _ffi

Shape = tuple[int, ...]


class Framework(Protocol):
    """What parapet needs from an array library."""

    name: str
    """For messages: "a <name>"."""

    uint16_is_bfloat16: bool
    """Whether operands of dtype uint16 hold the bits of bfloat16."""

    def version(self) -> str:
        """Returns the library's name and version."""

    def operand(self, name: str, tensor: Any) -> Any:
        """Returns what the library takes for a tensor; raises for one that it can't take."""

    def make_out(self, q: Any, v: Any) -> Any:
        """Returns memory for out, an operand of the dtype and device of the operand `q`."""

    def make_lse(self, q: Any) -> Any:
        """Returns memory for lse, an operand of float32 on the device of the operand `q`."""

    def stream(self, like: Any) -> int | None:
        """Returns the GPU stream that the library works on; None: the binding finds it itself."""

    def result(self, memory: Any, like: Any) -> Any:
        """Returns the tensor, of the kind of `like`, for a result that has been queued."""


class NumPy:
    """NumPy arrays, bfloat16 as ml_dtypes has it."""

    name = "NumPy array"
    uint16_is_bfloat16 = True

    _bfloat16 = np.dtype(ml_dtypes.bfloat16)
    _exported = frozenset(map(np.dtype, ("float32", "float16", "int32")))

    def version(self) -> str:
        return f"numpy {np.__version__}"

    def operand(self, name: str, tensor: Any) -> Any:
        if type(tensor) is not np.ndarray:
            _check_framework(self, name, tensor)
        if tensor.dtype == self._bfloat16:
            tensor = tensor.view(np.uint16)
        elif tensor.dtype not in self._exported:
            lengths = name in _ffi.LENGTHS
            expected = "int32" if lengths else "float32, float16 or bfloat16"
            raise ValueError(f"{name}: expected dtype {expected}, found {tensor.dtype}")
        return tensor if tensor.flags.behaved else _exportable(tensor)

    def make_out(self, q: Any, v: Any) -> Any:
        return np.empty(_out_shape(q, v), q.dtype)

    def make_lse(self, q: Any) -> Any:
        return np.empty(_lse_shape(q), np.float32)

    def stream(self, like: Any) -> int | None:
        return None

    def result(self, memory: Any, like: Any) -> Any:
        return memory.view(self._bfloat16) if memory.dtype == np.uint16 else memory


def _exportable(array: np.ndarray) -> np.ndarray:
    """Returns an array with the same elements that NumPy exports by DLPack."""
    if not array.flags.aligned:  # a field of packed records, say
        return array.copy()
    return np.asarray(_Writeable(array))


class _Writeable:
    """A read-only array that says it is not."""

    def __init__(self, array: np.ndarray) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}
        self._array = array


class Torch:
    """PyTorch tensors."""

    name = "PyTorch tensor"
    uint16_is_bfloat16 = False

    def __init__(self) -> None:
        self._torch = sys.modules["torch"]
        self._strided = self._torch.strided
        # Since 2.10 PyTorch tells tvm_ffi its stream, and gives it memory.
        self._tells_stream = hasattr(self._torch.Tensor, "__dlpack_c_exchange_api__")

    def version(self) -> str:
        return f"torch {self._torch.__version__}"

    def operand(self, name: str, tensor: Any) -> Any:
        if type(tensor) is not self._torch.Tensor:
            _check_framework(self, name, tensor)
        if tensor.layout is not self._strided:
            raise ValueError(f"{name}: expected layout torch.strided, found {tensor.layout}")
        if tensor.is_neg():  # a view whose memory holds the numbers with the other sign
            tensor = tensor.resolve_neg()
        if tensor.requires_grad:
            if self._torch.is_grad_enabled():
                raise NotImplementedError(
                    f"{name}: requires grad, and parapet has no backward yet; call it under "
                    f"torch.no_grad() or pass {name}.detach()"
                )
            return tensor.detach()
        return tensor

    def make_out(self, q: Any, v: Any) -> Any:
        if q.ndim and v.ndim and q.size(-1) == v.size(-1):  # the usual case, in half of the time
            return self._torch.empty_like(q, memory_format=self._torch.contiguous_format)
        return q.new_empty(_out_shape(q, v))

    def make_lse(self, q: Any) -> Any:
        return q.new_empty(_lse_shape(q), dtype=self._torch.float32)

    def stream(self, like: Any) -> int | None:
        if self._tells_stream or not like.is_cuda:
            return None
        return int(self._torch.cuda.current_stream(like.device).cuda_stream)

    def result(self, memory: Any, like: Any) -> Any:
        return memory


class DLPack:
    """Any other producer of DLPack; results are imported by the producer's own library.

    On a GPU the producers make their tensors ready for the default stream, which the call runs on.
    What stream the results will be used on is not known, so they are waited for.
    """

    uint16_is_bfloat16 = False

    def __init__(self, package: str) -> None:
        self.name = f"tensor of {package}"
        self._package = package

    def version(self) -> str:
        return f"{self._package} {getattr(sys.modules[self._package], '__version__', '')}".strip()

    def operand(self, name: str, tensor: Any) -> Any:
        _check_framework(self, name, tensor)
        return _ffi.from_dlpack(tensor)

    def make_out(self, q: Any, v: Any) -> Any:
        return _ffi.empty(_out_shape(q, v), q.dtype, q.device)

    def make_lse(self, q: Any) -> Any:
        return _ffi.empty(_lse_shape(q), "float32", q.device)

    def stream(self, like: Any) -> int | None:
        return 0

    def result(self, memory: Any, like: Any) -> Any:
        _ffi.wait(memory.device)
        if hasattr(like, "__array_namespace__"):
            library = like.__array_namespace__()
        else:
            library = sys.modules.get(self._package)
        # Of a library without from_dlpack the result stays a producer of DLPack, from tvm_ffi.
        return library.from_dlpack(memory) if hasattr(library, "from_dlpack") else memory


def _out_shape(q: Any, v: Any) -> Shape:
    return (*q.shape[:-1], *v.shape[-1:])


def _lse_shape(q: Any) -> Shape:
    """(B, Sq, H, D) to (B, H, Sq), and (total_q, H, D) to (H, total_q)."""
    if len(q.shape) < 3:
        return (0,)  # the call will be refused for q
    *batch, rows, heads, _ = q.shape
    return (*batch, heads, rows)


_frameworks: dict[str, Framework] = {"numpy": NumPy()}  # by package
_framework_of_type: dict[type, Framework] = {}


def framework_of(name: str, tensor: Any) -> Framework:
    """Returns the framework of an argument; raises TypeError for what is not a tensor."""
    kind = type(tensor)
    framework = _framework_of_type.get(kind)
    if framework is None:
        framework = _framework_of_type[kind] = _find(name, kind)
    return framework


def _find(name: str, kind: type) -> Framework:
    torch = sys.modules.get("torch")
    masked = sys.modules.get("numpy.ma")  # no reason to import it: that takes longer than a call
    if masked is not None and issubclass(kind, masked.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask, found {kind.__qualname__}")
    if issubclass(kind, np.ndarray):
        return _frameworks["numpy"]
    if torch is not None and issubclass(kind, torch.Tensor):
        return _frameworks.setdefault("torch", Torch())
    if hasattr(kind, "__dlpack__"):
        package = kind.__module__.partition(".")[0]
        return _frameworks.setdefault(package, DLPack(package))
    raise TypeError(
        f"{name}: expected a NumPy array, a PyTorch tensor or another producer of DLPack, "
        f"found {kind.__qualname__}"
    )


def _check_framework(expected: Framework, name: str, tensor: Any) -> None:
    if framework_of(name, tensor) is not expected:
        raise TypeError(
            f"{name}: expected a {expected.name} as q is one, found {type(tensor).__qualname__}"
        )
