// SPDX-License-Identifier: Apache-2.0

package idclient

// block is ids that a handle has claimed and not handed out yet. It looks like a segment of a ring,
// in memory of this process, so that one claim path serves both.
type block struct {
	point  claimPoint
	_      [blockBytes]byte // no other object shares the cursor's cache lines
	cursor cursor
	slot   slotDescriptor
}

func newBlock(ids Range) *claimPoint {
	b := &block{}
	b.cursor.next = ids.First
	b.slot = slotDescriptor{segment: 1, base: ids.First, limit: ids.First + ids.Count,
		refillMark: noMark}
	b.point = claimPoint{cursor: &b.cursor, slot: &b.slot, segment: 1}
	return &b.point
}

func newBlockTag(source *Tag, size uint64) *Tag {
	t := newTag(source.client, source.name)
	t.source, t.blockSize, t.filling = source, size, make(chan struct{}, 1)
	return t
}

// claimFromBlock claims an id of the block, and a new block when the block is used up.
func (t *Tag) claimFromBlock(w *wait) (uint64, error) {
	if !w.acquire(t.filling) {
		return 0, t.errorf(StatusTimeout, "nothing to claim in time")
	}
	defer func() { <-t.filling }()
	p := t.point.Load()
	if ids, _ := p.try(1); ids.Count != 0 { // another goroutine has claimed a block meanwhile
		return ids.First, nil
	}
	if err := t.closedError(); err != nil {
		return 0, err
	}
	ids, err := t.source.claimRange(t.blockSize, w)
	if err != nil {
		return 0, err
	}
	t.fill(p, ids)
	return ids.First, nil
}

// fill makes all but the first of the ids the block. If the tag was closed, they are a gap.
func (t *Tag) fill(before *claimPoint, ids Range) {
	t.point.CompareAndSwap(before, newBlock(Range{ids.First + 1, ids.Count - 1}))
}

// tryFromBlock is TryClaim of a tag with a block.
func (t *Tag) tryFromBlock() (uint64, bool) {
	p := t.point.Load()
	if ids, _ := p.try(1); ids.Count != 0 {
		return ids.First, true
	}
	if p.kind == pointClosed {
		return 0, false
	}
	select {
	case t.filling <- struct{}{}:
	default:
		return 0, false
	}
	defer func() { <-t.filling }()
	p = t.point.Load()
	if ids, _ := p.try(1); ids.Count != 0 {
		return ids.First, true
	}
	ids := t.source.tryRange(t.blockSize)
	if ids.Count == 0 {
		return 0, false
	}
	t.fill(p, ids)
	return ids.First, true
}
