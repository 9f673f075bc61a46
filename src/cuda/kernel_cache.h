#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/file_descriptor.h"

// Compiled kernels on disk. An entry is a file that holds everything it was made from, so that a
// look-up compares instead of trusting a name, and a checksum: what is damaged, foreign or of
// another version is not there as far as `load` is concerned, and `store` replaces it. Files appear
// by rename, so any number of threads and processes may use one directory at once.

namespace parapet::cuda {

// What an entry is found by.
struct CacheKey {
  std::string name;      // for people; becomes the first part of the file's name
  std::string identity;  // all that the code depends on, word by word
};

struct CacheEntry {
  std::string file;  // its name in the directory
  std::int64_t bytes = 0;
  std::int64_t last_used = 0;  // seconds since 1970
};

class KernelCache {
 public:
  // The user's own: default_directory(), created (0700) where it does not exist. One that belongs
  // to somebody else or that others may write to is refused: Error(kRuntime) says so.
  static KernelCache open_default();
  // A directory to fill for others to read, created as the umask says.
  static KernelCache output(const std::string& directory);
  // A directory that came with the program. Not created, not written. Error(kRuntime) if not there.
  static KernelCache read_only(const std::string& directory);
  // PARAPET_CACHE_DIR, else XDG_CACHE_HOME/parapet, else ~/.cache/parapet; empty without a home.
  static std::string default_directory();

  const std::string& directory() const { return directory_; }

  // The image stored under `key`, if there is one that is whole, and this user's in the user's own
  // cache.
  std::optional<std::string> load(const CacheKey& key) const;
  // Whether it worked: a cache that is full or gone must not fail a call. Afterwards the least
  // recently used entries are removed until all together hold at most `limit` bytes.
  bool store(const CacheKey& key, std::string_view image, std::int64_t limit) const;

  // The entries, most recently used first.
  std::vector<CacheEntry> entries() const;
  // Removes all entries and what crashed processes left; returns how many entries there were.
  int clear() const;

 private:
  enum class Purpose { kOwn, kOutput, kReadOnly };
  KernelCache(std::string directory, Purpose purpose);
  void evict(std::int64_t limit) const;

  std::string directory_;
  Purpose purpose_;
  FileDescriptor descriptor_;  // of the directory: everything happens relative to it
};

}  // namespace parapet::cuda
