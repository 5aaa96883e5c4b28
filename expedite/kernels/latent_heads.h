// Keys and values of multi-head latent attention (DeepSeek-AI, 2024, arXiv:2405.04434, section 2.1): each
// head's key is a part of its own and a rotary part that all heads share.
#pragma once

#include "expedite/tensor/view.h"

namespace expedite::kernels {

/// Dn elements of a head's key without position, Dr with, Dv of its value. expanded: [T, heads * (Dn + Dv)],
/// each head's key part, then its value; rope_key: [T, Dr], already turned. key (overwritten): [T, heads *
/// (Dn + Dr)]; value (overwritten): [T, heads * Dv]. One type, f32 or bf16; rows may be strided.
void assemble_heads(ConstTensorView expanded, ConstTensorView rope_key, std::int64_t heads, TensorView key,
                    TensorView value);

/// Gradients the other way: dexpanded and drope_key (both overwritten), the latter the sum over heads, added
/// in fp32 from the first to the last.
void assemble_heads_backward(ConstTensorView dkey, ConstTensorView dvalue, std::int64_t heads,
                             TensorView dexpanded, TensorView drope_key);

}  // namespace expedite::kernels
