#include <cstdint>
#include <string>
#include <string_view>

#include "api/arguments.h"
#include "api/checks.h"
#include "api/refuse.h"
#include "plan/band.h"

namespace parapet::api {
namespace {

bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// CPU tensors are in one memory, whatever index their framework gives it.
void check_device(const Argument& argument, const Argument& q) {
  const Device found = argument.view->device, expected = q.view->device;
  if (found.type == expected.type &&
      (found.type == DeviceType::kCpu || found.index == expected.index)) {
    return;
  }
  refuse("{}: expected device {} as q's, found {}", argument.name, device_text(expected),
         device_text(found));
}

bool dtype_fits(const Argument& argument, const Argument& q) {
  const DType dtype = argument.view->dtype;
  switch (argument.role) {
    case Role::kOperand:
      return is_float(dtype) && dtype == q.view->dtype;
    case Role::kLse:
      return dtype == DType::kFloat32;
    case Role::kLengths:
      return dtype == DType::kInt32;
    case Role::kSink:
      return is_float(dtype);
  }
  return false;
}

std::string expected_dtype(const Argument& argument, const Argument& q) {
  switch (argument.role) {
    case Role::kOperand:
      if (argument.view == q.view) break;
      return fmt::format("{} as q's", name_of(q.view->dtype));
    case Role::kLse:
      return "float32";
    case Role::kLengths:
      return "int32";
    case Role::kSink:
      break;
  }
  return "float32, float16 or bfloat16";
}

void check_dtype(const Argument& argument, const Argument& q) {
  if (dtype_fits(argument, q)) return;
  refuse("{}: expected dtype {}, found {}", argument.name, expected_dtype(argument, q),
         name_of(argument.view->dtype));
}

std::string_view name_of(Dim dim, const Argument& argument) {
  switch (dim) {
    case Dim::kBatch:
      return "batch";
    case Dim::kEntries:
      return "batch + 1";
    case Dim::kRowsQ:
      return argument.packed ? "total_q" : "seqlen_q";
    case Dim::kRowsK:
      return argument.packed ? "total_k" : "seqlen_k";
    case Dim::kHeads:
      return "num_heads";
    case Dim::kHeadsK:
      return "num_heads_k";
    case Dim::kHeadDim:
      return "head_dim";
    case Dim::kHeadDimV:
      return "head_dim_v";
  }
  return "";
}

void check_rank(const Argument& argument) {
  if (argument.view->rank == argument.rank) return;
  std::string dims, reason;
  for (int dim = 0; dim < argument.rank; ++dim) {
    dims += fmt::format("{}{}", dim == 0 ? "" : ", ", name_of(argument.dims[dim], argument));
  }
  if (argument.cu_seqlens) {
    reason = fmt::format(" as {} is {}given", argument.cu_seqlens, argument.packed ? "" : "not ");
  }
  refuse("{}: expected {} dimension{} ({}){}, found {}", argument.name, argument.rank,
         argument.rank == 1 ? "" : "s", dims, reason, shape_text(*argument.view));
}

// That 64 bits count the elements, their bytes and the distance between any two.
void check_extents(const Argument& argument) {
  const TensorView& view = *argument.view;
  __extension__ using Wide = __int128;
  constexpr Wide kMax = INT64_MAX;
  Wide elements = 1, span = 1;
  bool empty = false;
  for (int dim = 0; dim < view.rank; ++dim) {
    const int64 extent = view.shape[dim];
    if (extent < 0 || extent > plan::kMaxLength) {
      refuse("{}: expected shape[{}] from 0 to 2^48, found {}", argument.name, dim, extent);
    }
    empty = empty || extent == 0;
    if (elements <= kMax) elements *= extent;
    const Wide stride = view.strides[dim];
    span += (stride < 0 ? -stride : stride) * (extent > 0 ? extent - 1 : 0);
  }
  if (empty) return;
  const Wide size = size_of(view.dtype);
  if (elements * size > kMax || span * size > kMax) {
    refuse("{}: expected fewer than 2^63 bytes, found shape {} with strides {} of {}",
           argument.name, shape_text(view), strides_text(view), name_of(view.dtype));
  }
}

void check_address(const Argument& argument) {
  const TensorView& view = *argument.view;
  if (view.num_elements() == 0) return;
  if (view.data == nullptr) {
    refuse("{}: expected data for its {} elements, found a null pointer", argument.name,
           view.num_elements());
  }
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  if (address % static_cast<std::uintptr_t>(size_of(view.dtype)) != 0) {
    refuse("{}: expected an address that its {} elements can have, a multiple of {}, found {:#x}",
           argument.name, name_of(view.dtype), size_of(view.dtype), address);
  }
}

void check_lengths_stride(const Argument& argument) {
  const TensorView& view = *argument.view;
  if (argument.role != Role::kLengths || view.shape[0] <= 1 || view.strides[0] == 1) return;
  refuse("{}: expected a contiguous tensor, found stride {}", argument.name, view.strides[0]);
}

// What the shapes seen so far say about each extent, and who said it first.
class SharedExtents {
 public:
  // Dimension `dim` of a tensor; the extent is new or agrees.
  void add(const Argument& argument, int dim) {
    const bool entries = argument.dims[dim] == Dim::kEntries;
    Entry& entry = at(entries ? Dim::kBatch : argument.dims[dim]);
    const int64 found = argument.view->shape[dim];
    if (entries && found == 0) {
      refuse("{}: expected at least 1 entry, found none", argument.name);
    }
    const int64 extent = found - (entries ? 1 : 0);
    if (entry.source == nullptr) {
      entry = {extent, argument.name, dim, entries};
    } else if (entry.extent != extent) {
      refuse("{}: expected shape[{}] = {} = {}, as {}.shape[{}] is {}, found {}", argument.name,
             dim, name_of(argument.dims[dim], argument), entry.extent + (entries ? 1 : 0),
             entry.source, entry.dim, entry.extent + (entry.entries ? 1 : 0), found);
    }
  }

