#include "expedite/cli/cpu_path.h"

#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "expedite/kernels/bf16_products.h"
#include "expedite/kernels/simd_targets.h"
// After simd_targets.h, which says what kernels are compiled for.
#include <hwy/targets.h>

namespace expedite::cli {
namespace {

/// The one that Highway's dynamic dispatch takes: the lowest bit is the best.
std::string highway_target() {
  const auto usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable & (~usable + 1));
}

std::string onednn_isa(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("instruction set {:#x}", static_cast<unsigned>(isa));
  }
}

}  // namespace

std::string cpu_path() {
  const kernels::Bf16Cpu& cpu = kernels::bf16_cpu();
  return fmt::format("Highway {}, oneDNN {}; bf16 dot product {}, AMX {}; {}", highway_target(),
                     onednn_isa(dnnl::get_effective_cpu_isa()), cpu.dot ? "yes" : "no",
                     cpu.amx ? "yes" : "no", kernels::describe_bf16_products());
}

}  // namespace expedite::cli
