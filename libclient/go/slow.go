// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// noticeGap is the shortest time between two notices that TryClaim sends.
const noticeGap = 10 * time.Millisecond

// claimRange claims up to count contiguous ids from the ring or, if it is dry, from the daemon.
func (t *Tag) claimRange(count uint64, w *wait) (Range, error) {
	ids, err := t.claimAttached(count, w)
	if err != nil || ids.Count != 0 {
		return ids, err
	}
	for {
		if err := t.closedError(); err != nil {
			return Range{}, err
		}
		if w.ctx.Err() != nil {
			return Range{}, t.errorf(StatusTimeout, "the wait for ids was canceled")
		}
		ids, isFinal, err := t.askDaemon(count, w)
		if err == nil && ids.Count != 0 {
			return ids, nil
		}
		if err != nil && statusOf(err) != StatusUnavailable {
			return Range{}, err
		}
		// An operator has drained the tag, or its mode needs a store that is down: waiting would not
		// help, and the reason says what would.
		if err != nil && (isFinal || t.isDrained()) {
			return Range{}, err
		}
		if w.isOver() {
			if err == nil {
				err = t.errorf(StatusTimeout, "nothing to claim in time")
			}
			return Range{}, err
		}
		fromRing, ringErr := t.claimAttached(count, w)
		if ringErr != nil || fromRing.Count != 0 {
			return fromRing, ringErr
		}
		if err == nil && !t.needsAttach() {
			continue
		}
		// The daemon is being restarted, is gone, or hands out a ring that it has retired. The pause
		// spares it.
		w.pause()
	}
}

// claimAttached claims from the present ring, and waits for the clock if it is one of mode
// snowflake. No ids: only the daemon can help.
func (t *Tag) claimAttached(count uint64, w *wait) (Range, error) {
	p := t.point.Load()
	if p.ring != nil && p.ring.timed != nil {
		return t.waitForTime(p.ring, p.ring.timed.claim(count), count, w)
	}
	ids, isMarked := claimAt(&t.point, count)
	if isMarked {
		t.wakeDaemon(t.point.Load().ring)
	}
	return ids, nil
}

// waitForTime returns the ids of a claim from a ring of mode snowflake when their time has come.
func (t *Tag) waitForTime(r *ring, claim timedClaim, count uint64, w *wait) (Range, error) {
	for {
		if !claim.isEarly {
			return claim.ids, nil
		}
		// The daemon moves the ring of a tag whose claimers read no clock.
		if claim.ids.Count == 0 && r.timed.clock == clockDaemon {
			return Range{}, nil
		}
		for !r.timed.isDue(claim.number) {
			if claim.ids.Count == 0 && r.state() != stateActive {
				return Range{}, nil
			}
			if w.isOver() {
				return Range{}, t.errorf(StatusTimeout, "its next id's time is %d ms ahead of this "+
					"host's clock: the clock was set back, or the ceiling of ids per time of the tag's "+
					"layout is reached", r.timed.aheadMs(claim.number))
			}
			w.sleep(clockPause)
		}
		if claim.ids.Count != 0 {
			return claim.ids, nil
		}
		claim = r.timed.claim(count)
	}
}

// askDaemon sends one request. No ids and no error: look at the ring again. isFinal: the daemon
// says that asking again would not help.
func (t *Tag) askDaemon(count uint64, w *wait) (ids Range, isFinal bool, err error) {
	if t.needsAttach() {
		if _, err := t.attach(w); err != nil {
			return Range{}, false, err
		}
		ids, err = t.claimAttached(count, w)
		return ids, false, err
	}
	r := t.point.Load().ring
	if r == nil {
		return Range{}, false, t.closedError()
	}
	f, fds, err := t.client.call(w, func(id uint64) []byte {
		return claimFrame(id, t.name, r.id, count, w.daemonTimeoutMs())
	})
	closeAll(fds)
	if err != nil {
		return Range{}, false, err
	}
	reply, isFinal, err := parseClaim(f, count)
	if err != nil {
		return Range{}, isFinal, err
	}
	// The ids are ours whether or not the new ring can be had at once; the next dry claim tries
	// again.
	if reply.attachAgain {
		_, _ = t.attachAfter(r, w)
	}
	return reply.ids, false, nil
}

// tryRange claims without a request and without a wait.
func (t *Tag) tryRange(count uint64) Range {
	p := t.point.Load()
	if p.ring == nil {
		return Range{}
	}
	var ids Range
	if p.ring.timed != nil {
		// Ids that are early are a gap: only a wait for the clock would make them usable.
		if claim := p.ring.timed.claim(count); !claim.isEarly {
			ids = claim.ids
		}
	} else {
		var isMarked bool
		if ids, isMarked = claimAt(&t.point, count); isMarked {
			t.wakeDaemon(p.ring)
		}
	}
	if ids.Count == 0 {
		t.askForIDs(p.ring)
	}
	return ids
}

// askForIDs sends a notice. A program that never waits would otherwise get no id of a tag that no
// other program uses.
func (t *Tag) askForIDs(r *ring) {
	now := time.Now().UnixNano()
	last := atomic.LoadInt64(&t.askedAt)
	if now >= last && now-last < int64(noticeGap) {
		return
	}
	if atomic.CompareAndSwapInt64(&t.askedAt, last, now) {
		t.wakeDaemon(r)
	}
}

func (t *Tag) needsAttach() bool {
	p := t.point.Load()
	if p.kind == pointClosed {
		return false
	}
	if p.ring == nil {
		return true
	}
	if p.ring.memory == nil {
		return false
	}
	state := p.ring.state()
	return state != stateActive && state != stateDrained
}

func (t *Tag) isDrained() bool {
	r := t.point.Load().ring
	return r != nil && r.memory != nil && r.state() == stateDrained
}

func (t *Tag) closedError() error {
	if t.point.Load().kind != pointClosed {
		return nil
	}
	return t.errorf(StatusInvalid, "it is closed")
}

func (t *Tag) errorf(status Status, format string, args ...any) error {
	return newError(status, "tag '"+t.name+"': "+fmt.Sprintf(format, args...))
}

// withName adds the tag's name to an error that does not name it.
func (t *Tag) withName(err error) error {
	e, ok := err.(*Error)
	if !ok || strings.Contains(e.Message, "tag '"+t.name+"'") {
		return err
	}
	return &Error{Status: e.Status, Message: "tag '" + t.name + "': " + e.Message, cause: e.cause}
}
