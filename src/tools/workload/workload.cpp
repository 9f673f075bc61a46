#include "tools/workload/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "api/problem.h"
#include "cpu/forward.h"
#include "parapet/error.h"
#include "plan/cpu_schedule.h"
#include "tools/file/file.h"

namespace parapet::tools {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;
constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 20;

// In a file with a grid these are allowed beside it, for all of its cases, and in each case.
constexpr std::string_view kCaseKeys[] = {
    "batch",         "causal",      "cu_seqlens_k", "cu_seqlens_q", "dtype",     "head_dim",
    "head_dim_v",    "k_lens",      "max_seqlen_k", "max_seqlen_q", "num_heads", "num_heads_k",
    "q_lens",        "seqlen",      "seqlen_k",     "seqlen_q",     "sink",      "softcap",
    "softmax_scale", "window_left", "window_right"};

// The fields of a case: its own, and for those that it lacks the ones that the file gives for all.
class Fields {
 public:
  Fields(Node entry, Node file) : entry_(std::move(entry)), file_(std::move(file)) {}

  std::optional<Node> find(std::string_view key) const {
    if (const auto own = entry_.find(key)) return own;
    return file_.find(key);
  }
  std::int64_t extent(std::string_view key, std::int64_t min, std::int64_t max = kMaxExtent) const {
    const auto node = find(key);
    return (node ? *node : entry_.at(key)).integer(min, max);
  }
  std::int64_t extent_or(std::string_view key, std::int64_t min, std::int64_t fallback) const {
    return find(key) ? extent(key, min) : fallback;
  }
  const Node& entry() const { return entry_; }

 private:
  Node entry_;
  Node file_;
};

DType dtype_of(const Node& node) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (node.string() == name_of(dtype)) return dtype;
  }
  node.expected("\"float32\", \"bfloat16\" or \"float16\"");
}

// From "<side>_lens" or "cu_seqlens_<side>"; empty when neither is there.
std::vector<std::int32_t> cu_seqlens_of(const Fields& fields, char side) {
  const auto lens = fields.find(fmt::format("{}_lens", side));
  const auto cu_seqlens = fields.find(fmt::format("cu_seqlens_{}", side));
  if (lens && cu_seqlens) {
    lens->refuse(fmt::format("expected either {0}_lens or cu_seqlens_{0}, found both", side));
  }
  std::vector<std::int32_t> result;
  if (lens) {
    std::int64_t sum = 0;
    result.push_back(0);
    for (const Node& length : lens->array()) {
      sum += length.integer(0, kMaxExtent - sum);
      result.push_back(static_cast<std::int32_t>(sum));
    }
  }
  if (cu_seqlens) {
    for (const Node& entry : cu_seqlens->array()) {
      const std::int64_t low = result.empty() ? 0 : result.back();
      const std::int64_t high = result.empty() ? 0 : kMaxExtent;  // the first one is 0
      result.push_back(static_cast<std::int32_t>(entry.integer(low, high)));
    }
  }
  if ((lens || cu_seqlens) && result.size() < 2) {
    (lens ? lens : cu_seqlens)->refuse("expected at least one segment, found none");
  }
  if (static_cast<std::int64_t>(result.size()) > kMaxBatch) {
    (lens ? lens : cu_seqlens)->refuse(fmt::format("expected at most {} segments", kMaxBatch));
  }
  return result;
}

