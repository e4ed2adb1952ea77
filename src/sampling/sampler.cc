#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "sampling/double_math.h"
#include "sampling/philox.h"

namespace mlxcel {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
// How many best tokens a bounded heap finds in one pass faster than a selection over all of them.
constexpr int64_t kHeapLimit = 1024;
// First size of the sorted prefix that top-p looks at; it grows by this factor when the mass is not reached.
constexpr size_t kFirstPrefix = 64;
constexpr size_t kPrefixGrowth = 4;
// A larger DRY penalty than any logit needs no further multiplication.
constexpr double kDryPenaltyMax = 1e30;

enum DrawIndex : uint32_t { kTokenDraw = 0, kXtcDraw = 1 };

float without_nan(float logit) { return std::isnan(logit) ? kNever : logit; }

// Larger logit first, ties to the lower id: a total order, so that every selection has one answer.
template <typename T>
bool is_better(const T& a, const T& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}
template <typename T>
bool by_token(const T& a, const T& b) {
  return a.token < b.token;
}

TokenId best_token(std::span<const float> logits) {
  TokenId best = Sampler::kNoToken;
  float largest = kNever;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > largest) {  // false for NaN
      largest = logits[i];
      best = static_cast<TokenId>(i);
    }
  }
  return best;
}

class ParamCheck {
 public:
  void number(std::string_view field, float value, float least, float most) {
    if (value >= least && value <= most) return;  // false for NaN
    fail(field, std::to_string(least) + " to " + std::to_string(most), std::to_string(value));
  }
  void above_zero(std::string_view field, float value) {
    if (value > 0.0f && std::isfinite(value)) return;
    fail(field, "a number above 0", std::to_string(value));
  }
  void finite(std::string_view field, float value) {
    if (!std::isfinite(value)) fail(field, "a finite number", std::to_string(value));
  }
  void at_least(std::string_view field, int32_t value, int32_t least) {
    if (value < least) fail(field, std::to_string(least) + " or more", std::to_string(value));
  }
  Status status() const { return error_ ? Status(*error_) : ok_status(); }

 private:
  void fail(std::string_view field, std::string expected, std::string found) {
    if (error_) return;
    error_ = make_error(ErrorKind::kInvalidArgument, "sampling parameter out of range", std::string(field),
                        std::move(expected), std::move(found));
  }
  std::optional<Error> error_;
};

}  // namespace

Status SamplingParams::validate() const {
  constexpr float kLarge = 1e6f;
  ParamCheck check;
  check.number("temperature", temperature, 0.0f, kLarge);
  check.at_least("top_k", top_k, -1);
  check.number("top_p", top_p, 0.0f, 1.0f);
  check.number("min_p", min_p, 0.0f, 1.0f);
  check.number("typical_p", typical_p, 0.0f, 1.0f);
  check.finite("top_n_sigma", top_n_sigma);
  check.number("xtc_probability", xtc_probability, 0.0f, 1.0f);
  check.number("xtc_threshold", xtc_threshold, 0.0f, 1.0f);
  check.above_zero("repetition_penalty", repetition_penalty);
  check.at_least("repeat_last_n", repetition_window, -1);
  check.number("frequency_penalty", frequency_penalty, -kLarge, kLarge);
  check.number("presence_penalty", presence_penalty, -kLarge, kLarge);
  check.number("dry_multiplier", dry_multiplier, 0.0f, kLarge);
  check.number("dry_base", dry_base, 1.0f, kLarge);
  check.at_least("dry_allowed_length", dry_allowed_length, 1);
  check.at_least("dry_penalty_last_n", dry_window, -1);
  for (const auto& [token, bias] : logit_bias) check.finite("logit_bias", bias);
  return check.status();
}

bool SamplingParams::edits_logits() const {
  const bool repetition = repetition_penalty != 1.0f && repetition_window != 0;
  return !logit_bias.empty() || !suppress.empty() || repetition || frequency_penalty != 0.0f ||
         presence_penalty != 0.0f || dry_multiplier != 0.0f;
}

Status check_token_ids(const SamplingParams& params, int64_t vocab_size) {
  const auto check = [&](std::string_view field, TokenId token) -> Status {
    if (token >= 0 && token < vocab_size) return ok_status();
    return make_error(ErrorKind::kInvalidArgument, "token id outside the vocabulary", std::string(field),
                      "0 to " + std::to_string(vocab_size - 1), std::to_string(token));
  };
  for (const auto& [token, bias] : params.logit_bias) MLXCEL_RETURN_IF_ERROR(check("logit_bias", token));
  for (const TokenId token : params.suppress) MLXCEL_RETURN_IF_ERROR(check("suppress", token));
  return ok_status();
}

