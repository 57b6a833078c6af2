// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"
)

// The frames of idd's socket, as docs/socket-protocol.md specifies them. A message from the client
// is one frame; one from the daemon has one or more.

const (
	frameMagic      = 0x31444449 // "IDD1"
	protocolVersion = 1
	headerBytes     = 24
	maxFrameBytes   = 16384
	maxReasonBytes  = 1024
	maxTimeoutMs    = 3_600_000
	tagNameBytes    = 136 // u16 bytes; char text[128]; u8 reserved[6]

	frameHello  = 1
	frameAttach = 2
	frameClaim  = 3
	frameRefill = 4
	frameError  = 6
	replyBit    = 0x8000
)

// native is the host's byte order: the socket never leaves the host.
var native = func() binary.ByteOrder {
	one := uint16(1)
	if *(*byte)(unsafe.Pointer(&one)) == 1 {
		return binary.LittleEndian
	}
	return binary.BigEndian
}()

// newFrame returns a frame with an empty payload, and the payload.
func newFrame(kind uint16, id uint64, payloadBytes int) (frame, payload []byte) {
	frame = make([]byte, headerBytes+payloadBytes)
	native.PutUint32(frame[0:], frameMagic)
	native.PutUint16(frame[4:], protocolVersion)
	native.PutUint16(frame[6:], kind)
	native.PutUint32(frame[8:], uint32(len(frame)))
	native.PutUint64(frame[16:], id)
	return frame, frame[headerBytes:]
}

func putTag(payload []byte, tag string) {
	native.PutUint16(payload[0:], uint16(len(tag)))
	copy(payload[2:2+maxTagBytes], tag)
}

func helloFrame(id uint64) []byte {
	frame, payload := newFrame(frameHello, id, 40)
	native.PutUint32(payload[0:], abiVersion)
	copy(payload[8:8+31], Version)
	return frame
}

func attachFrame(id uint64, tag string, timeoutMs uint32) []byte {
	frame, payload := newFrame(frameAttach, id, tagNameBytes+8)
	putTag(payload, tag)
	native.PutUint32(payload[tagNameBytes:], timeoutMs)
	return frame
}

func claimFrame(id uint64, tag string, ringID, count uint64, timeoutMs uint32) []byte {
	frame, payload := newFrame(frameClaim, id, tagNameBytes+24)
	putTag(payload, tag)
	native.PutUint64(payload[tagNameBytes:], ringID)
	native.PutUint64(payload[tagNameBytes+8:], count)
	native.PutUint32(payload[tagNameBytes+16:], timeoutMs)
	return frame
}

func refillFrame(tag string, ringID uint64) []byte {
	frame, payload := newFrame(frameRefill, 0, tagNameBytes+8)
	putTag(payload, tag)
	native.PutUint64(payload[tagNameBytes:], ringID)
	return frame
}

type frame struct {
	kind    uint16
	id      uint64
	payload []byte
}

// takeFrame parses the first frame of a message and returns the rest of the message.
func takeFrame(message []byte) (f frame, rest []byte, err error) {
	if len(message) < headerBytes {
		return f, nil, newError(StatusInvalid, "idd sent a frame that is too short")
	}
	if native.Uint32(message) != frameMagic {
		return f, nil, newError(StatusInvalid, "idd sent a frame with a wrong magic number")
	}
	if version := native.Uint16(message[4:]); version != protocolVersion {
		return f, nil, newError(StatusIncompatible, fmt.Sprintf(
			"idd speaks version %d of the socket protocol, this client version %d", version,
			protocolVersion))
	}
	bytes := native.Uint32(message[8:])
	if bytes < headerBytes || bytes > uint32(len(message)) || native.Uint32(message[12:]) != 0 {
		return f, nil, newError(StatusInvalid, "idd sent a frame with a wrong length")
	}
	f.kind = native.Uint16(message[6:])
	f.id = native.Uint64(message[16:])
	f.payload = append([]byte(nil), message[headerBytes:bytes]...)
	return f, message[bytes:], nil
}

// splitReply returns the fixed part of a reply and the reason after it.
func splitReply(f frame, kind uint16, fixedBytes int) (fixed []byte, reason string, err error) {
	if f.kind != kind|replyBit {
		return nil, "", newError(StatusIncompatible, "idd answered with a frame of another type")
	}
	if len(f.payload) < fixedBytes || len(f.payload) > fixedBytes+maxReasonBytes {
		return nil, "", newError(StatusIncompatible, "idd answered with a frame of a wrong size")
	}
	return f.payload[:fixedBytes], string(f.payload[fixedBytes:]), nil
}

