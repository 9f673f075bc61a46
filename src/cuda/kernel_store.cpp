#include "cuda/kernel_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "cuda/kernel_unit.h"
#include "cuda/param_layout.h"
#include "cuda/shared_library.h"
#include "cuda/sources.h"
#include "parapet/error.h"

namespace parapet::cuda {
namespace {

using kernels::ForwardConfig;

constexpr std::int64_t kDefaultCacheMb = 500;
constexpr std::int64_t kMaxCacheMb = 1'000'000'000;

// What every compilation is given besides the architecture.
const std::vector<std::string>& common_options() {
  static const std::vector<std::string> options{"-std=c++20", "--no-source-include"};
  return options;
}

std::string unit_of(const ForwardConfig& config) {
  return translation_unit(config, forward_param_layout());
}

CacheKey make_key(const ForwardConfig& config, Arch arch, const std::string& compiler) {
  return {
      fmt::format("{}-{}", kernel_name(config), arch.name()),
      fmt::format("arch: {}\ncompiler: {}\noptions: {}\nsources: {}\n\n{}", arch.name(), compiler,
                  fmt::join(common_options(), " "), embedded_sources_hash(), unit_of(config))};
}

CacheKey cached_key(const ForwardConfig& config, Arch arch, const Nvrtc& nvrtc) {
  return make_key(config, arch, "NVRTC " + nvrtc.version());
}

// The architectures whose code a GPU runs, best first.
std::vector<Arch> runnable(Arch device) {
  std::vector<Arch> archs{device};
  for (int minor = device.minor; minor >= 0; --minor) {
    const Arch arch{device.major, minor, 0};
    if (arch != device) archs.push_back(arch);
  }
  return archs;
}

std::optional<KernelImage> find_precompiled(const ForwardConfig& config, Arch device) {
  std::optional<KernelCache> directory;
  try {
    directory = KernelCache::read_only(precompiled_directory());
  } catch (const Error&) {
    return std::nullopt;  // nothing came with this build
  }
  for (const Arch arch : runnable(device)) {
    if (auto bytes = directory->load(precompiled_key(config, arch))) {
      return KernelImage{std::move(*bytes)};
    }
  }
  return std::nullopt;
}

// The cache where there is one that may be used; a call goes on without.
std::optional<KernelCache> open_cache() {
  try {
    return KernelCache::open_default();
  } catch (const Error&) {
    return std::nullopt;
  }
}

const Nvrtc& compiler_for(const ForwardConfig& config, Arch arch) {
  try {
    return Nvrtc::instance();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("kernel {} for {} has to be compiled: {}",
                                          kernel_name(config), arch.name(), error.what()));
  }
}

}  // namespace

CacheKey precompiled_key(const ForwardConfig& config, Arch arch) {
  return make_key(config, arch, "any");
}

std::string precompiled_directory() {
  const char* directory = std::getenv("PARAPET_PRECOMPILED_DIR");
  return directory != nullptr && *directory != '\0' ? directory
                                                    : own_directory() + "/parapet-kernels";
}

std::int64_t cache_limit_bytes() {
  const char* text = std::getenv("PARAPET_CACHE_MB");
  const std::string_view digits = text != nullptr ? text : "";
  std::int64_t megabytes = kDefaultCacheMb;
  const auto [rest, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), megabytes);
  const bool valid = error == std::errc() && rest == digits.data() + digits.size() &&
                     megabytes >= 0 && megabytes < kMaxCacheMb;
  return (valid ? megabytes : kDefaultCacheMb) * 1'000'000;
}

KernelImage compile_kernel(const ForwardConfig& config, Arch arch) {
  const Nvrtc& nvrtc = compiler_for(config, arch);
  const CacheKey key = cached_key(config, arch, nvrtc);
  const std::optional<KernelCache> cache = open_cache();
  if (cache) {
    if (auto bytes = cache->load(key)) return {std::move(*bytes)};
  }
  std::vector<std::string> options = common_options();
  options.push_back(nvrtc.target(arch).option);
  KernelImage image = nvrtc.compile(kernel_name(config), unit_of(config), options);
  if (cache) cache->store(key, image.bytes, cache_limit_bytes());
  return image;
}

KernelImage find_kernel(const ForwardConfig& config, Arch device) {
  if (auto image = find_precompiled(config, device)) return std::move(*image);
  return compile_kernel(config, device);
}

}  // namespace parapet::cuda
