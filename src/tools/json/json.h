#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// JSON from files that nobody vouches for: parsed strictly, and read through `Node`s whose
// complaints name the file and the key.

namespace parapet::tools {

using Json = nlohmann::json;

// Throws Error(kInvalidArgument), its message beginning with `file`, for anything but one JSON
// document without duplicate keys, at most 16 levels deep.
Json parse_json(std::string_view text, const std::string& file);

// The text between quotes, escaped and cut short, fit to be shown on one line whatever it holds.
std::string quote(std::string_view text);

// On one line, and without failing on strings that are not UTF-8, such as file names.
std::string dump(const Json& json);

// A value and where it stands: "file.json: grid[3].batch". Refers to the document, does not own it.
class Node {
 public:
  Node(const Json& value, std::string file, std::string path = {})
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const Json& json() const { return *value_; }
  bool is_null() const { return value_->is_null(); }

  // The value as a type; throws Error(kInvalidArgument) when it is another one or out of range.
  std::int64_t integer(std::int64_t min, std::int64_t max) const;
  double number() const;  // finite
  float float32() const;  // finite as a float32, and zero only if it is
  bool boolean() const;
  const std::string& string() const;
  const std::string& line() const;  // text that may go to a terminal: no control characters
  std::vector<Node> array() const;

  // The members of an object, in alphabetical order.
  std::vector<std::pair<std::string, Node>> members() const;
  std::optional<Node> find(std::string_view key) const;
  Node at(std::string_view key) const;
  // Refuses members whose key is not listed.
  void allow_only(std::span<const std::string_view> keys) const;

  // Throws "<file>: <path>: expected <what>, found <value>".
  [[noreturn]] void expected(std::string_view what) const;
  // Throws "<file>: <path>: <message>".
  [[noreturn]] void refuse(std::string_view message) const;

 private:
  Node member(std::string_view key, const Json& value) const;

  const Json* value_;
  std::string file_;
  std::string path_;
};

}  // namespace parapet::tools
