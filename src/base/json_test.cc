#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace mlxcel {
namespace {

JsonValue parse(std::string_view text) {
  auto r = parse_json(text, "test");
  EXPECT_TRUE(r.ok()) << text << ": " << (r.ok() ? "" : r.error().one_line());
  return r.ok() ? *r : JsonValue();
}

TEST(Json, KeepsKeyOrder) {
  EXPECT_EQ(to_json(parse(R"({"zeta":1,"alpha":2,"mid":{"b":1,"a":2}})")),
            R"({"zeta":1,"alpha":2,"mid":{"b":1,"a":2}})");
}

TEST(Json, LastDuplicateWinsAtTheFirstPlace) {
  EXPECT_EQ(to_json(parse(R"({"a":1,"b":2,"a":3,"c":4,"b":5})")), R"({"a":3,"b":5,"c":4})");
}

TEST(Json, LoneSurrogatesBecomeReplacementCharacters) {
  EXPECT_EQ(parse(R"("a\ud800b")").as_string(),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(parse(R"("\udc00\ud83d\ude00")").as_string(), "\xEF\xBF\xBD\xF0\x9F\x98\x80");
  EXPECT_EQ(parse(R"("\\ud800")").as_string(), "\\ud800");
  EXPECT_EQ(parse(R"("\ud800\ud83d\ude00")").as_string(), "\xEF\xBF\xBD\xF0\x9F\x98\x80");
}

TEST(Json, IntegersStayIntegers) {
  EXPECT_TRUE(parse("3").is_int());
  EXPECT_TRUE(parse("3.0").is_double());
  EXPECT_EQ(to_json(parse("[9223372036854775807,-9223372036854775808,3.0,1e3]")),
            "[9223372036854775807,-9223372036854775808,3.0,1000.0]");
  EXPECT_TRUE(parse("18446744073709551615").is_double());
}

TEST(Json, IntegersBeyond64BitsBecomeDoubles) {
  EXPECT_EQ(parse(R"({"n": 1000000000000000019884624838656, "s": "12345678901234567890123"})")
                .find("n")
                ->as_double(),
            1e30);
  EXPECT_EQ(
      parse("[-123456789012345678901234567890, 12345678901234567890123e-3, 1.5]").as_array()[0].as_double(),
      -123456789012345678901234567890.0);
  EXPECT_FALSE(parse_json("[01]", "test").ok());
}

TEST(Json, NonFiniteOnlyWhenAllowed) {
  EXPECT_FALSE(parse_json("[NaN]", "test").ok());
  JsonLimits limits;
  limits.allow_non_finite = true;
  const auto r = parse_json(R"({"a":[NaN,Infinity,-Infinity,-1],"b":"NaN Infinity"})", "test", limits);
  ASSERT_TRUE(r.ok()) << r.error().one_line();
  const JsonArray& a = r->find("a")->as_array();
  EXPECT_TRUE(std::isnan(a[0].as_double()));
  EXPECT_EQ(a[1].as_double(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(a[2].as_double(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(a[3].as_int(), -1);
  EXPECT_EQ(r->find("b")->as_string(), "NaN Infinity");
}

TEST(Json, LimitsAndMalformedTextAreErrors) {
  EXPECT_FALSE(parse_json(std::string(10000, '['), "test").ok());
  JsonLimits small;
  small.max_bytes = 4;
  EXPECT_FALSE(parse_json("[1,2]", "test", small).ok());
  for (const char* bad : {"", "{", "[1,]", "{\"a\":}", "nul", "\"\\x\"", "\"\xC3\"", "1 2", "{:"}) {
    const auto r = parse_json(bad, "somewhere");
    ASSERT_FALSE(r.ok()) << bad;
    EXPECT_EQ(r.error().kind, ErrorKind::kInvalidData);
    EXPECT_EQ(r.error().where, "somewhere");
  }
}

TEST(Json, WriterReplacesInvalidUtf8AndEscapes) {
  std::string out;
  write_json_string(out, "a\"\\\n\x01\xC3\x28");
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBD(\"");
  out.clear();
  write_json_string(out, "\xC3\xA9\xF0\x9F\x98\x80", true);
  EXPECT_EQ(out, "\"\\u00e9\\ud83d\\ude00\"");
}

TEST(Json, FloatsReadBackToTheSameBits) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const float f = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(f)) continue;
    std::string out;
    write_json_float(out, f);
    ASSERT_EQ(std::strtof(out.c_str(), nullptr), f) << out;
  }
}

TEST(Json, LargeObjectsAreSearchedByIndex) {
  JsonObject object;
  for (int i = 0; i < 200; ++i) object.set("k" + std::to_string(i * 37 % 200), JsonValue(i));
  for (int i = 0; i < 200; ++i) {
    const JsonValue* v = object.find("k" + std::to_string(i * 37 % 200));
    ASSERT_NE(v, nullptr);
    EXPECT_EQ(v->as_int(), i);
  }
  EXPECT_TRUE(object.erase("k5"));
  EXPECT_EQ(object.find("k5"), nullptr);
  EXPECT_NE(object.find("k6"), nullptr);
}

// Random documents: what nlohmann-json (an independent implementation) writes, we read and write alike.
nlohmann::ordered_json random_document(std::mt19937& random, int depth) {
  switch (random() % (depth > 3 ? 5 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int64_t>(random()) - (int64_t{1} << 31);
    case 3:
      return static_cast<double>(random()) / 1024.0;
    case 4: {
      std::string s;
      for (unsigned i = 0; i < random() % 12; ++i)
        s += "a\"\\\n\xC3\xA9\t/ "[random() % 8] < 0 ? 'x' : "ab\"\\\n\t/ "[random() % 8];
      return s;
    }
    case 5: {
      nlohmann::ordered_json a = nlohmann::ordered_json::array();
      for (unsigned i = 0; i < random() % 5; ++i) a.push_back(random_document(random, depth + 1));
      return a;
    }
    default: {
      nlohmann::ordered_json o = nlohmann::ordered_json::object();
      for (unsigned i = 0; i < random() % 5; ++i)
        o["k" + std::to_string(random() % 100)] = random_document(random, depth + 1);
      return o;
    }
  }
}
TEST(Json, AgreesWithAnIndependentImplementation) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto document = random_document(random, 0);
    const std::string text = to_json(parse(document.dump()));
    ASSERT_EQ(nlohmann::ordered_json::parse(text), document) << text;
  }
}

TEST(JsonReader, NamesKeyAndTypes) {
  const JsonValue config = parse(R"({"layers": 3.0, "eps": "x", "null": null})");
  const JsonReader reader(config, "config.json");
  EXPECT_EQ(*reader.integer("layers"), 3);
  EXPECT_EQ(*reader.integer("null", 7), 7);
  const auto r = reader.number("eps");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().one_line(),
            "key has the wrong type: config.json: \"eps\" (expected a number, found a string)");
  EXPECT_FALSE(reader.string("absent").ok());
}

}  // namespace
}  // namespace mlxcel
