#include "emulate/fibre.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define PARAPET_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#define PARAPET_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define PARAPET_ADDRESS_SANITIZER 0
#endif

#if PARAPET_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// swapcontext makes a system call for the signal mask, which is most of its time.
extern "C" void parapet_switch_stack(void** save_top, void* load_top);
asm(R"(
.text
.type parapet_switch_stack, @function
parapet_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size parapet_switch_stack, .-parapet_switch_stack
)");
#endif

namespace parapet::emulate {
namespace {

constexpr std::size_t kGuardBytes = 64 << 10;  // whole pages anywhere; an overflow faults

// What address sanitizer has to know. `keep` gets what end_switch needs once the fibre goes on; a
// fibre that ends passes null.
#if PARAPET_ADDRESS_SANITIZER
void begin_switch(void** keep, const std::byte* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(keep, bottom, bytes);
}
void end_switch(void* kept) {
  __sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
}
void forget_frames(const std::byte* bottom, std::size_t bytes) {
  __asan_unpoison_memory_region(bottom, bytes);
}
#else
void begin_switch(void**, const std::byte*, std::size_t) {}
void end_switch(void*) {}
void forget_frames(const std::byte*, std::size_t) {}
#endif

}  // namespace

Fibre::Fibre() {
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  void* bottom = nullptr;
  pthread_attr_getstack(&attributes, &bottom, &bytes_);
  pthread_attr_destroy(&attributes);
  bottom_ = static_cast<std::byte*>(bottom);
}

Fibre::Fibre(std::size_t bytes) : bytes_(bytes), owns_stack_(true) {
  void* const memory = mmap(nullptr, bytes + kGuardBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuardBytes, PROT_NONE);
  bottom_ = static_cast<std::byte*>(memory) + kGuardBytes;
}

Fibre::Fibre(Fibre&& other) noexcept
    : bottom_(other.bottom_),
      bytes_(other.bytes_),
      owns_stack_(std::exchange(other.owns_stack_, false)) {}

Fibre::~Fibre() {
  if (!owns_stack_) return;
  forget_frames(bottom_, bytes_);
  munmap(bottom_ - kGuardBytes, bytes_ + kGuardBytes);
}

void Fibre::prepare(void (*entry)()) {
  forget_frames(bottom_, bytes_);
  sanitizer_stack_ = nullptr;
#if defined(__x86_64__)
  constexpr int kSavedRegisters = 6;
  std::byte* const at = bottom_ + bytes_ - 2 * sizeof(entry);  // as if `entry` were called
  std::memcpy(at, &entry, sizeof(entry));
  top_ = at - kSavedRegisters * sizeof(void*);
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = bottom_;
  context_.uc_stack.ss_size = bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
  // Otherwise address sanitizer clears what it knows of the stack at every switch.
  context_.uc_stack.ss_size = 0;
#endif
}

void Fibre::entered() {
  end_switch(nullptr);
}

void Fibre::jump(Fibre& to) {
#if defined(__x86_64__)
  parapet_switch_stack(&top_, to.top_);
#else
  swapcontext(&context_, &to.context_);
#endif
}

void Fibre::switch_to(Fibre& to) {
  begin_switch(&sanitizer_stack_, to.bottom_, to.bytes_);
  jump(to);
  end_switch(sanitizer_stack_);
}

void Fibre::end_and_switch_to(Fibre& to) {
  begin_switch(nullptr, to.bottom_, to.bytes_);
  jump(to);
  __builtin_unreachable();
}

}  // namespace parapet::emulate
