// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Range is the contiguous ids First, First+1, ..., First+Count-1.
type Range struct {
	First uint64
	Count uint64
}

// Tag is an open tag.
//
// Thread safety: all methods may be called by any goroutine at any time. A claim that the ring
// serves takes no lock.
//
// Invariants: at most the newest two rings of a tag are mapped; a goroutine that is still inside a
// claim of the ring before the newest keeps its ids.
type Tag struct {
	point claimView // what a claim reads
	_     [120]byte // no writer of the fields below slows it down

	client    *Client
	name      string
	attaching chan struct{} // one place: held while a goroutine attaches
	askedAt   int64         // when TryClaim last sent a notice; atomic

	source    *Tag // of a tag with a block: the tag that it claims from
	blockSize uint64
	filling   chan struct{} // one place: held while a goroutine claims a block

	opens int // under client.mu

	mu    sync.Mutex // for a change of ring
	older *ring      // the ring before the newest, still mapped
}

func newTag(c *Client, name string) *Tag {
	t := &Tag{client: c, name: name, attaching: make(chan struct{}, 1)}
	t.point.Store(dryPoint(nil, 0))
	return t
}

// Name returns the tag's name.
func (t *Tag) Name() string { return t.name }

// Claim claims one id. It takes it from the ring at the price of one atomic add. Only if the ring
// has no ids does it ask the daemon and wait: until the deadline of ctx, or for at most the
// client's timeout if ctx has none. It does not look at ctx before.
//
// Errors: INVALID, UNAVAILABLE, NO_SUCH_TAG, DENIED, TIMEOUT, OUT_OF_IDS, INCOMPATIBLE, SYSTEM.
func (t *Tag) Claim(ctx context.Context) (uint64, error) {
	p := t.point.Load()
	first := atomic.AddUint64(&p.cursor.next, 1) - 1                // C1
	limit := atomic.LoadUint64(&p.slot.limit)                       // C2, pairs with P4
	if first >= atomic.LoadUint64(&p.slot.base) && first < limit && // C3
		first != atomic.LoadUint64(&p.slot.refillMark) && // C4
		atomic.LoadUint64(&p.slot.segment) == p.segment { // C5
		runtime.KeepAlive(p)
		return first, nil
	}
	return t.finishOne(ctx, p, first)
}

// finishOne is what is left to do after an add that took the refill mark or no id.
func (t *Tag) finishOne(ctx context.Context, p *claimPoint, first uint64) (uint64, error) {
	ids, isMarked := p.accept(first, 1)
	runtime.KeepAlive(p)
	if ids.Count != 0 {
		if isMarked {
			t.wakeDaemon(p.ring)
		}
		return ids.First, nil
	}
	var claim timedClaim
	isTimed := p.ring != nil && p.ring.timed != nil
	if isTimed {
		if claim = p.ring.timed.claim(1); claim.ids.Count != 0 && !claim.isEarly {
			return claim.ids.First, nil
		}
	}
	w := newWait(ctx, t.client.settings.timeout)
	if isTimed {
		ids, err := t.waitForTime(p.ring, claim, 1, w)
		if err != nil || ids.Count != 0 {
			return ids.First, w.explain(err)
		}
	}
	if t.source != nil {
		id, err := t.claimFromBlock(w)
		return id, w.explain(err)
	}
	ids, err := t.claimRange(1, w)
	return ids.First, w.explain(err)
}

// ClaimMany fills ids with ids that rise but are not necessarily contiguous, under one deadline as
// that of Claim. It returns how many it claimed: on an error, the first n of ids are the caller's
// all the same.
func (t *Tag) ClaimMany(ctx context.Context, ids []uint64) (n int, err error) {
	w := newWait(ctx, t.client.settings.timeout)
	for n < len(ids) {
		r, err := t.ringTag().claimRange(uint64(len(ids)-n), w)
		if err != nil {
			return n, w.explain(err)
		}
		for i := uint64(0); i < r.Count; i++ {
			ids[n] = r.First + i
			n++
		}
	}
	return n, nil
}

// ClaimRange claims contiguous ids: the largest run up to count that one segment has left, at least
// one. A count of 0 is INVALID. It waits as Claim does.
func (t *Tag) ClaimRange(ctx context.Context, count uint64) (Range, error) {
	if count == 0 {
		return Range{}, newError(StatusInvalid, "ClaimRange: count is 0")
	}
	w := newWait(ctx, t.client.settings.timeout)
	r, err := t.ringTag().claimRange(count, w)
	return r, w.explain(err)
}

// TryClaim takes an id that this process can have without the daemon. It never waits. If there is
// none, it lets the daemon know that ids are wanted. It gets nothing of a tag without a ring (mode
// ticket, access socket), and nothing after a restart of the daemon that closed the ring: only a
// claim that may wait attaches again.
func (t *Tag) TryClaim() (id uint64, ok bool) {
	if t.source != nil {
		return t.tryFromBlock()
	}
	ids := t.tryRange(1)
	return ids.First, ids.Count != 0
}

// Close ends one Client.Tag or one Client.TagWithBlock. The last one of a handle unmaps its ring;
// calls of the handle then return INVALID.
func (t *Tag) Close() {
	c := t.client
	if t.source != nil {
		c.mu.Lock()
		_, isOpen := c.blocks[t]
		delete(c.blocks, t)
		c.mu.Unlock()
		if isOpen {
			t.shut()
			t.source.Close()
		}
		return
	}
	c.mu.Lock()
	isLast := false
	if t.opens > 0 {
		t.opens--
		isLast = t.opens == 0
	}
	if isLast && c.tags[t.name] == t {
		delete(c.tags, t.name)
	}
	c.mu.Unlock()
	if isLast {
		t.shut()
	}
}

// shut ends all claims from the handle.
func (t *Tag) shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	closed := dryPoint(nil, 0)
	closed.kind = pointClosed
	last := t.point.Swap(closed)
	if last.memory != nil {
		last.memory.blank()
	}
	if t.older != nil && t.older.memory != nil {
		t.older.memory.blank()
	}
	t.older = nil
}

// ringTag is the tag that batches and ranges are claimed from.
func (t *Tag) ringTag() *Tag {
	if t.source != nil {
		return t.source
	}
	return t
}

// wakeDaemon sends the one wake-up per segment, without waiting, so it may be lost.
func (t *Tag) wakeDaemon(r *ring) {
	if r != nil && r.refill != nil {
		t.client.notify(r.refill)
	}
}
