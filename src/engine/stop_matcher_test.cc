#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace mlxcel {
namespace {

struct Streamed {
  std::vector<std::string> pieces;
  std::string text;
  std::optional<size_t> matched;
};
Streamed stream(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Streamed result;
  for (const std::string& piece : pieces) {
    result.pieces.push_back(matcher.push(piece));
    result.text += result.pieces.back();
  }
  result.text += matcher.flush();
  result.matched = matcher.matched();
  return result;
}

TEST(StopMatcher, AStopOverSeveralTokensIsHeldBackWhole) {
  const Streamed s = stream({"7 8 9"}, {"5 6", " ", "7", " 8", " ", "9", " 10"});
  EXPECT_EQ(s.text, "5 6 ");
  EXPECT_EQ(s.matched, 0u);
  EXPECT_EQ(s.pieces, (std::vector<std::string>{"5 6", " ", "", "", "", "", ""}));
}

TEST(StopMatcher, AFailedPartialMatchComesOutOnce) {
  const Streamed s = stream({"\n", "Ann:"}, {"Ann", "!", " said", " Ann", ""});
  EXPECT_EQ(s.text, "Ann! said Ann");
  EXPECT_EQ(s.pieces, (std::vector<std::string>{"", "Ann!", " said", " ", ""}));
  EXPECT_EQ(s.matched, std::nullopt);
}

TEST(StopMatcher, NothingIsHeldWithoutStops) {
  const Streamed s = stream({}, {"a", "b"});
  EXPECT_EQ(s.pieces, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(stream({""}, {"abc"}).pieces[0], "abc");
  EXPECT_EQ(stream({""}, {"abc"}).matched, std::nullopt);
}

TEST(StopMatcher, OverlappingPrefixes) {
  EXPECT_EQ(stream({"aab"}, {"a", "a", "a", "b", "c"}).text, "a");
  EXPECT_EQ(stream({"abab!"}, {"ababab", "!x"}).text, "ab");
  EXPECT_EQ(stream({"xyz", "yz"}, {"wxyz"}).text, "w");  // both end here: the longer one
  EXPECT_EQ(stream({"xyz", "y"}, {"wxyz"}).text, "wx");  // "y" ends first
  EXPECT_EQ(stream({"she", "hers"}, {"us", "hers"}).text, "u");
}

TEST(StopMatcher, CharactersOfSeveralBytesMayBeCut) {
  const Streamed s = stream({"\u00e9t\u00e9"}, {"L'\xC3", "\xA9t", "\xC3", "\xA9 vient"});
  EXPECT_EQ(s.text, "L'");
  EXPECT_EQ(s.matched, 0u);
}

TEST(StopMatcher, FlushGivesHeldTextOnce) {
  StopMatcher matcher({"stop"});
  EXPECT_EQ(matcher.push("a sto"), "a ");
  EXPECT_EQ(matcher.num_held_bytes(), 3u);
  EXPECT_EQ(matcher.flush(), "sto");
  EXPECT_EQ(matcher.flush(), "");
}

// What a stream should give: the text before the first-ending, then longest, stop string.
std::string naive(const std::vector<std::string>& stops, const std::string& text,
                  std::optional<size_t>& matched) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      const size_t size = stops[i].size();
      if (size <= longest || size > end || text.compare(end - size, size, stops[i]) != 0) continue;
      longest = size;
      matched = i;
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopMatcher, EqualsTheWholeTextSearchAndHoldsNoMoreThanNeeded) {
  std::mt19937_64 random(17);
  int num_matches = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto word = [&](size_t longest) {
      std::string made(1 + random() % longest, 'a');
      for (char& c : made) c = static_cast<char>('a' + random() % 3);
      return made;
    };
    std::vector<std::string> stops, pieces;
    for (uint64_t i = random() % 4; i > 0; --i) stops.push_back(word(5));
    std::string text;
    for (uint64_t i = random() % 8; i > 0; --i) text += pieces.emplace_back(word(4));
    std::optional<size_t> expected_match;
    const std::string expected = naive(stops, text, expected_match);

    StopMatcher matcher(stops);
    std::string out, pushed;
    for (const std::string& piece : pieces) {
      out += matcher.push(piece);
      pushed += piece;
      if (matcher.matched()) continue;
      size_t needed = 0;  // the longest end of the text that begins a stop string
      for (const std::string& stop : stops) {
        for (size_t n = 1; n < stop.size() && n <= pushed.size(); ++n) {
          if (pushed.compare(pushed.size() - n, n, stop, 0, n) == 0) needed = std::max(needed, n);
        }
      }
      ASSERT_EQ(out.size() + needed, pushed.size());
    }
    out += matcher.flush();
    ASSERT_EQ(out, expected);
    ASSERT_EQ(matcher.matched().has_value(), expected_match.has_value());
    if (expected_match) {
      ASSERT_EQ(stops[*matcher.matched()], stops[*expected_match]);
      ++num_matches;
    }
  }
  EXPECT_GT(num_matches, 1000);
}

}  // namespace
}  // namespace mlxcel
