// What Megatron-LM and MindSpeed do with a command line before they train, as far as flags of a strategy go:
// which layers each part of the pipeline builds, and whether the arguments are accepted. Written from their
// checks, apart from the code that makes the flags.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "expedite/base/error.h"

namespace expedite::plan {

class Arguments {
 public:
  /// A flag a line; the value may be quoted; lines of comments begin with #.
  explicit Arguments(const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      at = end + 1;
      if (line.starts_with('#')) {
        comments_ += line + "\n";
        continue;
      }
      const std::size_t space = line.find(' ');
      std::string value = space == std::string::npos ? "" : line.substr(space + 1);
      if (value.starts_with('"')) {
        require(value.size() > 1 && value.ends_with('"'), "a quote is open: {}", line);
        value = value.substr(1, value.size() - 2);
      } else {
        require(value.find_first_of(" |*()[]\"") == std::string::npos, "a shell cuts this: {}", line);
      }
      require(line.starts_with("--"), "no flag: {}", line);
      require(values_.emplace(line.substr(0, space), value).second, "given twice: {}", line);
    }
  }

  [[nodiscard]] bool has(const std::string& flag) const { return values_.contains(flag); }
  [[nodiscard]] std::string text(const std::string& flag) const {
    return has(flag) ? values_.at(flag) : std::string();
  }
  [[nodiscard]] std::int64_t number(const std::string& flag, std::int64_t otherwise) const {
    return has(flag) ? std::stoll(values_.at(flag)) : otherwise;
  }
  [[nodiscard]] const std::string& comments() const { return comments_; }

 private:
  std::map<std::string, std::string> values_;
  std::string comments_;
};

/// "(tt|)*3t*4" written out.
inline std::string unrolled(std::string layout) {
  for (std::size_t open = layout.find('('); open != std::string::npos; open = layout.find('(')) {
    const std::size_t close = layout.find(")*", open);
    std::size_t end = close + 2;
    const std::string body = layout.substr(open + 1, close - open - 1);
    std::string all;
    std::size_t digits = 0;
    for (int i = std::stoi(layout.substr(end), &digits); i > 0; --i) {
      all += body;
    }
    layout = layout.substr(0, open) + all + layout.substr(end + digits);
  }
  std::string plain;
  for (std::size_t i = 0; i < layout.size();) {
    if (i + 1 < layout.size() && layout[i + 1] == '*') {
      std::size_t digits = 0;
      plain += std::string(static_cast<std::size_t>(std::stoi(layout.substr(i + 2), &digits)), layout[i]);
      i += 2 + digits;
    } else {
      plain += layout[i++];
    }
  }
  return plain;
}

/// Layers of every part, [virtual stage][stage], that the program builds. Throws Error where its check stops.
inline std::vector<std::int64_t> layers_built(const Arguments& args) {
  const std::int64_t layers = args.number("--num-layers", -1);
  const std::int64_t pp = args.number("--pipeline-model-parallel-size", 1);
  require(layers > 0, "no --num-layers");
  const int splits = static_cast<int>(args.has("--num-virtual-stages-per-pipeline-rank")) +
                     static_cast<int>(args.has("--num-layers-per-virtual-pipeline-stage")) +
                     static_cast<int>(args.has("--pipeline-model-parallel-layout")) +
                     static_cast<int>(args.has("--num-layer-list"));
  require(splits <= 1, "several splits of layers at once");
  if (args.has("--pipeline-model-parallel-layout")) {
    const std::string layout = unrolled(args.text("--pipeline-model-parallel-layout"));
    require(layout.starts_with('E') && layout.ends_with('L'), "E must be first and L last: {}", layout);
    std::vector<std::int64_t> built = {0};
    std::int64_t prediction = 0;
    for (const char letter : layout.substr(1, layout.size() - 2)) {
      require(letter == 't' || letter == 'm' || letter == '|', "unknown letter {}", letter);
      require(letter != 't' || prediction == 0, "layers behind the prediction layers");
      require(letter != '|' || prediction == 0, "prediction layers must be with the loss");
      if (letter == '|') {
        built.push_back(0);
      }
      built.back() += letter == 't' ? 1 : 0;
      prediction += letter == 'm' ? 1 : 0;
    }
    std::int64_t sum = 0;
    for (const std::int64_t count : built) {
      sum += count;
    }
    require(sum == layers, "{} layers in the layout, {} in the model", sum, layers);
    require(prediction == args.number("--mtp-num-layers", 0), "prediction layers differ");
    require(std::ssize(built) % pp == 0, "{} parts on {} stages", built.size(), pp);
    return built;
  }
  if (args.has("--num-layer-list")) {
    std::vector<std::int64_t> built;
    std::string list = args.text("--num-layer-list") + ",";
    for (std::size_t at = 0; at < list.size(); at = list.find(',', at) + 1) {
      built.push_back(std::stoll(list.substr(at)));
    }
    require(std::ssize(built) == pp && pp > 1, "the list must have a number for each stage");
    std::int64_t sum = 0;
    for (const std::int64_t count : built) {
      sum += count;
    }
    require(sum == layers, "the list has {} layers, the model {}", sum, layers);
    return built;
  }
  require(layers % pp == 0, "number of layers should be divisible by the pipeline-model-parallel size");
  std::int64_t vpp = args.number("--num-virtual-stages-per-pipeline-rank", 1);
  if (args.has("--num-layers-per-virtual-pipeline-stage")) {
    const std::int64_t per_part = args.number("--num-layers-per-virtual-pipeline-stage", 0);
    require(layers / pp % per_part == 0, "layers of a stage are not a multiple of {}", per_part);
    vpp = layers / pp / per_part;
  }
  if (args.text("--schedules-method") == "dualpipev") {
    vpp = 2;
  }
  require(layers / pp % vpp == 0, "layers of a stage must be divisible by its virtual stages");
  return std::vector<std::int64_t>(static_cast<std::size_t>(pp * vpp), layers / pp / vpp);
}

