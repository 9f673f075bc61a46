#include "cuda/arch.h"

#include <fmt/format.h>

#include <charconv>

#include "parapet/error.h"

namespace parapet::cuda {

Arch Arch::parse(std::string_view name) {
  const auto fail = [&]() -> Error {
    return {ErrorCode::kInvalidArgument,
            fmt::format("arch: expected a name such as sm_80 or sm_90a, found '{}'", name)};
  };
  constexpr std::string_view kPrefix = "sm_";
  if (!name.starts_with(kPrefix)) throw fail();
  const char* const end = name.data() + name.size();
  int number = 0;
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, number);
  if (error != std::errc() || number < 10 || number > 999) throw fail();
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  if (!suffix.empty() && suffix != "a" && suffix != "f") throw fail();
  return {number / 10, number % 10, suffix.empty() ? char{0} : suffix.front()};
}

Arch Arch::of_capability(int major, int minor) {
  // Only sm_90a has the tensor memory accelerator's and the warpgroup's instructions.
  const bool hopper = major == 9 && minor == 0;
  return {major, minor, hopper ? 'a' : char{0}};
}

int Arch::shared_bytes_per_sm() const {
  const bool is_ampere_for_servers = number() == 80 || number() == 87;
  const bool is_for_servers = major == 9 || major == 10 || major == 11;
  return (is_ampere_for_servers ? 164 : is_for_servers ? 228 : 100) * 1024;
}

std::string Arch::name() const {
  std::string text = fmt::format("sm_{}", number());
  if (suffix != 0) text += suffix;
  return text;
}

}  // namespace parapet::cuda
