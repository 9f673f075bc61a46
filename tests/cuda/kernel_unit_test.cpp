#include "cuda/kernel_unit.h"

#include <gtest/gtest.h>

#include "cuda/cubin.h"
#include "cuda/nvrtc_or_skip.h"
#include "kernels/core/params.h"
#include "parapet/error.h"

namespace parapet::cuda {
namespace {

using kernels::Element;
using kernels::ForwardConfig;

TEST(KernelName, GoesBothWays) {
  EXPECT_EQ(kernel_name({}), "forward-bf16-d128");
  for (const char* name :
       {"forward-bf16-d128", "forward-fp16-d8", "forward-bf16-d192x128-right",
        "forward-fp16-d64x256-left-right-softcap-packed-unaligned", "forward-bf16-d64-right-short",
        "forward-bf16-d128-roomy", "forward-bf16-d128-right-roomy-short"}) {
    EXPECT_EQ(kernel_name(parse_kernel_name(name)), name);
  }
  const ForwardConfig config = parse_kernel_name("forward-fp16-d192x128-left-unaligned");
  EXPECT_EQ(config.element, Element::kFloat16);
  EXPECT_EQ(config.head_dim, 192);
  EXPECT_EQ(config.head_dim_v, 128);
  EXPECT_TRUE(config.left_edge);
  EXPECT_FALSE(config.right_edge);
  EXPECT_FALSE(config.aligned);
  EXPECT_EQ(config.shape, kernels::forward_shape(config));
}

TEST(KernelName, RefusesOthers) {
  for (const char* name :
       {"", "forward", "forward-bf16", "backward-bf16-d128", "forward-fp32-d128",
        "forward-bf16-d12", "forward-bf16-d264", "forward-bf16-d0", "forward-bf16-d-8",
        "forward-bf16-128", "forward-bf16-d128x128", "forward-bf16-d128x64x8",
        "forward-bf16-d128-right-left", "forward-bf16-d128-right-right", "forward-bf16-d128-",
        "forward-bf16-d128-causal", "forward-bf16-d0128"}) {
    EXPECT_THROW(parse_kernel_name(name), Error) << name;
  }
}

KernelImage compile(const ParamLayout& layout) {
  const Nvrtc& nvrtc = Nvrtc::instance();
  return nvrtc.compile("test", translation_unit(parse_kernel_name("forward-bf16-d64"), layout),
                       {"-std=c++20", nvrtc.target(Arch::parse("sm_90a")).option});
}

TEST(TranslationUnit, CompilesWithTheHostsLayout) {
  PARAPET_NVRTC_OR_SKIP();
  const KernelImage image = compile(forward_param_layout());
  for (const char* entry : {kForwardEntry, kWorkListEntry}) {
    EXPECT_EQ(read_resources(image.bytes, entry).parameter_bytes,
              static_cast<std::int64_t>(sizeof(kernels::ForwardParams)));
  }
}

// What the compiler says when the host sees another layout than the device.
std::string mismatch(const ParamLayout& layout) {
  try {
    compile(layout);
    return "compiled";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(TranslationUnit, NamesAFieldThatMoved) {
  PARAPET_NVRTC_OR_SKIP();
  const ParamLayout good = forward_param_layout();
  for (const std::size_t field : {std::size_t{0}, good.fields.size() / 2, good.fields.size() - 1}) {
    ParamLayout bad = good;
    bad.fields[field].offset += 4;
    const std::string message = mismatch(bad);
    for (std::size_t i = 0; i < good.fields.size(); ++i) {
      const bool named = message.find("ForwardParams::" + std::string(good.fields[i].name) + ":") !=
                         std::string::npos;
      EXPECT_EQ(named, i == field) << good.fields[i].name << "\n" << message;
    }
  }
}

TEST(TranslationUnit, NamesAFieldThatTheDeviceLacks) {
  PARAPET_NVRTC_OR_SKIP();
  ParamLayout bad = forward_param_layout();
  bad.fields.push_back({"number_of_moons", bad.size});
  bad.size += 8;
  const std::string message = mismatch(bad);
  EXPECT_NE(message.find("number_of_moons"), std::string::npos) << message;
  EXPECT_NE(message.find("ForwardParams: its size on the host differs"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace parapet::cuda