void read_lengths(const Fields& fields, Case& c) {
  c.cu_seqlens_q = cu_seqlens_of(fields, 'q');
  c.cu_seqlens_k = cu_seqlens_of(fields, 'k');
  if (c.cu_seqlens_q.empty() != c.cu_seqlens_k.empty()) {
    fields.entry().refuse("expected lengths of both q and k, found those of one");
  }
  if (c.packed()) {
    if (c.cu_seqlens_q.size() != c.cu_seqlens_k.size()) {
      fields.entry().refuse(fmt::format("expected as many segments of k as of q, {}, found {}",
                                        c.cu_seqlens_q.size() - 1, c.cu_seqlens_k.size() - 1));
    }
    for (const char* key : {"batch", "seqlen", "seqlen_q", "seqlen_k"}) {
      if (const auto node = fields.find(key)) node->refuse("not for a packed call");
    }
    c.batch = static_cast<std::int64_t>(c.cu_seqlens_q.size()) - 1;
    return;
  }
  c.batch = fields.extent("batch", 1, kMaxBatch);
  if (const auto both = fields.find("seqlen")) {
    c.seqlen_q = c.seqlen_k = both->integer(0, kMaxExtent);
    for (const char* key : {"seqlen_q", "seqlen_k"}) {
      if (const auto node = fields.find(key)) node->refuse("not beside seqlen");
    }
  } else {
    c.seqlen_q = fields.extent("seqlen_q", 0);
    c.seqlen_k = fields.extent("seqlen_k", 0);
  }
}

void read_options(const Fields& fields, Case& c) {
  const auto reach = [&](std::string_view key) -> std::optional<std::int64_t> {
    const auto node = fields.find(key);
    if (!node || node->is_null()) return std::nullopt;
    return node->integer(-1, kMaxExtent);
  };
  const auto hint = [&](std::string_view key) -> std::optional<std::int64_t> {
    if (!fields.find(key)) return std::nullopt;
    return fields.extent(key, 0);
  };
  c.options.window_left = reach("window_left");
  c.options.window_right = reach("window_right");
  c.max_seqlen_q = hint("max_seqlen_q");
  c.max_seqlen_k = hint("max_seqlen_k");
  if (const auto causal = fields.find("causal")) c.options.causal = causal->boolean();
  if (const auto sink = fields.find("sink")) c.sink = sink->boolean();
  if (const auto scale = fields.find("softmax_scale"); scale && !scale->is_null()) {
    c.options.softmax_scale = scale->float32();
  }
  if (const auto cap = fields.find("softcap")) {
    c.options.softcap = cap->float32();
    if (c.options.softcap < 0) cap->expected("a number of at least 0");
  }
}

Case read_case(const Fields& fields) {
  Case c;
  if (const auto dtype = fields.find("dtype")) c.dtype = dtype_of(*dtype);
  c.num_heads = fields.extent("num_heads", 1);
  c.num_heads_k = fields.extent_or("num_heads_k", 1, c.num_heads);
  c.head_dim = fields.extent("head_dim", 1);
  c.head_dim_v = fields.extent_or("head_dim_v", 1, c.head_dim);
  if (c.num_heads % c.num_heads_k != 0) {
    fields.find("num_heads_k")->expected(fmt::format("a divisor of num_heads = {}", c.num_heads));
  }
  read_lengths(fields, c);
  read_options(fields, c);
  try {
    bytes_of(c);
    plan_of(c);
  } catch (const Error&) {
    fields.entry().refuse("expected tensors of fewer than 2^63 bytes and fewer than 2^63 FLOPs");
  }
  return c;
}

Shape rows_shape(const Case& c, std::int64_t seqlen, const std::vector<std::int32_t>& cu_seqlens,
                 std::int64_t heads, std::int64_t dim) {
  if (c.packed()) return {cu_seqlens.back(), heads, dim};
  return {c.batch, seqlen, heads, dim};
}
Shape shape_q(const Case& c) {
  return rows_shape(c, c.seqlen_q, c.cu_seqlens_q, c.num_heads, c.head_dim);
}
Shape shape_k(const Case& c) {
  return rows_shape(c, c.seqlen_k, c.cu_seqlens_k, c.num_heads_k, c.head_dim);
}
Shape shape_v(const Case& c) {
  return rows_shape(c, c.seqlen_k, c.cu_seqlens_k, c.num_heads_k, c.head_dim_v);
}
Shape shape_out(const Case& c) {
  return rows_shape(c, c.seqlen_q, c.cu_seqlens_q, c.num_heads, c.head_dim_v);
}

