#include "expedite/text/hugging_face_json.h"

#include <limits>
#include <optional>

#include "expedite/base/config_fields.h"
#include "expedite/base/error.h"
#include "expedite/base/read_text.h"
#include "expedite/text/bpe.h"
#include "expedite/text/byte_alphabet.h"
#include "expedite/text/fingerprint.h"
#include "expedite/text/json_fields.h"
#include "expedite/text/unigram.h"

namespace expedite::text {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::int64_t kMostTokens = 1 << 24;  // a hundred times what there is

json parse(const std::string& text, const std::string& where) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    fail("{} is not valid JSON: {}", where, error.what());
  }
}

std::int32_t id_of(const json& value, const std::string& where) {
  require(
      value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() < kMostTokens,
      "{}: an id must be a whole number from 0 to {}, not {}", where, kMostTokens - 1, excerpt(value));
  return value.get<std::int32_t>();
}

// ---- Models

using Tokens = std::vector<std::pair<std::string, std::int32_t>>;

Tokens read_vocab(const json& vocab, const std::string& where) {
  Tokens tokens;
  tokens.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    tokens.emplace_back(token, id_of(id, where));
  }
  return tokens;
}

std::pair<std::string, std::string> merge_of(const json& merge, const std::string& where, std::size_t index) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  fail("{}: merges[{}] must be two tokens, as a list or with a space between them, not {}", where, index,
       excerpt(merge));
}

/// Of a model that sees bytes. Tokens that have other characters than the alphabet of bytes cannot come of
/// text, and merges of them are refused where the merge table is made.
Tokens as_bytes(const Tokens& written) {
  Tokens tokens;
  for (const auto& [token, id] : written) {
    if (std::optional<std::string> bytes = from_byte_alphabet(token)) {
      tokens.emplace_back(std::move(*bytes), id);
    }
  }
  return tokens;
}

std::int32_t unk_of(const ConfigFields& model, const Vocabulary& vocabulary) {
  const std::string token = model.text("unk_token", "");
  if (token.empty()) {
    return -1;
  }
  const std::int32_t id = vocabulary.find(token);
  require(id >= 0, "{}: unk_token is {}, which is not in vocab", model.where(), token);
  return id;
}

std::unique_ptr<Model> read_bpe(const ConfigFields& model, const Tokens& written, bool byte_level) {
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    require(model.text(field, "").empty(), "{}: {} is not read; expected none", model.where(), field);
  }
  require(model.find("dropout") == nullptr || model.optional_number("dropout", 0.0) == 0.0,
          "{}: dropout would give a text other ids each time; expected none", model.where());
  const json* list = model.find("merges");
  require(list != nullptr && list->is_array(), "{}: merges must be a list", model.where());
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    auto merge = merge_of((*list)[i], model.where(), i);
    if (byte_level) {
      const auto left = from_byte_alphabet(merge.first);
      const auto right = from_byte_alphabet(merge.second);
      require(left && right,
              "{}: merges[{}], {}, is not written in the alphabet of bytes that ByteLevel uses",
              model.where(), i, excerpt((*list)[i]));
      merge = {*left, *right};
    }
    merges.push_back(std::move(merge));
  }
  const BpeOptions options = {.byte_level = byte_level,
                              .byte_fallback = !byte_level && model.boolean("byte_fallback", false),
                              .fuse_unk = model.boolean("fuse_unk", false),
                              .ignore_merges = model.boolean("ignore_merges", false),
                              .unk = unk_of(model, Vocabulary(written))};
  return make_bpe(Vocabulary(byte_level ? as_bytes(written) : written), merges, options, model.where());
}

