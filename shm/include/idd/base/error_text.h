// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_BASE_ERROR_TEXT_H_
#define IDD_BASE_ERROR_TEXT_H_

#include <string>

namespace idd {

// strerror(3) of an errno value, and for a limit that is reached what to raise.
[[nodiscard]] std::string ErrorText(int error);

}  // namespace idd

#endif  // IDD_BASE_ERROR_TEXT_H_
