#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "sampling/double_math.h"
#include "sampling/philox.h"

namespace mlxcel {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(size_t size, uint64_t seed, bool with_ties = false) {
  std::mt19937_64 random(seed);
  std::vector<float> logits(size);
  for (float& x : logits) {
    x = static_cast<float>(static_cast<int64_t>(random() % 20001) - 10000) / 1000.0f;
    if (with_ties) x = std::round(x);
  }
  return logits;
}

TEST(DoubleMath, AgreesWithTheLibrary) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    const double x = -700.0 + 1400.0 * static_cast<double>(random() >> 11) * 0x1p-53;
    EXPECT_NEAR(exp_double(x) / std::exp(x), 1.0, 1e-14) << x;
    const double y = std::exp(x);
    EXPECT_NEAR(log_double(y), std::log(y), 1e-14 * std::max(1.0, std::fabs(std::log(y)))) << y;
  }
  EXPECT_EQ(exp_double(0.0), 1.0);
  EXPECT_EQ(exp_double(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_EQ(exp_double(1000.0), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(exp_double(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(log_double(1.0), 0.0);
}

TEST(SamplingParams, RangesAreCheckedAndNamed) {
  const auto field_of = [](auto change) {
    SamplingParams params;
    change(params);
    const Status status = params.validate();
    return status.ok() ? std::string() : status.error().where;
  };
  using P = SamplingParams;
  for (const float bad : {kNan, kInfinity, -kInfinity, -1.0f}) {
    EXPECT_EQ(field_of([&](P& p) { p.temperature = bad; }), "temperature");
    EXPECT_EQ(field_of([&](P& p) { p.top_p = bad; }), "top_p");
    EXPECT_EQ(field_of([&](P& p) { p.min_p = bad; }), "min_p");
    EXPECT_EQ(field_of([&](P& p) { p.typical_p = bad; }), "typical_p");
    EXPECT_EQ(field_of([&](P& p) { p.xtc_probability = bad; }), "xtc_probability");
    EXPECT_EQ(field_of([&](P& p) { p.xtc_threshold = bad; }), "xtc_threshold");
    EXPECT_EQ(field_of([&](P& p) { p.repetition_penalty = bad; }), "repetition_penalty");
    EXPECT_EQ(field_of([&](P& p) { p.dry_multiplier = bad; }), "dry_multiplier");
    EXPECT_EQ(field_of([&](P& p) { p.dry_base = bad; }), "dry_base");
  }
  for (const float bad : {kNan, kInfinity}) {
    EXPECT_EQ(field_of([&](P& p) { p.top_n_sigma = bad; }), "top_n_sigma");
    EXPECT_EQ(field_of([&](P& p) { p.frequency_penalty = bad; }), "frequency_penalty");
    EXPECT_EQ(field_of([&](P& p) { p.presence_penalty = bad; }), "presence_penalty");
    EXPECT_EQ(field_of([&](P& p) { p.logit_bias = {{3, bad}}; }), "logit_bias");
  }
  EXPECT_EQ(field_of([](P& p) { p.top_p = 1.01f; }), "top_p");
  EXPECT_EQ(field_of([](P& p) { p.top_k = -2; }), "top_k");
  EXPECT_EQ(field_of([](P& p) { p.repetition_penalty = 0.0f; }), "repetition_penalty");
  EXPECT_EQ(field_of([](P& p) { p.repetition_window = -2; }), "repeat_last_n");
  EXPECT_EQ(field_of([](P& p) { p.dry_allowed_length = 0; }), "dry_allowed_length");
  EXPECT_EQ(field_of([](P& p) { p.dry_window = -2; }), "dry_penalty_last_n");
  // The values that systems of this kind refused by mistake.
  EXPECT_EQ(field_of([](P& p) { p.top_p = 1.0f; }), "");
  EXPECT_EQ(field_of([](P& p) { p.top_p = 0.0f; }), "");
  EXPECT_EQ(field_of([](P& p) { p.top_k = 0; }), "");
  EXPECT_EQ(field_of([](P& p) { p.top_k = -1; }), "");
  SamplingParams outside;
  outside.logit_bias = {{100, 1.0f}};
  EXPECT_EQ(check_token_ids(outside, 100).error().where, "logit_bias");
  EXPECT_TRUE(check_token_ids(outside, 101).ok());
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  const std::vector<float> logits{1.0f, kNan, 3.0f, 3.0f, -2.0f};
  SamplingParams params;
  EXPECT_TRUE(params.is_plain_greedy());
  EXPECT_EQ(Sampler(params, 5).sample(logits, 0, {}, {}), 2);
  params.temperature = 1.5f;
  params.top_k = 1;
  EXPECT_EQ(Sampler(params, 5).sample(logits, 0, {}, {}), 2);
  params.logit_bias = {{4, 100.0f}};
  EXPECT_FALSE(params.is_plain_greedy());
  EXPECT_EQ(Sampler(params, 5).sample(logits, 0, {}, {}), 4);
}

TEST(Sampler, NothingToChooseIsSaid) {
  const std::vector<float> nan(4, kNan), never(4, -kInfinity), some{kNan, -kInfinity, 1.0f, kNan};
  const std::vector<TokenId> third{2};
  for (const float temperature : {0.0f, 0.8f}) {
    SamplingParams params;
    params.temperature = temperature;
    Sampler sampler(params, 4);
    EXPECT_EQ(sampler.sample(nan, 0, {}, {}), Sampler::kNoToken);
    EXPECT_EQ(sampler.sample(never, 0, {}, {}), Sampler::kNoToken);
    EXPECT_EQ(sampler.sample(some, 0, {}, {}), 2);
    EXPECT_EQ(sampler.sample(some, 0, {}, {}, third), Sampler::kNoToken);
  }
}

TEST(Sampler, TopKZeroAndMinusOneAreOff) {
  const std::vector<float> logits(50, 0.0f);
  for (const int32_t top_k : {0, -1, 50, 1000}) {
    SamplingParams params;
    params.temperature = 1.1f;
    params.top_k = top_k;
    Sampler sampler(params, 50);
    std::set<TokenId> seen;
    for (int64_t position = 0; position < 400; ++position)
      seen.insert(sampler.sample(logits, position, {}, {}));
    EXPECT_GT(seen.size(), 45u) << top_k;
  }
}

TEST(Sampler, TopPZeroKeepsTheBest) {
  SamplingParams params;
  params.temperature = 5.0f;
  params.top_p = 0.0f;
  Sampler sampler(params, 4);
  const std::vector<float> logits{0.1f, 0.3f, 0.3f, 0.2f};
  for (int64_t position = 0; position < 50; ++position)
    EXPECT_EQ(sampler.sample(logits, position, {}, {}), 1);
}

TEST(Sampler, ASeedAndAPositionAreAllThatMatters) {
  const std::vector<float> logits = random_logits(300, 1), other = random_logits(300, 2);
  SamplingParams params;
  params.temperature = 1.0f;
  params.seed = 7;
  Sampler a(params, 300), b(params, 300);
  params.choice_index = 1;
  Sampler second_choice(params, 300);
  bool choices_differ = false;
  for (int64_t position = 0; position < 40; ++position) {
    const TokenId token = a.sample(logits, position, {}, {});
    (void)b.sample(other, position + 1000, {}, {});  // an unrelated call before
    EXPECT_EQ(b.sample(logits, position, {}, {}), token);
    choices_differ = choices_differ || second_choice.sample(logits, position, {}, {}) != token;
  }
  EXPECT_TRUE(choices_differ);
}

TEST(Sampler, RepetitionPenaltyDividesAndMultipliesOncePerToken) {
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  const std::vector<float> logits{3.0f, 2.0f, -1.0f, -1.5f};
  const std::vector<TokenId> prompt{0, 0, 0}, none;
  Sampler sampler(params, 4);
  EXPECT_EQ(sampler.sample(logits, 3, prompt, none), 1);  // 3 / 2 < 2, although it occurs three times
  const std::vector<float> negative{-1.0f, -1.5f, -1.9f, -4.0f};
  EXPECT_EQ(sampler.sample(negative, 3, prompt, none), 1);  // -1 * 2 < -1.5
}

// A loop longer than the window once escaped the penalty: the window is exactly what it says.
TEST(Sampler, RepetitionWindowReachesAsFarAsItSays) {
  SamplingParams params;
  params.repetition_penalty = 10.0f;
  const std::vector<float> logits{3.0f, 2.9f, 2.8f};
  std::vector<TokenId> tokens(25, 1);
  tokens.front() = 0;  // 25 back
  params.repetition_window = 0;
  EXPECT_EQ(Sampler(params, 3).sample(logits, 0, {}, tokens), 0);
  params.repetition_window = 24;
  EXPECT_EQ(Sampler(params, 3).sample(logits, 0, {}, tokens), 0);
  params.repetition_window = 25;
  EXPECT_EQ(Sampler(params, 3).sample(logits, 0, {}, tokens), 2);
  params.repetition_window = -1;
  EXPECT_EQ(Sampler(params, 3).sample(logits, 0, tokens, {}), 2);
}

TEST(Sampler, PresenceAndFrequencyCountGeneratedTokensOnly) {
  const std::vector<float> logits{3.0f, 2.5f, 1.0f};
  const std::vector<TokenId> twice{0, 0};
  SamplingParams params;
  params.presence_penalty = 1.0f;
  EXPECT_EQ(Sampler(params, 3).sample(logits, 0, twice, {}), 0);
  EXPECT_EQ(Sampler(params, 3).sample(logits, 0, {}, twice), 1);
  params.presence_penalty = 0.0f;
  params.frequency_penalty = 0.2f;
  EXPECT_EQ(Sampler(params, 3).sample(logits, 0, {}, twice), 0);  // 3 - 0.4
  params.frequency_penalty = 0.3f;
  EXPECT_EQ(Sampler(params, 3).sample(logits, 0, {}, twice), 1);  // 3 - 0.6
  params.frequency_penalty = 0.0f;
  EXPECT_TRUE(params.is_plain_greedy());  // neutral values are off
}

TEST(Sampler, DryStopsTheContinuationOfARepeat) {
  SamplingParams params;
  params.dry_multiplier = 5.0f;
  std::vector<float> logits(8, 0.0f);
  logits[4] = 3.0f;
  logits[5] = 2.0f;
  const std::vector<TokenId> once{1, 2, 3, 4, 6, 1, 2, 3};  // 4 would repeat "1 2 3 4"
  EXPECT_EQ(Sampler(params, 8).sample(logits, 0, {}, once), 5);
  EXPECT_EQ(Sampler(params, 8).sample(logits, 0, once, {}), 5);
  const std::vector<TokenId> shorter{3, 4, 6, 1, 2, 3};  // a repeat of one token only
  EXPECT_EQ(Sampler(params, 8).sample(logits, 0, {}, shorter), 4);
  params.dry_breakers = {2};
  EXPECT_EQ(Sampler(params, 8).sample(logits, 0, {}, once), 4);
  params.dry_breakers.clear();
  params.dry_window = 5;
  EXPECT_EQ(Sampler(params, 8).sample(logits, 0, {}, once), 4);
  params.dry_window = -1;
  params.dry_allowed_length = 4;
  EXPECT_EQ(Sampler(params, 8).sample(logits, 0, {}, once), 4);
}

// ---- everything against a slow, obvious transcription of the rules in the header ----

struct Entry {
  TokenId token;
  double logit, p;
};

void naive_softmax(std::vector<Entry>& entries) {
  double largest = -INFINITY, total = 0;
  for (const Entry& e : entries) largest = std::max(largest, e.logit);
  for (Entry& e : entries) total += e.p = std::exp(e.logit - largest);
  for (Entry& e : entries) e.p /= total;
}
bool naive_better(const Entry& a, const Entry& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}
void naive_mass(std::vector<Entry>& entries, double mass) {
  double reached = 0;
  size_t kept = 0;
  while (kept < entries.size() && (kept == 0 || reached < mass)) reached += entries[kept++].p;
  entries.resize(kept);
}

int naive_repeat_length(const std::vector<TokenId>& tokens, size_t follower, const SamplingParams& params) {
  int length = 0;
  for (size_t back = 1; back <= follower; ++back) {
    const TokenId token = tokens[follower - back];
    const bool breaks = std::count(params.dry_breakers.begin(), params.dry_breakers.end(), token) > 0;
    if (breaks || token != tokens[tokens.size() - back]) break;
    ++length;
  }
  return length;
}

std::vector<Entry> naive_edit(const SamplingParams& params, std::span<const float> logits,
                              std::span<const TokenId> prompt, std::span<const TokenId> generated) {
  std::vector<float> edited(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias) edited[static_cast<size_t>(token)] += bias;
  std::vector<TokenId> all(prompt.begin(), prompt.end());
  all.insert(all.end(), generated.begin(), generated.end());
  const auto last = [&](int32_t window) {
    const size_t count = window < 0 ? all.size() : std::min(all.size(), static_cast<size_t>(window));
    return std::vector<TokenId>(all.end() - static_cast<std::ptrdiff_t>(count), all.end());
  };
  if (params.repetition_penalty != 1.0f) {
    const std::vector<TokenId> window = last(params.repetition_window);
    for (const TokenId token : std::set<TokenId>(window.begin(), window.end())) {
      float& x = edited[static_cast<size_t>(token)];
      x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
    }
  }
  for (const TokenId token : std::set<TokenId>(generated.begin(), generated.end())) {
    const auto count = static_cast<float>(std::count(generated.begin(), generated.end(), token));
    edited[static_cast<size_t>(token)] -= count * params.frequency_penalty + params.presence_penalty;
  }
  if (params.dry_multiplier > 0.0f) {
    const std::vector<TokenId> window = last(params.dry_window);
    std::map<TokenId, int> longest;
    for (size_t follower = 1; follower < window.size(); ++follower) {
      int& best = longest[window[follower]];
      best = std::max(best, naive_repeat_length(window, follower, params));
    }
    for (const auto& [token, length] : longest) {
      if (length < params.dry_allowed_length) continue;
      double penalty = params.dry_multiplier;
      for (int i = params.dry_allowed_length; i < length && penalty < 1e30; ++i) penalty *= params.dry_base;
      edited[static_cast<size_t>(token)] -= static_cast<float>(penalty);
    }
  }
  for (const TokenId token : params.suppress) edited[static_cast<size_t>(token)] = -INFINITY;
  std::vector<Entry> entries;
  for (size_t i = 0; i < edited.size(); ++i) {
    if (!std::isnan(edited[i]) && edited[i] != -INFINITY)
      entries.push_back({static_cast<TokenId>(i), edited[i], 0});
  }
  return entries;
}

void naive_top_n_sigma(std::vector<Entry>& entries, float n) {
  double mean = 0, variance = 0, largest = -INFINITY;
  for (const Entry& e : entries) mean += e.logit / static_cast<double>(entries.size());
  for (const Entry& e : entries)
    variance += (e.logit - mean) * (e.logit - mean) / static_cast<double>(entries.size());
  for (const Entry& e : entries) largest = std::max(largest, e.logit);
  std::erase_if(entries, [&](const Entry& e) { return e.logit < largest - n * std::sqrt(variance); });
}

TokenId naive_sample(const SamplingParams& params, std::span<const float> logits, int64_t position,
                     std::span<const TokenId> prompt, std::span<const TokenId> generated) {
  std::vector<Entry> entries = naive_edit(params, logits, prompt, generated);
  std::sort(entries.begin(), entries.end(), naive_better);
  if (params.is_greedy()) return entries.front().token;
  if (params.top_n_sigma > 0) naive_top_n_sigma(entries, params.top_n_sigma);
  if (params.top_k > 0) entries.resize(std::min(entries.size(), static_cast<size_t>(params.top_k)));
  naive_softmax(entries);
  if (params.typical_p < 1) {
    double entropy = 0;
    for (const Entry& e : entries) entropy -= e.p > 0 ? e.p * std::log(e.p) : 0;
    std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
      const double x = std::fabs(-std::log(a.p) - entropy), y = std::fabs(-std::log(b.p) - entropy);
      return std::fabs(x - y) > 1e-12 ? x < y : a.token < b.token;
    });
    naive_mass(entries, params.typical_p);
    std::sort(entries.begin(), entries.end(), naive_better);
    naive_softmax(entries);
  }
  if (params.top_p < 1) naive_mass(entries, params.top_p);
  naive_softmax(entries);
  if (params.min_p > 0) {
    const double floor = params.min_p * entries.front().p;
    std::erase_if(entries, [&](const Entry& e) { return e.p < floor; });
  }
  naive_softmax(entries);
  if (uniform_draw({params.seed, params.choice_index, 1, position}) < params.xtc_probability) {
    const auto above = std::count_if(entries.begin(), entries.end(),
                                     [&](const Entry& e) { return e.p >= params.xtc_threshold; });
    if (above >= 2) entries.erase(entries.begin(), entries.begin() + (above - 1));
  }
  for (Entry& e : entries) e.logit /= params.temperature;
  naive_softmax(entries);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.token < b.token; });
  const double u = uniform_draw({params.seed, params.choice_index, 0, position});
  double reached = 0;
  for (const Entry& e : entries) {
    reached += e.p;
    if (reached > u) return e.token;
  }
  return entries.back().token;
}

