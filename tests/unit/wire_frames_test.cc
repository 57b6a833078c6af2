// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "idd/wire/frames.h"

namespace idd::wire {
namespace {

using Bytes = std::vector<std::byte>;

Bytes Hello() { return BuildRequest(FrameType::kHello, 42, HelloRequest{.abi_version = 7}); }

// Overwrites part of a frame.
template <typename T>
Bytes With(Bytes frame, std::size_t offset, T value) {
  std::memcpy(frame.data() + offset, &value, sizeof(value));
  return frame;
}

TEST(TagNameTest, AcceptsPrintableUtf8OfOneTo128Bytes) {
  for (const std::string& tag :
       {std::string("a"), std::string("orders.eu-west"), std::string("a b"), std::string("~!@#$%"),
        std::string("bestellungen_\xc3\xbc"), std::string("\xe8\xae\xa2\xe5\x8d\x95"),
        std::string("\xf0\x9f\x98\x80"), std::string(kMaxTagBytes, 'x')}) {
    EXPECT_TRUE(CheckTagName(tag).ok()) << tag;
  }
}

TEST(TagNameTest, RefusesWrongLengths) {
  EXPECT_EQ(CheckTagName("").code(), Code::kInvalid);
  EXPECT_EQ(CheckTagName(std::string(kMaxTagBytes + 1, 'x')).code(), Code::kInvalid);
}

TEST(TagNameTest, RefusesSpacesAtTheEndsAndControlCharacters) {
  for (const std::string& tag :
       {std::string(" a"), std::string("a "), std::string(" "), std::string("a\nb"),
        std::string("a\tb"), std::string("a\0b", 3), std::string("\x1b[2J"), std::string("a\x7f"),
        std::string("a\xc2\x85"
                    "b"),
        std::string("\xc2\x80"), std::string("\xc2\x9f")}) {
    EXPECT_EQ(CheckTagName(tag).code(), Code::kInvalid) << tag;
  }
}

TEST(TagNameTest, RefusesInvisibleAndConfusableNames) {
  for (const char* text : {"\xc2\xa0", "\xc2\xad", "\xd8\x9c", "\xe2\x80\x80", "\xe2\x80\x8b",
                           "\xe2\x80\x8f", "\xe2\x80\xa8", "\xe2\x80\xae", "\xe2\x81\x9f",
                           "\xe2\x81\xa6", "\xe3\x80\x80", "\xef\xbb\xbf"}) {
    EXPECT_EQ(CheckTagName(std::string("a") + text + "b").code(), Code::kInvalid) << text;
    EXPECT_EQ(CheckTagName(std::string("a") + text).code(), Code::kInvalid) << text;
  }
  for (const char* text : {"\xc2\xa1", "\xe2\x80\x90", "\xe2\x80\xb0", "\xe3\x80\x81"}) {
    EXPECT_TRUE(CheckTagName(std::string("a") + text).ok()) << text;
  }
}

TEST(TagNameTest, RefusesMalformedUtf8) {
  for (const std::string& tag :
       {std::string("\x80"), std::string("\xff"), std::string("a\xc3"), std::string("\xc0\xaf"),
        std::string("\xc1\xbf"), std::string("\xe0\x80\xaf"), std::string("\xed\xa0\x80"),
        std::string("\xf0\x80\x80\xaf"), std::string("\xf4\x90\x80\x80"),
        std::string("\xf5\x80\x80\x80"), std::string("\xe2\x82"), std::string("\xe2\x28\xa1"),
        std::string("\xf0\x9f\x98")}) {
    EXPECT_EQ(CheckTagName(tag).code(), Code::kInvalid);
  }
}

TEST(TagNameTest, PacksAndUnpacksTheSameName) {
  for (const std::string& tag : {std::string("orders"), std::string(kMaxTagBytes, 'x')}) {
    const TagName packed = PackTag(tag);
    const Result<std::string_view> unpacked = UnpackTag(packed);
    ASSERT_TRUE(unpacked.ok()) << unpacked.status().message();
    EXPECT_EQ(unpacked.value(), tag);
  }
}

TEST(TagNameTest, UnpackRefusesWrongLengthsReservedBytesAndBadNames) {
  TagName tag = PackTag("orders");
  tag.bytes = 0;
  EXPECT_EQ(UnpackTag(tag).status().code(), Code::kInvalid);
  for (const int bytes : {129, 136, 65535}) {
    tag.bytes = static_cast<std::uint16_t>(bytes);
    EXPECT_EQ(UnpackTag(tag).status().code(), Code::kInvalid) << bytes;
  }
  for (std::size_t i = 0; i < sizeof(tag.reserved); ++i) {
    tag = PackTag("orders");
    tag.reserved[i] = 1;
    EXPECT_EQ(UnpackTag(tag).status().code(), Code::kInvalid) << i;
  }
  tag = PackTag("orders");
  tag.text[2] = '\n';
  EXPECT_EQ(UnpackTag(tag).status().code(), Code::kInvalid);
  tag = PackTag("orders");
  tag.bytes = 7;  // a zero byte of the padding would be part of the name
  EXPECT_EQ(UnpackTag(tag).status().code(), Code::kInvalid);
}

TEST(TagNameDeathTest, PackingABadNameEndsTheProcess) {
  EXPECT_DEATH(static_cast<void>(PackTag("")), "check failed");
  EXPECT_DEATH(static_cast<void>(PackTag(std::string(129, 'x'))), "check failed");
}

TEST(FrameTest, BuiltFrameParsesToTheSame) {
  const Bytes message = Hello();
  const Result<FrameView> frame = ParseFrame(message);
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  EXPECT_EQ(frame.value().header.type, static_cast<std::uint16_t>(FrameType::kHello));
  EXPECT_EQ(frame.value().header.request_id, 42U);
  EXPECT_EQ(frame.value().header.frame_bytes, message.size());
  const Result<HelloRequest> payload = ParsePayload<HelloRequest>(frame.value());
  ASSERT_TRUE(payload.ok());
  EXPECT_EQ(payload.value().abi_version, 7U);
}

TEST(FrameTest, ReplyCarriesTheBitAndTheReason) {
  const Bytes message = BuildReply(FrameType::kClaim, 9, ClaimReply{.status = 5}, "no ids");
  const Result<FrameView> frame = ParseFrame(message);
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(frame.value().header.type, static_cast<std::uint16_t>(FrameType::kClaim) | kReplyBit);
  std::string reason;
  const Result<ClaimReply> reply =
      ParseReply<ClaimReply>(frame.value(), FrameType::kClaim, &reason);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().status, 5U);
  EXPECT_EQ(reason, "no ids");
}

Code ParsedAsClaimReply(FrameType type, bool is_reply, std::size_t bytes = sizeof(ClaimReply)) {
  const Bytes message = BuildFrame(type, is_reply, 1, Bytes(bytes));
  std::string reason;
  return ParseReply<ClaimReply>(ParseFrame(message).value(), FrameType::kClaim, &reason)
      .status()
      .code();
}

TEST(FrameTest, ReplyToAnotherRequestIsRefused) {
  EXPECT_EQ(ParsedAsClaimReply(FrameType::kClaim, true), Code::kOk);
  EXPECT_EQ(ParsedAsClaimReply(FrameType::kAttach, true), Code::kInvalid);
  EXPECT_EQ(ParsedAsClaimReply(FrameType::kClaim, false), Code::kInvalid);
}

TEST(FrameTest, LongReasonIsCut) {
  const Bytes message =
      BuildReply(FrameType::kError, 0, StatusReply{.status = 1}, std::string(100'000, 'x'));
  const Result<FrameView> frame = ParseFrame(message);
  ASSERT_TRUE(frame.ok());
  std::string reason;
  ASSERT_TRUE(ParseReply<StatusReply>(frame.value(), FrameType::kError, &reason).ok());
  EXPECT_EQ(reason.size(), kMaxReasonBytes);
}

TEST(FrameTest, ReasonIsEmptyWhenThereIsNone) {
  const Bytes message = BuildReply(FrameType::kClaim, 9, ClaimReply{});
  std::string reason = "left over";
  ASSERT_TRUE(ParseReply<ClaimReply>(ParseFrame(message).value(), FrameType::kClaim, &reason).ok());
  EXPECT_EQ(reason, "");
}

TEST(FrameTest, RefusesAMessageThatIsTooShort) {
  const Bytes message = Hello();
  for (std::size_t bytes = 0; bytes < message.size(); ++bytes) {
    EXPECT_EQ(ParseFrame(std::span(message).first(bytes)).status().code(), Code::kInvalid) << bytes;
  }
}

TEST(FrameTest, RefusesAMessageThatIsTooLong) {
  Bytes message = Hello();
  message.push_back(std::byte{0});
  EXPECT_EQ(ParseFrame(message).status().code(), Code::kInvalid) << "more than the header says";
  Bytes huge(kMaxFrameBytes + 1);
  const FrameHeader header{.frame_bytes = static_cast<std::uint32_t>(huge.size())};
  std::memcpy(huge.data(), &header, sizeof(header));
  EXPECT_EQ(ParseFrame(huge).status().code(), Code::kInvalid);
  huge.resize(kMaxFrameBytes);
  EXPECT_TRUE(ParseFrame(With(huge, offsetof(FrameHeader, frame_bytes),
                              static_cast<std::uint32_t>(kMaxFrameBytes)))
                  .ok())
      << "the longest frame";
}

TEST(FrameTest, LeadingFrameIsFoundOrAllIsTaken) {
  std::vector<std::byte> two = Hello();
  const std::size_t first = two.size();
  two.resize(first + 40);
  EXPECT_EQ(LeadingFrameBytes(two), first);
  EXPECT_EQ(LeadingFrameBytes(std::span(two).first(first)), first);
  EXPECT_EQ(LeadingFrameBytes(std::span(two).first(first - 1)), first - 1) << "cut off";
  EXPECT_EQ(LeadingFrameBytes(std::span(two).first(sizeof(FrameHeader) - 1)),
            sizeof(FrameHeader) - 1);
  EXPECT_EQ(LeadingFrameBytes({}), 0U);
  for (const std::uint32_t lie :
       {0U, 23U, static_cast<std::uint32_t>(two.size() + 1), 0xffffffffU}) {
    EXPECT_EQ(LeadingFrameBytes(With(two, offsetof(FrameHeader, frame_bytes), lie)), two.size());
  }
}

TEST(FrameTest, RefusesAWrongMagicLengthOrReservedField) {
  const auto code = [](std::size_t offset, std::uint32_t value) {
    return ParseFrame(With(Hello(), offset, value)).status().code();
  };
  EXPECT_EQ(code(offsetof(FrameHeader, magic), kFrameMagic + 1), Code::kInvalid);
  EXPECT_EQ(code(offsetof(FrameHeader, frame_bytes), 0), Code::kInvalid);
  EXPECT_EQ(code(offsetof(FrameHeader, frame_bytes), 0xffffffff), Code::kInvalid);
  EXPECT_EQ(code(offsetof(FrameHeader, reserved), 1), Code::kInvalid);
}

TEST(FrameTest, RefusesAnotherVersionAsIncompatibleAndNamesBoth) {
  for (const int version : {0, 2, 65535}) {
    const Status status = ParseFrame(With(Hello(), offsetof(FrameHeader, version),
                                          static_cast<std::uint16_t>(version)))
                              .status();
    EXPECT_EQ(status.code(), Code::kIncompatible);
    EXPECT_NE(status.message().find(std::to_string(version)), std::string::npos);
    EXPECT_NE(status.message().find("speaks 1"), std::string::npos) << status.message();
  }
}

// A request's payload must fit exactly.
template <typename T>
void ExpectExactPayload(FrameType type) {
  const Bytes exact(sizeof(T));
  const auto parsed = [type](const Bytes& payload) {
    const Bytes message = BuildFrame(type, false, 1, payload);
    return ParsePayload<T>(ParseFrame(message).value()).status().code();
  };
  EXPECT_EQ(parsed(exact), Code::kOk);
  EXPECT_EQ(parsed(Bytes(sizeof(T) - 1)), Code::kInvalid);
  EXPECT_EQ(parsed(Bytes(sizeof(T) + 1)), Code::kInvalid);
  EXPECT_EQ(parsed({}), Code::kInvalid);
  EXPECT_EQ(parsed(Bytes(kMaxFrameBytes - sizeof(FrameHeader))), Code::kInvalid);
}

TEST(FrameTest, RequestPayloadOfAnotherSizeIsRefused) {
  ExpectExactPayload<HelloRequest>(FrameType::kHello);
  ExpectExactPayload<AttachRequest>(FrameType::kAttach);
  ExpectExactPayload<ClaimRequest>(FrameType::kClaim);
  ExpectExactPayload<RefillNotice>(FrameType::kRefill);
}

TEST(FrameTest, ReplyPayloadTooShortOrWithTooLongAReasonIsRefused) {
  const auto parsed = [](std::size_t bytes) {
    return ParsedAsClaimReply(FrameType::kClaim, true, bytes);
  };
  EXPECT_EQ(parsed(sizeof(ClaimReply) - 1), Code::kInvalid);
  EXPECT_EQ(parsed(sizeof(ClaimReply)), Code::kOk);
  EXPECT_EQ(parsed(sizeof(ClaimReply) + kMaxReasonBytes), Code::kOk);
  EXPECT_EQ(parsed(sizeof(ClaimReply) + kMaxReasonBytes + 1), Code::kInvalid);
}

TEST(FrameTest, NumbersTravelUnchanged) {
  ClaimRequest request{.tag = PackTag("orders"),
                       .ring_id = std::numeric_limits<std::uint64_t>::max(),
                       .count = 1ULL << 63,
                       .timeout_ms = kMaxTimeoutMs};
  const Bytes message =
      BuildRequest(FrameType::kClaim, std::numeric_limits<std::uint64_t>::max(), request);
  const Result<FrameView> frame = ParseFrame(message);
  const Result<ClaimRequest> parsed = ParsePayload<ClaimRequest>(frame.value());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(std::memcmp(&parsed.value(), &request, sizeof(request)), 0);
  EXPECT_EQ(frame.value().header.request_id, std::numeric_limits<std::uint64_t>::max());
}

TEST(FrameDeathTest, BuildingAFrameThatIsTooLongEndsTheProcess) {
  EXPECT_DEATH(static_cast<void>(BuildFrame(FrameType::kAdmin, false, 1, Bytes(kMaxFrameBytes))),
               "check failed");
}

}  // namespace
}  // namespace idd::wire
