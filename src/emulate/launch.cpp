#include "emulate/launch.h"

#include <utility>

#include "emulate/block.h"

namespace parapet::emulate {

void launch(const Launch& launch, const std::function<void()>& kernel) {
  Random random(launch.seed);
  std::vector<Fibre> fibres;
  fibres.reserve(static_cast<std::size_t>(launch.threads));
  for (int i = 0; i < launch.threads; ++i) fibres.emplace_back(Fibre::kStackBytes);
  std::vector<u32> order(static_cast<std::size_t>(launch.blocks));
  for (u32 i = 0; i < order.size(); ++i) {
    order[i] = i;
    std::swap(order[i], order[random.below(i + 1)]);
  }
  for (const u32 index : order) Block(launch, kernel, index, fibres, random).run();
}

}  // namespace parapet::emulate
