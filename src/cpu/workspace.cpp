#include "cpu/workspace.h"

#include <atomic>
#include <new>
#include <utility>

namespace parapet::cpu {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

// Its memory follows it.
struct alignas(kAlignment) Workspace::Block {
  static Block* allocate(std::size_t bytes) {
    void* memory = ::operator new(sizeof(Block) + bytes, std::align_val_t{kAlignment});
    return new (memory) Block{bytes};
  }
  static void free(Block* block) {
    if (block) ::operator delete(block, std::align_val_t{kAlignment});
  }

  static std::atomic<Block*> kept[kKeptBlocks];

  std::size_t bytes;
};

// Never freed: a call may still run while the process ends.
std::atomic<Workspace::Block*> Workspace::Block::kept[kKeptBlocks];

Workspace::Workspace(std::size_t floats) : block_(nullptr) {
  const std::size_t bytes = floats * sizeof(float);
  for (std::atomic<Block*>& kept : Block::kept) {
    Block* block = kept.exchange(nullptr, std::memory_order_acquire);
    if (block && block->bytes >= bytes) {
      block_ = block;
      return;
    }
    Block::free(block);
  }
  block_ = Block::allocate(bytes);
}

Workspace::~Workspace() {
  Block* block = block_;
  if (block->bytes <= kKeptBytes) {
    for (std::atomic<Block*>& kept : Block::kept) {
      Block* none = nullptr;
      if (kept.compare_exchange_strong(none, block, std::memory_order_release)) return;
    }
  }
  Block::free(block);
}

float* Workspace::data() const {
  return reinterpret_cast<float*>(block_ + 1);
}

}  // namespace parapet::cpu