  int64 get(Dim dim) const { return entries_[static_cast<std::size_t>(dim)].extent; }

 private:
  struct Entry {
    int64 extent = 0;
    const char* source = nullptr;
    int dim = 0;
    bool entries = false;
  };
  Entry& at(Dim dim) { return entries_[static_cast<std::size_t>(dim)]; }

  std::array<Entry, 8> entries_;
};

void check_heads(const Extents& extents) {
  if (extents.head_dim < 1) refuse("q: expected head_dim of at least 1, found 0");
  if (extents.head_dim_v < 1) refuse("v: expected head_dim_v of at least 1, found 0");
  const bool multiple = extents.num_heads_k == 0 ? extents.num_heads == 0
                                                 : extents.num_heads % extents.num_heads_k == 0;
  if (!multiple) {
    refuse("q: expected num_heads to be a multiple of k's num_heads_k = {}, found {}",
           extents.num_heads_k, extents.num_heads);
  }
}

}  // namespace

Extents check_tensors(const ForwardTensors& tensors) {
  const Arguments arguments(tensors);
  const Argument& q = *arguments.begin();
  for (const Argument& argument : arguments) check_device(argument, q);

  SharedExtents shared;
  for (const Argument& argument : arguments) {
    check_dtype(argument, q);
    check_rank(argument);
    check_extents(argument);
    check_address(argument);
    check_lengths_stride(argument);
    for (int dim = 0; dim < argument.rank; ++dim) shared.add(argument, dim);
  }
  const Extents extents = {
      .batch = shared.get(Dim::kBatch),
      .rows_q = shared.get(Dim::kRowsQ),
      .rows_k = shared.get(Dim::kRowsK),
      .num_heads = shared.get(Dim::kHeads),
      .num_heads_k = shared.get(Dim::kHeadsK),
      .head_dim = shared.get(Dim::kHeadDim),
      .head_dim_v = shared.get(Dim::kHeadDimV),
  };
  check_heads(extents);
  return extents;
}

}  // namespace parapet::api
