#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "cuda/cubin.h"
#include "cuda/kernel_store.h"
#include "cuda/kernel_unit.h"
#include "parapet/error.h"
#include "parapet/kernels.h"

namespace parapet {
namespace {

using cuda::Arch;
using kernels::ForwardConfig;

struct Job {
  ForwardConfig config;
  Arch arch;
};

KernelReport compile(const Job& job, const cuda::KernelCache& directory) {
  const auto start = std::chrono::steady_clock::now();
  const cuda::KernelImage image = cuda::compile_kernel(job.config, job.arch);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  KernelReport report{.kernel = cuda::kernel_name(job.config),
                      .arch = job.arch.name(),
                      .ptx = image.is_ptx(),
                      .threads = kernels::forward_threads(job.config),
                      .image_bytes = static_cast<std::int64_t>(image.bytes.size()),
                      .seconds = elapsed.count()};
  if (!report.ptx) {
    const auto resources = cuda::read_resources(image.bytes, cuda::kForwardEntry);
    report.registers = resources.registers;
    report.local_bytes = resources.local_bytes;
    report.shared_bytes = resources.shared_bytes + kernels::forward_shared_bytes(job.config);
  }
  constexpr std::int64_t kNoLimit = std::int64_t{1} << 62;
  if (!directory.store(cuda::precompiled_key(job.config, job.arch), image.bytes, kNoLimit)) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("precompile: cannot write to {}", directory.directory()));
  }
  return report;
}

std::vector<Job> jobs_of(const PrecompileOptions& options) {
  if (options.archs.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "archs: expected at least one, found none");
  }
  std::vector<Job> jobs;
  for (const std::string& arch : options.archs) {
    const auto& kernels = options.kernels.empty() ? common_kernels(arch) : options.kernels;
    for (const std::string& name : kernels) {
      jobs.push_back({cuda::parse_kernel_name(name), Arch::parse(arch)});
    }
  }
  return jobs;
}

}  // namespace

std::vector<std::string> common_kernels(const std::string& arch) {
  const int shared = Arch::parse(arch).shared_bytes_per_sm();
  const kernels::ShapeHints long_segments{.shared_bytes_per_sm = shared};
  const kernels::ShapeHints short_segments{.keys = 0, .shared_bytes_per_sm = shared};
  std::vector<std::string> names;
  for (const auto element : {kernels::Element::kBfloat16, kernels::Element::kFloat16}) {
    for (const int head_dim : {64, 96, 128, 192, 256}) {
      for (const bool causal : {false, true}) {
        ForwardConfig config{
            .element = element, .head_dim = head_dim, .head_dim_v = head_dim, .right_edge = causal};
        config.shape = kernels::forward_shape(config, long_segments);
        names.push_back(cuda::kernel_name(config));
        config.shape = kernels::forward_shape(config, short_segments);
        if (cuda::kernel_name(config) != names.back()) names.push_back(cuda::kernel_name(config));
      }
    }
  }
  return names;
}

std::vector<KernelReport> precompile(const PrecompileOptions& options) {
  const std::vector<Job> jobs = jobs_of(options);
  const auto directory = cuda::KernelCache::output(options.directory);
  std::vector<KernelReport> reports(jobs.size());

  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // of what follows, and of on_kernel
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      try {
        reports[i] = compile(jobs[i], directory);
        const std::lock_guard lock(mutex);
        if (options.on_kernel) options.on_kernel(reports[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
        next = jobs.size();
      }
    }
  };
  const std::size_t wanted =
      options.num_threads > 0 ? options.num_threads : std::thread::hardware_concurrency();
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(wanted, jobs.size()); ++i) threads.emplace_back(work);
    work();
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  return reports;
}

KernelCacheReport kernel_cache() {
  KernelCacheReport report{.directory = cuda::KernelCache::default_directory(),
                           .problem = {},
                           .limit_bytes = cuda::cache_limit_bytes(),
                           .entries = {}};
  try {
    for (auto& entry : cuda::KernelCache::open_default().entries()) {
      report.entries.push_back({std::move(entry.file), entry.bytes, entry.last_used});
    }
  } catch (const Error& error) {
    report.problem = error.what();
  }
  return report;
}

std::int64_t clear_kernel_cache() {
  return cuda::KernelCache::open_default().clear();
}

}  // namespace parapet
