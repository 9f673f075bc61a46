#include "kernels/core/work_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <vector>

#include "emulate/launch.h"

namespace parapet::kernels {
namespace {

struct Lengths {
  int rows_q = 0;
  int rows_k = 0;
  int batch = 0;
  std::optional<std::vector<int>> cu_seqlens_q = std::nullopt;
  std::optional<std::vector<int>> cu_seqlens_k = std::nullopt;
  std::optional<std::vector<int>> seqused_q = std::nullopt;
  std::optional<std::vector<int>> seqused_k = std::nullopt;
  int heads_per_tile = 1;
};

struct WorkList {
  std::vector<WorkItem> items;
  alignas(16) Status status{};
};

constexpr int kQueryTile = 64;

WorkList make_list(const Lengths& lengths) {
  const auto data = [](const std::optional<std::vector<int>>& array) {
    return array ? array->data() : nullptr;
  };
  WorkList list;
  int count = -1;
  const bool packed = lengths.cu_seqlens_q.has_value();
  list.items.resize(static_cast<std::size_t>(work_list_capacity(
      lengths.batch, lengths.rows_q, packed, lengths.heads_per_tile, kQueryTile)));
  ForwardParams params{};
  params.cu_seqlens_q = data(lengths.cu_seqlens_q);
  params.cu_seqlens_k = data(lengths.cu_seqlens_k);
  params.seqused_q = data(lengths.seqused_q);
  params.seqused_k = data(lengths.seqused_k);
  params.work_items = list.items.data();
  params.work_count = &count;
  params.status = &list.status;
  params.batch = lengths.batch;
  params.rows_q = lengths.rows_q;
  params.rows_k = lengths.rows_k;
  params.unit_rows = kQueryTile;
  params.heads_per_tile = lengths.heads_per_tile;
  emulate::launch({.threads = kWorkListThreads, .shared_bytes = kWorkListSharedBytes},
                  [&] { make_work_list(params); });
  EXPECT_GE(count, 0);
  EXPECT_LE(static_cast<std::size_t>(count), list.items.size());
  list.items.resize(static_cast<std::size_t>(count));
  return list;
}

// Every entry belongs to a run of its segment's tiles, runs come longest first, and every row of a
// packed q is in one segment.
void check_list(const Lengths& lengths, const WorkList& list) {
  std::vector<int> owners(static_cast<std::size_t>(lengths.rows_q), 0);
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const WorkItem& item = list.items[i];
    const int tiles = (item.query_rows * lengths.heads_per_tile + kQueryTile - 1) / kQueryTile;
    EXPECT_LE(item.first_unit, static_cast<int>(i));
    EXPECT_GT(item.first_unit + tiles, static_cast<int>(i));
    EXPECT_GE(item.query_begin, 0);
    EXPECT_LE(item.query_begin + item.query_rows, lengths.rows_q);
    EXPECT_GE(item.query_used, 0);
    EXPECT_LE(item.query_used, item.query_rows);
    EXPECT_GE(item.key_begin, 0);
    EXPECT_GE(item.key_rows, 0);
    EXPECT_LE(item.key_begin + item.key_rows, lengths.rows_k);
    if (i > 0) {
      EXPECT_GE(bucket_of(item.key_rows), bucket_of(list.items[i - 1].key_rows));
    }
    if (lengths.cu_seqlens_q && item.first_unit == static_cast<int>(i))
      for (int row = 0; row < item.query_rows; ++row)
        ++owners[static_cast<std::size_t>(item.query_begin + row)];
  }
  if (lengths.cu_seqlens_q) {
    EXPECT_TRUE(std::all_of(owners.begin(), owners.end(), [](int n) { return n == 1; }));
  }
}

TEST(Bucket, NeverSortsALongerSegmentLater) {
  for (int keys = 0; keys < 100'000; ++keys) EXPECT_GE(bucket_of(keys), bucket_of(keys + 1));
  EXPECT_GT(bucket_of(1000), bucket_of(1200));
  EXPECT_GE(bucket_of(kMaxRows), 0);
}

TEST(WorkList, ListsPackedSegmentsLongestFirst) {
  Lengths lengths{.rows_q = 330, .rows_k = 1000, .batch = 4};
  lengths.cu_seqlens_q = {0, 100, 100, 300, 330};
  lengths.cu_seqlens_k = {0, 50, 60, 960, 1000};
  const WorkList list = make_list(lengths);
  check_list(lengths, list);
  EXPECT_EQ(list.status.array, kNoArray);
  ASSERT_EQ(list.items.size(), 7u);
  EXPECT_EQ(list.items[0].segment, 2);
  EXPECT_EQ(list.items[3].segment, 2);
  EXPECT_EQ(list.items[4].segment, 0);
  EXPECT_EQ(list.items[4].key_begin, 0);
  EXPECT_EQ(list.items[6].segment, 3);
  EXPECT_EQ(list.items[6].key_rows, 40);
}

TEST(WorkList, OwnsRowsThatNoSegmentCovers) {
  Lengths lengths{.rows_q = 500, .rows_k = 10, .batch = 1};
  lengths.cu_seqlens_q = {0, 130};
  lengths.cu_seqlens_k = {0, 10};
  const WorkList list = make_list(lengths);
  check_list(lengths, list);
  EXPECT_EQ(list.items.back().query_begin, 130);
  EXPECT_EQ(list.items.back().query_used, 0);

  lengths.batch = 0;
  lengths.cu_seqlens_q = {0};
  lengths.cu_seqlens_k = {0};
  check_list(lengths, make_list(lengths));
}

TEST(WorkList, CutsToUsedLengths) {
  Lengths lengths{.rows_q = 100, .rows_k = 70, .batch = 3};
  lengths.seqused_q = {100, 0, 5};
  lengths.seqused_k = {0, 70, 33};
  const WorkList list = make_list(lengths);
  check_list(lengths, list);
  EXPECT_EQ(list.status.array, kNoArray);
  ASSERT_EQ(list.items.size(), 6u);
  EXPECT_EQ(list.items[0].segment, 1);
  EXPECT_EQ(list.items[0].query_used, 0);
  EXPECT_EQ(list.items[2].segment, 2);
  EXPECT_EQ(list.items[2].query_used, 5);
  EXPECT_EQ(list.items[2].key_rows, 33);
}

TEST(WorkList, CountsPackedHeadsAsRows) {
  Lengths lengths{.rows_q = 40, .rows_k = 40, .batch = 2, .heads_per_tile = 8};
  lengths.cu_seqlens_q = {0, 1, 40};
  lengths.cu_seqlens_k = {0, 1, 40};
  const WorkList list = make_list(lengths);
  check_list(lengths, list);
  EXPECT_EQ(list.items.size(), 6u);
}

TEST(WorkList, TakesManySegments) {
  Lengths lengths{.rows_q = 5000, .rows_k = 5000, .batch = 5000};
  lengths.cu_seqlens_q.emplace();
  for (int i = 0; i <= 5000; ++i) lengths.cu_seqlens_q->push_back(i);
  lengths.cu_seqlens_k = lengths.cu_seqlens_q;
  const WorkList list = make_list(lengths);
  check_list(lengths, list);
  EXPECT_EQ(list.items.size(), 5000u);
}

struct Hostile {
  std::vector<int> cu_seqlens_q;
  std::vector<int> cu_seqlens_k;
  Status status;
};

TEST(WorkList, SurvivesAnyLengthsAndNamesTheFirst) {
  const Hostile cases[] = {
      {{0, 50, 20, 60}, {0, 10, 20, 30}, {kCuSeqlensQ, 2, 20, 0}},
      {{5, 50, 60, 60}, {0, 10, 20, 30}, {kCuSeqlensQ, 0, 5, 0}},
      {{-7, 50, 60, 1000}, {0, 10, 20, 30}, {kCuSeqlensQ, 0, -7, 0}},
      {{0, INT_MAX, INT_MIN, 60}, {0, 10, 20, 30}, {kCuSeqlensQ, 1, INT_MAX, 0}},
      {{0, 20, 40, 70}, {0, 40, 10, 90'000}, {kCuSeqlensK, 2, 10, 0}},
      {{70, 50, 40, 30}, {3, 2, 1, 0}, {kCuSeqlensQ, 0, 70, 0}},
      {{0, 20, 40, 70}, {-1, -5, INT_MAX, 7}, {kCuSeqlensK, 0, -1, 0}},
      {{INT_MIN, INT_MIN, INT_MIN, INT_MIN}, {0, 0, 0, 0}, {kCuSeqlensQ, 0, INT_MIN, 0}},
  };
  for (const Hostile& hostile : cases) {
    Lengths lengths{.rows_q = 70, .rows_k = 64, .batch = 3};
    lengths.cu_seqlens_q = hostile.cu_seqlens_q;
    lengths.cu_seqlens_k = hostile.cu_seqlens_k;
    const WorkList list = make_list(lengths);
    check_list(lengths, list);
    EXPECT_EQ(list.status.array, hostile.status.array);
    EXPECT_EQ(list.status.index, hostile.status.index);
    EXPECT_EQ(list.status.value, hostile.status.value);
  }
}

TEST(WorkList, NamesABadUsedLength) {
  Lengths lengths{.rows_q = 10, .rows_k = 10, .batch = 3};
  lengths.seqused_q = {10, 11, -1};
  lengths.seqused_k = {-5, 3, 3};
  const WorkList list = make_list(lengths);
  check_list(lengths, list);
  EXPECT_EQ(list.status.array, kSequsedQ);
  EXPECT_EQ(list.status.index, 1);
  EXPECT_EQ(list.status.value, 11);
}

}  // namespace
}  // namespace parapet::kernels
