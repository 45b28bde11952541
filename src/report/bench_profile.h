// What `bench train --profile` shows: the time of each part of a step and of each kernel.
#pragma once

#include "lab/bench/train.h"
#include "report/table.h"

namespace horner {

Table parts_table(const BenchTrainReport&);                  // a row per mixer and D, ms
Table kernels_table(const BenchTrainReport&, size_t count);  // the `count` longest of each row
std::string parts_picture(const BenchTrainReport&);          // an SVG file: bars; empty: no profile

}  // namespace horner
