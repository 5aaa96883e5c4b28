// How this CPU multiplies bf16 matrices: with its own bf16 instructions, or widened to f32.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace expedite::kernels {

/// `native`: the CPU's instructions for bf16 (AMX tiles, AVX-512 dot products), through oneDNN. `widened`:
/// f32 multiply-adds (widened_product.h). `automatic` ("auto"): whichever the CPU is made for, by the rule
/// below.
enum class Bf16Products : std::uint8_t { automatic, native, widened };

[[nodiscard]] std::string_view name_of(Bf16Products products);

/// What decides.
struct Bf16Cpu {
  bool native = false;    // oneDNN has bf16 products for it at all (AVX-512)
  bool amx = false;       // AMX tiles of bf16
  bool dot = false;       // AVX512_BF16
  bool fast_dot = false;  // its dot products do more arithmetic in a cycle than its f32 multiply-adds
};

/// This CPU, as far as oneDNN may use it (DNNL_MAX_CPU_ISA).
[[nodiscard]] const Bf16Cpu& bf16_cpu();

/// The ways that `wanted` means on `cpu`.
struct Bf16Ways {
  Bf16Products matmul = Bf16Products::native;
  Bf16Products attention = Bf16Products::native;

  bool operator==(const Bf16Ways&) const = default;
};

/// A rule of what the CPU is, never of how fast something ran: the same machine always computes the same
/// bits. Matrix products are native with AMX, or with dot products that are faster than f32 (AMD's do twice
/// as many multiply-adds in a cycle as f32's; Intel's, half as many), otherwise widened. Attention's products
/// are its own code, which knows dot products but no tiles. Throws Error for `native` where there is none.
[[nodiscard]] Bf16Ways choose_bf16_ways(Bf16Products wanted, const Bf16Cpu& cpu);

/// From now on all products of this process are computed as `wanted` says. Before the first call:
/// `automatic`. Throws Error as choose_bf16_ways does.
void set_bf16_products(Bf16Products wanted);
[[nodiscard]] Bf16Ways bf16_ways();

/// One line for a log: which way, and why.
[[nodiscard]] std::string describe_bf16_products();

}  // namespace expedite::kernels
