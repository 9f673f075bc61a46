#pragma once

#include <optional>
#include <string>

namespace parapet::cuda {

// A library opened at run time. It is never closed: the CUDA libraries start threads and register
// exit handlers, and unloading their code under those crashes.
class SharedLibrary {
 public:
  // Nothing when it cannot be opened; `reason` then says why.
  static std::optional<SharedLibrary> open(const std::string& name, std::string& reason);

  // Null when the library has no such symbol.
  template <class Function>
  Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(address_of(symbol));
  }

  // The file that holds `symbol`.
  std::string path_of(const char* symbol) const;

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* address_of(const char* symbol) const;

  void* handle_;
};

// The directory of the file that this code was loaded from: of libparapet.so, or of a program that
// has parapet linked into it.
std::string own_directory();

}  // namespace parapet::cuda
