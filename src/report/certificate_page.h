// A certificate for people: the page, a section of the model card, and the verdict.
#pragma once

#include "lab/convert/certificate.h"
#include "report/explain_page.h"
#include "report/html.h"

namespace horner {

std::string certificate_verdict(const Certificate&);
std::vector<NamedPicture> certificate_pictures(const Certificate&);
Page certificate_page(const Certificate&);  // without its origin

// README.md of the model folder: what the model is, how it is used, what it lost.
std::string model_card(const Certificate&, const std::string& folder);

}  // namespace horner
