#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/arch.h"

// NVRTC, the compiler that turns kernel sources into machine code. The only place that knows
// libnvrtc, which is opened when something has to be compiled and not before.

namespace parapet::cuda {

// Machine code (a cubin, which is an ELF file) or PTX text, for a GPU newer than the compiler.
struct KernelImage {
  bool is_ptx() const { return !bytes.starts_with("\177ELF"); }

  std::string bytes;
};

// What NVRTC is asked to make for an architecture.
struct CompileTarget {
  std::string option;  // "-arch=sm_80", or "-arch=compute_121" for PTX
  bool ptx = false;
};

class Nvrtc {
 public:
  // Opens the library once. Throws Error(kRuntime), again at each call, while there is none that
  // works; the message says how to get one.
  static const Nvrtc& instance();

  // "13.0"
  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }

  // Machine code where NVRTC knows `arch`; PTX of the newest architecture that it knows where
  // `arch` is newer. Throws Error(kInvalidArgument) for one that is neither.
  CompileTarget target(Arch arch) const;

  // `unit` may include the embedded sources by their path below src/. Throws Error(kRuntime) with
  // the compiler's messages, which call the unit `name`.
  KernelImage compile(const std::string& name, const std::string& unit,
                      const std::vector<std::string>& options) const;

 private:
  Nvrtc();

  struct Api;
  std::shared_ptr<const Api> api_;
  std::string version_;
  std::string path_;
  std::vector<int> arch_numbers_;
};

}  // namespace parapet::cuda
