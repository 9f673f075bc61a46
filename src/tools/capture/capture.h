#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tools/call/call.h"
#include "tools/file/file.h"

// Capture files: one attention call, and the result that it gave (docs/capture-format.md).

namespace parapet::tools {

struct Capture {
  Call call;
  // What the call gave when it was recorded.
  std::optional<Tensor> out;
  std::optional<Tensor> lse;
  // Where the file comes from, for people.
  std::string parapet;
  std::string function;
  std::string framework;
};

// Throws Error(kInvalidArgument) that begins with `file` for anything but a whole capture file.
// Whether tensors and options fit each other is for api::make_problem to say.
Capture read_capture(const ByteSource& source, const std::string& file);
Capture read_capture(const std::filesystem::path& path);

void write_capture(const std::filesystem::path& path, const Capture& capture);

}  // namespace parapet::tools
