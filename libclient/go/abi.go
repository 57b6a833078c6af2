// SPDX-License-Identifier: Apache-2.0

package idclient

import "unsafe"

// The layout of a ring's memory, as docs/shm-abi.md specifies it. Fields that change are read and
// written with sync/atomic only; its operations are sequentially consistent, which includes every
// order that the protocol asks for.

const (
	tableMagic     = 0x454c424154444449 // "IDDTABLE"
	abiMajor       = 1
	abiMinor       = 5
	abiVersion     = abiMajor<<16 | abiMinor
	slotCount      = 16
	tableBytes     = 4096
	pageBytes      = 4096
	slotsOffset    = 512
	blockBytes     = 128 // of the stride of slots, cursors and lanes
	maxTagBytes    = 128
	maxLanes       = 8192
	maxLimit       = 1<<63 - 1 // largest limit; ids are below it
	closingStep    = 1 << 62   // what closing adds to a cursor
	noMark         = ^uint64(0)
	maxClaim       = 1 << 32 // the largest n of one add
	stateActive    = 1
	stateDrained   = 2
	stateRetired   = 3
	stateSpoiled   = 4 // quarantined
	modeSegment    = 1
	modeSnowflake  = 2
	orderHost      = 1
	orderCPU       = 2
	clockClaimer   = 1
	clockDaemon    = 2
	conditionDrain = 3
)

// tableHeader is written once, before the table is passed on.
type tableHeader struct {
	magic        uint64
	abiVersion   uint32 // atomic
	tableBytes   uint32
	cursorsBytes uint32
	slotCount    uint32
	slotsOffset  uint32
	slotStride   uint32
	cursorStride uint32
	laneCount    uint32
	laneStride   uint32
	mode         uint32
	order        uint32
	tagBytes     uint32
	ringID       uint64
	epochMs      int64
	unitMs       uint32
	clock        uint32
	maxAhead     uint64
	_            [5]uint64
	tag          [maxTagBytes]byte
}

type ringLive struct {
	headSegment  uint64
	tailSegment  uint64
	state        uint32
	publications uint32
	frontier     uint64
	laneBlock    uint64
	_            [27]uint64
}

type slotDescriptor struct {
	segment      uint64
	base         uint64
	limit        uint64
	refillMark   uint64
	workerBits   uint64
	sequenceBits uint32
	timeShift    uint32
	endedSegment uint64
	endedAt      uint64
	_            [8]uint64
}

type cursor struct {
	next uint64
	_    [15]uint64
}

type ringStats struct {
	version            uint64
	writtenAtNs        uint64
	claimedBefore      uint64
	countedFrom        uint64
	leases             uint64
	fallbacks          uint64
	step               uint64
	outageToleranceS   uint64
	maxPrefetch        uint64
	reckonedPer1000s   uint64
	quarantinedUntilNs uint64
	condition          uint32
	_                  uint32
	_                  [20]uint64
}

type table struct {
	header tableHeader
	live   ringLive
	slots  [slotCount]slotDescriptor
	stats  ringStats
	_      [160]uint64
}

type cursors struct {
	slots [slotCount]cursor
	_     [256]uint64
}

// A size that differs does not compile. abi_test.go checks the offsets.
var (
	_ [256]byte        = [unsafe.Sizeof(tableHeader{})]byte{}
	_ [256]byte        = [unsafe.Sizeof(ringLive{})]byte{}
	_ [blockBytes]byte = [unsafe.Sizeof(slotDescriptor{})]byte{}
	_ [blockBytes]byte = [unsafe.Sizeof(cursor{})]byte{}
	_ [256]byte        = [unsafe.Sizeof(ringStats{})]byte{}
	_ [tableBytes]byte = [unsafe.Sizeof(table{})]byte{}
	_ [pageBytes]byte  = [unsafe.Sizeof(cursors{})]byte{}
)
