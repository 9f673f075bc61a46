#include "cuda/kernel_unit.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <vector>

#include "parapet/error.h"

namespace parapet::cuda {
namespace {

using kernels::Element;
using kernels::ForwardConfig;

// The switches of a key, as its name spells them.
struct Switch {
  std::string_view name;
  bool ForwardConfig::*field;
  bool usual;
};
constexpr std::array kSwitches{
    Switch{"left", &ForwardConfig::left_edge, false},
    Switch{"right", &ForwardConfig::right_edge, false},
    Switch{"softcap", &ForwardConfig::softcap, false},
    Switch{"packed", &ForwardConfig::packed_heads, false},
    Switch{"unaligned", &ForwardConfig::aligned, true},
};

constexpr std::string_view kPrefix = "forward";
constexpr std::string_view kBfloat16 = "bf16";
constexpr std::string_view kFloat16 = "fp16";

// How names tell the shapes apart: the first of these with the key's shape.
struct NamedShape {
  std::string_view suffix;
  kernels::ShapeHints hints;
};
constexpr std::array kNamedShapes{
    NamedShape{"", {}},
    NamedShape{"-short", {.keys = 0}},
    NamedShape{"-roomy", {.shared_bytes_per_sm = kernels::kRoomySharedBytesPerSm}},
    NamedShape{"-roomy-short", {.keys = 0, .shared_bytes_per_sm = kernels::kRoomySharedBytesPerSm}},
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// "d128" or "d192x128"
bool parse_head_dims(std::string_view text, ForwardConfig& config) {
  if (!text.starts_with('d')) return false;
  const auto parts = split(text.substr(1), 'x');
  if (parts.size() > 2) return false;
  const auto parse = [](std::string_view part, int& value) {
    const char* const end = part.data() + part.size();
    const auto [rest, error] = std::from_chars(part.data(), end, value);
    return error == std::errc() && rest == end && kernels::supports_head_dim(value);
  };
  return parse(parts.front(), config.head_dim) && parse(parts.back(), config.head_dim_v);
}

}  // namespace

std::string kernel_name(const ForwardConfig& config) {
  std::string name =
      fmt::format("{}-{}-d{}", kPrefix, config.element == Element::kBfloat16 ? kBfloat16 : kFloat16,
                  config.head_dim);
  if (config.head_dim_v != config.head_dim) name += fmt::format("x{}", config.head_dim_v);
  for (const Switch& option : kSwitches) {
    if (config.*option.field != option.usual) name += fmt::format("-{}", option.name);
  }
  for (const NamedShape& named : kNamedShapes) {
    if (config.shape == kernels::forward_shape(config, named.hints))
      return name.append(named.suffix);
  }
  return name;
}

ForwardConfig parse_kernel_name(std::string_view name) {
  ForwardConfig config;
  const auto parts = split(name, '-');
  bool valid = parts.size() >= 3 && parts[0] == kPrefix &&
               (parts[1] == kBfloat16 || parts[1] == kFloat16) && parse_head_dims(parts[2], config);
  if (valid) {
    config.element = parts[1] == kBfloat16 ? Element::kBfloat16 : Element::kFloat16;
    for (std::size_t i = 3; i < parts.size(); ++i) {
      for (const Switch& option : kSwitches) {
        if (option.name == parts[i]) config.*option.field = !option.usual;
      }
    }
    for (const NamedShape& named : kNamedShapes) {  // the longest suffix that fits comes last
      if (name.ends_with(named.suffix)) config.shape = kernels::forward_shape(config, named.hints);
    }
    valid = kernel_name(config) == name;  // nothing unknown, twice or out of order
  }
  if (!valid) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("kernel: expected a name such as forward-bf16-d128 or "
                    "forward-fp16-d192x128-left-right-softcap-packed-unaligned-roomy-short (head "
                    "dims: multiples of {} up to {}), found '{}'",
                    kernels::kHeadDimStep, kernels::kMaxHeadDim, name));
  }
  return config;
}

std::string translation_unit(const ForwardConfig& config, const ParamLayout& layout) {
  std::string unit = fmt::format(
      "// {}\n"
      "#include \"kernels/core/params.h\"\n"
      "#include \"kernels/core/work_list.h\"\n"
      "#include \"kernels/mma/forward.h\"\n"
      "\n"
      "using namespace parapet::kernels;\n"
      "\n"
      "// NVRTC has no offsetof without the toolkit's headers; this is what its front end makes of "
      "it.\n"
      "#define OFFSET(field) __INTADDR__(&((ForwardParams*)0)->field)\n"
      "static_assert(sizeof(ForwardParams) == {}, \"ForwardParams: its size on the host "
      "differs\");\n",
      kernel_name(config), layout.size);
  for (const auto& field : layout.fields) {
    unit += fmt::format(
        "static_assert(OFFSET({0}) == {1}, \"ForwardParams::{0}: its offset on the host is "
        "{1}\");\n",
        field.name, field.offset);
  }
  unit += fmt::format(
      "\n"
      "constexpr ForwardConfig kConfig{{\n"
      "    .element = Element::{},\n"
      "    .head_dim = {},\n"
      "    .head_dim_v = {},\n"
      "    .left_edge = {},\n"
      "    .right_edge = {},\n"
      "    .softcap = {},\n"
      "    .packed_heads = {},\n"
      "    .aligned = {},\n",
      config.element == Element::kBfloat16 ? "kBfloat16" : "kFloat16", config.head_dim,
      config.head_dim_v, config.left_edge, config.right_edge, config.softcap, config.packed_heads,
      config.aligned);
  unit += fmt::format(
      "    .shape = {{.warps = {}, .row_tiles = {}, .key_tile = {}, .chunk = {}, .stages = {},\n"
      "              .pipelined = {}, .blocks_per_sm = {}, .first_copy = {}, .other_copies = {},\n"
      "              .late_pairs = {}}},\n"
      "}};\n",
      config.shape.warps, config.shape.row_tiles, config.shape.key_tile, config.shape.chunk,
      config.shape.stages, config.shape.pipelined, config.shape.blocks_per_sm,
      config.shape.first_copy, config.shape.other_copies, config.shape.late_pairs);
  unit += fmt::format(
      "\n"
      "extern \"C\" __global__ void __launch_bounds__(forward_threads(kConfig), "
      "kConfig.shape.blocks_per_sm)\n"
      "{}(const __grid_constant__ ForwardParams params) {{\n"
      "  forward_mma<kConfig>(params);\n"
      "}}\n"
      "\n"
      "extern \"C\" __global__ void __launch_bounds__(kWorkListThreads)\n"
      "{}(const __grid_constant__ ForwardParams params) {{\n"
      "  make_work_list(params);\n"
      "}}\n",
      kForwardEntry, kWorkListEntry);
  return unit;
}

}  // namespace parapet::cuda
