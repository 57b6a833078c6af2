// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"testing"
	"unsafe"
)

func TestLayoutIsThatOfTheDocument(t *testing.T) {
	var h tableHeader
	var l ringLive
	var s slotDescriptor
	var st ringStats
	var tb table
	for _, c := range []struct {
		name        string
		got, wanted uintptr
	}{
		{"abi_version", unsafe.Offsetof(h.abiVersion), 8},
		{"table_bytes", unsafe.Offsetof(h.tableBytes), 12},
		{"cursors_bytes", unsafe.Offsetof(h.cursorsBytes), 16},
		{"slot_count", unsafe.Offsetof(h.slotCount), 20},
		{"slots_offset_bytes", unsafe.Offsetof(h.slotsOffset), 24},
		{"slot_stride_bytes", unsafe.Offsetof(h.slotStride), 28},
		{"cursor_stride_bytes", unsafe.Offsetof(h.cursorStride), 32},
		{"lane_count", unsafe.Offsetof(h.laneCount), 36},
		{"lane_stride_bytes", unsafe.Offsetof(h.laneStride), 40},
		{"mode", unsafe.Offsetof(h.mode), 44},
		{"order", unsafe.Offsetof(h.order), 48},
		{"tag_bytes", unsafe.Offsetof(h.tagBytes), 52},
		{"ring_id", unsafe.Offsetof(h.ringID), 56},
		{"epoch_ms", unsafe.Offsetof(h.epochMs), 64},
		{"unit_ms", unsafe.Offsetof(h.unitMs), 72},
		{"clock", unsafe.Offsetof(h.clock), 76},
		{"max_ahead", unsafe.Offsetof(h.maxAhead), 80},
		{"tag", unsafe.Offsetof(h.tag), 128},
		{"tail_segment", unsafe.Offsetof(l.tailSegment), 8},
		{"state", unsafe.Offsetof(l.state), 16},
		{"publications", unsafe.Offsetof(l.publications), 20},
		{"frontier", unsafe.Offsetof(l.frontier), 24},
		{"lane_block", unsafe.Offsetof(l.laneBlock), 32},
		{"base", unsafe.Offsetof(s.base), 8},
		{"limit", unsafe.Offsetof(s.limit), 16},
		{"refill_mark", unsafe.Offsetof(s.refillMark), 24},
		{"worker_bits", unsafe.Offsetof(s.workerBits), 32},
		{"sequence_bits", unsafe.Offsetof(s.sequenceBits), 40},
		{"time_shift", unsafe.Offsetof(s.timeShift), 44},
		{"ended_segment", unsafe.Offsetof(s.endedSegment), 48},
		{"ended_at", unsafe.Offsetof(s.endedAt), 56},
		{"counted_from", unsafe.Offsetof(st.countedFrom), 24},
		{"step", unsafe.Offsetof(st.step), 48},
		{"reckoned_per_1000_s", unsafe.Offsetof(st.reckonedPer1000s), 72},
		{"condition", unsafe.Offsetof(st.condition), 88},
		{"live", unsafe.Offsetof(tb.live), 256},
		{"slots", unsafe.Offsetof(tb.slots), slotsOffset},
		{"stats", unsafe.Offsetof(tb.stats), 2560},
	} {
		if c.got != c.wanted {
			t.Errorf("%s is at %d, not %d", c.name, c.got, c.wanted)
		}
	}
}

// fakeRing is a ring in memory of the test, which plays the daemon.
func fakeRing() *ring {
	m := &mapping{table: &table{}, cursors: &cursors{}}
	m.table.live.state = stateActive
	m.table.live.headSegment = 1
	return &ring{id: 7, memory: m, mode: ModeSegment, order: OrderHost}
}

func (r *ring) publish(s, base, limit, mark uint64) {
	slot := &r.memory.table.slots[s%slotCount]
	*slot = slotDescriptor{segment: s, base: base, limit: limit, refillMark: mark}
	r.memory.cursors.slots[s%slotCount].next = base
	r.memory.table.live.tailSegment = s
}

func viewOf(r *ring) *claimView {
	view := &claimView{}
	view.Store(dryPoint(r, 0))
	return view
}

