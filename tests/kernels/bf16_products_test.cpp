#include "expedite/kernels/bf16_products.h"

#include <gtest/gtest.h>

#include "expedite/base/error.h"
#include "tests/kernels/bf16_ways.h"

namespace expedite::kernels {
namespace {

using enum Bf16Products;

constexpr Bf16Cpu kAvx2{};
constexpr Bf16Cpu kSkylake{.native = true};
constexpr Bf16Cpu kZen4{.native = true, .dot = true, .fast_dot = true};
constexpr Bf16Cpu kXeonWithoutAmx{.native = true, .dot = true};
constexpr Bf16Cpu kXeon{.native = true, .amx = true, .dot = true};

TEST(Bf16Products, AutoTakesWhatTheCpuIsMadeFor) {
  EXPECT_EQ(choose_bf16_ways(automatic, kAvx2), (Bf16Ways{widened, widened}));
  EXPECT_EQ(choose_bf16_ways(automatic, kSkylake), (Bf16Ways{widened, widened}));
  EXPECT_EQ(choose_bf16_ways(automatic, kZen4), (Bf16Ways{native, native}));
  EXPECT_EQ(choose_bf16_ways(automatic, kXeonWithoutAmx), (Bf16Ways{widened, widened}));
  EXPECT_EQ(choose_bf16_ways(automatic, kXeon), (Bf16Ways{native, widened}));
}

TEST(Bf16Products, WhatIsAskedForIsDone) {
  for (const Bf16Cpu& cpu : {kAvx2, kSkylake, kZen4, kXeonWithoutAmx, kXeon}) {
    EXPECT_EQ(choose_bf16_ways(widened, cpu), (Bf16Ways{widened, widened}));
  }
  EXPECT_EQ(choose_bf16_ways(native, kXeonWithoutAmx), (Bf16Ways{native, native}));
  EXPECT_EQ(choose_bf16_ways(native, kSkylake), (Bf16Ways{native, widened}));
  EXPECT_THROW((void)choose_bf16_ways(native, kAvx2), Error);
}

TEST(Bf16Products, TheLogNamesTheWay) {
  const Bf16Choice choice(widened);
  EXPECT_EQ(bf16_ways(), (Bf16Ways{widened, widened}));
  EXPECT_TRUE(describe_bf16_products().starts_with("bf16 products widened (as asked for"))
      << describe_bf16_products();
}

}  // namespace
}  // namespace expedite::kernels
