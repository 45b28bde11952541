// Which layers stay softmax: by rule, or by a plan that measures what each layer costs.
//
//   every=4      layers 3, 7, 11, ..            layers=3,7     those                 "" none
//   plan:kl=0.03     the fewest layers whose plan has at most this KL to the teacher
//   plan:state=2MB   as many as fit into this state after `context` tokens
//
// The planner replaces each layer alone and measures the KL to the teacher. The order of these numbers is the order in which
// layers are kept: the plan with k softmax layers keeps the k that cost most. Plans that were tried are measured whole, because the
// costs of single layers do not add up.
#pragma once

#include <map>
#include <optional>

#include "lab/convert/student.h"
#include "lab/statistics.h"

namespace horner {

struct Keep {
  Kept kept;                    // by rule; what cannot be replaced is kept in any case
  std::optional<double> kl;     // plan:kl
  std::optional<double> state;  // plan:state, bytes
  bool plans() const { return kl || state; }
};

Keep parse_keep(const std::string& text, const ModelOptions& teacher);

Interval interval_from(const Json& json);  // what Interval::json wrote

struct LayerPlan {
  std::string name;  // "plan", "every"
  std::vector<int64_t> kept;
  Interval kl;
  std::vector<double> kl_of_windows;
  int64_t state_bytes = 0;
};

struct Planning {
  int64_t tokens = 0;            // that each number was measured on
  std::vector<double> alone;     // KL when this layer alone is replaced; NaN: it cannot be
  std::vector<int64_t> order;    // layers that can be replaced, the dearest first
  std::vector<LayerPlan> tried;  // by the number of kept layers
  Interval gain;                 // KL of every=4 less that of the plan with as many softmax layers
  size_t chosen = 0;             // of `tried`
  Json json() const;
  static Planning from(const Json& json);  // without kl_of_windows
};

// windows (n,T): what the KL is measured on. context: the length at which states are measured.
class Planner {
 public:
  using Tell = std::function<void(const std::string& what, size_t done, size_t total)>;
  // `replaced`: the teacher with every layer replaced that can be, by `to`.
  Planner(
      Model& teacher,
      Model& replaced,
      const MixerSpec& to,
      const at::Tensor& windows,
      int64_t context
  );
  Planning plan(const Keep& keep, const Tell& tell);

 private:
  void measure_alone(Planning& p, const Tell& tell);
  const LayerPlan& with_count(const Planning& p, size_t count, const Tell& tell);
  size_t count_for(const Keep& keep, const Planning& p, const Tell& tell);
  LayerPlan measured(const std::string& name, std::vector<int64_t> kept);
  std::vector<double> kl_from(int64_t first, const Kept& kept);  // of each window
  int64_t bytes_of(const MixerSpec& spec);

  Model &teacher_, &replaced_;
  const MixerSpec to_;
  const int64_t context_;
  std::vector<at::Tensor> inputs_;        // x before each block, (n,T,D)
  at::Tensor hidden_;                     // what the teacher's head reads, (n,T,D)
  std::map<std::string, int64_t> bytes_;  // of the state of a mixer
  std::map<size_t, LayerPlan> plans_;     // by the number of kept layers
};

}  // namespace horner