std::vector<std::pair<std::string, double>> read_pieces(const json& vocab, const std::string& where) {
  std::vector<std::pair<std::string, double>> pieces;
  for (std::size_t i = 0; i < vocab.size(); ++i) {
    const json& piece = vocab[i];
    require(piece.is_array() && piece.size() == 2 && piece[0].is_string() && piece[1].is_number(),
            "{}: vocab[{}] must be a piece and its score, not {}", where, i, excerpt(piece));
    pieces.emplace_back(piece[0].get<std::string>(), piece[1].get<double>());
  }
  return pieces;
}

std::string type_of(const ConfigFields& model) {
  const std::string type = model.text("type", "");
  if (!type.empty()) {
    return type;
  }
  const json* vocab = model.find("vocab");  // older files have no type
  return vocab != nullptr && vocab->is_array() ? "Unigram" : model.has("merges") ? "BPE" : "none";
}

/// Fills `written` with the tokens of the vocabulary, and makes the model.
std::unique_ptr<Model> read_model(const ConfigFields& model, bool byte_level, Tokens& written,
                                  std::int32_t& unk) {
  const std::string type = type_of(model);
  const json* vocab = model.find("vocab");
  if (type == "BPE") {
    require(vocab != nullptr && vocab->is_object(), "{}: vocab must be a map of tokens to ids",
            model.where());
    written = read_vocab(*vocab, model.where());
    unk = unk_of(model, Vocabulary(written));
    return read_bpe(model, written, byte_level);
  }
  require(type == "Unigram", "{}: the type {} is not read; models that are: BPE and Unigram", model.where(),
          type);
  require(vocab != nullptr && vocab->is_array(), "{}: vocab must be a list of pieces with their scores",
          model.where());
  require(!byte_level, "{}: Unigram behind a ByteLevel pre_tokenizer is not read", model.where());
  const auto pieces = read_pieces(*vocab, model.where());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    written.emplace_back(pieces[i].first, static_cast<std::int32_t>(i));
  }
  unk = static_cast<std::int32_t>(model.optional_integer("unk_id", 0).value_or(-1));
  require(unk < static_cast<std::int64_t>(pieces.size()), "{}: unk_id is {}, but vocab has {} pieces",
          model.where(), unk, pieces.size());
  return make_unigram(pieces, {.byte_fallback = model.boolean("byte_fallback", false), .unk = unk},
                      model.where());
}

// ---- Added tokens

std::vector<AddedToken> read_added(const ConfigFields& file) {
  std::vector<AddedToken> tokens;
  if (!file.has("added_tokens")) {
    return tokens;
  }
  for (const auto& [where, value] : parts_of(file, "added_tokens")) {
    const ConfigFields fields(value, where);
    const bool special = fields.boolean("special", false);
    require(value.contains("id"), "{}: the field id is missing", where);
    tokens.push_back({.content = fields.text("content", ""),
                      .id = id_of(value["id"], where),
                      .special = special,
                      .single_word = fields.boolean("single_word", false),
                      .lstrip = fields.boolean("lstrip", false),
                      .rstrip = fields.boolean("rstrip", false),
                      .normalized = fields.boolean("normalized", !special)});
  }
  return tokens;
}

/// Those that are looked for in normalised text, written as that text would have them, or the others.
AddedTokenFinder finder_of(const std::vector<AddedToken>& tokens, bool normalized,
                           const Normalizer& normalizer) {
  std::vector<AddedToken> chosen;
  for (AddedToken token : tokens) {
    if (token.normalized == normalized) {
      if (normalized) {
        token.content = normalizer.normalize(as_original(token.content, false)).bytes;
      }
      chosen.push_back(std::move(token));
    }
  }
  return AddedTokenFinder(chosen);
}

// ---- The separator of documents

/// A JSON file beside the tokenizer, or nothing.
std::optional<json> read_beside(const fs::path& file, const char* name) {
  std::error_code error;
  const fs::path path = file.parent_path() / name;
  if (!fs::is_regular_file(path, error)) {
    return std::nullopt;
  }
  json value = parse(read_text(path.string()), path.string());
  require(value.is_object(), "{} must be an object of fields", path.string());
  return value;
}

