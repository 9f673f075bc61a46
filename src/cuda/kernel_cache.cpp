#include "cuda/kernel_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <random>
#include <tuple>

#include "parapet/error.h"

namespace parapet::cuda {
namespace {

constexpr std::string_view kSuffix = ".kernel";
constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::int64_t kTemporaryLifetime = 3600;  // seconds; nobody writes for so long
constexpr std::size_t kLargestEntry = std::size_t{64} << 20;

// At the start of an entry; the identity and the image follow.
struct Header {
  char magic[8];
  std::uint64_t identity_bytes;
  std::uint64_t image_bytes;
  std::uint64_t checksum;  // of the identity and the image
};
constexpr char kMagic[8] = {'p', 'a', 'r', 'a', 'p', 'e', 't', '1'};

// FNV-1a: against accidents, not against people, who cannot write here.
std::uint64_t hash(std::string_view text, std::uint64_t state = 0xcbf29ce484222325) {
  for (const unsigned char byte : text) state = (state ^ byte) * 0x100000001b3;
  return state;
}

std::string file_name(const CacheKey& key) {
  return fmt::format("{}-{:016x}{}", key.name, hash(key.identity), kSuffix);
}

// Owned by this user, and nobody else may write to it.
bool is_private(const struct stat& status) {
  return status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<std::string> read_all(int descriptor, std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = read(descriptor, bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// The image of an entry that is whole and was stored under `identity`.
std::optional<std::string> image_of(std::string_view bytes, std::string_view identity) {
  Header header;
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::string_view body = bytes.substr(sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 ||
      header.identity_bytes != identity.size() || header.identity_bytes > body.size() ||
      header.image_bytes != body.size() - identity.size() || header.checksum != hash(body) ||
      !body.starts_with(identity)) {
    return std::nullopt;
  }
  return std::string(body.substr(identity.size()));
}

// Unique among all threads and processes that write to one directory.
std::string temporary_name() {
  static std::atomic<unsigned int> counter{0};
  return fmt::format("{}{}-{}-{:08x}", kTemporaryPrefix, getpid(), counter++,
                     std::random_device()());
}

// Calls visit(name, status) for each file in the directory.
template <class Visitor>
void for_each_file(int directory, Visitor visit) {
  const int descriptor = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(descriptor), closedir);
  if (stream == nullptr) {
    close(descriptor);
    return;
  }
  while (const dirent* entry = readdir(stream.get())) {
    struct stat status {};
    if (fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(status.st_mode)) {
      visit(std::string(entry->d_name), status);
    }
  }
}

void create_directories(const std::filesystem::path& path, mode_t mode) {
  std::filesystem::path prefix;
  for (const auto& part : path) {
    prefix /= part;
    mkdir(prefix.c_str(), mode);  // whether it worked shows when the directory is opened
  }
}

[[noreturn]] void refuse(const std::string& directory, const std::string& why) {
  throw Error(ErrorCode::kRuntime, fmt::format("kernel cache {}: {}", directory, why));
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

KernelCache::KernelCache(std::string directory, Purpose purpose)
    : directory_(std::move(directory)), purpose_(purpose) {
  constexpr mode_t kPrivate = S_IRWXU;
  constexpr mode_t kUmask = 0777;
  if (purpose != Purpose::kReadOnly) {
    create_directories(directory_, purpose == Purpose::kOwn ? kPrivate : kUmask);
  }
  descriptor_ = FileDescriptor(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!descriptor_.valid() || fstat(descriptor_.get(), &status) != 0) {
    refuse(directory_, std::strerror(errno));
  }
  if (purpose == Purpose::kOwn && !is_private(status)) {
    refuse(directory_,
           fmt::format("is not used, because others can write to it (owner {}, mode {:o}); "
                       "expected owner {}, mode 700",
                       status.st_uid, status.st_mode & 07777, geteuid()));
  }
}

KernelCache KernelCache::open_default() {
  const std::string directory = default_directory();
  if (directory.empty()) {
    throw Error(ErrorCode::kRuntime, "kernel cache: there is none: set PARAPET_CACHE_DIR or HOME");
  }
  return {directory, Purpose::kOwn};
}

KernelCache KernelCache::output(const std::string& directory) {
  return {directory, Purpose::kOutput};
}

KernelCache KernelCache::read_only(const std::string& directory) {
  return {directory, Purpose::kReadOnly};
}

std::string KernelCache::default_directory() {
  if (const char* directory = environment("PARAPET_CACHE_DIR")) return directory;
  // The XDG rules: a relative path does not count.
  if (const char* cache = environment("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::string(cache) + "/parapet";
  }
  const char* home = environment("HOME");
  return home != nullptr ? std::string(home) + "/.cache/parapet" : "";
}

std::optional<std::string> KernelCache::load(const CacheKey& key) const {
  const FileDescriptor file(openat(descriptor_.get(), file_name(key).c_str(),
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      (purpose_ == Purpose::kOwn && !is_private(status)) ||
      static_cast<std::size_t>(status.st_size) > kLargestEntry) {
    return std::nullopt;
  }
  const auto bytes = read_all(file.get(), static_cast<std::size_t>(status.st_size));
  auto image = bytes ? image_of(*bytes, key.identity) : std::nullopt;
  if (image && purpose_ == Purpose::kOwn) futimens(file.get(), nullptr);  // used now
  return image;
}

bool KernelCache::store(const CacheKey& key, std::string_view image, std::int64_t limit) const {
  const std::string temporary = temporary_name();
  const mode_t mode = purpose_ == Purpose::kOwn ? 0600 : 0666;
  const FileDescriptor file(
      openat(descriptor_.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.valid()) return false;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.identity_bytes = key.identity.size();
  header.image_bytes = image.size();
  header.checksum = hash(image, hash(key.identity));
  const std::string_view header_bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  const bool written = write_all(file.get(), header_bytes) && write_all(file.get(), key.identity) &&
                       write_all(file.get(), image) &&
                       renameat(descriptor_.get(), temporary.c_str(), descriptor_.get(),
                                file_name(key).c_str()) == 0;
  if (!written) unlinkat(descriptor_.get(), temporary.c_str(), 0);
  evict(limit);
  return written;
}

void KernelCache::evict(std::int64_t limit) const {
  std::int64_t total = 0;
  for (const CacheEntry& entry : entries()) {
    total += entry.bytes;
    if (total > limit) unlinkat(descriptor_.get(), entry.file.c_str(), 0);
  }
  const std::int64_t now = std::time(nullptr);
  for_each_file(descriptor_.get(), [&](const std::string& name, const struct stat& status) {
    if (name.starts_with(kTemporaryPrefix) && now - status.st_mtime > kTemporaryLifetime) {
      unlinkat(descriptor_.get(), name.c_str(), 0);
    }
  });
}

std::vector<CacheEntry> KernelCache::entries() const {
  std::vector<std::pair<timespec, CacheEntry>> found;
  for_each_file(descriptor_.get(), [&](const std::string& name, const struct stat& status) {
    if (!name.ends_with(kSuffix)) return;
    found.push_back({status.st_mtim, {name, status.st_size, status.st_mtime}});
  });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(b.first.tv_sec, b.first.tv_nsec, a.second.file) <
           std::tie(a.first.tv_sec, a.first.tv_nsec, b.second.file);
  });
  std::vector<CacheEntry> result;
  for (auto& [time, entry] : found) result.push_back(std::move(entry));
  return result;
}

int KernelCache::clear() const {
  int count = 0;
  for_each_file(descriptor_.get(), [&](const std::string& name, const struct stat&) {
    const bool entry = name.ends_with(kSuffix);
    if (!entry && !name.starts_with(kTemporaryPrefix)) return;
    if (unlinkat(descriptor_.get(), name.c_str(), 0) == 0 && entry) ++count;
  });
  return count;
}

}  // namespace parapet::cuda