// A file may say what its cases cost, for people; then it has to be true, as far as it is written.
void check_tflop(const Node& node, const std::vector<Case>& cases) {
  double tflop = 0;
  for (const Case& c : cases) tflop += static_cast<double>(plan_of(c).flops) * 1e-12;
  if (std::abs(node.number() - tflop) > 0.001 * tflop) {
    node.expected(fmt::format("the work of the file's cases, {:.3f}", tflop));
  }
}

}  // namespace

Workload parse_workload(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const Node top(json, file);
  std::vector<std::string_view> keys{"grid", "name", "source", "tflop"};
  keys.insert(keys.end(), std::begin(kCaseKeys), std::end(kCaseKeys));
  top.allow_only(keys);

  Workload workload;
  const auto name = top.find("name");
  workload.name = name ? name->line() : std::filesystem::path(file).stem().string();
  if (const auto source = top.find("source")) workload.source = source->line();
  if (const auto grid = top.find("grid")) {
    for (const Node& entry : grid->array()) {
      entry.allow_only(kCaseKeys);
      workload.cases.push_back(read_case({entry, top}));
    }
    if (workload.cases.empty()) grid->refuse("expected at least one case, found none");
  } else {
    workload.cases.push_back(read_case({top, top}));
  }
  if (const auto tflop = top.find("tflop")) check_tflop(*tflop, workload.cases);
  return workload;
}

Workload read_workload(const std::string& name_or_path) {
  for (const BuiltinWorkload& builtin : builtin_workloads()) {
    if (name_or_path == builtin.name) return parse_workload(builtin.text, name_or_path);
  }
  return parse_workload(read_text(name_or_path, kMaxFileBytes), name_or_path);
}

plan::ForwardPlan plan_of(const Case& c) {
  // A row of the CPU backend's panels is a query of one of the heads that share a key head.
  const std::int64_t group = c.num_heads / c.num_heads_k;
  plan::ForwardShape shape{.num_heads = c.num_heads,
                           .num_heads_k = c.num_heads_k,
                           .head_dim = c.head_dim,
                           .head_dim_v = c.head_dim_v,
                           .band = api::band_of(c.options),
                           .segments = {},
                           .tile_rows = std::max<std::int64_t>(1, cpu::panel_rows() / group),
                           .tile_keys = plan::kCpuTileKeys};
  for (std::int64_t b = 0; b < c.batch; ++b) {
    shape.segments.push_back(c.packed()
                                 ? plan::SegmentLengths{c.cu_seqlens_q[b + 1] - c.cu_seqlens_q[b],
                                                        c.cu_seqlens_k[b + 1] - c.cu_seqlens_k[b]}
                                 : plan::SegmentLengths{c.seqlen_q, c.seqlen_k});
  }
  return plan::plan_forward(std::move(shape));
}

std::int64_t bytes_of(const Case& c) {
  std::int64_t sum = 0;
  for (const Shape& shape : {shape_q(c), shape_k(c), shape_v(c), shape_out(c)}) {
    if (__builtin_add_overflow(sum, bytes_of(c.dtype, shape), &sum)) {
      throw Error(ErrorCode::kInvalidArgument, "shape: expected fewer than 2^63 bytes, found more");
    }
  }
  return sum;
}

Call random_call(const Case& c, std::uint64_t seed) {
  Call call{.q = Tensor(c.dtype, shape_q(c)),
            .k = Tensor(c.dtype, shape_k(c)),
            .v = Tensor(c.dtype, shape_v(c)),
            .options = c.options};
  fill_normal(call.q, seed);
  fill_normal(call.k, seed + 1);
  fill_normal(call.v, seed + 2);
  if (c.sink) fill_normal(call.learnable_sink.emplace(c.dtype, Shape{c.num_heads}), seed + 3);
  if (c.packed()) {
    call.cu_seqlens_q = int32_tensor(c.cu_seqlens_q);
    call.cu_seqlens_k = int32_tensor(c.cu_seqlens_k);
  }
  return call;
}

}  // namespace parapet::tools
