#include "cuda/cubin.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "parapet/error.h"

namespace parapet::cuda {
namespace {

// The attributes of the .nv.info sections that are read here. An entry is a format byte, an
// attribute byte and a half-word, which is the value itself or the size of the value that follows.
constexpr std::uint8_t kValueFollows = 4;
constexpr std::uint8_t kFrameSize = 0x11;      // {symbol, bytes}
constexpr std::uint8_t kParameterSize = 0x19;  // the half-word
constexpr std::uint8_t kRegisterCount = 0x2f;  // {symbol, registers}

// From this architecture on every block gives the first kilobyte of its shared memory to the
// driver, and the section's size counts it.
constexpr int kFirstWithReservedShared = 90;
constexpr std::int64_t kReservedShared = 1024;

class Elf {
 public:
  explicit Elf(std::string_view bytes) : bytes_(bytes), header_(read<Elf64_Ehdr>(bytes, 0)) {
    require(std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
                header_.e_ident[EI_CLASS] == ELFCLASS64,
            "is not a 64-bit ELF file");
    require(header_.e_shentsize == sizeof(Elf64_Shdr), "has sections of an unknown size");
    names_ = contents(section(header_.e_shstrndx));
  }

  // The architecture's number, 80 for sm_80. It moved when the ABI's version became 8.
  int arch() const {
    const auto flags = header_.e_flags;
    return static_cast<int>(header_.e_ident[EI_ABIVERSION] >= 8 ? flags >> 8 & 0xff : flags & 0xff);
  }

  std::optional<Elf64_Shdr> find(const std::string& name) const {
    for (int i = 0; i < header_.e_shnum; ++i) {
      const Elf64_Shdr candidate = section(i);
      if (text_at(names_, candidate.sh_name) == name) return candidate;
    }
    return std::nullopt;
  }

  std::string_view contents(const Elf64_Shdr& section) const {
    require(section.sh_type != SHT_NOBITS, "has an empty section where data should be");
    return slice(bytes_, section.sh_offset, section.sh_size);
  }

  // The index of the symbol `name`.
  std::uint32_t symbol(const std::string& name) const {
    const auto table = find(".symtab");
    const auto strings = find(".strtab");
    require(table.has_value() && strings.has_value(), "has no symbols");
    const std::string_view symbols = contents(*table);
    const std::string_view texts = contents(*strings);
    for (std::size_t i = 0; i < symbols.size() / sizeof(Elf64_Sym); ++i) {
      const auto symbol = read<Elf64_Sym>(symbols, i * sizeof(Elf64_Sym));
      if (text_at(texts, symbol.st_name) == name) return static_cast<std::uint32_t>(i);
    }
    throw malformed(fmt::format("holds no kernel {}", name));
  }

  template <class T>
  static T read(std::string_view bytes, std::size_t offset) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, slice(bytes, offset, sizeof(T)).data(), sizeof(T));
    return value;
  }

  static std::string_view slice(std::string_view bytes, std::uint64_t offset, std::uint64_t size) {
    require(offset <= bytes.size() && size <= bytes.size() - offset, "ends too early");
    return bytes.substr(offset, size);
  }

 private:
  static Error malformed(const std::string& what) {
    return {ErrorCode::kRuntime, "cubin: " + what};
  }

  static void require(bool condition, const char* otherwise) {
    if (!condition) throw malformed(otherwise);
  }

  static std::string_view text_at(std::string_view texts, std::size_t offset) {
    const std::string_view rest =
        slice(texts, offset, texts.size() - std::min(offset, texts.size()));
    return rest.substr(0, rest.find('\0'));
  }

  Elf64_Shdr section(int index) const {
    return read<Elf64_Shdr>(bytes_, header_.e_shoff + std::uint64_t(index) * sizeof(Elf64_Shdr));
  }

  std::string_view bytes_;
  Elf64_Ehdr header_;
  std::string_view names_;
};

// Calls visit(attribute, half_word, value) for each entry of a .nv.info section.
template <class Visitor>
void for_each_attribute(std::string_view info, Visitor visit) {
  std::size_t offset = 0;
  while (offset < info.size()) {
    const auto format = Elf::read<std::uint8_t>(info, offset);
    const auto attribute = Elf::read<std::uint8_t>(info, offset + 1);
    const auto half_word = Elf::read<std::uint16_t>(info, offset + 2);
    offset += 4;
    const std::size_t size = format == kValueFollows ? half_word : 0;
    visit(attribute, half_word, Elf::slice(info, offset, size));
    offset += size;
  }
}

}  // namespace

KernelResources read_resources(std::string_view cubin, const std::string& name) {
  const Elf elf(cubin);
  const std::uint32_t symbol = elf.symbol(name);
  KernelResources resources;
  if (const auto info = elf.find(".nv.info")) {
    for_each_attribute(elf.contents(*info),
                       [&](std::uint8_t attribute, std::uint16_t, std::string_view value) {
                         if (attribute != kFrameSize && attribute != kRegisterCount) return;
                         if (Elf::read<std::uint32_t>(value, 0) != symbol) return;
                         const auto number = Elf::read<std::uint32_t>(value, 4);
                         if (attribute == kFrameSize) resources.local_bytes = number;
                         if (attribute == kRegisterCount)
                           resources.registers = static_cast<int>(number);
                       });
  }
  if (const auto info = elf.find(".nv.info." + name)) {
    for_each_attribute(elf.contents(*info),
                       [&](std::uint8_t attribute, std::uint16_t half_word, std::string_view) {
                         if (attribute == kParameterSize) resources.parameter_bytes = half_word;
                       });
  }
  if (const auto shared = elf.find(".nv.shared." + name)) {
    const std::int64_t reserved = elf.arch() >= kFirstWithReservedShared ? kReservedShared : 0;
    resources.shared_bytes = static_cast<std::int64_t>(shared->sh_size) - reserved;
  }
  return resources;
}

}  // namespace parapet::cuda
