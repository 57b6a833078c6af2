// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	maxTimedRounds = 2 * slotCount
	maxCursorMoves = 100
	clockPause     = time.Millisecond
)

// snowflake claims from a ring of mode snowflake, whose cursors hold numbers,
// time << sequence_bits | sequence.
type snowflake struct {
	view     claimView
	memory   *mapping
	epochMs  int64
	unitMs   int64
	maxAhead uint64
	clock    uint32
	layout   atomic.Pointer[layout]
}

// layout says how a number becomes an id. It is the same in all segments of a ring.
type layout struct {
	workerBits   uint64
	sequenceBits uint32
	timeShift    uint32
}

func (l *layout) idOf(number uint64) uint64 {
	sequence := number & (1<<l.sequenceBits - 1)
	return number>>l.sequenceBits<<l.timeShift | l.workerBits | sequence
}

// oneTime is the part of the numbers that has the time of the first one.
func (l *layout) oneTime(numbers Range) Range {
	end := (numbers.First>>l.sequenceBits + 1) << l.sequenceBits
	return Range{numbers.First, minOf(numbers.Count, end-numbers.First)}
}

// timedClaim is the outcome of a claim. isEarly: the time of `number` is ahead of the clock, and so
// is that of the ids, if there are any.
type timedClaim struct {
	ids     Range
	number  uint64
	isEarly bool
}

func newSnowflake(r *ring) *snowflake {
	h := &r.memory.table.header
	s := &snowflake{memory: r.memory, epochMs: h.epochMs, unitMs: int64(h.unitMs),
		maxAhead: h.maxAhead, clock: h.clock}
	s.view.Store(dryPoint(&ring{id: r.id, memory: r.memory}, 0))
	return s
}

// readLayout returns nil until the ring's first segment was published.
func (s *snowflake) readLayout() *layout {
	if known := s.layout.Load(); known != nil { // U3, pairs with U4
		return known
	}
	if atomic.LoadUint64(&s.memory.table.live.tailSegment) == 0 { // C0, pairs with P6
		return nil
	}
	slot := &s.memory.table.slots[1] // the ring's first segment was published here
	l := &layout{
		workerBits:   atomic.LoadUint64(&slot.workerBits),
		sequenceBits: atomic.LoadUint32(&slot.sequenceBits),
		timeShift:    atomic.LoadUint32(&slot.timeShift),
	}
	if l.timeShift == 0 || l.timeShift > 62 || l.sequenceBits > l.timeShift {
		return nil
	}
	s.layout.Store(l) // U4: goroutines that come here at once store the same values
	return l
}

// bounds returns, in numbers, where the present begins and where the too distant future begins.
func (s *snowflake) bounds(l *layout) (now, frontier uint64) {
	if s.clock == clockDaemon {
		return 0, atomic.LoadUint64(&s.memory.table.live.frontier) // U6, pairs with U5
	}
	t := s.timeNow()
	return t << l.sequenceBits, (t + s.maxAhead + 1) << l.sequenceBits
}

func (s *snowflake) timeNow() uint64 {
	ms := time.Now().UnixMilli() - s.epochMs
	if ms < 0 {
		ms = 0
	}
	return uint64(ms / s.unitMs)
}

// moveWithTime moves the point's cursor up to `now` and returns its value.
func (p *claimPoint) moveWithTime(now uint64) (next, limit uint64) {
	next = atomic.LoadUint64(&p.cursor.next) // U1
	limit = atomic.LoadUint64(&p.slot.limit) // C2, pairs with P4
	base := atomic.LoadUint64(&p.slot.base)  // C3
	target := minOf(now, limit)
	for i := 0; i < maxCursorMoves && base <= next && next < target; i++ {
		if atomic.CompareAndSwapUint64(&p.cursor.next, next, target) { // U2
			return target, limit
		}
		next = atomic.LoadUint64(&p.cursor.next) // U1
	}
	return next, limit
}

// claim claims up to n ids of one unit of time.
func (s *snowflake) claim(n uint64) timedClaim {
	result := s.claimNumbers(n)
	runtime.KeepAlive(s.memory)
	return result
}

func (s *snowflake) claimNumbers(n uint64) timedClaim {
	l := s.readLayout()
	if l == nil {
		return timedClaim{}
	}
	for i := 0; i < maxTimedRounds; i++ {
		now, frontier := s.bounds(l)
		p := s.view.Load()
		next, limit := p.moveWithTime(now)
		var numbers Range
		// C0 comes after the looks at cursor and limit: they are those of the point's segment.
		if next < limit && atomic.LoadUint64(&p.slot.segment) == p.segment {
			if next >= frontier {
				return timedClaim{number: next, isEarly: true}
			}
			asked := l.oneTime(Range{next, minOf(n, limit-next)})
			numbers, _ = p.try(asked.Count)
		}
		if numbers.Count == 0 {
			numbers, _ = claimAt(&s.view, 1)
		}
		if numbers.Count == 0 {
			return timedClaim{}
		}
		if numbers.First < now {
			continue // the clock went on: a gap
		}
		numbers = l.oneTime(numbers)
		result := timedClaim{number: numbers.First, isEarly: numbers.First >= frontier}
		if !result.isEarly || s.clock == clockClaimer {
			result.ids = Range{l.idOf(numbers.First), numbers.Count}
		}
		return result
	}
	return timedClaim{}
}

// isDue reports whether an id of this number may be handed out now.
func (s *snowflake) isDue(number uint64) bool {
	l := s.readLayout()
	if l == nil {
		return false
	}
	_, frontier := s.bounds(l)
	runtime.KeepAlive(s.memory)
	return number < frontier
}

// aheadMs is how far the number's time is ahead of the clock.
func (s *snowflake) aheadMs(number uint64) int64 {
	l := s.readLayout()
	if l == nil {
		return 0
	}
	return int64(number>>l.sequenceBits-s.timeNow()) * s.unitMs
}
