// A comparison as a page.
#pragma once

#include "lab/compare/compare.h"
#include "report/explain_page.h"
#include "report/html.h"

namespace horner {

Page compare_page(const CompareResult&);
std::vector<NamedPicture> compare_pictures(const CompareResult&);

}  // namespace horner