func expect(t *testing.T, view *claimView, n uint64, wanted Range, isMarked bool) {
	t.Helper()
	got, marked := claimAt(view, n)
	if got != wanted || marked != isMarked {
		t.Fatalf("claimed %v, mark %v; wanted %v, mark %v", got, marked, wanted, isMarked)
	}
}

func TestClaimGoesFromSegmentToSegment(t *testing.T) {
	r := fakeRing()
	view := viewOf(r)
	expect(t, view, 1, Range{}, false)
	r.publish(1, 100, 103, 101)
	r.publish(2, 200, 210, noMark)
	expect(t, view, 1, Range{100, 1}, false)
	expect(t, view, 1, Range{101, 1}, true)
	expect(t, view, 5, Range{102, 1}, false) // the end of the segment makes it shorter
	expect(t, view, 4, Range{200, 4}, false)
	expect(t, view, 99, Range{204, 6}, false)
	expect(t, view, 1, Range{}, false)
	cursor := r.memory.cursors.slots[2].next
	expect(t, view, 1, Range{}, false)
	if now := r.memory.cursors.slots[2].next; now != cursor {
		t.Fatalf("a claim from a dry ring has added to an exhausted cursor: %d, before %d", now, cursor)
	}
	r.publish(3, 300, 301, noMark)
	expect(t, view, 1, Range{300, 1}, false)
}

func TestClaimRefusesAClosedCursorAndAForgedOne(t *testing.T) {
	r := fakeRing()
	view := viewOf(r)
	r.publish(1, 100, 200, noMark)
	expect(t, view, 1, Range{100, 1}, false)
	for _, forged := range []uint64{150 + closingStep, 99, 200, ^uint64(0), 0} {
		r.memory.cursors.slots[1].next = forged
		if forged < 100 {
			// Not seen as exhausted: each add is refused until the cursor is in the segment again.
			point := view.Load()
			if ids, _ := point.try(1); ids.Count != 0 {
				t.Fatalf("accepted %v from a cursor at %d", ids, forged)
			}
			continue
		}
		expect(t, view, 1, Range{}, false)
	}
}

func TestClaimRefusesARecycledSlot(t *testing.T) {
	r := fakeRing()
	view := viewOf(r)
	r.publish(1, 100, 200, noMark)
	expect(t, view, 1, Range{100, 1}, false)
	old := view.Load()
	for s := uint64(2); s <= 17; s++ {
		r.publish(s, s*1000, s*1000+10, noMark)
	}
	if ids, _ := old.try(1); ids.Count != 0 {
		t.Fatalf("a claimer of segment 1 accepted %v of segment 17", ids)
	}
	before := r.memory.cursors.slots[1].next
	if ids, _ := old.try(5); ids.Count != 0 || r.memory.cursors.slots[1].next != before {
		t.Fatalf("a batch of segment 1 has added to the cursor of segment 17")
	}
	expect(t, view, 1, Range{2000, 1}, false)
}

func TestAnOvertakenClaimKeepsWhatLiesBelowTheEnd(t *testing.T) {
	r := fakeRing()
	r.publish(1, 100, 200, noMark)
	slot := &r.memory.table.slots[1]
	point := &claimPoint{cursor: &r.memory.cursors.slots[1], slot: slot, segment: 1,
		memory: r.memory, ring: r}
	slot.segment, slot.endedSegment, slot.endedAt = 0, 1, 160
	for _, c := range []struct {
		first, n uint64
		wanted   Range
	}{
		{150, 1, Range{150, 1}},
		{155, 10, Range{155, 5}},
		{160, 1, Range{}},
		{99, 1, Range{}},
		{200, 1, Range{}},
	} {
		if got, marked := point.accept(c.first, c.n); got != c.wanted || marked {
			t.Errorf("of %d+%d accepted %v, not %v", c.first, c.n, got, c.wanted)
		}
	}
	slot.endedSegment = 17 // the end of a later segment
	if got, _ := point.accept(150, 1); got.Count != 0 {
		t.Errorf("accepted %v by the end of another segment", got)
	}
	slot.endedSegment = 0 // forgotten
	if got, _ := point.accept(150, 1); got.Count != 0 {
		t.Errorf("accepted %v after the end was forgotten", got)
	}
}

