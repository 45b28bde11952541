// Every head of a trained model as a page: verdict, grids of layers and heads, the most telling heads, which orders suffice.
#pragma once

#include "lab/explain/model.h"
#include "report/explain_page.h"
#include "report/html.h"

namespace horner {

std::string model_verdict(const ModelExplanation&);
std::vector<NamedPicture> model_pictures(const ModelExplanation&);
Page model_page(const ModelExplanation&);  // without its origin

}  // namespace horner