Sampler::Sampler(SamplingParams params, int64_t vocab_size)
    : params_(std::move(params)), vocab_size_(vocab_size) {
  MLXCEL_CHECK(vocab_size >= 1 && params_.validate().ok() && check_token_ids(params_, vocab_size).ok());
}

TokenId Sampler::sample(std::span<const float> logits, int64_t position, std::span<const TokenId> prompt,
                        std::span<const TokenId> generated, std::span<const TokenId> extra_suppress) {
  MLXCEL_CHECK(static_cast<int64_t>(logits.size()) == vocab_size_);
  if (!extra_suppress.empty() || params_.edits_logits()) {
    edit_logits(logits, prompt, generated, extra_suppress);
    logits = edited_;
  }
  if (params_.is_greedy()) return best_token(logits);
  collect_candidates(logits);
  if (candidates_.empty()) return kNoToken;
  weigh_candidates();
  if (params_.typical_p < 1.0f) keep_typical();
  if (params_.top_p < 1.0f) keep_mass(params_.top_p, is_better<Candidate>);
  if (params_.min_p > 0.0f) keep_min_p();
  if (params_.xtc_probability > 0.0f) exclude_top_choices(position);
  return draw(position);
}

void Sampler::edit_logits(std::span<const float> logits, std::span<const TokenId> prompt,
                          std::span<const TokenId> generated, std::span<const TokenId> extra_suppress) {
  edited_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : params_.logit_bias) edited_[static_cast<size_t>(token)] += bias;
  for (const TokenId token : params_.suppress) edited_[static_cast<size_t>(token)] = kNever;
  for (const TokenId token : extra_suppress) {
    MLXCEL_CHECK(token >= 0 && token < vocab_size_);
    edited_[static_cast<size_t>(token)] = kNever;
  }
  penalise_repetition(prompt, generated);
  penalise_counts(generated);
  penalise_dry(prompt, generated);
}

void Sampler::penalise_repetition(std::span<const TokenId> prompt, std::span<const TokenId> generated) {
  const float penalty = params_.repetition_penalty;
  if (penalty == 1.0f || params_.repetition_window == 0) return;
  counts_.resize(static_cast<size_t>(vocab_size_));
  const size_t all = prompt.size() + generated.size();
  const size_t window =
      params_.repetition_window < 0 ? all : std::min(all, static_cast<size_t>(params_.repetition_window));
  const auto token_at = [&](size_t back) {  // 1: the newest
    return static_cast<size_t>(back <= generated.size() ? generated[generated.size() - back]
                                                        : prompt[all - back]);
  };
  for (size_t back = 1; back <= window; ++back) {
    const size_t token = token_at(back);
    if (counts_[token]++ > 0) continue;  // once per token, however often it occurs
    edited_[token] = edited_[token] > 0.0f ? edited_[token] / penalty : edited_[token] * penalty;
  }
  for (size_t back = 1; back <= window; ++back) counts_[token_at(back)] = 0;
}

void Sampler::penalise_counts(std::span<const TokenId> generated) {
  if (params_.frequency_penalty == 0.0f && params_.presence_penalty == 0.0f) return;
  counts_.resize(static_cast<size_t>(vocab_size_));
  for (const TokenId token : generated) ++counts_[static_cast<size_t>(token)];
  for (const TokenId token : generated) {
    int32_t& count = counts_[static_cast<size_t>(token)];
    if (count == 0) continue;
    edited_[static_cast<size_t>(token)] -=
        static_cast<float>(count) * params_.frequency_penalty + params_.presence_penalty;
    count = 0;
  }
}

