#include "tools/json/json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "parapet/error.h"

namespace parapet::tools {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxQuoted = 200;

[[noreturn]] void fail(const std::string& where, std::string_view message) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", where, message));
}

std::string text_of(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  return dump(value);
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without its number, and
// as one line whatever text of the file it repeats.
std::string plain_message(const Json::exception& error) {
  const std::string_view message = error.what();
  const std::size_t bracket = message.find("] ");
  const std::string escaped =
      quote(bracket == std::string_view::npos ? message : message.substr(bracket + 2));
  return escaped.substr(1, escaped.size() - 2);
}

}  // namespace

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string quote(std::string_view text) {
  std::string shown(text.substr(0, kMaxQuoted));
  if (shown.size() < text.size()) shown += "...";
  return Json(shown).dump(-1, ' ', true, Json::error_handler_t::replace);
}

Json parse_json(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kMaxDepth) {
      fail(file, fmt::format("JSON more than {} levels deep", kMaxDepth));
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) fail(file, fmt::format("{} twice", quote(key)));
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception& error) {
    fail(file, "not valid JSON: " + plain_message(error));
  }
}

std::int64_t Node::integer(std::int64_t min, std::int64_t max) const {
  const bool too_big = value_->is_number_unsigned() &&
                       value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (value_->is_number_integer() && !too_big) {
    const auto value = value_->get<std::int64_t>();
    if (value >= min && value <= max) return value;
  }
  expected(fmt::format("an integer from {} to {}", min, max));
}

double Node::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) expected("a finite number");
  return value_->get<double>();
}

float Node::float32() const {
  const double value = number();
  const bool huge = std::fabs(value) > static_cast<double>(std::numeric_limits<float>::max());
  if (huge || (value != 0 && static_cast<float>(value) == 0)) {
    expected("a number within float32's range");
  }
  return static_cast<float>(value);
}

bool Node::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

const std::string& Node::string() const {
  if (!value_->is_string()) expected("a string");
  return value_->get_ref<const std::string&>();
}

const std::string& Node::line() const {
  const std::string& text = string();
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) {
    expected("text without control characters");
  }
  return text;
}

std::vector<Node> Node::array() const {
  if (!value_->is_array()) expected("an array");
  std::vector<Node> nodes;
  nodes.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    nodes.emplace_back((*value_)[i], file_, fmt::format("{}[{}]", path_, i));
  }
  return nodes;
}

Node Node::member(std::string_view key, const Json& value) const {
  const bool plain = std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  const std::string name = plain ? std::string(key) : quote(key);
  return {value, file_, path_.empty() ? name : fmt::format("{}.{}", path_, name)};
}

std::vector<std::pair<std::string, Node>> Node::members() const {
  if (!value_->is_object()) expected("an object");
  std::vector<std::pair<std::string, Node>> nodes;
  for (const auto& [key, value] : value_->items()) nodes.emplace_back(key, member(key, value));
  return nodes;
}

std::optional<Node> Node::find(std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) return std::nullopt;
  return member(key, *found);
}

Node Node::at(std::string_view key) const {
  if (const auto found = find(key)) return *found;
  refuse(fmt::format("{} is missing", quote(key)));
}

void Node::allow_only(std::span<const std::string_view> keys) const {
  for (const auto& [key, node] : members()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      refuse(fmt::format("unknown key {}; known are {}", quote(key), fmt::join(keys, ", ")));
    }
  }
}

void Node::expected(std::string_view what) const {
  refuse(fmt::format("expected {}, found {}", what, text_of(*value_)));
}

void Node::refuse(std::string_view message) const {
  fail(path_.empty() ? file_ : fmt::format("{}: {}", file_, path_), message);
}

}  // namespace parapet::tools
