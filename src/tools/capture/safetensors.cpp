#include "tools/capture/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "parapet/error.h"
#include "tools/json/json.h"

namespace parapet::tools {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{1} << 20;  // those of captures take 1 KB
constexpr std::int64_t kMaxExtent = INT64_MAX;
constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<std::string_view, DType>, 4> kDTypes{{
    {"F32", DType::kFloat32},
    {"F16", DType::kFloat16},
    {"BF16", DType::kBFloat16},
    {"I32", DType::kInt32},
}};

[[noreturn]] void refuse(const std::string& file, std::string_view message) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, message));
}

DType read_dtype(const Node& node) {
  for (const auto& [name, dtype] : kDTypes) {
    if (node.string() == name) return dtype;
  }
  node.expected("\"F32\", \"F16\", \"BF16\" or \"I32\"");
}

struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

ByteRange read_range(const Node& node, std::int64_t data_bytes) {
  const std::vector<Node> offsets = node.array();
  if (offsets.size() != 2) node.refuse(fmt::format("expected 2 numbers, found {}", offsets.size()));
  const std::int64_t begin = offsets[0].integer(0, data_bytes);
  return {begin, offsets[1].integer(begin, data_bytes)};
}

SafetensorsEntry read_entry(const Node& node, ByteRange range) {
  SafetensorsEntry entry;
  entry.dtype = read_dtype(node.at("dtype"));
  const Node shape = node.at("shape");
  for (const Node& extent : shape.array()) entry.shape.push_back(extent.integer(0, kMaxExtent));
  if (entry.shape.size() > TensorView::kMaxRank) {
    shape.refuse(fmt::format("expected at most {} dimensions, found {}", TensorView::kMaxRank,
                             entry.shape.size()));
  }
  std::int64_t bytes = size_of(entry.dtype);
  const bool overflow = std::any_of(
      entry.shape.begin(), entry.shape.end(),
      [&](std::int64_t extent) { return __builtin_mul_overflow(bytes, extent, &bytes); });
  if (overflow) shape.refuse("expected fewer than 2^63 bytes, found more");
  if (range.end - range.begin != bytes) {
    node.at("data_offsets")
        .refuse(fmt::format("expected {} bytes, as dtype and shape say, found {}", bytes,
                            range.end - range.begin));
  }
  return entry;
}

std::string read_header_text(const ByteSource& source, const std::string& file) {
  if (source.size() < kLengthBytes) {
    refuse(file, fmt::format("not a safetensors file: expected at least 8 bytes, found {}",
                             source.size()));
  }
  std::uint64_t length = 0;
  source.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMaxHeaderBytes) {
    refuse(file,
           fmt::format("not a capture: expected a header of at most {} bytes, found a length of {}",
                       kMaxHeaderBytes, length));
  }
  if (length > source.size() - kLengthBytes) {
    refuse(file, fmt::format("cut short: expected a header of {} bytes, found {}", length,
                             source.size() - kLengthBytes));
  }
  std::string text(length, '\0');
  source.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (!text.starts_with('{'))
    refuse(file, "not a safetensors file: the header does not begin with {");
  return text;
}

// Tensors follow each other without gaps and fill the data.
void check_coverage(const std::string& file, std::vector<std::pair<ByteRange, std::string>> ranges,
                    std::int64_t data_bytes) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.begin, a.first.end) < std::pair(b.first.begin, b.first.end);
  });
  std::int64_t end = 0;
  for (const auto& [range, name] : ranges) {
    if (range.begin != end) {
      refuse(file,
             fmt::format("{}.data_offsets: expected to begin at {}, where the tensor before it "
                         "ends, found {}",
                         quote(name), end, range.begin));
    }
    end = range.end;
  }
  if (end != data_bytes) {
    refuse(file, fmt::format("expected {} bytes of tensors, found {}", end, data_bytes));
  }
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ByteSource& source, const std::string& file) {
  const std::string text = read_header_text(source, file);
  const Json json = parse_json(text, file);
  const std::uint64_t data_begin = kLengthBytes + text.size();
  const auto data_bytes = static_cast<std::int64_t>(source.size() - data_begin);

  SafetensorsHeader header;
  std::vector<std::pair<ByteRange, std::string>> ranges;
  for (const auto& [name, node] : Node(json, file).members()) {
    if (name == kMetadata) {
      for (const auto& [key, value] : node.members()) header.metadata[key] = value.string();
      continue;
    }
    node.allow_only(std::array<std::string_view, 3>{"data_offsets", "dtype", "shape"});
    const ByteRange range = read_range(node.at("data_offsets"), data_bytes);
    SafetensorsEntry entry = read_entry(node, range);
    entry.offset = data_begin + static_cast<std::uint64_t>(range.begin);
    ranges.emplace_back(range, name);
    header.tensors.emplace(name, std::move(entry));
  }
  check_coverage(file, std::move(ranges), data_bytes);
  return header;
}

Tensor read_safetensors_tensor(const ByteSource& source, const SafetensorsEntry& entry) {
  Tensor tensor(entry.dtype, entry.shape);
  source.read(entry.offset, tensor.bytes());
  return tensor;
}

void write_safetensors(std::ostream& stream, const std::map<std::string, std::string>& metadata,
                       const std::map<std::string, const Tensor*>& tensors) {
  Json header{{kMetadata, metadata}};
  std::int64_t begin = 0;
  for (const auto& [name, pointer] : tensors) {
    const Tensor& tensor = *pointer;
    const auto dtype = std::find_if(kDTypes.begin(), kDTypes.end(),
                                    [&](const auto& d) { return d.second == tensor.dtype(); });
    const std::int64_t end = begin + static_cast<std::int64_t>(tensor.bytes().size());
    header[name] = {
        {"dtype", dtype->first}, {"shape", tensor.shape()}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = dump(header);
  text.resize((text.size() + 7) / 8 * 8,
              ' ');  // spaces at the end are allowed; they align the data
  const std::uint64_t length = text.size();
  stream.write(reinterpret_cast<const char*>(&length), sizeof length);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto& [name, tensor] : tensors) {
    stream.write(reinterpret_cast<const char*>(tensor->bytes().data()),
                 static_cast<std::streamsize>(tensor->bytes().size()));
  }
}

}  // namespace parapet::tools
