// One mixer as a page: verdict, equation, state against a cache, map, forgetting, matrices, orders.
#pragma once

#include "lab/explain/explain.h"
#include "report/html.h"

namespace horner {

struct NamedPicture {
  std::string name, picture;
};

std::string explain_verdict(const Explanation&);
std::vector<NamedPicture>
explain_pictures(const Explanation&);   // state, map, eigenvalues, orders, ..
Page explain_page(const Explanation&);  // without its origin

}  // namespace horner