SamplingParams random_params(std::mt19937_64& random) {
  const auto pick = [&](auto... values) {
    const std::vector<double> all{static_cast<double>(values)...};
    return all[random() % all.size()];
  };
  const auto number = [&](auto... values) { return static_cast<float>(pick(values...)); };
  SamplingParams params;
  params.temperature = number(0, 0.3, 0.8, 1, 1, 2);
  params.top_k = static_cast<int32_t>(pick(0, -1, 1, 5, 40, 100000));
  params.top_p = number(1, 1, 0.95, 0.5, 0);
  params.min_p = number(0, 0, 0.05, 0.3);
  params.typical_p = number(1, 1, 0.9, 0.2);
  params.top_n_sigma = number(0, 0, 1, 2.5);
  params.xtc_probability = number(0, 0, 0.5, 1);
  params.xtc_threshold = number(0.02, 0.1, 0.4);
  params.repetition_penalty = number(1, 1, 1.2, 0.8);
  params.repetition_window = static_cast<int32_t>(pick(64, -1, 0, 10));
  params.frequency_penalty = number(0, 0, 0.4);
  params.presence_penalty = number(0, 0, 0.7);
  params.dry_multiplier = number(0, 0, 0.8);
  params.dry_window = static_cast<int32_t>(pick(-1, 12));
  params.seed = random();
  params.choice_index = static_cast<uint32_t>(random() % 3);
  if (random() % 3 == 0) params.logit_bias = {{3, 4.0f}, {7, -100.0f}};
  if (random() % 3 == 0) params.suppress = {0, 5};
  if (random() % 3 == 0) params.dry_breakers = {2};
  return params;
}

