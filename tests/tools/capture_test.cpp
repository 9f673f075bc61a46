#include "tools/capture/capture.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "support/errors.h"
#include "tools/capture/safetensors.h"
#include "tools/json/json.h"
#include "tools/workload/workload.h"

namespace parapet::tools {
namespace {

using testing::expect_refused;

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override {
    ASSERT_LE(offset, bytes_.size());
    ASSERT_LE(bytes.size(), bytes_.size() - offset);
    std::memcpy(bytes.data(), bytes_.data() + offset, bytes.size());
  }

 private:
  std::string bytes_;
};

std::string container(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

Capture read(const std::string& bytes) {
  return read_capture(MemorySource(bytes), "c");
}

// The header of a call with q (1, 1, 1, 2), k and v (1, 1, 1, 1) of float16, 8 bytes of data.
Json small_header() {
  const auto tensor = [](int begin, int end, int head_dim) {
    return Json{{"dtype", "F16"}, {"shape", {1, 1, 1, head_dim}}, {"data_offsets", {begin, end}}};
  };
  return {{"q", tensor(0, 4, 2)},
          {"k", tensor(4, 6, 1)},
          {"v", tensor(6, 8, 1)},
          {"__metadata__", {{"parapet", R"({"format": 1, "options": {}})"}}}};
}

std::string small_file(const std::function<void(Json&)>& change) {
  Json header = small_header();
  change(header);
  return container(header.dump(), "12345678");
}

std::string with_metadata(const std::string& text) {
  return small_file([&](Json& header) { header["__metadata__"]["parapet"] = text; });
}

TEST(Capture, WhatIsWrittenIsReadBack) {
  const Workload workload = parse_workload(
      R"({"num_heads": 4, "num_heads_k": 2, "head_dim": 6, "q_lens": [3, 2], "k_lens": [4, 5],
          "causal": true, "window_left": 3, "softcap": 0.1, "softmax_scale": 0.3, "sink": true,
          "dtype": "bfloat16"})",
      "w");
  Capture written{.call = random_call(workload.cases.at(0), 1),
                  .out = Tensor(DType::kBFloat16, {5, 4, 6}),
                  .lse = Tensor(DType::kFloat32, {4, 5}),
                  .parapet = "0.1.0",
                  .function = "f",
                  .framework = "a \"b\" \\"};
  written.call.seqused_k = int32_tensor(std::vector<std::int32_t>{1, 2});
  written.call.options.num_splits = 3;
  fill_normal(*written.out, 2);
  fill_normal(*written.lse, 3);
  const auto path =
      std::filesystem::temp_directory_path() / ("capture-test-" + std::to_string(::getpid()));
  write_capture(path, written);
  const Capture read = read_capture(path);
  std::filesystem::remove(path);

  const auto expect_same = [](const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.dtype(), b.dtype());
    EXPECT_EQ(a.shape(), b.shape());
    ASSERT_EQ(a.bytes().size(), b.bytes().size());
    EXPECT_EQ(std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()), 0);
  };
  expect_same(read.call.q, written.call.q);
  expect_same(read.call.k, written.call.k);
  expect_same(read.call.v, written.call.v);
  expect_same(read.call.cu_seqlens_q.value(), *written.call.cu_seqlens_q);
  expect_same(read.call.cu_seqlens_k.value(), *written.call.cu_seqlens_k);
  expect_same(read.call.seqused_k.value(), *written.call.seqused_k);
  expect_same(read.call.learnable_sink.value(), *written.call.learnable_sink);
  expect_same(read.out.value(), *written.out);
  expect_same(read.lse.value(), *written.lse);
  EXPECT_FALSE(read.call.seqused_q.has_value());
  const ForwardOptions& options = read.call.options;
  EXPECT_TRUE(options.causal);
  EXPECT_EQ(options.window_left, 3);
  EXPECT_FALSE(options.window_right.has_value());
  EXPECT_EQ(options.softcap, 0.1f);
  EXPECT_EQ(options.softmax_scale, 0.3f);
  EXPECT_EQ(options.num_splits, 3);
  EXPECT_EQ(read.parapet, written.parapet);
  EXPECT_EQ(read.function, written.function);
  EXPECT_EQ(read.framework, written.framework);
}

