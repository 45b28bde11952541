// What a student learns from its teacher, in two steps.
//
//   align    mean over replaced layers l of  |m'_l(x_l) - m_l(x_l)|^2 / |m_l(x_l)|^2,  norms over all tokens of a batch
//            x_l: what layer l reads in the teacher, m_l its softmax mixer, m'_l the student's. The layers do not see each
//            other, so one backward trains all of them.
//   distil   mean over tokens of  sum_v q_v (log q_v - log p_v),  q the teacher's probabilities, p the student's
//
// Parameters are new (the teacher has none of this name and shape), copied (of mixers, kept ones too), or the rest (MLPs,
// norms, embedding, head). align trains only mixers that replace others.
#pragma once

#include <map>

#include "lab/convert/convert.h"
#include "lab/convert/student.h"
#include "train/objective.h"

namespace horner {

// The learning rate of each parameter of the student; 0: it is not trained.
using Rates = std::map<std::string, double>;
Rates align_rates(const Model& teacher, const Model& student, const Kept&, const AlignRates&);
Rates distil_rates(const Model& teacher, const Model& student, const DistilRates&);
double highest(const Rates& rates);

// Of a batch of tokens (B,T), the sum over its B T tokens. The teacher is only read.
at::Tensor align_loss(Model& teacher, Model& student, const Kept&, const at::Tensor& tokens);
at::Tensor distil_loss(Model& teacher, Model& student, const at::Tensor& tokens, Context = {});

// A loss as an objective of the trainer: the highest rate is optim.lr, the others are shares of it.
using Loss = std::function<at::Tensor(const at::Tensor& tokens, const Context&)>;
Objective objective_of(const std::shared_ptr<Model>& student, const Rates& rates, const Loss& loss);

}  // namespace horner
