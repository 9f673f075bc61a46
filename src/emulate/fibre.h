#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace parapet::emulate {

// A call stack that can be left half-way and continued later.
class Fibre {
 public:
  // The stack that this is called on.
  Fibre();
  // A new one. Address sanitizer makes frames several times larger than they are otherwise.
  static constexpr std::size_t kStackBytes = 256 << 10;
  explicit Fibre(std::size_t bytes);
  ~Fibre();
  Fibre(Fibre&& other) noexcept;
  Fibre& operator=(Fibre&&) = delete;

  // The next switch to it calls `entry`, which never returns and first of all calls entered().
  // Whatever the stack held is forgotten.
  void prepare(void (*entry)());
  static void entered();

  // From this fibre, which is running, to another. Comes back when somebody switches to this one.
  void switch_to(Fibre& to);
  // The same without a way back.
  [[noreturn]] void end_and_switch_to(Fibre& to);

 private:
  void jump(Fibre& to);

  std::byte* bottom_ = nullptr;
  std::size_t bytes_ = 0;
  bool owns_stack_ = false;
  void* sanitizer_stack_ = nullptr;  // where address sanitizer keeps locals of a fibre that waits
#if defined(__x86_64__)
  void* top_ = nullptr;
#else
  ucontext_t context_{};
#endif
};

}  // namespace parapet::emulate
