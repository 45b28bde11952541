// What a claim trains, for its page: the mixers of its arms with their colours and equations, and its task.
#pragma once

#include "lab/reproduce/reproduce.h"

namespace horner {

// The mixer "gla:heads=2" of an arm, the last of its pattern; empty: it is not one of the claim's arms.
std::string arm_mixer(const Reproduction&, const Finding&, const std::string& arm);
int arm_colour(const Reproduction&, const Finding&, const std::string& arm);  // report/palette.h

// HTML: each equation once, with the arms that have it; empty: nothing is trained.
std::string arm_equations(const Reproduction&, const Finding&);
// HTML: the task of the arms, with an example; empty where they have several, or its files are not here.
std::string arm_task(const Reproduction&, const Finding&);

}  // namespace horner