TEST(Sampler, EqualsTheNaiveTranscription) {
  std::mt19937_64 random(99);
  std::map<TokenId, int> seen;
  for (int round = 0; round < 3000; ++round) {
    const SamplingParams params = random_params(random);
    ASSERT_TRUE(params.validate().ok());
    const size_t vocab = round % 3 == 0 ? 2000 : 40;
    // Ties make the tie rules matter, but also put masses exactly on thresholds, where the two ways of
    // summing may differ in the last bit: half of the rounds.
    const std::vector<float> logits =
        random_logits(vocab, random(), round % 2 == 0 && params.typical_p == 1.0f && params.top_p == 1.0f);
    std::vector<TokenId> prompt, generated;
    for (uint64_t i = random() % 30; i > 0; --i) prompt.push_back(static_cast<TokenId>(random() % 8));
    for (uint64_t i = random() % 30; i > 0; --i) generated.push_back(static_cast<TokenId>(random() % 8));
    Sampler sampler(params, static_cast<int64_t>(vocab));
    const auto position = static_cast<int64_t>(random() % 5000);
    const TokenId expected = naive_sample(params, logits, position, prompt, generated);
    ASSERT_EQ(sampler.sample(logits, position, prompt, generated), expected) << "round " << round;
    ASSERT_EQ(sampler.sample(logits, position, prompt, generated), expected)
        << "second call, round " << round;
    ++seen[expected];
  }
  EXPECT_GT(seen.size(), 100u);
}

