// What `theory` measured, as a sentence, pictures and a page.
#pragma once

#include "lab/theory/theory.h"
#include "report/html.h"

namespace horner::theory {

std::string verdict(const Report&);  // how many claims hold, and which do not

struct NamedChart {
  std::string name;  // of its file
  Chart chart;
};
std::vector<NamedChart> charts(const Report&);

Page page(const Report&);  // without its origin

}  // namespace horner::theory
