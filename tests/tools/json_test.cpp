#include "tools/json/json.h"

#include <gtest/gtest.h>

#include <string>

#include "support/errors.h"

namespace parapet::tools {
namespace {

using testing::expect_refused;

TEST(ParseJson, RefusesWhatIsNotOneStrictDocument) {
  for (const char* text : {"", "{", "{\"a\": 1,}", "[1] 2", "nan", "{a: 1}", "// x\n1", "\"\xff\"",
                           "1e999", "'a'", "\x00\x01"}) {
    expect_refused({"some.json: not valid JSON: "}, [&] { parse_json(text, "some.json"); });
  }
}

TEST(ParseJson, RefusesDuplicateKeysAtAnyDepth) {
  expect_refused({"f: \"a\" twice"}, [] { parse_json(R"({"a": 1, "b": 2, "a": 3})", "f"); });
  expect_refused({"f: \"a\" twice"}, [] { parse_json(R"([{"b": {"a": 1, "a": 1}}])", "f"); });
  EXPECT_EQ(parse_json(R"([{"a": {"a": 1}}, {"a": 2}])", "f").size(), 2u);
}

TEST(ParseJson, RefusesDeepNesting) {
  EXPECT_NO_THROW(parse_json(std::string(16, '[') + "1" + std::string(16, ']'), "f"));
  expect_refused({"f: ", "levels deep"},
                 [] { parse_json(std::string(17, '[') + std::string(17, ']'), "f"); });
  expect_refused({"levels deep"}, [] { parse_json(std::string(1000000, '['), "f"); });
}

TEST(ParseJson, MessagesStayOnOneLine) {
  try {
    parse_json("{\"a\n\x1b[31m\": ", "f");
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
  }
}

TEST(Quote, EscapesAndShortens) {
  EXPECT_EQ(quote("plain"), "\"plain\"");
  EXPECT_EQ(quote("a\nb\"\x1b\xff"), R"("a\nb\"\u001b\ufffd")");
  EXPECT_LT(quote(std::string(100000, 'x')).size(), 300u);
}

class NodeTest : public ::testing::Test {
 protected:
  Node at(const char* key) const { return top_.at(key); }

  Json json_ = parse_json(R"({"int": 5, "negative": -1, "big": 18446744073709551615, "real": 2.0,
      "text": "t", "yes": true, "null": null, "list": [1, "x"], "object": {"inner": []},
      "huge": 1e300, "tiny": -1e-300, "zero": 0.0, "escape": "\u001b[31m", "odd\nkey": {"x": 1}})",
                          "f");
  Node top_{json_, "f"};
};

TEST_F(NodeTest, IntegersHaveARange) {
  EXPECT_EQ(at("int").integer(0, 5), 5);
  EXPECT_EQ(at("negative").integer(-1, 5), -1);
  expect_refused({"f: int: expected an integer from 6 to 9, found 5"},
                 [&] { at("int").integer(6, 9); });
  expect_refused({"found 18446744073709551615"}, [&] { at("big").integer(INT64_MIN, INT64_MAX); });
  expect_refused({"found 2.0"}, [&] { at("real").integer(0, 9); });
  expect_refused({"found \"t\""}, [&] { at("text").integer(0, 9); });
  expect_refused({"found true"}, [&] { at("yes").integer(0, 9); });
  expect_refused({"found null"}, [&] { at("null").integer(0, 9); });
  expect_refused({"found an array"}, [&] { at("list").integer(0, 9); });
}

TEST_F(NodeTest, OtherTypes) {
  EXPECT_EQ(at("real").number(), 2.0);
  EXPECT_EQ(at("int").float32(), 5.0f);
  EXPECT_EQ(at("zero").float32(), 0.0f);
  for (const char* name : {"huge", "tiny"}) {
    expect_refused({name, ": expected a number within float32's range"},
                   [&] { at(name).float32(); });
  }
  expect_refused({"yes: expected a finite number"}, [&] { at("yes").number(); });
  expect_refused({"int: expected true or false, found 5"}, [&] { at("int").boolean(); });
  expect_refused({"int: expected a string"}, [&] { at("int").string(); });
  expect_refused({"object: expected an array, found an object"}, [&] { at("object").array(); });
}

TEST_F(NodeTest, LinesAreFitForATerminal) {
  EXPECT_EQ(at("text").line(), "t");
  expect_refused({R"(escape: expected text without control characters, found "\u001b[31m")"},
                 [&] { at("escape").line(); });
  expect_refused({"int: expected a string"}, [&] { at("int").line(); });
}

TEST_F(NodeTest, PathsNameThePlace) {
  expect_refused({"f: list[1]: expected an integer"}, [&] { at("list").array()[1].integer(0, 9); });
  expect_refused({"f: object.inner: expected true or false"},
                 [&] { at("object").at("inner").boolean(); });
  expect_refused({"f: object: \"other\" is missing"}, [&] { at("object").at("other"); });
  expect_refused({R"(f: "odd\nkey".x: expected a string)"},
                 [&] { at("odd\nkey").at("x").string(); });
  expect_refused({"f: int: expected an object, found 5"}, [&] { at("int").find("x"); });
}

TEST_F(NodeTest, UnknownKeysAreNamed) {
  const std::string_view known[] = {"inner"};
  EXPECT_NO_THROW(at("object").allow_only(known));
  const std::string_view others[] = {"outer", "upper"};
  expect_refused({"f: object: unknown key \"inner\"; known are outer, upper"},
                 [&] { at("object").allow_only(others); });
}

}  // namespace
}  // namespace parapet::tools
