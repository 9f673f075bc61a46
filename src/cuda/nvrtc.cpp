#include "cuda/nvrtc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "cuda/driver.h"
#include "cuda/shared_library.h"
#include "cuda/sources.h"
#include "parapet/error.h"

namespace parapet::cuda {
namespace {

constexpr int kOldestMajor = 12;  // the first with C++20

using Program = struct NvrtcProgram*;
using Result = int;
constexpr Result kSuccess = 0;

#define PARAPET_NVRTC_FUNCTIONS(F)                                                         \
  F(Result, nvrtcVersion, (int* major, int* minor))                                        \
  F(Result, nvrtcGetNumSupportedArchs, (int* count))                                       \
  F(Result, nvrtcGetSupportedArchs, (int* numbers))                                        \
  F(const char*, nvrtcGetErrorString, (Result result))                                     \
  F(Result, nvrtcCreateProgram,                                                            \
    (Program * program, const char* unit, const char* name, int num_headers,               \
     const char* const* texts, const char* const* paths))                                  \
  F(Result, nvrtcDestroyProgram, (Program * program))                                      \
  F(Result, nvrtcCompileProgram, (Program program, int count, const char* const* options)) \
  F(Result, nvrtcGetProgramLogSize, (Program program, std::size_t * size))                 \
  F(Result, nvrtcGetProgramLog, (Program program, char* text))                             \
  F(Result, nvrtcGetPTXSize, (Program program, std::size_t * size))                        \
  F(Result, nvrtcGetPTX, (Program program, char* text))                                    \
  F(Result, nvrtcGetCUBINSize, (Program program, std::size_t * size))                      \
  F(Result, nvrtcGetCUBIN, (Program program, char* bytes))

}  // namespace

struct Nvrtc::Api {
#define F(result, name, parameters) result(*name) parameters = nullptr;
  PARAPET_NVRTC_FUNCTIONS(F)
#undef F

