#include "expedite/train/tokenizer_choice.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "expedite/base/error.h"
#include "expedite/base/read_text.h"
#include "expedite/text/tokenizer_files.h"
#include "expedite/train/training_state.h"

namespace expedite::train {
namespace {

/// Whether it is a checkpoint of a run on bytes, beside which no tokenizer lies.
bool was_trained_on_bytes(const std::string& model) {
  const std::filesystem::path state = std::filesystem::path(model) / kStateFile;
  std::error_code error;
  if (!std::filesystem::is_regular_file(state, error)) {
    return false;
  }
  const auto json = nlohmann::json::parse(read_text(state.string()), nullptr, false);
  return json.is_object() && json.value("data.tokenizer", nlohmann::json()) == text::kByteTokenizer;
}

}  // namespace

std::string model_tokenizer(const TrainConfig& config) {
  const std::filesystem::path model(config.model.path);
  if (model.empty() || !text::has_tokenizer(model)) {
    return {};
  }
  std::error_code error;
  if (std::filesystem::is_directory(model, error)) {
    return model.string();
  }
  return model.has_parent_path() ? model.parent_path().string() : ".";
}

std::string tokenizer_choice(const TrainConfig& config) {
  if (!config.data.tokenizer.empty()) {
    return config.data.tokenizer;
  }
  if (std::string own = model_tokenizer(config); !own.empty()) {
    return own;
  }
  require(
      !config.model.load_weights || was_trained_on_bytes(config.model.path),
      "model.path = {} has neither a tokenizer.json nor a tokenizer.model, and the weights that are loaded "
      "from it know the ids of one: give it in data.tokenizer (a folder, a tokenizer.json or a SentencePiece "
      ".model), or say data.tokenizer=bytes if the model was trained on bytes",
      config.model.path);
  return text::kByteTokenizer;
}

}  // namespace expedite::train
