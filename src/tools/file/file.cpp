#include "tools/file/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "parapet/error.h"

namespace parapet::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, std::string_view what) {
  throw Error(ErrorCode::kRuntime, fmt::format("{}: {}", path.string(), what));
}

[[noreturn]] void fail_with_errno(const fs::path& path, std::string_view what) {
  fail(path, fmt::format("{}: {}", what, std::strerror(errno)));
}

void write_stream(const fs::path& name, const fs::path& path,
                  const std::function<void(std::ostream&)>& write) {
  errno = 0;
  std::ofstream stream(name, std::ios::binary);
  if (!stream) fail_with_errno(path, "cannot write");
  write(stream);
  stream.close();
  if (!stream) fail_with_errno(path, "cannot write");
}

}  // namespace

InputFile::InputFile(const fs::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail_with_errno(path, "cannot open");
  struct stat status {};
  const bool regular = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) {
    ::close(descriptor_);
    fail(path, "not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_with_errno(path_, "cannot read");
    if (count == 0) fail(path_, "became shorter while it was read");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

std::string read_text(const fs::path& path, std::size_t limit) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail_with_errno(path, "cannot open");
  if (fs::is_directory(path)) fail(path, "is a directory");
  std::string text;
  char block[16384];
  while (stream.read(block, sizeof block), stream.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(stream.gcount()));
    if (text.size() > limit) fail(path, fmt::format("larger than {} bytes", limit));
  }
  if (stream.bad()) fail_with_errno(path, "cannot read");
  return text;
}

void write_file(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  if (fs::is_directory(status)) fail(path, "is a directory");
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_stream(path, path, write);

  // A symbolic link stays one: the file that it points to is replaced.
  const fs::path target = fs::exists(status) ? fs::canonical(path) : path;
  const fs::path temporary =
      target.parent_path() / fmt::format(".{}.{}", target.filename().string(), ::getpid());
  try {
    write_stream(temporary, path, write);
    fs::rename(temporary, target);
  } catch (const fs::filesystem_error& error) {
    fs::remove(temporary, none);
    fail(path, "cannot write: " + error.code().message());
  } catch (...) {
    fs::remove(temporary, none);
    throw;
  }
}

}  // namespace parapet::tools
