#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "parapet/tensor.h"
#include "tools/call/tensor.h"
#include "tools/file/file.h"

// The safetensors container: header length (8 bytes, little endian), a JSON header, the tensors'
// bytes.

namespace parapet::tools {

struct SafetensorsEntry {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::uint64_t offset = 0;  // of the first byte, from the start of the file
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::map<std::string, SafetensorsEntry> tensors;
};

// Reads and checks the header: what it says fits the file, byte by byte. Throws
// Error(kInvalidArgument) that begins with `file` for everything else, and for dtypes that
// parapet lacks.
SafetensorsHeader read_safetensors_header(const ByteSource& source, const std::string& file);

Tensor read_safetensors_tensor(const ByteSource& source, const SafetensorsEntry& entry);

void write_safetensors(std::ostream& stream, const std::map<std::string, std::string>& metadata,
                       const std::map<std::string, const Tensor*>& tensors);

}  // namespace parapet::tools
