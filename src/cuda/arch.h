#pragma once

#include <string>
#include <string_view>

namespace parapet::cuda {

// A GPU architecture as the compilers name it: "sm_80", "sm_90a".
struct Arch {
  // Throws Error(kInvalidArgument) for anything but such a name.
  static Arch parse(std::string_view name);
  // The architecture to compile for when a GPU of this compute capability is to run the code.
  static Arch of_capability(int major, int minor);

  int number() const { return 10 * major + minor; }
  std::string name() const;
  // Shared memory of a multiprocessor; of an architecture that is not known, what all have.
  int shared_bytes_per_sm() const;

  friend bool operator==(const Arch&, const Arch&) = default;

  int major = 0;
  int minor = 0;
  char suffix = 0;  // 'a': instructions of exactly this GPU, 'f': of its family, 0: neither
};

}  // namespace parapet::cuda
