#pragma once

#include <string>
#include <vector>

#include "api/problem.h"
#include "plan/segment.h"

namespace parapet::cpu {

// The segments of a problem whose metadata is in host memory, with every length clamped into its
// tensor.
std::vector<plan::Segment> read_segments(const api::Problem& problem);

// Computes a problem on the calling thread and OpenMP's. Writes every element of out and lse.
void forward(const api::Problem& problem);

// Rows that the kernels take at a time with the SIMD target in use.
plan::int64 panel_rows();

// Name of the SIMD target in use, and all that this CPU has, best first.
std::string simd_target();
std::vector<std::string> simd_targets();

// Restricts dispatch to one target by name; an empty name lifts the restriction. For tests and
// measurements, not while a call runs. Throws Error(kInvalidArgument) for a name that this CPU
// lacks.
void force_simd_target(const std::string& name);

// What the machine gives at this moment, to put a figure beside its ceiling: float32 multiply-adds
// without memory (GFLOP/s) and reads of a buffer beyond the caches (GB/s), both over `threads`
// threads for about `seconds`.
double measure_fma_rate(int threads, double seconds);
double measure_read_bandwidth(int threads, double seconds);

}  // namespace parapet::cpu
