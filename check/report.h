// SPDX-License-Identifier: Apache-2.0
// Makes what rank 0 prints: a table and sentences for people, or JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "check/diagnosis.h"
#include "check/measurement.h"

namespace nezha::check {

// Returns the table, the findings and the verdict. The text ends in a newline.
std::string text_report(const Evidence& evidence, const std::vector<Finding>& findings);

// Returns one object on one line:
//   {"program","version","well","measured",
//    "ranks":[{"rank","host","rails":[{"rail","interface","address","subnet","mtu","error"}]}],
//    "connections":[{"rail","from","to","outcome","detail"}],
//    "paths":[{"rail","from","to","round_trip_us","gbps_there","gbps_back",
//              "packet_there","packet_back","error"}],
//    "findings":[{"kind","rail","ranks","text"}]}
// "measured" is false if no way between two hosts was measured. What was not measured is null. A
// path is from the lower rank to the higher one.
std::string json_report(const Evidence& evidence, const std::vector<Finding>& findings);

// Returns "all is well", that nothing was measured, or how many faults there are.
std::string verdict(const Evidence& evidence, const std::vector<Finding>& findings);

}  // namespace nezha::check
