#include "expedite/train/tokenizer_copy.h"

#include "expedite/base/read_text.h"
#include "expedite/text/tokenizer_files.h"

namespace expedite::train {

TokenizerCopy::TokenizerCopy(const std::string& tokenizer) {
  for (const text::TokenizerFile& file : text::tokenizer_files(tokenizer)) {
    files_.push_back({file.name, read_text(file.from.string())});
  }
}

}  // namespace expedite::train