void Sampler::penalise_dry(std::span<const TokenId> prompt, std::span<const TokenId> generated) {
  if (params_.dry_multiplier == 0.0f || params_.dry_window == 0) return;
  const size_t all = prompt.size() + generated.size();
  const size_t window = params_.dry_window < 0 ? all : std::min(all, static_cast<size_t>(params_.dry_window));
  history_.clear();
  for (size_t back = 1; back <= window; ++back) {
    history_.push_back(back <= generated.size() ? generated[generated.size() - back] : prompt[all - back]);
  }
  // A repeat never reaches across a breaker.
  const auto is_breaker = [&](TokenId token) {
    return std::find(params_.dry_breakers.begin(), params_.dry_breakers.end(), token) !=
           params_.dry_breakers.end();
  };
  const auto limit =
      static_cast<int32_t>(std::find_if(history_.begin(), history_.end(), is_breaker) - history_.begin());
  const auto allowed = params_.dry_allowed_length;
  if (limit < allowed) return;

  // matches_[i]: how many tokens, going back from the i-th newest, equal the newest ones (the Z function:
  // Gusfield, "Algorithms on Strings, Trees and Sequences", section 1.4; linear also for endless loops of one
  // word).
  const auto size = static_cast<int32_t>(history_.size());
  matches_.assign(history_.size(), 0);
  counts_.resize(static_cast<size_t>(vocab_size_));
  for (int32_t i = 1, left = 0, right = 0; i < size; ++i) {
    const auto at = static_cast<size_t>(i);
    int32_t length = i < right ? std::min(right - i, matches_[static_cast<size_t>(i - left)]) : 0;
    while (i + length < size &&
           history_[static_cast<size_t>(length)] == history_[static_cast<size_t>(i + length)])
      ++length;
    matches_[at] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    int32_t& longest =
        counts_[static_cast<size_t>(history_[at - 1])];  // of the token that followed this repeat
    longest = std::max(longest, std::min(length, limit));
  }
  for (const TokenId token : history_) {
    int32_t& longest = counts_[static_cast<size_t>(token)];
    if (longest >= allowed) {
      double penalty = params_.dry_multiplier;
      for (int32_t i = allowed; i < longest && penalty < kDryPenaltyMax && params_.dry_base > 1.0f; ++i) {
        penalty *= params_.dry_base;
      }
      edited_[static_cast<size_t>(token)] -= static_cast<float>(penalty);
    }
    longest = 0;
  }
}

// Everything that top-n-sigma and top-k leave, ascending by token.
void Sampler::collect_candidates(std::span<const float> logits) {
  float floor = kNever;
  if (params_.top_n_sigma > 0.0f) {
    double sum = 0.0, squares = 0.0;
    int64_t count = 0;
    float largest = kNever;
    for (const float logit : logits) {
      if (!std::isfinite(logit)) continue;
      sum += logit;
      ++count;
      largest = std::max(largest, logit);
    }
    const double mean = count == 0 ? 0.0 : sum / static_cast<double>(count);
    for (const float logit : logits) {
      if (std::isfinite(logit)) squares += (logit - mean) * (logit - mean);
    }
    const double sigma = count == 0 ? 0.0 : std::sqrt(squares / static_cast<double>(count));
    if (count > 0) floor = static_cast<float>(largest - params_.top_n_sigma * sigma);
  }
  candidates_.clear();
  if (params_.top_k > 0 && params_.top_k < vocab_size_) return keep_top_k(logits, floor);
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = without_nan(logits[i]);
    if (logit > kNever && logit >= floor) candidates_.push_back({static_cast<TokenId>(i), logit});
  }
}

void Sampler::keep_top_k(std::span<const float> logits, float floor) {
  const auto k = static_cast<size_t>(params_.top_k);
  const bool uses_heap = params_.top_k <= kHeapLimit;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = without_nan(logits[i]);
    if (!(logit > kNever) || logit < floor) continue;
    if (!uses_heap || candidates_.size() < k) {
      candidates_.push_back({static_cast<TokenId>(i), logit});
      if (uses_heap) std::push_heap(candidates_.begin(), candidates_.end(), is_better<Candidate>);
    } else if (logit >
               candidates_.front().logit) {  // the worst of the k is in front; an equal later id loses
      std::pop_heap(candidates_.begin(), candidates_.end(), is_better<Candidate>);
      candidates_.back() = {static_cast<TokenId>(i), logit};
      std::push_heap(candidates_.begin(), candidates_.end(), is_better<Candidate>);
    }
  }
  if (candidates_.size() > k) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k),
                     candidates_.end(), is_better<Candidate>);
    candidates_.resize(k);
  }
  std::sort(candidates_.begin(), candidates_.end(), by_token<Candidate>);
}

void Sampler::weigh_candidates() {
  float largest = kNever;
  for (const Candidate& c : candidates_) largest = std::max(largest, c.logit);
  for (Candidate& c : candidates_)
    c.weight = c.logit == largest ? 1.0 : exp_double(double{c.logit} - double{largest});
}

double Sampler::total_weight() const {
  double total = 0.0;
  for (const Candidate& c : candidates_) total += c.weight;
  return total;
}