/// `bos_token` or its like: text, or an added token with its content.
std::string named_token(const std::optional<json>& config, const char* field) {
  const json value = config ? config->value(field, json()) : json();
  const json& content = value.is_object() ? value.value("content", json()) : value;
  return content.is_string() ? content.get<std::string>() : std::string();
}

std::int32_t find_separator(const fs::path& file, const std::vector<AddedToken>& added, const Tokens& vocab) {
  const Vocabulary vocabulary(vocab);
  const auto find = [&](const std::string& token) {
    for (const AddedToken& candidate : added) {
      if (!token.empty() && candidate.content == token) {
        return candidate.id;
      }
    }
    return token.empty() ? -1 : vocabulary.find(token);
  };
  const std::optional<json> config = read_beside(file, "tokenizer_config.json");
  if (const std::int32_t bos = find(named_token(config, "bos_token")); bos >= 0) {
    return bos;
  }
  if (const std::optional<json> model = read_beside(file, "config.json")) {
    if (const json bos = model->value("bos_token_id", json()); bos.is_number_integer()) {
      return id_of(bos, (file.parent_path() / "config.json").string() + ": bos_token_id");
    }
  }
  for (const std::string& token : {std::string("<|endoftext|>"), named_token(config, "eos_token"),
                                   std::string("<s>"), std::string("</s>")}) {
    if (const std::int32_t id = find(token); id >= 0) {
      return id;
    }
  }
  fail(
      "{}: no token to separate documents with: give bos_token or eos_token in a tokenizer_config.json "
      "beside "
      "it, with the name of one of its tokens",
      file.string());
}

// ---- All tokens by id

TokenTexts read_texts(const json& root, const std::string& where, const Tokens& written,
                      const std::vector<AddedToken>& added, std::int32_t unk, std::int32_t separator) {
  std::int32_t last = separator;
  for (const auto& [token, id] : written) {
    last = std::max(last, id);
  }
  for (const AddedToken& token : added) {
    last = std::max(last, token.id);
  }
  std::vector<std::string> tokens(static_cast<std::size_t>(last) + 1);
  std::vector<bool> is_added(tokens.size(), false);
  for (const auto& [token, id] : written) {
    tokens[id] = token;
  }
  for (const AddedToken& token : added) {
    tokens[token.id] = token.content;
    is_added[token.id] = true;
  }
  TokenTexts texts =
      make_token_texts(root.value("decoder", json()), where + ": decoder", std::move(tokens), is_added);
  if (unk >= 0) {
    texts.says[unk].clear();
  }
  return texts;
}

}  // namespace

HuggingFaceParts read_hugging_face_tokenizer(const fs::path& file) {
  const std::string where = file.string();
  const std::string content = read_text(where);
  const json root = parse(content, where);
  const ConfigFields fields(root, where);
  require(root.contains("model"), "{}: the field model is missing: is it a tokenizer.json?", where);
  const std::vector<AddedToken> added = read_added(fields);
  auto normalizer = make_normalizer(root.value("normalizer", json()), where + ": normalizer");
  PreTokenization pre_tokenizer =
      make_pre_tokenizer(root.value("pre_tokenizer", json()), where + ": pre_tokenizer");
  Tokens written;
  std::int32_t unk = -1;
  auto model =
      read_model(ConfigFields(root["model"], where + ": model"), pre_tokenizer.byte_level, written, unk);
  const std::int32_t separator = find_separator(file, added, written);
  return {.where = where,
          .fingerprint = fingerprint_of(content + std::to_string(separator)),
          .raw_added = finder_of(added, false, *normalizer),
          .normalized_added = finder_of(added, true, *normalizer),
          .normalizer = std::move(normalizer),
          .pre_tokenizer = std::move(pre_tokenizer),
          .model = std::move(model),
          .texts = read_texts(root, where, written, added, unk, separator),
          .separator = separator};
}

}  // namespace expedite::text
