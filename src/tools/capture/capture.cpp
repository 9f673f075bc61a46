#include "tools/capture/capture.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "parapet/error.h"
#include "tools/capture/safetensors.h"
#include "tools/json/json.h"

namespace parapet::tools {
namespace {

constexpr int kFormat = 1;
constexpr const char* kMetadataKey = "parapet";

[[noreturn]] void refuse(const std::string& file, std::string_view message) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, message));
}

// The tensors of a capture by name. `Self` is Capture or const Capture, `visit(name, tensor)` takes
// a Tensor or an optional one.
template <class Self, class Visit>
void for_each_tensor(Self& capture, const Visit& visit) {
  visit("q", capture.call.q);
  visit("k", capture.call.k);
  visit("v", capture.call.v);
  visit("cu_seqlens_q", capture.call.cu_seqlens_q);
  visit("cu_seqlens_k", capture.call.cu_seqlens_k);
  visit("seqused_q", capture.call.seqused_q);
  visit("seqused_k", capture.call.seqused_k);
  visit("learnable_sink", capture.call.learnable_sink);
  visit("out", capture.out);
  visit("lse", capture.lse);
}

ForwardOptions read_options(const Node& node) {
  node.allow_only(std::array<std::string_view, 6>{"causal", "num_splits", "softcap",
                                                  "softmax_scale", "window_left", "window_right"});
  const auto present = [&](std::string_view key) -> std::optional<Node> {
    const auto value = node.find(key);
    return value && !value->is_null() ? value : std::nullopt;
  };
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  ForwardOptions options;
  if (const auto causal = node.find("causal")) options.causal = causal->boolean();
  if (const auto cap = node.find("softcap")) options.softcap = cap->float32();
  if (const auto scale = present("softmax_scale")) options.softmax_scale = scale->float32();
  if (const auto left = present("window_left")) options.window_left = left->integer(-1, kMax);
  if (const auto right = present("window_right")) options.window_right = right->integer(-1, kMax);
  if (const auto splits = node.find("num_splits")) {
    options.num_splits = static_cast<int>(splits->integer(0, std::numeric_limits<int>::max()));
  }
  return options;
}

Json to_json(const ForwardOptions& options) {
  const auto value = [](const auto& optional) { return optional ? Json(*optional) : Json(); };
  return {{"causal", options.causal},
          {"num_splits", options.num_splits},
          {"softcap", options.softcap},
          {"softmax_scale", value(options.softmax_scale)},
          {"window_left", value(options.window_left)},
          {"window_right", value(options.window_right)}};
}

void read_metadata(const SafetensorsHeader& header, const std::string& file, Capture& capture) {
  const auto text = header.metadata.find(kMetadataKey);
  if (text == header.metadata.end()) {
    refuse(file, "not a capture: __metadata__ has no \"parapet\"");
  }
  for (const auto& [key, value] : header.metadata) {
    if (key != kMetadataKey) refuse(file, fmt::format("__metadata__: unknown key {}", quote(key)));
  }
  const Json json = parse_json(text->second, file + ": __metadata__.parapet");
  const Node node(json, file, "__metadata__.parapet");
  node.allow_only(
      std::array<std::string_view, 5>{"format", "framework", "function", "options", "parapet"});
  const Node format = node.at("format");
  if (format.integer(0, std::numeric_limits<std::int64_t>::max()) != kFormat) {
    format.expected(fmt::format("{}, the format that this version reads", kFormat));
  }
  const auto line_or_empty = [&](std::string_view key) {
    const auto value = node.find(key);
    return value ? value->line() : std::string();
  };
  capture.parapet = line_or_empty("parapet");
  capture.function = line_or_empty("function");
  capture.framework = line_or_empty("framework");
  capture.call.options = read_options(node.at("options"));
}

void check_names(const SafetensorsHeader& header, const std::string& file, const Capture& capture) {
  std::set<std::string> unknown;
  for (const auto& [name, entry] : header.tensors) unknown.insert(name);
  for_each_tensor(capture, [&](const char* name, const auto& tensor) {
    constexpr bool kRequired = std::is_same_v<decltype(tensor), const Tensor&>;
    if (unknown.erase(name) == 0 && kRequired) {
      refuse(file, fmt::format("tensor {} is missing", name));
    }
  });
  if (!unknown.empty()) refuse(file, fmt::format("unknown tensor {}", quote(*unknown.begin())));
  if (header.tensors.contains("lse") && !header.tensors.contains("out")) {
    refuse(file, "tensor lse without out");
  }
}

}  // namespace

Capture read_capture(const ByteSource& source, const std::string& file) {
  const SafetensorsHeader header = read_safetensors_header(source, file);
  Capture capture;
  read_metadata(header, file, capture);
  check_names(header, file, capture);
  for_each_tensor(capture, [&](const char* name, auto& tensor) {
    const auto entry = header.tensors.find(name);
    if (entry != header.tensors.end()) tensor = read_safetensors_tensor(source, entry->second);
  });
  return capture;
}

Capture read_capture(const std::filesystem::path& path) {
  return read_capture(InputFile(path), path.string());
}

void write_capture(const std::filesystem::path& path, const Capture& capture) {
  std::map<std::string, const Tensor*> tensors;
  for_each_tensor(capture, [&](const char* name, const auto& tensor) {
    if constexpr (std::is_same_v<decltype(tensor), const Tensor&>) {
      tensors[name] = &tensor;
    } else if (tensor) {
      tensors[name] = &*tensor;
    }
  });
  Json metadata{{"format", kFormat}, {"options", to_json(capture.call.options)}};
  const std::pair<const char*, const std::string&> origins[] = {{"parapet", capture.parapet},
                                                                {"function", capture.function},
                                                                {"framework", capture.framework}};
  for (const auto& [key, value] : origins) {
    if (!value.empty()) metadata[key] = value;
  }
  write_file(path, [&](std::ostream& stream) {
    write_safetensors(stream, {{kMetadataKey, dump(metadata)}}, tensors);
  });
}

}  // namespace parapet::tools