// The shortest run of candidates in the order `less` whose weights reach `mass` of the total, at least one.
// Only as much is sorted as the run needs.
template <typename Less>
void Sampler::keep_mass(double mass, Less less) {
  const double target = mass * total_weight();
  double reached = 0.0;
  size_t kept = 0;
  for (size_t sorted = 0; sorted < candidates_.size();) {
    const size_t next = std::min(candidates_.size(), std::max(kFirstPrefix, sorted * kPrefixGrowth));
    const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted);
    const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(next);
    if (last != candidates_.end()) std::nth_element(first, last, candidates_.end(), less);
    std::sort(first, last, less);
    for (; kept < next; ++kept) {
      if (kept > 0 && reached >= target) break;
      reached += candidates_[kept].weight;
    }
    if (kept < next || reached >= target) break;
    sorted = next;
  }
  candidates_.resize(kept);
  std::sort(candidates_.begin(), candidates_.end(), by_token<Candidate>);
}

void Sampler::keep_typical() {
  const double total = total_weight(), log_total = log_double(total);
  float largest = kNever;
  for (const Candidate& c : candidates_) largest = std::max(largest, c.logit);
  const auto surprise = [&](const Candidate& c) {  // -ln p
    return c.logit == largest ? log_total : log_total - (double{c.logit} - double{largest});
  };
  double entropy = 0.0;
  for (const Candidate& c : candidates_) {
    if (c.weight > 0.0) entropy += c.weight / total * surprise(c);
  }
  for (Candidate& c : candidates_) c.score = std::fabs(surprise(c) - entropy);
  keep_mass(params_.typical_p, [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.token < b.token;
  });
}

void Sampler::keep_min_p() {
  double largest = 0.0;
  for (const Candidate& c : candidates_) largest = std::max(largest, c.weight);
  const double floor = params_.min_p * largest;
  std::erase_if(candidates_, [floor](const Candidate& c) { return c.weight < floor; });
}

void Sampler::exclude_top_choices(int64_t position) {
  if (uniform_draw({params_.seed, params_.choice_index, kXtcDraw, position}) >= params_.xtc_probability)
    return;
  const double floor = params_.xtc_threshold * total_weight();
  const Candidate* least = nullptr;
  int64_t count = 0;
  for (const Candidate& c : candidates_) {
    if (c.weight < floor) continue;
    ++count;
    if (least == nullptr || is_better(*least, c)) least = &c;
  }
  if (count < 2) return;
  const TokenId stays = least->token;
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight >= floor && c.token != stays; });
}

TokenId Sampler::draw(int64_t position) {
  float largest = kNever;
  for (const Candidate& c : candidates_) largest = std::max(largest, c.logit);
  double total = 0.0;
  for (Candidate& c : candidates_) {
    c.weight = c.logit == largest
                   ? 1.0
                   : exp_double((double{c.logit} - double{largest}) / double{params_.temperature});
    total += c.weight;
  }
  const double target = uniform_draw({params_.seed, params_.choice_index, kTokenDraw, position}) * total;
  double reached = 0.0;
  TokenId last_possible = kNoToken;
  for (const Candidate& c : candidates_) {
    if (c.weight <= 0.0) continue;
    last_possible = c.token;
    reached += c.weight;
    if (reached > target) break;
  }
  return last_possible;
}

Logprobs compute_logprobs(std::span<const float> logits, TokenId chosen, int num_top) {
  MLXCEL_CHECK(chosen >= 0 && static_cast<size_t>(chosen) < logits.size());
  struct Ranked {
    TokenId token;
    float logit;
  };
  float largest = kNever;
  for (const float logit : logits) largest = std::max(largest, without_nan(logit));
  double total = 0.0;
  for (const float logit : logits) {
    if (logit == largest) {
      total += 1.0;
    } else if (logit > kNever) {
      total += exp_double(double{logit} - double{largest});
    }
  }
  const double log_total = total > 0.0 ? log_double(total) : 0.0;
  const auto logprob = [&](float logit) {
    logit = without_nan(logit);
    if (logit == kNever) return kNever;
    return static_cast<float>((logit == largest ? 0.0 : double{logit} - double{largest}) - log_total);
  };
  Logprobs result;
  result.chosen = logprob(logits[static_cast<size_t>(chosen)]);
  const size_t wanted = std::min(logits.size(), static_cast<size_t>(std::max(num_top, 0)));
  if (wanted == 0) return result;
  std::vector<Ranked> best;  // a heap with the worst in front
  best.reserve(wanted);
  for (size_t i = 0; i < logits.size(); ++i) {
    const Ranked next{static_cast<TokenId>(i), without_nan(logits[i])};
    if (best.size() == wanted) {
      if (!is_better(next, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), is_better<Ranked>);
      best.pop_back();
    }
    best.push_back(next);
    std::push_heap(best.begin(), best.end(), is_better<Ranked>);
  }
  std::sort_heap(best.begin(), best.end(), is_better<Ranked>);
  for (const Ranked& one : best) result.top.push_back({one.token, logprob(one.logit)});
  return result;
}

}  // namespace mlxcel
