// A tokenizer's files in memory, for checkpoints: what a run was trained with stays with it, whatever becomes
// of the folder they were read from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace expedite::train {

class TokenizerCopy {
 public:
  struct File {
    std::string name;
    std::string content;
  };

  TokenizerCopy() = default;
  /// Reads the files that text::tokenizer_files lists; none for bytes.
  explicit TokenizerCopy(const std::string& tokenizer);

  [[nodiscard]] const std::vector<File>& files() const { return files_; }

 private:
  std::vector<File> files_;
};

}  // namespace expedite::train
