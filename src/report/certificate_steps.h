// The training part of a certificate's page: what each step brought.
#pragma once

#include "lab/convert/certificate.h"
#include "report/html.h"

namespace horner {

Chart training_chart(const ConvertStep&);
Cell percent_change(double x);  // of a perplexity to the teacher's
Section steps_section(const Certificate&);

}  // namespace horner
