// SPDX-License-Identifier: Apache-2.0

package idclient

import "runtime"

// attachFirst attaches unless the tag was attached before. It waits for a daemon that is not there.
func (t *Tag) attachFirst(w *wait) error {
	for t.point.Load().ring == nil {
		if err := t.closedError(); err != nil {
			return err
		}
		isAnswered, err := t.attach(w)
		if err == nil {
			continue
		}
		if statusOf(err) != StatusUnavailable || isAnswered || w.isOver() {
			return t.withName(err)
		}
		if w.pause(); w.isOver() {
			return t.withName(err)
		}
	}
	return nil
}

// attach asks the daemon for the tag's ring and makes it current. isAnswered: the daemon has
// answered, and would answer the same again.
func (t *Tag) attach(w *wait) (isAnswered bool, err error) {
	return t.attachAfter(t.point.Load().ring, w)
}

// attachAfter does nothing if the present ring is not `seen`: another goroutine was faster.
func (t *Tag) attachAfter(seen *ring, w *wait) (isAnswered bool, err error) {
	if !w.acquire(t.attaching) {
		return false, newError(StatusTimeout, "idd did not answer in time")
	}
	isNew := false
	isAnswered, isNew, err = t.attachAlone(seen, w)
	<-t.attaching
	if isNew && seen != nil {
		t.client.settings.log(LogInfo, "tag '"+t.name+"': attached to another ring")
	}
	return isAnswered, err
}

func (t *Tag) attachAlone(seen *ring, w *wait) (isAnswered, isNew bool, err error) {
	if p := t.point.Load(); p.ring != seen || p.kind == pointClosed {
		return true, false, nil
	}
	f, fds, err := t.client.call(w, func(id uint64) []byte {
		return attachFrame(id, t.name, w.daemonTimeoutMs())
	})
	defer closeAll(fds)
	if err != nil {
		return false, false, err
	}
	reply, err := parseAttach(f)
	if err != nil {
		return true, false, err
	}
	if seen != nil && seen.id == reply.ringID {
		return true, false, nil
	}
	r, err := t.makeRing(reply, fds)
	if err != nil {
		return true, false, err
	}
	return true, t.install(r, seen), nil
}

// makeRing makes the ring of an answered ATTACH, or one without memory if the reply has none.
func (t *Tag) makeRing(reply attachReply, fds []int) (*ring, error) {
	if reply.ringID == 0 {
		if len(fds) != 0 || reply.tableBytes != 0 || reply.cursorsBytes != 0 {
			return nil, newError(StatusIncompatible, "idd granted no ring, and passed parts of one")
		}
		return &ring{mode: modeNamed(reply.reason)}, nil
	}
	if len(fds) != 2 {
		return nil, newError(StatusIncompatible, "idd granted a ring without its two descriptors")
	}
	memory, err := mapRing(fds[0], fds[1], t.name)
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(memory)
	h := &memory.table.header
	if h.ringID != reply.ringID || h.tableBytes != reply.tableBytes ||
		h.cursorsBytes != reply.cursorsBytes {
		return nil, newError(StatusIncompatible, "idd granted another ring than it named")
	}
	r := &ring{id: reply.ringID, memory: memory, refill: refillFrame(t.name, reply.ringID),
		mode: ModeSegment, order: Order(h.order)}
	if h.mode == modeSnowflake {
		r.mode = ModeSnowflake
		r.timed = newSnowflake(r)
	}
	return r, nil
}

// install makes r the tag's ring, unless the tag was closed.
func (t *Tag) install(r, seen *ring) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	point := dryPoint(r, 0)
	for {
		p := t.point.Load()
		if p.kind == pointClosed {
			if r.memory != nil {
				r.memory.blank()
			}
			return false
		}
		if t.point.CompareAndSwap(p, point) {
			break
		}
	}
	if t.older != nil && t.older.memory != nil {
		t.older.memory.blank()
	}
	t.older = seen
	return true
}
