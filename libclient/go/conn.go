// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// sendRetry is how long a sender with a full socket waits before it tries again.
const sendRetry = 10 * time.Millisecond

// conn is one connection to one daemon. A goroutine reads the replies for all callers.
//
// Thread safety: all methods.
type conn struct {
	file  *os.File
	raw   syscall.RawConn
	onEnd func(reason string) // called by the reader when the daemon has ended the connection

	mu       sync.Mutex
	calls    map[uint64]chan reply // the calls under way, by request id
	ended    error                 // why the connection has ended; nil: it has not
	refusal  *Error                // from an ERROR frame that concerns no request
	isSilent bool                  // its end is not logged: before HELLO, and once it is closed
}

// reply is the answer to one request. The receiver owns the descriptors.
type reply struct {
	frame frame
	fds   []int
	err   error
}

func newConn(file *os.File, onEnd func(string)) (*conn, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, newError(StatusSystem, "the socket: "+err.Error())
	}
	c := &conn{file: file, raw: raw, onEnd: onEnd, calls: make(map[uint64]chan reply),
		isSilent: true}
	go c.read()
	return c, nil
}

// hasEnded reports whether requests can no longer be sent.
func (c *conn) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended != nil
}

// refused returns the error with which the daemon ended the connection, or nil.
func (c *conn) refused() *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal
}

func (c *conn) close() {
	c.setSilent(true)
	c.file.Close()
}

func (c *conn) setSilent(isSilent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isSilent = isSilent
}

// call sends a request and waits for its reply.
func (c *conn) call(id uint64, request []byte, w *wait) (frame, []int, error) {
	answer := make(chan reply, 1)
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return frame{}, nil, c.ended
	}
	c.calls[id] = answer // before it is sent: the reply may come at once
	c.mu.Unlock()
	if err := c.send(request, answer, w); err != nil {
		return c.giveUp(id, answer, err)
	}
	timer := time.NewTimer(w.left())
	defer timer.Stop()
	select {
	case r := <-answer:
		return r.frame, r.fds, r.err
	case <-timer.C:
		return c.giveUp(id, answer, newError(StatusTimeout, "idd did not answer in time"))
	case <-w.ctx.Done():
		return c.giveUp(id, answer, newError(StatusTimeout, "the wait for idd was canceled"))
	}
}

func (c *conn) send(request []byte, answer chan reply, w *wait) error {
	for {
		err := trySend(c.raw, request)
		if err == nil || len(answer) != 0 {
			return nil
		}
		if err != syscall.EAGAIN {
			// The reader reports why the connection ended; the daemon may have sent its reason.
			w.sleep(sendRetry)
			if len(answer) != 0 {
				return nil
			}
			return newError(StatusUnavailable, "the connection to idd broke: "+err.Error())
		}
		if w.isOver() {
			return newError(StatusTimeout, "idd did not read the request in time")
		}
		w.sleep(sendRetry)
	}
}

// giveUp ends a call without a reply, unless the reply has come meanwhile.
func (c *conn) giveUp(id uint64, answer chan reply, err error) (frame, []int, error) {
	c.mu.Lock()
	delete(c.calls, id)
	c.mu.Unlock()
	select {
	case r := <-answer:
		return r.frame, r.fds, r.err
	default:
		return frame{}, nil, err
	}
}

// read hands out the replies until the connection ends.
func (c *conn) read() {
	buffer := make([]byte, maxFrameBytes)
	control := make([]byte, syscall.CmsgSpace(2*4))
	for {
		m, err := receiveMessage(c.raw, buffer, control)
		if err == nil {
			err = c.dispatchAll(m)
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

// dispatchAll hands out the frames of one message. The descriptors belong to the first one: a reply
// with descriptors is a message of its own.
func (c *conn) dispatchAll(m received) error {
	rest, fds := m.bytes, m.fds
	for {
		f, after, err := takeFrame(rest)
		if err != nil {
			closeAll(fds)
			return newError(StatusUnavailable, err.(*Error).Message)
		}
		r := reply{frame: f, fds: fds}
		if m.isCut {
			r.err = newError(StatusSystem, "no free descriptor for what idd passed; "+
				"raise this process's RLIMIT_NOFILE")
		}
		if f.kind == frameError|replyBit {
			r.err = parseError(f)
		}
		if r.err != nil {
			closeAll(r.fds)
			r.fds = nil
		}
		c.dispatch(r)
		if len(after) == 0 {
			return nil
		}
		rest, fds = after, nil
	}
}

func (c *conn) dispatch(r reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := c.calls[r.frame.id]
	if ok {
		delete(c.calls, r.frame.id)
		answer <- r
		return
	}
	closeAll(r.fds) // late: its caller's deadline has passed, its ids are a gap
	if r.err != nil && r.frame.kind == frameError|replyBit {
		c.refusal = r.err.(*Error)
	}
}

// end fails the calls under way. The next daemon does not know them.
func (c *conn) end(err error) {
	c.mu.Lock()
	if c.refusal != nil {
		err = newError(StatusUnavailable, "idd closed the connection: "+c.refusal.Message)
	}
	c.ended = err
	for id, answer := range c.calls {
		delete(c.calls, id)
		answer <- reply{err: err}
	}
	isSilent := c.isSilent
	c.mu.Unlock()
	c.file.Close()
	if !isSilent {
		c.onEnd(err.(*Error).Message)
	}
}
