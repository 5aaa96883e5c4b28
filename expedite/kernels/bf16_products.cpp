#include "expedite/kernels/bf16_products.h"

#include <fmt/format.h>

#include <atomic>
#include <oneapi/dnnl/dnnl.hpp>

#include "expedite/base/error.h"
#include "expedite/kernels/cpu.h"

namespace expedite::kernels {
namespace {

bool is_amd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

Bf16Cpu look() {
  Bf16Cpu cpu;
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_amx:
      cpu.amx = true;
      [[fallthrough]];
    case dnnl::cpu_isa::avx512_core_bf16:
      cpu.dot = kHasAvx512Bf16;
      [[fallthrough]];
    case dnnl::cpu_isa::avx512_core_vnni:
    case dnnl::cpu_isa::avx512_core:
      cpu.native = true;
      break;
    default:
      break;
  }
  cpu.fast_dot = cpu.dot && is_amd();
  return cpu;
}

std::atomic<Bf16Products>& wanted_products() {
  static std::atomic<Bf16Products> wanted = Bf16Products::automatic;
  return wanted;
}

std::string_view reason(const Bf16Cpu& cpu) {
  if (cpu.amx) {
    return "AMX";
  }
  if (cpu.fast_dot) {
    return "AVX-512 bf16 dot products, twice as fast as f32";
  }
  if (cpu.dot) {
    return "this CPU's bf16 dot products are slower than its f32";
  }
  return "this CPU has no bf16 instructions";
}

}  // namespace

std::string_view name_of(Bf16Products products) {
  switch (products) {
    case Bf16Products::native:
      return "native";
    case Bf16Products::widened:
      return "widened";
    default:
      return "auto";
  }
}

const Bf16Cpu& bf16_cpu() {
  static const Bf16Cpu cpu = look();
  return cpu;
}

Bf16Ways choose_bf16_ways(Bf16Products wanted, const Bf16Cpu& cpu) {
  using enum Bf16Products;
  if (wanted == widened) {
    return {widened, widened};
  }
  if (wanted == native) {
    require(
        cpu.native,
        "bf16 products cannot be native: this CPU has no AVX-512 bf16 instructions that oneDNN could use; "
        "choose widened or auto");
    return {native, cpu.dot ? native : widened};
  }
  return {cpu.amx || cpu.fast_dot ? native : widened, cpu.fast_dot ? native : widened};
}

void set_bf16_products(Bf16Products wanted) {
  (void)choose_bf16_ways(wanted, bf16_cpu());
  wanted_products() = wanted;
}

Bf16Ways bf16_ways() {
  return choose_bf16_ways(wanted_products(), bf16_cpu());
}

std::string describe_bf16_products() {
  const Bf16Ways ways = bf16_ways();
  const std::string why = wanted_products() == Bf16Products::automatic
                              ? std::string(reason(bf16_cpu()))
                              : fmt::format("as asked for; auto: {}", reason(bf16_cpu()));
  const std::string attention =
      ways.attention == ways.matmul ? "" : fmt::format(", attention's {}", name_of(ways.attention));
  return fmt::format("bf16 products {}{} ({})", name_of(ways.matmul), attention, why);
}

}  // namespace expedite::kernels
