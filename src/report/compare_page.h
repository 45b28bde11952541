// A comparison as a person sees it: page, console table, CSV. Everything from compare.json alone, so
// that `horner report` makes the same page again.
#pragma once

#include "core/json.h"
#include "report/explain_page.h"
#include "report/html.h"
#include "report/table.h"

namespace horner {

Page compare_page(const Json& compare);  // without its origin
std::vector<NamedPicture> compare_pictures(const Json& compare);
Table compare_table(const Json& compare);
std::string compare_csv(const Json& compare);  // one line a run

}  // namespace horner
