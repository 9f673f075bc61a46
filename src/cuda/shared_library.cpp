#include "cuda/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>

namespace parapet::cuda {
namespace {

std::string file_of(const void* address) {
  Dl_info info{};
  link_map* loaded = nullptr;
  void** extra = reinterpret_cast<void**>(&loaded);
  if (dladdr1(address, &info, extra, RTLD_DL_LINKMAP) == 0 || loaded == nullptr) return "";
  // The program itself has no name there, and otherwise what it was called: any word.
  return *loaded->l_name == '\0' ? "/proc/self/exe" : loaded->l_name;
}

}  // namespace

std::optional<SharedLibrary> SharedLibrary::open(const std::string& name, std::string& reason) {
  if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return SharedLibrary(handle);
  const char* message = dlerror();
  reason = message != nullptr ? message : name + ": cannot be opened";
  return std::nullopt;
}

void* SharedLibrary::address_of(const char* symbol) const {
  return dlsym(handle_, symbol);
}

std::string SharedLibrary::path_of(const char* symbol) const {
  return file_of(address_of(symbol));
}

std::string own_directory() {
  const std::string file = file_of(reinterpret_cast<const void*>(&own_directory));
  std::error_code error;
  const auto resolved = std::filesystem::canonical(file, error);
  return error ? "." : resolved.parent_path().string();
}

}  // namespace parapet::cuda
