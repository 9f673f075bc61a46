#include "tools/file/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/errors.h"

namespace parapet::tools {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;

class FileTest : public ::testing::Test {
 protected:
  FileTest()
      : folder_(fs::temp_directory_path() / ("parapet-file-test-" + std::to_string(::getpid()))) {
    fs::create_directory(folder_);
  }
  ~FileTest() override { fs::remove_all(folder_); }

  fs::path path(const char* name) const { return folder_ / name; }
  void write(const char* name, const std::string& text) const {
    write_file(path(name), [&](std::ostream& stream) { stream << text; });
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(FileTest, WritesAndReads) {
  write("a", "first");
  write("a", "second");
  EXPECT_EQ(read_text(path("a"), 100), "second");
  EXPECT_EQ(read_text(path("a"), 6), "second");
  EXPECT_EQ(files(), 1u);  // no temporary file stays

  const InputFile file(path("a"));
  ASSERT_EQ(file.size(), 6u);
  std::string part(3, ' ');
  file.read(2, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "con");
}

TEST_F(FileTest, AFailedWriteLeavesTheOldFile) {
  write("a", "old");
  EXPECT_THROW(write_file(path("a"),
                          [](std::ostream& stream) {
                            stream << "half";
                            throw std::runtime_error("stop");
                          }),
               std::runtime_error);
  EXPECT_EQ(read_text(path("a"), 100), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FileTest, ASymbolicLinkStaysOne) {
  write("target", "old");
  fs::create_symlink(path("target"), path("link"));
  write("link", "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_text(path("target"), 100), "new");
}

TEST_F(FileTest, ADeviceIsWrittenToAndNotReplaced) {
  write_file("/dev/null", [](std::ostream& stream) { stream << "gone"; });
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(FileTest, ErrorsNameTheFile) {
  const auto runtime = ErrorCode::kRuntime;
  expect_error(runtime, {path("none").string(), "cannot open: No such file"},
               [&] { read_text(path("none"), 100); });
  expect_error(runtime, {"cannot open: No such file"}, [&] { InputFile file(path("none")); });
  expect_error(runtime, {"is a directory"}, [&] { read_text(folder_, 100); });
  expect_error(runtime, {"not a regular file"}, [&] { InputFile file(folder_); });
  expect_error(runtime, {"is a directory"}, [&] { write_file(folder_, [](std::ostream&) {}); });
  expect_error(runtime, {"cannot write: No such file"},
               [&] { write_file(path("none") / "a", [](std::ostream&) {}); });
  expect_error(runtime, {"cannot write"}, [&] {
    write_file("/dev/full", [](std::ostream& stream) { stream << std::string(100000, 'x'); });
  });
  write("long", "123456789");
  expect_error(runtime, {"larger than 8 bytes"}, [&] { read_text(path("long"), 8); });
  expect_error(runtime, {"larger than 1000 bytes"}, [&] { read_text("/dev/zero", 1000); });
}

TEST_F(FileTest, APipeThatNobodyWritesToDoesNotHang) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_error(ErrorCode::kRuntime, {"not a regular file"}, [&] { InputFile file(path("pipe")); });
}

TEST_F(FileTest, AFileThatShrinksIsNoticed) {
  write("a", "123456789");
  const InputFile file(path("a"));
  fs::resize_file(path("a"), 4);
  std::vector<std::byte> bytes(9);
  expect_error(ErrorCode::kRuntime, {"became shorter"}, [&] { file.read(0, bytes); });
}

}  // namespace
}  // namespace parapet::tools