TEST(Sampler, LargeTopKUsesTheOtherSelectionWithTheSameAnswer) {
  const std::vector<float> logits = random_logits(5000, 11, true);
  for (const int32_t top_k : {1000, 1024, 1025, 3000, 4999}) {
    SamplingParams params;
    params.temperature = 3.0f;
    params.top_k = top_k;
    Sampler sampler(params, 5000);
    for (int64_t position = 0; position < 20; ++position) {
      EXPECT_EQ(sampler.sample(logits, position, {}, {}), naive_sample(params, logits, position, {}, {}));
    }
  }
}

// Observed frequencies follow the softmax (chi-squared, 19 degrees of freedom; 43.8 is the 0.1 % point).
TEST(Sampler, DrawsFollowTheDistribution) {
  std::vector<float> logits = random_logits(20, 3);
  for (float& x : logits) x *= 0.1f;
  SamplingParams params;
  params.temperature = 1.0f;
  Sampler sampler(params, 20);
  std::vector<double> observed(20);
  constexpr int kDraws = 40000;
  for (int64_t position = 0; position < kDraws; ++position) {
    ++observed[static_cast<size_t>(sampler.sample(logits, position, {}, {}))];
  }
  double total = 0, chi_squared = 0;
  for (const float x : logits) total += std::exp(x);
  for (size_t i = 0; i < 20; ++i) {
    const double expected = kDraws * std::exp(logits[i]) / total;
    chi_squared += (observed[i] - expected) * (observed[i] - expected) / expected;
  }
  EXPECT_LT(chi_squared, 43.8);
}

