#include "cuda/kernel_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "cuda/scoped.h"
#include "parapet/error.h"

namespace parapet::cuda {
namespace {

using parapet::testing::ScopedEnvironment;
using parapet::testing::TemporaryDirectory;

constexpr std::int64_t kPlenty = 1 << 30;

CacheKey key(const std::string& name) {
  return {name, "identity of " + name};
}

class KernelCacheTest : public ::testing::Test {
 protected:
  std::filesystem::path directory() const { return root_.path() / "cache"; }

  std::filesystem::path only_file() const {
    std::filesystem::path found;
    for (const auto& entry : std::filesystem::directory_iterator(directory())) found = entry.path();
    return found;
  }

  std::string problem() const {
    try {
      KernelCache::open_default();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  TemporaryDirectory root_;
  ScopedEnvironment environment_{"PARAPET_CACHE_DIR", directory()};
};

TEST_F(KernelCacheTest, GivesBackWhatWasStored) {
  const KernelCache cache = KernelCache::open_default();
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
  const std::string image("\0binary\xff", 8);
  EXPECT_TRUE(cache.store(key("a"), image, kPlenty));
  EXPECT_TRUE(cache.store(key("b"), "", kPlenty));
  EXPECT_EQ(cache.load(key("a")), image);
  EXPECT_EQ(cache.load(key("b")), "");
  EXPECT_EQ(cache.load({"a", "another identity"}), std::nullopt);
  EXPECT_EQ(cache.entries().size(), 2);
}

TEST_F(KernelCacheTest, ReplacesAnEntry) {
  const KernelCache cache = KernelCache::open_default();
  EXPECT_TRUE(cache.store(key("a"), "old", kPlenty));
  EXPECT_TRUE(cache.store(key("a"), "new", kPlenty));
  EXPECT_EQ(cache.load(key("a")), "new");
  EXPECT_EQ(cache.entries().size(), 1);
}

TEST_F(KernelCacheTest, TrustsNoDamagedEntry) {
  const KernelCache cache = KernelCache::open_default();
  cache.store(key("a"), "some machine code", kPlenty);
  const auto file = only_file();
  std::string whole;
  {
    std::ifstream stream(file, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(stream), {});
  }
  const auto overwrite = [&](const std::string& bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    overwrite(damaged);
    ASSERT_EQ(cache.load(key("a")), std::nullopt) << "byte " << i;
    overwrite(whole.substr(0, i));
    ASSERT_EQ(cache.load(key("a")), std::nullopt) << "cut at " << i;
  }
  overwrite(whole + "x");
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
  EXPECT_TRUE(cache.store(key("a"), "rebuilt", kPlenty));
  EXPECT_EQ(cache.load(key("a")), "rebuilt");
}

TEST_F(KernelCacheTest, TrustsNoEntryThatOthersCanWriteOrThatIsNoFile) {
  const KernelCache cache = KernelCache::open_default();
  cache.store(key("a"), "code", kPlenty);
  const auto file = only_file();
  chmod(file.c_str(), 0620);
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
  chmod(file.c_str(), 0600);
  EXPECT_EQ(cache.load(key("a")), "code");

  const auto elsewhere = root_.path() / "elsewhere";
  std::filesystem::rename(file, elsewhere);
  std::filesystem::create_symlink(elsewhere, file);
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(cache.load(key("a")), std::nullopt);
}

TEST_F(KernelCacheTest, CreatesAPrivateDirectory) {
  const mode_t umask_before = umask(0);
  KernelCache::open_default().store(key("a"), "code", kPlenty);
  umask(umask_before);
  struct stat status {};
  ASSERT_EQ(stat(directory().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700);
  ASSERT_EQ(stat(only_file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600);
}

TEST_F(KernelCacheTest, RefusesADirectoryThatOthersCanWrite) {
  std::filesystem::create_directory(directory());
  for (const int mode : {0770, 0707, 0777}) {
    chmod(directory().c_str(), mode);
    EXPECT_NE(problem().find("others can write to it"), std::string::npos) << problem();
  }
  chmod(directory().c_str(), 0755);
  EXPECT_EQ(problem(), "");
}

TEST_F(KernelCacheTest, RefusesSomebodyElsesDirectory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  std::filesystem::create_directory(directory());
  ASSERT_EQ(chown(directory().c_str(), 12345, 12345), 0);
  EXPECT_NE(problem().find("owner 12345"), std::string::npos) << problem();
}

TEST_F(KernelCacheTest, NamesWhatCannotBeADirectory) {
  std::ofstream(directory()) << "a file";
  EXPECT_NE(problem().find(directory().string()), std::string::npos) << problem();
}

TEST_F(KernelCacheTest, FollowsTheUsersDirectories) {
  const ScopedEnvironment unset("PARAPET_CACHE_DIR", std::nullopt);
  const ScopedEnvironment home("HOME", "/home/someone");
  {
    const ScopedEnvironment xdg("XDG_CACHE_HOME", "/var/cache/someone");
    EXPECT_EQ(KernelCache::default_directory(), "/var/cache/someone/parapet");
  }
  {
    const ScopedEnvironment relative("XDG_CACHE_HOME", "cache");
    EXPECT_EQ(KernelCache::default_directory(), "/home/someone/.cache/parapet");
  }
  const ScopedEnvironment no_xdg("XDG_CACHE_HOME", std::nullopt);
  EXPECT_EQ(KernelCache::default_directory(), "/home/someone/.cache/parapet");
  const ScopedEnvironment no_home("HOME", std::nullopt);
  EXPECT_EQ(KernelCache::default_directory(), "");
  EXPECT_NE(problem().find("PARAPET_CACHE_DIR"), std::string::npos) << problem();
}

TEST_F(KernelCacheTest, KeepsTheMostRecentlyUsedWithinItsLimit) {
  const KernelCache cache = KernelCache::open_default();
  const std::string image(10000, 'x');
  for (const char* name : {"a", "b", "c"}) cache.store(key(name), image, kPlenty);
  // Make a's and b's last use long ago; then a is used.
  for (const auto& entry : cache.entries()) {
    if (entry.file.starts_with("c")) continue;
    const timespec times[2] = {{1000, 0}, {1000, 0}};
    utimensat(AT_FDCWD, (directory() / entry.file).c_str(), times, 0);
  }
  EXPECT_TRUE(cache.load(key("a")).has_value());
  EXPECT_TRUE(cache.store(key("d"), image, 31000));
  EXPECT_FALSE(cache.load(key("b")).has_value());
  for (const char* name : {"a", "c", "d"}) EXPECT_TRUE(cache.load(key(name)).has_value()) << name;
}

TEST_F(KernelCacheTest, ClearsEntriesAndWhatCrashedProcessesLeft) {
  const KernelCache cache = KernelCache::open_default();
  cache.store(key("a"), "code", kPlenty);
  cache.store(key("b"), "code", kPlenty);
  std::ofstream(directory() / ".tmp-1-2-3") << "half";
  std::ofstream(directory() / "notes.txt") << "somebody's";
  EXPECT_EQ(cache.clear(), 2);
  EXPECT_TRUE(cache.entries().empty());
  EXPECT_EQ(only_file().filename(), "notes.txt");
}

TEST_F(KernelCacheTest, OutputIsForOthersToRead) {
  const mode_t umask_before = umask(022);
  const KernelCache output = KernelCache::output(directory());
  EXPECT_TRUE(output.store(key("a"), "code", kPlenty));
  umask(umask_before);
  struct stat status {};
  ASSERT_EQ(stat(only_file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644);
  EXPECT_EQ(KernelCache::read_only(directory()).load(key("a")), "code");
  EXPECT_THROW(KernelCache::read_only(directory() / "nothing"), Error);
}

// Everybody stores and loads the same few entries: whatever is seen is whole.
void use_heavily(const std::filesystem::path& directory, int seed, bool& failed) {
  const KernelCache cache = KernelCache::output(directory);
  for (int i = 0; i < 200; ++i) {
    const CacheKey shared = key(std::string(1, static_cast<char>('a' + (seed + i) % 3)));
    const std::string image = shared.name + std::string(20000, 'x');
    if (const auto found = cache.load(shared); found && *found != image) failed = true;
    if (!cache.store(shared, image, i % 50 == 0 ? 30000 : kPlenty)) failed = true;
  }
}

TEST_F(KernelCacheTest, ManyThreadsAndProcessesShareADirectory) {
  std::vector<pid_t> children;
  for (int seed = 0; seed < 3; ++seed) {
    const pid_t child = fork();
    if (child == 0) {
      bool failed = false;
      use_heavily(directory(), seed, failed);
      _exit(failed ? 1 : 0);
    }
    children.push_back(child);
  }
  bool failed[3] = {};
  {
    std::vector<std::jthread> threads;
    for (int seed = 0; seed < 3; ++seed) {
      threads.emplace_back([&, seed] { use_heavily(directory(), seed, failed[seed]); });
    }
  }
  for (const bool thread_failed : failed) EXPECT_FALSE(thread_failed);
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory())) {
    EXPECT_EQ(entry.path().extension(), ".kernel") << "left behind";
  }
}

}  // namespace
}  // namespace parapet::cuda
