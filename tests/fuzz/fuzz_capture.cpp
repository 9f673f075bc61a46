#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "parapet/attention.h"
#include "parapet/error.h"
#include "tools/capture/capture.h"

// Any bytes are either refused with an Error or are a call, which in its turn is refused with an
// Error or computed.

namespace {

class MemorySource final : public parapet::tools::ByteSource {
 public:
  explicit MemorySource(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override {
    const auto part = bytes_.subspan(offset).first(bytes.size());
    if (!part.empty()) std::memcpy(bytes.data(), part.data(), part.size());
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// A short file can ask for a large result: v without rows may have any head dim.
constexpr std::int64_t kMaxResultBytes = std::int64_t{1} << 20;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parapet;
  try {
    tools::Capture capture = tools::read_capture(MemorySource({data, size}), "fuzz");
    tools::Call& call = capture.call;
    if (tools::bytes_of(call.q.dtype(), call.out_shape()) > kMaxResultBytes ||
        tools::bytes_of(DType::kFloat32, call.lse_shape()) > kMaxResultBytes) {
      return 0;
    }
    const tools::Result result = call.make_result();
    call.options.num_threads = 1;
    forward(call.with(result), call.options);
  } catch (const Error&) {
  }
  return 0;
}