TEST(Logprobs, AreTheLogSoftmaxOfTheRawLogits) {
  const std::vector<float> logits = random_logits(1000, 21);
  double total = 0;
  for (const float x : logits) total += std::exp(double{x});
  const Logprobs result = compute_logprobs(logits, 17, 5);
  EXPECT_NEAR(result.chosen, logits[17] - std::log(total), 1e-6);
  ASSERT_EQ(result.top.size(), 5u);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  EXPECT_EQ(result.top[0].token, best);
  EXPECT_EQ(compute_logprobs(logits, static_cast<TokenId>(best), 1).chosen, result.top[0].logprob);
  double mass = 0;
  for (size_t i = 0; i < 5; ++i) {
    mass += std::exp(double{result.top[i].logprob});
    if (i > 0) {
      EXPECT_LE(result.top[i].logprob, result.top[i - 1].logprob);
    }
  }
  EXPECT_LE(mass, 1.0);
  EXPECT_TRUE(compute_logprobs(logits, 0, 0).top.empty());
  EXPECT_EQ(compute_logprobs(logits, 0, 5000).top.size(), 1000u);
}

TEST(Logprobs, TiesGoToTheLowerIdAndNanNeverLeads) {
  const std::vector<float> logits{kNan, 2.0f, 2.0f, 1.0f, -kInfinity};
  const Logprobs result = compute_logprobs(logits, 2, 5);
  EXPECT_EQ(result.top[0].token, 1);
  EXPECT_EQ(result.top[1].token, 2);
  EXPECT_EQ(result.top[2].token, 3);
  EXPECT_EQ(result.top[3].token, 0);
  EXPECT_EQ(result.top[3].logprob, -kInfinity);
  EXPECT_EQ(result.chosen, result.top[0].logprob);
}

}  // namespace
}  // namespace mlxcel
