// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"context"
	"errors"
	"time"
)

const (
	firstPause   = 2 * time.Millisecond
	longestPause = 20 * time.Millisecond
)

// wait is the deadline of one call: that of its context, or the client's timeout without one.
type wait struct {
	ctx         context.Context
	at          time.Time
	isOfContext bool // `at` is the context's deadline
	nextPause   time.Duration
}

func newWait(ctx context.Context, timeout time.Duration) *wait {
	w := &wait{ctx: ctx, nextPause: firstPause}
	if w.ctx == nil {
		w.ctx = context.Background()
	}
	if at, ok := w.ctx.Deadline(); ok {
		w.at, w.isOfContext = at, true
	} else {
		w.at = time.Now().Add(timeout)
	}
	return w
}

func (w *wait) left() time.Duration {
	if left := time.Until(w.at); left > 0 {
		return left
	}
	return 0
}

func (w *wait) isOver() bool { return w.ctx.Err() != nil || w.left() == 0 }

// sleep returns after d, at the deadline, or when the context ends.
func (w *wait) sleep(d time.Duration) {
	if left := w.left(); d > left {
		d = left
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

// pause sleeps before another try to reach the daemon: briefly at first.
func (w *wait) pause() {
	w.sleep(w.nextPause)
	if w.nextPause *= 2; w.nextPause > longestPause {
		w.nextPause = longestPause
	}
}

// acquire takes a place in sem, or returns false at the deadline.
func (w *wait) acquire(sem chan struct{}) bool {
	select {
	case sem <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(w.left())
	defer timer.Stop()
	select {
	case sem <- struct{}{}:
		return true
	case <-timer.C:
	case <-w.ctx.Done():
	}
	return false
}

// daemonTimeoutMs is how long the daemon may wait: a little less than the caller, so that its
// reason arrives before the caller's own deadline.
func (w *wait) daemonTimeoutMs() uint32 {
	left := w.left().Milliseconds()
	margin := left / 5
	if margin > 50 {
		margin = 50
	}
	if margin < 1 {
		margin = 1
	}
	left -= margin
	if left < 0 {
		left = 0
	}
	if left > maxTimeoutMs {
		left = maxTimeoutMs
	}
	return uint32(left)
}

// explain adds what ended the context to an error of a wait.
func (w *wait) explain(err error) error {
	var e *Error
	if !errors.As(err, &e) || !e.Retryable() {
		return err
	}
	cause := w.ctx.Err()
	if cause == nil && w.isOfContext && (e.Status == StatusTimeout || w.left() == 0) {
		cause = context.DeadlineExceeded
	}
	if cause == nil {
		return err
	}
	return &Error{Status: e.Status, Message: e.Message, cause: cause}
}
