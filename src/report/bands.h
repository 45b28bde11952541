// Numbers beside the bands that a theory puts them in, as pictures.
#pragma once

#include "lab/reproduce/reproduce.h"
#include "report/svg.h"

namespace horner {

// Of a finding whose expectations end in ": in [low, high]": where each number lies in its band, 0 in the middle and +-1 at its
// edges, one picture for each setting ("identity, logit sd 0.6: .."). Bands with one edge are left out. Empty:
// it has other expectations.
std::vector<Bars> band_pictures(const Finding&);

}  // namespace horner
