#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/forward_plan.h"
#include "tools/call/call.h"
#include "tools/json/json.h"

// Workload files: the shapes of attention calls as JSON, without data. docs/cli.md describes them.

namespace parapet::tools {

// One call. Dense, or packed when it has cu_seqlens.
struct Case {
  bool packed() const { return !cu_seqlens_q.empty(); }

  DType dtype = DType::kBFloat16;
  std::int64_t num_heads = 0;
  std::int64_t num_heads_k = 0;
  std::int64_t head_dim = 0;
  std::int64_t head_dim_v = 0;

  std::int64_t batch = 0;
  std::int64_t seqlen_q = 0;  // of a dense call
  std::int64_t seqlen_k = 0;
  std::vector<std::int32_t> cu_seqlens_q;
  std::vector<std::int32_t> cu_seqlens_k;
  std::optional<std::int64_t> max_seqlen_q;  // hints that change nothing
  std::optional<std::int64_t> max_seqlen_k;

  bool sink = false;
  ForwardOptions options;
};

struct Workload {
  std::string name;
  std::string source;  // where the shapes come from
  std::vector<Case> cases;
};

// The file's contents; `file` is the name that complaints begin with. Throws
// Error(kInvalidArgument) that names file and key.
Workload parse_workload(std::string_view text, const std::string& file);

// A workload by its name, if it is one of those that come with parapet, or by its path.
Workload read_workload(const std::string& name_or_path);

struct BuiltinWorkload {
  std::string_view name;
  std::string_view text;
};
std::span<const BuiltinWorkload> builtin_workloads();

// What the CPU backend will do for a case.
plan::ForwardPlan plan_of(const Case& c);

// Bytes of q, k, v and out: what a call has to read and write once.
std::int64_t bytes_of(const Case& c);

// "B4 S512 H8 D64 causal", "8 segments S35280/116448 H56 D128": queries before keys where they
// differ.
std::string label(const Case& c);

// A case in full, as benchmark files have it; parse_workload reads it back.
Json to_json(const Case& c);

// A call of these shapes with normal random data.
Call random_call(const Case& c, std::uint64_t seed);

}  // namespace parapet::tools
