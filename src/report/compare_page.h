// A comparison as a page. Everything from compare.json alone, so that `horner report` makes the same page
// again.
#pragma once

#include "core/json.h"
#include "report/explain_page.h"
#include "report/html.h"

namespace horner {

Page compare_page(const Json& compare);  // without its origin
std::vector<NamedPicture> compare_pictures(const Json& compare);

}  // namespace horner
