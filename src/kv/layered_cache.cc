#include "kv/layered_cache.h"

#include <algorithm>
#include <utility>

namespace mlxcel {

namespace {

int64_t length_of(const LayeredCache::Layer& layer) {
  return std::visit([](const auto& cache) { return cache.length(); }, layer);
}

struct CanTrim {
  int64_t num_rows;
  bool operator()(const SequenceCache& cache) const {
    return cache.can_trim() && num_rows <= cache.length() - cache.first_visible();
  }
  bool operator()(const WindowCache& cache) const { return cache.can_trim(num_rows); }
  bool operator()(const RecurrentCache& cache) const { return cache.can_trim(num_rows); }
};

struct Trim {
  int64_t num_rows;
  int64_t operator()(SequenceCache& cache) const { return cache.trim(num_rows); }
  int64_t operator()(WindowCache& cache) const { return cache.trim(num_rows); }
  int64_t operator()(RecurrentCache&) const { return 0; }
};

}  // namespace

LayeredCache::LayeredCache(std::vector<Layer> layers) : layers_(std::move(layers)) {
  MLXCEL_CHECK(!layers_.empty());
  for (const Layer& layer : layers_) MLXCEL_CHECK(length_of(layer) == 0);
}

int64_t LayeredCache::length() const { return length_of(layers_.front()); }

Result<std::vector<std::vector<BlockCopy>>> LayeredCache::append(int64_t num_rows) {
  std::vector<AppendPlan> plans(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto* paged = std::get_if<SequenceCache>(&layers_[i]);
    if (paged == nullptr) continue;
    MLXCEL_ASSIGN_OR_RETURN(plans[i], paged->plan_append(num_rows));
  }
  std::vector<std::vector<BlockCopy>> copies(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (auto* paged = std::get_if<SequenceCache>(&layers_[i])) {
      copies[i] = paged->commit_append(std::move(plans[i]));
    } else if (auto* window = std::get_if<WindowCache>(&layers_[i])) {
      window->append(num_rows);
    } else {
      std::get<RecurrentCache>(layers_[i]).append(num_rows);
    }
  }
  return copies;
}

bool LayeredCache::can_trim(int64_t num_rows) const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [&](const Layer& layer) { return std::visit(CanTrim{num_rows}, layer); });
}

int64_t LayeredCache::trim(int64_t num_rows) {
  MLXCEL_CHECK(num_rows >= 0);
  const int64_t wanted = std::min(num_rows, length());
  if (wanted == 0 || !can_trim(wanted)) return 0;
  for (Layer& layer : layers_) {
    MLXCEL_CHECK_MSG(std::visit(Trim{wanted}, layer) == wanted, "a layer did not trim what it said it could");
  }
  return wanted;
}

}  // namespace mlxcel
