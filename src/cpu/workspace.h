#pragma once

#include <cstddef>

namespace parapet::cpu {

// Memory for one call. Fresh pages cost more than a small call computes, so a few blocks of
// moderate size are kept for the calls that follow, whatever thread they come from: at most
// kKeptBlocks of them, of kKeptBytes each.
class Workspace {
 public:
  static constexpr std::size_t kKeptBlocks = 4;
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 20;

  // Throws std::bad_alloc.
  explicit Workspace(std::size_t floats);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Aligned to a cache line, not initialised.
  float* data() const;

 private:
  struct Block;
  Block* block_;
};

}  // namespace parapet::cpu
