#include "expedite/train/preflight.h"

#include "expedite/base/memory.h"
#include "expedite/model/checkpoint_io.h"
#include "expedite/model/engine.h"
#include "expedite/text/tokenizer.h"
#include "expedite/train/memory_need.h"
#include "expedite/train/model_source.h"
#include "expedite/train/run_lock.h"
#include "expedite/train/text_files.h"
#include "expedite/train/tokenizer_choice.h"

namespace expedite::train {

void check_config(const TrainConfig& config, const comm::Placement& placement, std::span<const int> ranks,
                  model::State state) {
  const ModelConfig model = model_of(config, text::make_tokenizer(tokenizer_choice(config))->vocab_size());
  if (config.model.load_weights) {
    MemoryPool none;
    model::Parameters shapes(model, config.dtype, model::expert_shard(model, placement.layout, 0),
                             model::State::shapes, none);
    check_weights(shapes, hf::SafetensorsFolder(config.model.path));
  }
  const std::int64_t text_bytes = require_text(config.data.path, config.data.extensions);
  require_memory(memory_need(config, model, placement, ranks, state, text_bytes), std::ssize(ranks),
                 available_memory_bytes());
}

void check_run_folder(const TrainConfig& config, Resume resume) {
  require_unlocked(config.run_dir());
  static_cast<void>(find_training_state(config, resume, Check::sizes));
}

}  // namespace expedite::train
