#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "parapet/export.h"
#include "parapet/tensor.h"

namespace parapet {

// The tensors of one attention call. Notation: B segments (batch entries), H query heads, Hk key
// heads (H is a multiple of Hk), Sq and Sk rows of a segment, D and Dv the head dims.
//
// Queries and keys are each either dense, (B, S, heads, dim), or, when their cu_seqlens is given,
// packed, (total, heads, dim): segment b is then the rows cu_seqlens[b] to cu_seqlens[b + 1].
struct ForwardTensors {
  TensorView q;    // (B, Sq, H, D) or (total_q, H, D); float32, bfloat16 or float16
  TensorView k;    // (B, Sk, Hk, D) or (total_k, Hk, D); dtype of q
  TensorView v;    // (B, Sk, Hk, Dv) or (total_k, Hk, Dv); dtype of q
  TensorView out;  // (B, Sq, H, Dv) or (total_q, H, Dv); dtype of q; every element is written

  std::optional<TensorView> lse{};             // (B, H, Sq) or (H, total_q); float32; written
  std::optional<TensorView> cu_seqlens_q{};    // (B + 1), int32; 0, never decreasing, <= total_q
  std::optional<TensorView> cu_seqlens_k{};    // (B + 1), int32; likewise for total_k
  std::optional<TensorView> seqused_q{};       // (B), int32: how many rows of each segment are used
  std::optional<TensorView> seqused_k{};       // (B), int32
  std::optional<TensorView> learnable_sink{};  // (H); float32, bfloat16 or float16
};

struct ForwardOptions {
  // Factor on q k^T, from -1e30 to 1e30; 1 / sqrt(D) when absent.
  std::optional<float> softmax_scale{};

  // Query i of a segment sees the keys j <= i + Sk - Sq: the last query sees the last key.
  bool causal = false;

  // Query i sees the keys i + Sk - Sq - window_left <= j <= i + Sk - Sq + window_right, both ends
  // included. Absent or -1: unlimited. Causal means window_right = 0.
  std::optional<std::int64_t> window_left{};
  std::optional<std::int64_t> window_right{};

  // c from 1e-30 to 1e30 replaces a scaled score s by c * tanh(s / c), before masking. 0: off.
  float softcap = 0.0f;

  // Into how many parts the keys of a segment are split. 1: the result of a segment does not depend
  // on what else is in the call. 0: the library chooses. n: n parts, at most 256. Each is bit-equal
  // from run to run, and for any number of threads.
  int num_splits = 1;

  // CPU threads, at most 1024; 0: as many as OpenMP gives. The result does not depend on it.
  int num_threads = 0;

  // Whether lengths that the host can read are checked and refused when they are malformed. Without
  // it they are clamped into their tensors: the call stays safe and gives what the clamped lengths
  // mean.
  bool check_metadata = true;

  // On a GPU: the stream to queue the work on, a cudaStream_t or CUstream of the GPU's primary
  // context. Null: the default stream.
  void* stream = nullptr;

  // On a GPU: gives so many bytes of its memory, at a multiple of 16, for what is queued on the
  // stream during the call; the caller's framework knows best from where. Empty: from the driver's
  // pool.
  std::function<void*(std::int64_t bytes)> allocate{};
};

// out = softmax(mask(softcap(softmax_scale * q k^T))) v, a segment and a head at a time, without
// ever storing the scores: exact attention with an online softmax (Dao et al., FlashAttention,
// arXiv:2205.14135). Query head h reads key head h / (H / Hk). lse is the natural logarithm of each
// row's sum of exponentials.
//
// A query without a visible key, or beyond its segment's used length, or that no segment covers,
// gets output 0; its lse is -infinity (the sink where there is one, for rows inside the used
// length). Keys that a query does not see cannot change its result, whatever is stored there.
//
// No two elements of out or lse may share memory, nor an element with another tensor; views that
// interleave in one buffer, such as the heads of a fused projection, are fine.
//
// q, k, v and out may have any strides; one whose last stride is not 1 is copied once (on a GPU it
// is refused).
//
// On a GPU (compute capability 8.0 or newer; float16 or bfloat16; head dims a multiple of 8 up to
// 256) the work is queued on options.stream, neither the current device nor context changes,
// nothing waits, and the call may be captured into a graph, which then follows the lengths at each
// replay. Lengths are in the GPU's memory and never read by the host: whatever they are, they are
// clamped into their tensors, and `check` tells of it.
//
// Throws Error: kInvalidArgument for tensors or options that do not fit each other,
// kNotImplemented for those that this version cannot run, kRuntime when memory runs out.
PARAPET_EXPORT void forward(const ForwardTensors& tensors, const ForwardOptions& options = {});

// Waits for a GPU and throws Error(kInvalidArgument), naming the array, the index and the value,
// where a call since the last check had lengths that point outside their tensors. With
// PARAPET_CHECK=1 in the environment every call does this for its own stream. Nothing to do for the
// CPU, whose lengths are checked before a call.
PARAPET_EXPORT void check(Device device);

}  // namespace parapet