TEST(Capture, UnalignedDataIsRead) {
  std::string header = small_header().dump();
  while ((8 + header.size()) % 2 == 0) header += ' ';  // float16 at an odd address
  const Capture capture = read(container(header, "12345678"));
  EXPECT_EQ(std::memcmp(capture.call.q.bytes().data(), "1234", 4), 0);
  EXPECT_EQ(std::memcmp(capture.call.v.bytes().data(), "78", 2), 0);
}

TEST(Capture, RefusesDamagedContainers) {
  const std::string good = small_file([](Json&) {});
  ASSERT_NO_THROW(read(good));
  for (std::size_t size = 0; size < good.size(); ++size) {
    SCOPED_TRACE(size);
    expect_refused({"c: "}, [&] { read(good.substr(0, size)); });
  }
  expect_refused({"c: expected 8 bytes of tensors, found 9"}, [&] { read(good + "9"); });
  expect_refused({"c: not a safetensors file: expected at least 8 bytes, found 3"},
                 [] { read("abc"); });
  std::string long_header = good;
  long_header.replace(0, 8, std::string(8, '\xff'));
  expect_refused({"header of at most 1048576 bytes, found a length of 18446744073709551615"},
                 [&] { read(long_header); });
  expect_refused({"c: cut short: expected a header of 1000 bytes, found 2"}, [] {
    std::string bytes = container("{}", "");
    bytes[0] = '\xe8', bytes[1] = '\x03';
    read(bytes);
  });
  expect_refused({"the header does not begin with {"}, [] { read(container(" {}", "")); });
  expect_refused({"the header does not begin with {"}, [] { read(container("", "")); });
  expect_refused({"not valid JSON"}, [] { read(container("{", "")); });
  expect_refused({"levels deep"}, [] { read(container("{\"a\":" + std::string(1000, '['), "")); });
  expect_refused({"\"q\" twice"}, [] { read(container(R"({"q": {}, "q": {}})", "")); });
}

TEST(Capture, RefusesTensorsThatDoNotFit) {
  const auto refuse = [](const char* message, const std::function<void(Json&)>& change) {
    SCOPED_TRACE(message);
    expect_refused({"c: ", message}, [&] { read(small_file(change)); });
  };
  refuse("tensor k is missing", [](Json& h) {
    h.erase("k");
    h["q"]["shape"][3] = 3;
    h["q"]["data_offsets"] = {0, 6};
  });
  refuse("unknown tensor \"extra\"", [](Json& h) {
    h["extra"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {8, 8}}};
  });
  refuse("tensor lse without out",
         [](Json& h) { h["lse"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {8, 8}}}; });
  refuse("q: expected an object, found 3", [](Json& h) { h["q"] = 3; });
  refuse("q: unknown key \"more\"", [](Json& h) { h["q"]["more"] = 1; });
  refuse("q: \"dtype\" is missing", [](Json& h) { h["q"].erase("dtype"); });
  refuse("q: \"shape\" is missing", [](Json& h) { h["q"].erase("shape"); });
  refuse("q: \"data_offsets\" is missing", [](Json& h) { h["q"].erase("data_offsets"); });
  refuse("q.dtype: expected \"F32\", \"F16\"", [](Json& h) { h["q"]["dtype"] = "F64"; });
  refuse("q.dtype: expected a string", [](Json& h) { h["q"]["dtype"] = 16; });
  refuse("q.shape: expected at most 4 dimensions, found 5",
         [](Json& h) { h["q"]["shape"] = {1, 1, 1, 1, 2}; });
  refuse("q.shape[0]: expected an integer from 0", [](Json& h) { h["q"]["shape"][0] = -1; });
  refuse("q.shape[0]: expected an integer from 0", [](Json& h) { h["q"]["shape"][0] = 1.0; });
  refuse("q.shape: expected fewer than 2^63 bytes",
         [](Json& h) { h["q"]["shape"] = {INT64_MAX, INT64_MAX, 3, 3}; });
  refuse("q.data_offsets: expected 8 bytes, as dtype and shape say, found 4",
         [](Json& h) { h["q"]["shape"][3] = 4; });
  // Products that wrap around to the right number of bytes.
  refuse("q.shape: expected fewer than 2^63 bytes",
         [](Json& h) { h["q"]["shape"] = {INT64_C(1) << 62, 4, 1, 2}; });
  refuse("q.data_offsets: expected 2 numbers, found 3",
         [](Json& h) { h["q"]["data_offsets"] = {0, 4, 4}; });
  refuse("q.data_offsets[1]: expected an integer from 4 to 8, found 0",
         [](Json& h) { h["q"]["data_offsets"] = {4, 0}; });
  refuse("v.data_offsets[1]: expected an integer from 6 to 8, found 9",
         [](Json& h) { h["v"]["data_offsets"] = {6, 9}; });
  refuse("\"k\".data_offsets: expected to begin at 4, where the tensor before it ends, found 3",
         [](Json& h) { h["k"]["data_offsets"] = {3, 5}; });           // overlaps q
  refuse("\"k\".data_offsets: expected to begin at 2", [](Json& h) {  // leaves a hole behind q
    h["q"]["shape"][3] = 1;
    h["q"]["data_offsets"] = {0, 2};
  });
}

