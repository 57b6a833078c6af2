// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"
)

// Mode is the kind of a tag's ids.
type Mode int

const (
	// ModeUnknown: the daemon is older or newer than this package.
	ModeUnknown Mode = 0
	// ModeSegment: ids are plain numbers.
	ModeSegment Mode = 1
	// ModeSnowflake: ids carry time.
	ModeSnowflake Mode = 2
	// ModeTicket: ids rise over all hosts; each claim asks the allocator.
	ModeTicket Mode = 3
)

// String returns "segment", "snowflake", "ticket" or "unknown".
func (m Mode) String() string { return nameIn(int(m), "unknown", "segment", "snowflake", "ticket") }

func modeNamed(name string) Mode {
	for _, m := range []Mode{ModeSegment, ModeSnowflake, ModeTicket} {
		if m.String() == name {
			return m
		}
	}
	return ModeUnknown
}

// Order is the order of a tag's ids.
type Order int

const (
	// OrderHost: ids rise on the host.
	OrderHost Order = 1
	// OrderCPU: ids rise in a CPU's lane, for clients that use the lanes of the ring. This client does
	// not: its ids rise over its own claims.
	OrderCPU Order = 2
)

// String returns "host" or "cpu".
func (o Order) String() string { return nameIn(int(o), "unknown", "host", "cpu") }

// State says whether a tag's ring has ids.
type State int

const (
	// StateNoRing: every claim asks the daemon: mode ticket, access socket, or a ring that was closed
	// and has no successor yet.
	StateNoRing State = 0
	// StateOK: the ring has ids.
	StateOK State = 1
	// StateDry: the ring has no ids now.
	StateDry State = 2
	// StateQuarantined: a client has spoiled the ring.
	StateQuarantined State = 3
	// StateDrained: an operator has drained the tag.
	StateDrained State = 4
)

// String returns "no_ring", "ok", "dry", "quarantined" or "drained".
func (s State) String() string {
	return nameIn(int(s), "no_ring", "ok", "dry", "quarantined", "drained")
}

func nameIn(i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return "unknown"
	}
	return names[i]
}

// CoverUnknown is the Cover of a tag without a ring or without load.
const CoverUnknown = time.Duration(-1)

// Info is what this process can see of a tag.
type Info struct {
	Mode      Mode
	Order     Order
	State     State
	Step      uint64        // ids of the next lease; 0 without a ring and in mode snowflake
	Available uint64        // ids that this host's ring has, for all programs; 0 in mode snowflake
	Cover     time.Duration // how long they last, or CoverUnknown
}

const maxInfoTries = 8

// Info reads the ring. It makes no request and does not wait.
func (t *Tag) Info() Info {
	info := Info{Order: OrderHost, Cover: CoverUnknown}
	r := t.ringTag().point.Load().ring
	if r == nil {
		return info
	}
	info.Mode = r.mode
	if r.memory == nil {
		return info
	}
	info.Order = r.order
	view, ok := r.observe()
	if ok {
		info.fill(r, view)
	}
	runtime.KeepAlive(r.memory)
	return info
}

func (info *Info) fill(r *ring, view ringView) {
	switch {
	case view.state == stateDrained || view.state == stateActive && view.condition == conditionDrain:
		info.State = StateDrained
	case view.state == stateSpoiled:
		info.State = StateQuarantined
	case view.state != stateActive:
		info.State = StateNoRing
	case view.available == 0:
		info.State = StateDry
	default:
		info.State = StateOK
	}
	if r.timed != nil {
		if l := r.timed.readLayout(); l != nil {
			units := view.available >> l.sequenceBits
			info.Cover = time.Duration(units) * time.Duration(r.timed.unitMs) * time.Millisecond
		} else {
			info.Cover = 0
		}
		return
	}
	info.Step, info.Available = view.step, view.available
	if view.reckonedPer1000s != 0 {
		seconds := float64(view.available) * 1000 / float64(view.reckonedPer1000s)
		info.Cover = time.Duration(math.Min(seconds*1e9, math.MaxInt64/2))
	}
}

// ringView is a consistent look at a ring.
type ringView struct {
	state            uint32
	condition        uint32
	step             uint64
	reckonedPer1000s uint64
	countedFrom      uint64
	hasNumbers       bool
	available        uint64
}

func (r *ring) observe() (ringView, bool) {
	for i := 0; i < maxInfoTries; i++ {
		if view, ok := r.tryObserve(); ok {
			return view, true
		}
	}
	// A quarantined ring shows no ends, but its state shows that it is over.
	state := r.state()
	return ringView{state: state}, state == stateRetired || state == stateSpoiled
}

func (r *ring) tryObserve() (view ringView, ok bool) {
	if !view.readNumbers(&r.memory.table.stats) {
		return view, false
	}
	view.state = r.state()
	tail := atomic.LoadUint64(&r.memory.table.live.tailSegment)  // C0, pairs with P6
	first := atomic.LoadUint64(&r.memory.table.live.headSegment) // H2, pairs with H1
	if view.hasNumbers {
		first = view.countedFrom
	}
	if first == 0 || tail >= first+slotCount || first > tail+1 {
		return view, false
	}
	for s := first; s <= tail; s++ {
		available, ok := r.availableOf(s)
		if !ok {
			return view, false
		}
		view.available += available
	}
	return view, true
}

// readNumbers reads the daemon's numbers. False: they changed meanwhile.
func (view *ringView) readNumbers(stats *ringStats) bool {
	version := atomic.LoadUint64(&stats.version) // O1, pairs with T3
	if version == 0 {
		return true
	}
	view.hasNumbers = true
	view.countedFrom = atomic.LoadUint64(&stats.countedFrom) // O2, pairs with T2; as all below
	view.step = atomic.LoadUint64(&stats.step)
	view.reckonedPer1000s = atomic.LoadUint64(&stats.reckonedPer1000s)
	view.condition = atomic.LoadUint32(&stats.condition)
	return version%2 == 0 && atomic.LoadUint64(&stats.version) == version // O3
}

// availableOf is what segment s has left. False: the slot holds neither s nor its end.
func (r *ring) availableOf(s uint64) (uint64, bool) {
	slot := &r.memory.table.slots[s%slotCount]
	next := atomic.LoadUint64(&r.memory.cursors.slots[s%slotCount].next) // L1
	limit := atomic.LoadUint64(&slot.limit)                              // C2, pairs with P4
	base := atomic.LoadUint64(&slot.base)                                // C3
	if atomic.LoadUint64(&slot.segment) != s {                           // C5
		return 0, atomic.LoadUint64(&slot.endedSegment) == s // C6
	}
	if base >= limit || limit > maxLimit {
		return 0, false
	}
	if next >= limit { // used up, or closed by a later daemon
		return 0, true
	}
	if next < base {
		next = base
	}
	return limit - next, true
}
