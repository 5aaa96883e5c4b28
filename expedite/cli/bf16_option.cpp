#include "expedite/cli/bf16_option.h"

#include <string>

#include "expedite/cli/legal_values.h"
#include "expedite/kernels/bf16_products.h"

namespace expedite::cli {

void add_bf16_products_option(CLI::App& command) {
  using kernels::Bf16Products;
  const auto set = [](const std::string& name) {
    for (const Bf16Products products :
         {Bf16Products::automatic, Bf16Products::native, Bf16Products::widened}) {
      if (name == name_of(products)) {
        kernels::set_bf16_products(products);
      }
    }
  };
  one_of(command.add_option_function<std::string>(
             "--bf16-products", set,
             "How bf16 matrices are multiplied: native, with the CPU's bf16 instructions; widened to f32; or "
             "auto, as the CPU does it faster"),
         {"auto", "native", "widened"});
}

}  // namespace expedite::cli
