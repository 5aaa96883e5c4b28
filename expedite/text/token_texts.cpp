#include "expedite/text/token_texts.h"

#include <functional>

#include "expedite/base/config_fields.h"
#include "expedite/base/error.h"
#include "expedite/text/byte_alphabet.h"
#include "expedite/text/json_fields.h"

namespace expedite::text {
namespace {

using nlohmann::json;

/// What is done to each token, in order.
class Steps {
 public:
  void add(const json& value, const std::string& where) {
    const ConfigFields fields(value, where);
    const std::string type = fields.text("type", "");
    if (type == "Sequence") {
      for (const auto& [name, part] : parts_of(fields, "decoders")) {
        add(part, name);
      }
    } else if (type == "ByteLevel") {
      require(steps_.empty(), "{}: ByteLevel behind other decoders is not read", where);
      byte_level_ = true;
    } else if (type == "ByteFallback") {
      steps_.emplace_back(byte_of);
    } else if (type == "Fuse") {
      fused_ = true;
    } else if (type == "Replace") {
      add_replace(fields);
    } else if (type == "Strip") {
      add_strip(fields);
    } else if (type == "Metaspace") {
      replace_literal(fields.text("replacement", "\xE2\x96\x81"), " ");
      adds_space_ = fields.text("prepend_scheme",
                                fields.boolean("add_prefix_space", true) ? "always" : "never") != "never";
    } else {
      fail(
          "{}: the type {} is not read; decoders that are: ByteLevel, ByteFallback, Replace, Strip, Fuse, "
          "Metaspace and Sequence",
          where, excerpt(value.value("type", json())));
    }
  }

  void apply(std::string& token, bool added) const {
    if (byte_level_ && !added) {  // added tokens are not written in the alphabet
      token = from_byte_alphabet(token).value_or(token);
    }
    for (const auto& step : steps_) {
      step(token);
    }
  }
  [[nodiscard]] bool adds_space() const { return adds_space_; }

 private:
  static void byte_of(std::string& token) {
    constexpr std::size_t kLength = 6;  // <0xE2>
    if (token.size() != kLength || !token.starts_with("<0x") || token.back() != '>' ||
        token.find_first_not_of("0123456789ABCDEFabcdef", 3) != kLength - 1) {
      return;
    }
    token = std::string(1, static_cast<char>(std::stoi(token.substr(3, 2), nullptr, 16)));
  }

  void replace_literal(const std::string& what, const std::string& with) {
    steps_.emplace_back([what, with](std::string& token) {
      for (std::size_t at = token.find(what); at != std::string::npos;
           at = token.find(what, at + with.size())) {
        token.replace(at, what.size(), with);
      }
    });
  }

  void add_replace(const ConfigFields& fields) {
    // Behind Fuse it sees the whole text, and could match across tokens.
    require(!fused_, "{}: Replace behind Fuse is not read", fields.where());
    const std::shared_ptr<Pattern> pattern = pattern_of(fields);
    steps_.emplace_back([pattern, content = fields.text("content", "")](std::string& token) {
      std::string replaced;
      std::size_t done = 0;
      while (const std::optional<Match> match = pattern->find(token, done)) {
        replaced.append(token, done, match->begin - done).append(content);
        done = match->end;
      }
      token = replaced.append(token, done, std::string::npos);
    });
  }

  void add_strip(const ConfigFields& fields) {
    const std::string content = fields.text("content", "");
    const std::int64_t start = fields.integer("start", 0, 0);
    const std::int64_t stop = fields.integer("stop", 0, 0);
    require(!content.empty(), "{}: content is missing", fields.where());
    if (fused_) {
      require(content == " " && start <= 1 && stop == 0,
              "{}: behind Fuse only a Strip of one space at the start is read, not of '{}' with start {} and "
              "stop {}",
              fields.where(), content, start, stop);
      adds_space_ = start == 1;
      return;
    }
    steps_.emplace_back([content, start, stop](std::string& token) {
      for (std::int64_t i = 0; i < start && token.starts_with(content); ++i) {
        token.erase(0, content.size());
      }
      for (std::int64_t i = 0; i < stop && token.ends_with(content); ++i) {
        token.erase(token.size() - content.size());
      }
    });
  }

  std::vector<std::function<void(std::string&)>> steps_;
  bool byte_level_ = false;
  bool fused_ = false;
  bool adds_space_ = false;
};

}  // namespace

TokenTexts make_token_texts(const json& decoder, const std::string& where, std::vector<std::string> tokens,
                            const std::vector<bool>& added) {
  Steps steps;
  if (!decoder.is_null()) {
    steps.add(decoder, where);
  }
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    steps.apply(tokens[id], added[id]);
  }
  return {.says = std::move(tokens), .adds_space = steps.adds_space()};
}

}  // namespace expedite::text