/// The rest of the checks. Throws Error where one stops.
inline void check_arguments(const Arguments& args, std::int64_t devices) {
  const auto size = [&](const char* flag) { return args.number(flag, 1); };
  const std::int64_t tp = size("--tensor-model-parallel-size");
  const std::int64_t cp = size("--context-parallel-size");
  const std::int64_t pp = size("--pipeline-model-parallel-size");
  const std::int64_t ep = size("--expert-model-parallel-size");
  const std::int64_t etp = size("--expert-tensor-parallel-size");
  require(devices % (tp * cp * pp) == 0 && devices % (ep * etp * pp) == 0, "devices do not divide");
  const std::int64_t dp = devices / (tp * cp * pp);
  require(size("--global-batch-size") % (size("--micro-batch-size") * dp) == 0, "batch does not divide");
  require(cp == 1 || size("--seq-length") % (2 * cp) == 0, "sequence does not divide");
  require(size("--max-position-embeddings") >= size("--seq-length"), "sequence beyond the positions");
  require(!args.has("--sequence-parallel") || tp > 1, "sequence parallelism without tp");
  require(args.has("--bf16") != args.has("--fp16"), "one of bf16 and fp16");
  if (args.has("--overlap-param-gather")) {
    require(args.has("--use-distributed-optimizer") || args.has("--use-megatron-fsdp"), "overlap without");
    require(args.has("--overlap-grad-reduce"), "gathers overlap, reductions do not");
  }
  const bool fsdp = args.has("--use-megatron-fsdp");
  require(fsdp == (args.text("--ckpt-format") == "fsdp_dtensor"), "Megatron FSDP and fsdp_dtensor");
  require(fsdp == args.has("--data-parallel-sharding-strategy"), "a sharding strategy without FSDP");
  if (args.text("--recompute-granularity") == "full") {
    require(args.has("--recompute-method") && args.number("--recompute-num-layers", 0) > 0, "recompute full");
    require(!args.has("--recompute-activations"), "recompute twice");
  } else {
    require(!args.has("--recompute-method") && !args.has("--recompute-num-layers"), "recompute selective");
  }
  require(args.text("--recompute-modules") != "moe_act" || args.has("--moe-grouped-gemm"), "moe_act");
  require(ep == 1 || args.has("--num-experts"), "ep without experts");
  if (args.has("--num-experts")) {
    require(size("--num-experts") % ep == 0, "experts do not divide");
    require(tp == 1 || args.has("--sequence-parallel"), "experts and tp without sequence parallelism");
    require(size("--moe-router-topk") > 1 || args.has("--moe-router-pre-softmax"), "topk 1");
    const bool flex = args.text("--moe-token-dispatcher-type") == "flex";
    require(flex == args.has("--moe-enable-deepep"), "DeepEP and the flex dispatcher");
    require(!flex || (args.text("--moe-router-dtype") == "fp32" && tp * ep > 1), "DeepEP");
  }
  if (args.text("--schedules-method") == "dualpipev") {
    require(!args.has("--overlap-grad-reduce") && cp == 1 && pp > 1 && !args.has("--num-layer-list") &&
                !args.has("--pipeline-model-parallel-layout") &&
                args.has("--untie-embeddings-and-output-weights"),
            "dualpipev");
    require(size("--global-batch-size") / size("--micro-batch-size") / dp >= 2 * pp - 1, "micro-batches");
  }
}

}  // namespace expedite::plan
