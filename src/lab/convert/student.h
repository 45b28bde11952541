// The student: the trained model with other mixers in the place of its softmax layers, and its start without training.
//
// Names of tensors decide what is copied: q, k, v, out, norms and MLPs of the teacher are those of the student. A mixer that
// lacks a tensor of the teacher's layer (a bias, a norm of q and k) would be another function even inside its window, so it is
// refused. What is new in a mixer is set by its `calibrate`, from what the layer reads in the teacher.
#pragma once

#include <functional>
#include <vector>

#include "model/model.h"

namespace horner {

using Kept = std::vector<bool>;  // of each layer: whether it stays as it is

// Whether a layer is softmax attention over all past tokens, which can be replaced.
bool is_replaceable(const MixerSpec& layer);

// `to`, with those settings of the layer that its mixer has too and that `to` does not give.
MixerSpec target_spec(const MixerSpec& to, const MixerSpec& layer);

// The settings of a model whose layers are `target_spec`, those that are kept aside. UsageError if the mixer is not causal.
ModelOptions student_options(const ModelOptions& teacher, const MixerSpec& to, const Kept& kept);

// A model of these settings whose tensors are those of the first of `sources` that has them, by name and shape. Tensors are
// shared, not copied. A head that a source does not have is its embedding. UsageError if a tensor of sources.back(), the
// teacher, has no place.
std::shared_ptr<Model> shared_model(
    const ModelOptions& options, const std::vector<const Model*>& sources
);

// Runs the teacher on input (B,T) and calibrates the mixer of each layer of the student that is not kept, on what that layer of
// the teacher reads. `tell` gets the layer.
void calibrate_on(
    Model& teacher,
    Model& student,
    const Kept& kept,
    const at::Tensor& input,
    const std::function<void(int64_t)>& tell
);

// f(layer, x) with what the mixer of each layer reads, x (B,T,D).
void each_mixer_input(
    Model& model,
    const at::Tensor& input,
    const std::function<void(int64_t layer, const at::Tensor& x)>& f
);

// What the heads of a mixer give before they are joined: o (B,T,H,V), for mixers that end in `out`.
at::Tensor heads_of(Mixer& mixer, const at::Tensor& x, int64_t H);

}  // namespace horner
