// SPDX-License-Identifier: Apache-2.0
//
// idctl doctor: the format of the findings.
#include "doctor/diagnosis.h"

#include <algorithm>
#include <array>

#include "terminal/output.h"

namespace idd::tools {
namespace {

constexpr std::array kOrder = {Health::kProblem, Health::kWarning, Health::kOk};
constexpr std::size_t kStateColumns = 7;
constexpr std::size_t kCheckColumns = 11;
constexpr std::size_t kLead = kStateColumns + 2 + kCheckColumns + 2;
constexpr std::size_t kNarrowest = 20;  // for text beside the lead; else it goes below

Tone ToneOf(Health state) {
  switch (state) {
    case Health::kOk:
      return Tone::kGood;
    case Health::kWarning:
      return Tone::kWarning;
    case Health::kProblem:
      break;
  }
  return Tone::kBad;
}

std::string Padded(std::string_view text, std::size_t columns) {
  std::string padded(text);
  const std::size_t width = WidthInCharacters(text);
  if (width < columns) padded.append(columns - width, ' ');
  return padded;
}

// How many bytes of `text` fit a line of that many characters; breaks at a blank if there is one.
std::size_t LineBytes(std::string_view text, std::size_t columns) {
  const std::size_t fits = FirstCharacters(text, columns).size();
  if (fits == text.size() || text[fits] == ' ') return fits;
  const std::size_t blank = text.rfind(' ', fits);
  return blank == std::string_view::npos || blank == 0 ? fits : blank;
}

// Escaped text after a lead that is already written; further lines are indented to its first.
std::string Wrapped(std::string_view text, std::size_t lead, const Screen& screen) {
  if (screen.columns == 0) return std::string(text) + "\n";
  constexpr std::size_t kLeast = 8;
  const std::size_t columns = std::max(kLeast, screen.columns - std::min(screen.columns, lead));
  std::string lines;
  while (true) {
    const std::size_t bytes = LineBytes(text, columns);
    lines += std::string(text.substr(0, bytes)) + "\n";
    text.remove_prefix(bytes);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) return lines;
    lines += std::string(lead, ' ');
  }
}

std::string Line(const Finding& finding, const Screen& screen) {
  std::string text = EscapeText(finding.found);
  if (!finding.next.empty()) text += "; next: " + EscapeText(finding.next);
  const std::string lead =
      Toned(ToneOf(finding.state), Padded(HealthName(finding.state), kStateColumns), screen) +
      "  " + Padded(EscapeText(finding.check), kCheckColumns);
  if (screen.columns == 0 || screen.columns >= kLead + kNarrowest) {
    return lead + "  " + Wrapped(text, kLead, screen);
  }
  return lead + "\n  " + Wrapped(text, 2, screen);  // no room beside it
}

}  // namespace

const char* HealthName(Health health) noexcept {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarning:
      return "warning";
    case Health::kProblem:
      break;
  }
  return "problem";
}

std::size_t CountOf(const Diagnosis& diagnosis, Health state) {
  return static_cast<std::size_t>(
      std::count_if(diagnosis.findings.begin(), diagnosis.findings.end(),
                    [state](const Finding& finding) { return finding.state == state; }));
}

std::string RenderDiagnosis(const Diagnosis& diagnosis, bool shows_all, const Screen& screen) {
  std::string text;
  for (const Health state : kOrder) {
    if (state == Health::kOk && !shows_all) continue;
    for (const Finding& finding : diagnosis.findings) {
      if (finding.state == state) text += Line(finding, screen);
    }
  }
  for (const std::string& what : diagnosis.left_out) {
    const std::string lead = Padded("not checked", kStateColumns) + "  ";
    text += lead + Wrapped(EscapeText(what), lead.size(), screen);
  }
  const std::size_t problems = CountOf(diagnosis, Health::kProblem);
  const std::string sum = Counted(problems, "problem") + ", " +
                          Counted(CountOf(diagnosis, Health::kWarning), "warning") + ", " +
                          std::to_string(CountOf(diagnosis, Health::kOk)) + " ok";
  const Tone tone = problems == 0 ? Tone::kGood : Tone::kBad;
  return text + Toned(tone, problems == 0 ? "healthy" : "not healthy", screen) + ": " + sum + "\n";
}

JsonDocument DiagnosisJson(const Diagnosis& diagnosis) {
  std::vector<JsonDocument> findings;
  for (const Finding& finding : diagnosis.findings) {
    // A path on this machine may contain any bytes.
    JsonDocument& document = findings.emplace_back();
    document.Set("check", finding.check).Set("state", HealthName(finding.state));
    SetText(document.json(), "found", finding.found);
    SetText(document.json(), "next",
            finding.next.empty() ? std::nullopt : std::optional(finding.next));
  }
  JsonDocument document;
  document.Set("ok", CountOf(diagnosis, Health::kProblem) == 0)
      .Set("findings", findings)
      .Set("left_out", diagnosis.left_out);
  return document;
}

void AddOkUnlessFound(std::vector<Finding>& findings, const std::string& check,
                      const std::string& found) {
  const bool is_found =
      std::any_of(findings.begin(), findings.end(),
                  [&check](const Finding& finding) { return finding.check == check; });
  if (!is_found) findings.push_back({check, Health::kOk, found, ""});
}

std::string ShellWord(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@+,";
  // The command would read a leading hyphen as an option.
  if (word.empty() || word.front() == '-' || EscapeText(word) != word) return "TAG";
  if (word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ListSome(const std::vector<std::string>& items, std::string_view noun) {
  constexpr std::size_t kShown = 3;
  std::string text = Counted(items.size(), noun) + ": ";
  for (std::size_t i = 0; i < std::min(items.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + items[i];
  }
  if (items.size() > kShown) text += " and " + std::to_string(items.size() - kShown) + " more";
  return text;
}

}  // namespace idd::tools
