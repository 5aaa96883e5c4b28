// Keys of the configuration by the names that other programs give them: Megatron, Hugging Face's Trainer,
// DeepSpeed, torchtitan.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::train {

struct KeyMeaning {
  std::vector<std::string_view> keys;   // ours; several where others have one for them
  std::vector<std::string_view> names;  // others', in lower case, words joined by '_'
};

[[nodiscard]] std::span<const KeyMeaning> key_meanings();

/// Our keys for what others call `name`, whose sections, dashes and capitals do not matter; empty: none is
/// known.
[[nodiscard]] std::vector<std::string> keys_meant_by(std::string_view name);

/// What somebody who writes the unknown key `name` should know: that other keys are meant, by meaning or by
/// spelling, or that this program does not do it. `known` are the legal keys.
[[nodiscard]] std::string advice_for_key(std::string_view name, std::span<const std::string> known);

}  // namespace expedite::train
