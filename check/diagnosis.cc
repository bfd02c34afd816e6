// SPDX-License-Identifier: Apache-2.0
#include "check/diagnosis.h"

#include "check/diagnose_connects.h"
#include "check/diagnose_ends.h"
#include "check/diagnose_paths.h"

namespace nezha::check {

std::vector<Finding> diagnose(const Evidence& evidence) {
  std::vector<Finding> findings = diagnose_ends(evidence);
  for (const auto& part : {diagnose_connects(evidence), diagnose_paths(evidence)}) {
    findings.insert(findings.end(), part.begin(), part.end());
  }
  return findings;
}

}  // namespace nezha::check
