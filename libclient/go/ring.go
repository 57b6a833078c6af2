// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"runtime"
	"sync/atomic"
)

const (
	maxAdvances = slotCount + 1
	maxEndLooks = 2000 // while the daemon is between D1 and D4 of a drain
)

// ring is what the daemon granted for a tag: a ring in memory or, with id 0, none, so that every
// claim is a request.
type ring struct {
	id     uint64
	memory *mapping // nil if id is 0
	mode   Mode
	order  Order
	refill []byte // the REFILL frame, made beforehand
	timed  *snowflake
}

// claimPoint says where claims add: a segment of a ring, or a private cursor that refuses every
// claim (a dry point). It does not change; a new one takes its place.
//
// A claimer that has a point knows that its segment was published (C0).
type claimPoint struct {
	cursor  *cursor
	slot    *slotDescriptor
	segment uint64 // of a dry point: the newest one that is known to be exhausted
	memory  *mapping
	ring    *ring // nil: a block, or a tag that was never attached
	kind    pointKind
}

type pointKind uint8

const (
	pointOpen pointKind = iota
	pointDry
	pointClosed // dry, and the tag was closed
)

// claimView is the point of all goroutines that claim from one ring.
type claimView = atomic.Pointer[claimPoint]

// noSlot and noCursor refuse every claim: no id is below the limit 0.
var (
	noSlot   slotDescriptor
	noCursor cursor
)

func dryPoint(r *ring, segment uint64) *claimPoint {
	p := &claimPoint{cursor: &noCursor, slot: &noSlot, segment: segment, ring: r, kind: pointDry}
	if r != nil {
		p.memory = r.memory
	}
	return p
}

// state is what the claimer should do with the ring. Precondition: the ring has memory.
func (r *ring) state() uint32 {
	state := atomic.LoadUint32(&r.memory.table.live.state) // S2, pairs with S1
	runtime.KeepAlive(r.memory)
	if state < stateActive || state > stateSpoiled {
		return stateRetired
	}
	return state
}

// accept decides which of the ids [first, first+n), which the caller has added to the cursor (C1),
// it may keep. isMarked: they cover the refill mark.
func (p *claimPoint) accept(first, n uint64) (ids Range, isMarked bool) {
	limit := atomic.LoadUint64(&p.slot.limit)     // C2, pairs with P4
	base := atomic.LoadUint64(&p.slot.base)       // C3
	mark := atomic.LoadUint64(&p.slot.refillMark) // C4
	segment := atomic.LoadUint64(&p.slot.segment) // C5
	if first < base || first >= limit {
		return Range{}, false
	}
	count := minOf(n, limit-first)
	if segment != p.segment {
		return p.keep(first, count), false
	}
	return Range{first, count}, mark >= first && mark-first < count
}

// keep returns the ids of a claim that the withdrawal of its segment has overtaken.
func (p *claimPoint) keep(first, count uint64) Range {
	for i := 0; i < maxEndLooks; i++ {
		if atomic.LoadUint64(&p.slot.segment) != 0 { // C5: recycled
			return Range{}
		}
		if atomic.LoadUint64(&p.slot.endedSegment) != p.segment { // C6, pairs with D4
			continue
		}
		end := atomic.LoadUint64(&p.slot.endedAt)                 // C7, pairs with D3
		if atomic.LoadUint64(&p.slot.endedSegment) != p.segment { // C8
			return Range{}
		}
		if first >= end {
			return Range{}
		}
		return Range{first, minOf(count, end-first)}
	}
	return Range{}
}

// try claims up to n ids at the point, unless it sees beforehand that there are none.
func (p *claimPoint) try(n uint64) (ids Range, isMarked bool) {
	if p.kind != pointOpen {
		return Range{}, false
	}
	if n > 1 && atomic.LoadUint64(&p.slot.segment) != p.segment { // C0
		return Range{}, false
	}
	if atomic.LoadUint64(&p.cursor.next) >= atomic.LoadUint64(&p.slot.limit) { // L1, C2
		return Range{}, false
	}
	first := atomic.AddUint64(&p.cursor.next, n) - n // C1
	return p.accept(first, n)
}

// next returns the point of the first segment that has ids, or a dry point.
func (p *claimPoint) next() *claimPoint {
	r := p.ring
	live, slots, all := &p.memory.table.live, &p.memory.table.slots, &p.memory.cursors.slots
	tail := atomic.LoadUint64(&live.tailSegment) // C0, pairs with P6
	s := atomic.LoadUint64(&live.headSegment)    // H2, pairs with H1
	if s < 1 {
		s = 1
	}
	if s < p.segment {
		s = p.segment
	}
	if tail > slotCount-1 && s < tail-(slotCount-1) {
		s = tail - (slotCount - 1)
	}
	for ; s <= tail; s++ {
		slot, cursor := &slots[s%slotCount], &all[s%slotCount]
		if atomic.LoadUint64(&slot.segment) != s { // C0, pairs with P5
			continue
		}
		if atomic.LoadUint64(&cursor.next) < atomic.LoadUint64(&slot.limit) { // L1, C2
			return &claimPoint{cursor: cursor, slot: slot, segment: s, memory: p.memory, ring: r}
		}
	}
	if p.kind != pointOpen {
		return p
	}
	return dryPoint(r, p.segment)
}

// claimAt claims up to n ids of the ring that the view's point is of. No ids: the ring is dry, or
// the view has no ring.
func claimAt(view *claimView, n uint64) (ids Range, isMarked bool) {
	if n > maxClaim {
		n = maxClaim
	}
	for i := 0; i < maxAdvances; i++ {
		p := view.Load()
		if p.memory == nil || p.kind == pointClosed {
			return Range{}, false
		}
		ids, isMarked = p.try(n)
		if ids.Count != 0 {
			runtime.KeepAlive(p.memory)
			return ids, isMarked
		}
		next := p.next()
		runtime.KeepAlive(p.memory)
		// If another goroutine was faster, the view has its point: at least as new a segment.
		if next == p || view.CompareAndSwap(p, next) && next.kind != pointOpen {
			return Range{}, false
		}
	}
	return Range{}, false
}

func minOf(a, b uint64) uint64 {
	if a < b {
		return a
	}
	return b
}
