// Runs a test with each way of multiplying bf16 that this CPU has.
#pragma once

#include <gtest/gtest.h>

#include "expedite/kernels/bf16_products.h"

namespace expedite::kernels {

/// A choice for as long as it lives, then the machine's own again.
class Bf16Choice {
 public:
  explicit Bf16Choice(Bf16Products products) { set_bf16_products(products); }
  ~Bf16Choice() { set_bf16_products(Bf16Products::automatic); }
  Bf16Choice(const Bf16Choice&) = delete;
  Bf16Choice& operator=(const Bf16Choice&) = delete;
};

template <typename Body>
void for_each_bf16_way(const Body& body) {
  for (const Bf16Products products : {Bf16Products::native, Bf16Products::widened}) {
    if (products == Bf16Products::native && !bf16_cpu().native) {
      continue;
    }
    SCOPED_TRACE(name_of(products));
    const Bf16Choice choice(products);
    body();
  }
}

}  // namespace expedite::kernels
