#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <span>
#include <string>

// Files, with one-line errors that name them: Error(kRuntime, "<path>: <what failed>").

namespace parapet::tools {

// Bytes that can be read at any place: a file, or memory in tests.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  // Fills `bytes` from `offset`; all of them lie inside size().
  virtual void read(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
};

// A regular file, open for reading.
class InputFile final : public ByteSource {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile() override;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override;

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

// All of a file or pipe that may hold at most `limit` bytes.
std::string read_text(const std::filesystem::path& path, std::size_t limit);

// What `write` puts into the stream becomes the file, whole or not at all: it is written under
// another name in the same directory and renamed. A path that names something else than a file,
// such as a pipe or /dev/stdout, is written to directly.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

}  // namespace parapet::tools
