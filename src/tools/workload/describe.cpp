#include <fmt/format.h>

#include "tools/workload/workload.h"

// A case in words and as JSON.

namespace parapet::tools {
namespace {

std::string count_text(std::int64_t queries, std::int64_t keys) {
  return queries == keys ? fmt::format("{}", queries) : fmt::format("{}/{}", queries, keys);
}

std::string mask_text(const ForwardOptions& options) {
  const auto side = [](const std::optional<std::int64_t>& reach) {
    return reach && *reach >= 0 ? fmt::format("{}", *reach) : std::string("inf");
  };
  const bool window =
      options.window_left.value_or(-1) >= 0 || options.window_right.value_or(-1) >= 0;
  std::string text = options.causal ? " causal" : "";
  if (window) {
    text += fmt::format(" window {},{}", side(options.window_left), side(options.window_right));
  }
  return text;
}

}  // namespace

std::string label(const Case& c) {
  std::string text = c.packed()
                         ? fmt::format("{} segments S{}", c.batch,
                                       count_text(c.cu_seqlens_q.back(), c.cu_seqlens_k.back()))
                         : fmt::format("B{} S{}", c.batch, count_text(c.seqlen_q, c.seqlen_k));
  text += fmt::format(" H{} D{}", count_text(c.num_heads, c.num_heads_k),
                      count_text(c.head_dim, c.head_dim_v));
  text += mask_text(c.options);
  if (c.options.softcap > 0) text += fmt::format(" softcap {}", c.options.softcap);
  if (c.sink) text += " sink";
  return text;
}

Json to_json(const Case& c) {
  Json json{{"num_heads", c.num_heads},
            {"num_heads_k", c.num_heads_k},
            {"head_dim", c.head_dim},
            {"head_dim_v", c.head_dim_v},
            {"causal", c.options.causal}};
  if (c.packed()) {
    json["cu_seqlens_q"] = c.cu_seqlens_q;
    json["cu_seqlens_k"] = c.cu_seqlens_k;
  } else {
    json["batch"] = c.batch;
    json["seqlen_q"] = c.seqlen_q;
    json["seqlen_k"] = c.seqlen_k;
  }
  if (c.options.window_left) json["window_left"] = *c.options.window_left;
  if (c.options.window_right) json["window_right"] = *c.options.window_right;
  if (c.options.softcap > 0) json["softcap"] = c.options.softcap;
  if (c.options.softmax_scale) json["softmax_scale"] = *c.options.softmax_scale;
  if (c.sink) json["sink"] = true;
  return json;
}

}  // namespace parapet::tools