func goodHeader() *tableHeader {
	h := &tableHeader{magic: tableMagic, abiVersion: abiVersion, tableBytes: 4096,
		cursorsBytes: 4096, slotCount: 16, slotsOffset: 512, slotStride: 128, cursorStride: 128,
		laneCount: 1, laneStride: 128, mode: modeSegment, order: orderHost, tagBytes: 6, ringID: 1}
	copy(h.tag[:], "orders")
	return h
}

func TestCheckHeaderRefusesEveryWrongField(t *testing.T) {
	if err := checkHeader(goodHeader(), "orders"); err != nil {
		t.Fatal(err)
	}
	cpu := goodHeader()
	cpu.order, cpu.laneCount, cpu.cursorsBytes = orderCPU, 33, 4096+8192
	if err := checkHeader(cpu, "orders"); err != nil {
		t.Fatal(err)
	}
	newer := goodHeader()
	newer.abiVersion++
	if err := checkHeader(newer, "orders"); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(h *tableHeader){
		"magic":         func(h *tableHeader) { h.magic++ },
		"no version":    func(h *tableHeader) { h.abiVersion = 0 },
		"major":         func(h *tableHeader) { h.abiVersion = 2 << 16 },
		"table_bytes":   func(h *tableHeader) { h.tableBytes = 8192 },
		"cursors_bytes": func(h *tableHeader) { h.cursorsBytes = 8192 },
		"slot_count":    func(h *tableHeader) { h.slotCount = 32 },
		"slots_offset":  func(h *tableHeader) { h.slotsOffset = 0 },
		"slot_stride":   func(h *tableHeader) { h.slotStride = 64 },
		"cursor_stride": func(h *tableHeader) { h.cursorStride = 64 },
		"lane_count":    func(h *tableHeader) { h.laneCount = 2 },
		"no lanes":      func(h *tableHeader) { h.order, h.laneCount = orderCPU, 0 },
		"many lanes":    func(h *tableHeader) { h.order, h.laneCount = orderCPU, maxLanes+1 },
		"lane_stride":   func(h *tableHeader) { h.laneStride = 64 },
		"mode":          func(h *tableHeader) { h.mode = 3 },
		"order":         func(h *tableHeader) { h.order = 3 },
		"no unit":       func(h *tableHeader) { h.mode, h.clock = modeSnowflake, 1 },
		"no clock":      func(h *tableHeader) { h.mode, h.unitMs = modeSnowflake, 1 },
		"tag_bytes":     func(h *tableHeader) { h.tagBytes = 5 },
		"tag":           func(h *tableHeader) { h.tag[0] = 'b' },
		"padding":       func(h *tableHeader) { h.tag[7] = 'x' },
	} {
		h := goodHeader()
		spoil(h)
		if err := checkHeader(h, "orders"); statusOf(err) != StatusIncompatible {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFramesAreCheckedBeforeTheyAreUsed(t *testing.T) {
	good := claimFrame(9, "orders", 1, 2, 3)
	if len(good) != 24+160 {
		t.Fatalf("a CLAIM has %d bytes", len(good))
	}
	if f, rest, err := takeFrame(append(good, 1, 2)); err != nil || f.id != 9 || len(rest) != 2 {
		t.Fatalf("%v %v %v", f, rest, err)
	}
	for at, value := range map[int]byte{0: 0, 4: 2, 8: 255, 12: 1} {
		bad := append([]byte(nil), good...)
		bad[at] = value
		if _, _, err := takeFrame(bad); err == nil {
			t.Errorf("took a frame with byte %d set to %d", at, value)
		}
	}
	for n := 0; n < headerBytes; n++ {
		if _, _, err := takeFrame(good[:n]); err == nil {
			t.Errorf("took a frame of %d bytes", n)
		}
	}
	for _, c := range []Range{{1, 0}, {1, 11}, {maxLimit, 1}, {maxLimit - 3, 4}, {maxLimit - 3, 3}} {
		reply, payload := newFrame(frameClaim|replyBit, 1, 24)
		native.PutUint64(payload[8:], c.First)
		native.PutUint64(payload[16:], c.Count)
		f, _, _ := takeFrame(reply)
		_, _, err := parseClaim(f, 10)
		if isGood := c == (Range{maxLimit - 3, 3}); isGood != (err == nil) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
