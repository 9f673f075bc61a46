#include "machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "console.h"
#include "parapet/error.h"
#include "parapet/info.h"

namespace parapet::cli {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream stream(path);
  std::string line;
  if (!std::getline(stream, line)) return std::nullopt;
  return line;
}

// The text after `key` and separators, in a file of lines "key: value" or "key value".
std::optional<std::string> value_in(const std::string& path, const std::string& key) {
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t begin = line.find_first_not_of(": \t", key.size());
    if (begin != std::string::npos && begin > key.size()) return line.substr(begin);
  }
  return std::nullopt;
}

std::optional<double> number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  double value = 0;
  std::istringstream stream(*text);
  if (!(stream >> value)) return std::nullopt;  // "max": no limit
  return value;
}

// What the control group of a container leaves, for cgroup versions 2 and 1. Cached files count as
// used there, but the kernel drops them when memory is asked for.
double cgroup_headroom() {
  struct Files {
    const char *limit, *usage, *stat, *cached;
  };
  constexpr Files kVersions[] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat",
       "inactive_file"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
       "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"}};
  for (const Files& files : kVersions) {
    const auto limit = number(first_line(files.limit));
    const auto usage = number(first_line(files.usage));
    if (limit && usage)
      return *limit - *usage + number(value_in(files.stat, files.cached)).value_or(0);
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

std::string cpu_name() {
  return value_in("/proc/cpuinfo", "model name").value_or("unknown processor");
}

std::vector<Cache> caches() {
  std::vector<Cache> result;
  for (int index = 0;; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const auto level = number(first_line(folder + "level"));
    auto type = first_line(folder + "type");
    const auto kilobytes = number(first_line(folder + "size"));  // "32K"
    if (!level || !type || !kilobytes) return result;
    std::transform(type->begin(), type->end(), type->begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    result.push_back(
        {static_cast<int>(*level), *type, static_cast<std::int64_t>(*kilobytes) * 1024});
  }
}

double available_memory() {
  const auto kilobytes = number(value_in("/proc/meminfo", "MemAvailable"));
  const double physical =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return std::min(kilobytes ? *kilobytes * 1024 : physical, cgroup_headroom());
}

void require_memory(double bytes, const std::string& what) {
  const double available = available_memory();
  if (bytes <= 0.9 * available) return;
  throw Error(ErrorCode::kRuntime, fmt::format("{} needs {} of memory, and {} are available", what,
                                               bytes_text(bytes), bytes_text(available)));
}

int physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    cores.insert(first_line(folder + "thread_siblings_list").value_or(fmt::format("{}", cpu)));
  }
  return static_cast<int>(cores.size());
}

int threads_of(int requested) {
  return requested > 0 ? requested : cpu_info().num_threads;
}

}  // namespace parapet::cli