// checkHello returns the error that a reply to HELLO stands for.
func checkHello(f frame) error {
	fixed, reason, err := splitReply(f, frameHello, 48)
	if err != nil {
		return err
	}
	if status := native.Uint32(fixed); status != 0 {
		return errorFromReply(status, reason)
	}
	if version := native.Uint32(fixed[4:]); version>>16 != abiMajor {
		return newError(StatusIncompatible, versionMessage(version))
	}
	return nil
}

func versionMessage(version uint32) string {
	return fmt.Sprintf("idd has ABI version %d.%d, this client %d.%d", version>>16, version&0xffff,
		abiMajor, abiMinor)
}

type attachReply struct {
	ringID       uint64
	tableBytes   uint32
	cursorsBytes uint32
	reason       string // without a ring: the tag's mode
}

func parseAttach(f frame) (attachReply, error) {
	fixed, reason, err := splitReply(f, frameAttach, 24)
	if err != nil {
		return attachReply{}, err
	}
	if status := native.Uint32(fixed); status != 0 {
		return attachReply{}, errorFromReply(status, reason)
	}
	return attachReply{
		ringID:       native.Uint64(fixed[8:]),
		tableBytes:   native.Uint32(fixed[16:]),
		cursorsBytes: native.Uint32(fixed[20:]),
		reason:       reason,
	}, nil
}

type claimReply struct {
	attachAgain bool
	ids         Range
}

// parseClaim returns the answer to a CLAIM for `asked` ids. isFinal: the daemon refuses, and asking
// again would not help.
func parseClaim(f frame, asked uint64) (reply claimReply, isFinal bool, err error) {
	fixed, reason, err := splitReply(f, frameClaim, 24)
	if err != nil {
		return reply, false, err
	}
	if status := native.Uint32(fixed); status != 0 {
		return reply, native.Uint16(fixed[6:]) != 0, errorFromReply(status, reason)
	}
	reply.attachAgain = native.Uint16(fixed[4:]) != 0
	reply.ids = Range{First: native.Uint64(fixed[8:]), Count: native.Uint64(fixed[16:])}
	r := reply.ids
	if r.Count < 1 || r.Count > asked || r.First >= maxLimit || r.Count > maxLimit-r.First {
		return reply, false, newError(StatusIncompatible, "idd granted a range that was not asked for")
	}
	return reply, false, nil
}

// parseError returns the error in an ERROR frame.
func parseError(f frame) *Error {
	fixed, reason, err := splitReply(f, frameError, 8)
	if err != nil {
		return newError(StatusInvalid, "idd refused a frame")
	}
	return errorFromReply(native.Uint32(fixed), reason)
}

// checkTagName refuses what would make the daemon close the connection. The daemon refuses some
// more characters, which join, hide or reverse text.
func checkTagName(tag string) error {
	switch {
	case tag == "":
		return newError(StatusInvalid, "a tag needs a name of 1 to 128 bytes")
	case len(tag) > maxTagBytes:
		return newError(StatusInvalid,
			fmt.Sprintf("the tag's name has %d bytes, at most 128 are allowed", len(tag)))
	case tag[0] == ' ' || tag[len(tag)-1] == ' ':
		return newError(StatusInvalid, "a tag's name must not begin or end with a space")
	case !utf8.ValidString(tag):
		return newError(StatusInvalid, "the tag's name is not valid UTF-8")
	case strings.IndexFunc(tag, unicode.IsControl) >= 0:
		return newError(StatusInvalid, "the tag's name contains a control character")
	case strings.IndexFunc(tag, isDeceptive) >= 0:
		return newError(StatusInvalid,
			"the tag's name contains a character that looks like another one or is invisible")
	}
	return nil
}

// isDeceptive reports whether r is a space other than U+0020, or joins, hides or reverses text.
func isDeceptive(r rune) bool {
	switch r {
	case 0xa0, 0xad, 0x61c, 0x1680, 0x3000, 0xfeff:
		return true
	}
	return r >= 0x2000 && r <= 0x200f || r >= 0x2028 && r <= 0x202f || r >= 0x205f && r <= 0x206f
}
