// The pictures of docs/concepts.md.
#pragma once

#include "lab/concepts/concepts.h"
#include "report/svg.h"

namespace horner {

Chart series_chart();                                // e^x and its series of order 0, 1, 2, 4
std::string forms_picture();                         // which weights each form computes, and how
Chart capacity_chart(const std::vector<Capacity>&);  // pairs that a state holds

struct ConceptPicture {
  std::string name, picture;
};
std::vector<ConceptPicture> concept_pictures(const std::vector<Capacity>&);

}  // namespace horner