  // The name of the first function that `library` lacks; null when it has all.
  const char* load(const SharedLibrary& library) {
#define F(result, name, parameters)              \
  name = library.find<result parameters>(#name); \
  if (name == nullptr) return #name;
    PARAPET_NVRTC_FUNCTIONS(F)
#undef F
    return nullptr;
  }

  void check(Result result, const char* what) const {
    if (result == kSuccess) return;
    throw Error(ErrorCode::kRuntime, fmt::format("{}: {}", what, nvrtcGetErrorString(result)));
  }

  // What a program holds: its log, PTX or machine code. A text ends with its NUL.
  std::string get(Program program, Result (*size_of)(Program, std::size_t*),
                  Result (*read)(Program, char*), const char* what) const {
    std::size_t size = 0;
    check(size_of(program, &size), what);
    std::string bytes(size, '\0');
    check(read(program, bytes.data()), what);
    return bytes;
  }
};

namespace {

// Where to look, best first. PARAPET_NVRTC alone counts when it is set. The wheels lie beside this
// package in site-packages; a name without a directory is found by the system, or is what the
// process has already loaded.
std::vector<std::string> candidates() {
  if (const char* path = std::getenv("PARAPET_NVRTC"); path != nullptr && *path != '\0') {
    return {path};
  }
  const std::string packages =
      std::filesystem::path(own_directory()).parent_path().string() + "/nvidia/";
  const char* toolkit = std::getenv("CUDA_PATH");
  const std::string toolkit_lib = fmt::format(
      "{}/lib64/", toolkit != nullptr && *toolkit != '\0' ? toolkit : "/usr/local/cuda");
  std::vector<std::string> paths;
  // A driver loads machine code of its own major version and of older ones.
  const std::optional<int> driver = Driver::major_version();
  for (const int major : {13, 12}) {
    if (driver && major > *driver) continue;
    const std::string name = fmt::format("libnvrtc.so.{}", major);
    paths.push_back(packages + (major == 12 ? "cuda_nvrtc/lib/" : fmt::format("cu{}/lib/", major)) +
                    name);
    paths.push_back(name);
    paths.push_back(toolkit_lib + name);
  }
  return paths;
}

// The library of built-in code that belongs to the compiler in `file`. NVRTC asks the system for it
// by name, and the system does not search the directory of a wheel; one that is loaded is found.
void load_builtins(const std::string& file, const std::string& version) {
  const std::filesystem::path directory = std::filesystem::path(file).parent_path();
  std::string reason;  // not there: then NVRTC finds one by itself, or says so
  SharedLibrary::open((directory / ("libnvrtc-builtins.so." + version)).string(), reason);
}

[[noreturn]] void throw_missing(const std::vector<std::string>& reasons) {
  throw Error(
      ErrorCode::kRuntime,
      fmt::format(
          "NVRTC 12.0 or newer, which compiles the GPU kernels, was not found. Install it with "
          "`pip install nvidia-cuda-nvrtc` (for a CUDA 12 driver: nvidia-cuda-nvrtc-cu12) or "
          "with a CUDA toolkit, or set PARAPET_NVRTC to the path of libnvrtc.so. Tried: {}",
          fmt::join(reasons, "; ")));
}

}  // namespace

const Nvrtc& Nvrtc::instance() {
  static const Nvrtc nvrtc;
  return nvrtc;
}

Nvrtc::Nvrtc() {
  std::vector<std::string> reasons;
  for (const std::string& name : candidates()) {
    std::string reason;
    const auto library = SharedLibrary::open(name, reason);
    if (!library) {
      reasons.push_back(reason);
      continue;
    }
    const auto api = std::make_shared<Api>();
    if (const char* missing = api->load(*library)) {
      reasons.push_back(fmt::format("{}: has no function {}", name, missing));
      continue;
    }
    int major = 0;
    int minor = 0;
    api->check(api->nvrtcVersion(&major, &minor), "nvrtcVersion");
    if (major < kOldestMajor) {
      reasons.push_back(fmt::format("{}: is version {}.{}", name, major, minor));
      continue;
    }
    api_ = api;
    version_ = fmt::format("{}.{}", major, minor);
    path_ = library->path_of("nvrtcVersion");
    load_builtins(path_, version_);
    break;
  }
  if (api_ == nullptr) throw_missing(reasons);

  int count = 0;
  api_->check(api_->nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  arch_numbers_.resize(static_cast<std::size_t>(count));
  api_->check(api_->nvrtcGetSupportedArchs(arch_numbers_.data()), "nvrtcGetSupportedArchs");
  std::sort(arch_numbers_.begin(), arch_numbers_.end());
}

CompileTarget Nvrtc::target(Arch arch) const {
  if (std::binary_search(arch_numbers_.begin(), arch_numbers_.end(), arch.number())) {
    return {"-arch=" + arch.name(), false};
  }
  if (arch.number() > arch_numbers_.back()) {
    return {fmt::format("-arch=compute_{}", arch_numbers_.back()), true};
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("arch: NVRTC {} does not know {}; it knows sm_{}", version_, arch.name(),
                          fmt::join(arch_numbers_, ", sm_")));
}

KernelImage Nvrtc::compile(const std::string& name, const std::string& unit,
                           const std::vector<std::string>& options) const {
  std::vector<const char*> paths;
  std::vector<const char*> texts;
  for (const SourceFile& file : embedded_sources()) {
    paths.push_back(file.path);
    texts.push_back(file.text);
  }
  Program raw = nullptr;
  api_->check(api_->nvrtcCreateProgram(&raw, unit.c_str(), name.c_str(),
                                       static_cast<int>(paths.size()), texts.data(), paths.data()),
              "nvrtcCreateProgram");
  const auto destroy = [this](Program program) { api_->nvrtcDestroyProgram(&program); };
  const std::unique_ptr<NvrtcProgram, decltype(destroy)> program(raw, destroy);

  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const Result result = api_->nvrtcCompileProgram(program.get(), static_cast<int>(arguments.size()),
                                                  arguments.data());
  if (result != kSuccess) {
    const std::string log = api_->get(program.get(), api_->nvrtcGetProgramLogSize,
                                      api_->nvrtcGetProgramLog, "nvrtcGetProgramLog");
    throw Error(
        ErrorCode::kRuntime,
        fmt::format("NVRTC {} ({}) failed to compile {} with {}: {}\n{}", version_, path_, name,
                    fmt::join(options, " "), api_->nvrtcGetErrorString(result), log.c_str()));
  }
  std::size_t cubin_size = 0;
  api_->check(api_->nvrtcGetCUBINSize(program.get(), &cubin_size), "nvrtcGetCUBINSize");
  if (cubin_size > 0) {
    return {
        api_->get(program.get(), api_->nvrtcGetCUBINSize, api_->nvrtcGetCUBIN, "nvrtcGetCUBIN")};
  }
  return {api_->get(program.get(), api_->nvrtcGetPTXSize, api_->nvrtcGetPTX, "nvrtcGetPTX")};
}

}  // namespace parapet::cuda