TEST(Capture, RefusesMetadataThatItDoesNotKnow) {
  const auto refuse = [](const char* message, const std::string& bytes) {
    SCOPED_TRACE(message);
    expect_refused({"c: ", message}, [&] { read(bytes); });
  };
  refuse("not a capture", small_file([](Json& h) { h.erase("__metadata__"); }));
  refuse("not a capture", small_file([](Json& h) { h["__metadata__"] = Json::object(); }));
  refuse("__metadata__: expected an object", small_file([](Json& h) { h["__metadata__"] = "x"; }));
  refuse("__metadata__.parapet: expected a string",
         small_file([](Json& h) { h["__metadata__"]["parapet"] = 1; }));
  refuse("__metadata__: unknown key \"format\"",
         small_file([](Json& h) { h["__metadata__"]["format"] = "pt"; }));
  refuse("__metadata__.parapet: not valid JSON", with_metadata("{"));
  refuse("__metadata__.parapet: expected an object", with_metadata("[]"));
  refuse("__metadata__.parapet: \"format\" is missing", with_metadata(R"({"options": {}})"));
  refuse("__metadata__.parapet: \"options\" is missing", with_metadata(R"({"format": 1})"));
  refuse("__metadata__.parapet.format: expected 1, the format that this version reads, found 2",
         with_metadata(R"({"format": 2, "options": {}})"));
  refuse("__metadata__.parapet: unknown key \"more\"",
         with_metadata(R"({"format": 1, "options": {}, "more": 1})"));
  refuse("__metadata__.parapet.function: expected a string",
         with_metadata(R"({"format": 1, "options": {}, "function": 1})"));

  const auto with_options = [](const std::string& options) {
    return with_metadata(R"({"format": 1, "options": {)" + options + "}}");
  };
  ASSERT_NO_THROW(read(with_options(R"("causal": true, "softmax_scale": null, "window_left": null,
                                       "window_right": -1, "softcap": 0, "num_splits": 0)")));
  refuse("options: unknown key \"dropout\"", with_options(R"("dropout": 0.1)"));
  refuse("options.causal: expected true or false", with_options(R"("causal": null)"));
  refuse("options.window_left: expected an integer from -1", with_options(R"("window_left": -2)"));
  refuse("options.window_right: expected an integer", with_options(R"("window_right": 1.5)"));
  refuse("options.softmax_scale: expected a number within float32's range",
         with_options(R"("softmax_scale": 1e300)"));
  refuse("options.softcap: expected a finite number", with_options(R"("softcap": "x")"));
  refuse("options.num_splits: expected an integer from 0", with_options(R"("num_splits": -1)"));
  refuse("options.num_splits: expected an integer from 0",
         with_options(R"("num_splits": 4294967296)"));
}

}  // namespace
}  // namespace parapet::tools
