// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Version is the version of this package.
const Version = "0.1.0"

const (
	maxBlock = 65_536
	// The daemon refuses a connection's requests beyond 1024 that are under way, and one that was
	// given up is under way until it is answered.
	maxUnderWay = 768
	// While the daemon is not there, goroutines share a failed try for so long.
	failureLife = 5 * time.Millisecond
)

// Client is a connection to the daemon of this host, and the tags that were opened through it. It
// connects again by itself after the daemon was restarted.
//
// Thread safety: all methods may be called by any goroutine at any time.
type Client struct {
	settings settings
	dialing  chan struct{} // one place: held while a goroutine connects
	underWay chan struct{} // places for requests
	conn     atomic.Pointer[conn]
	failure  error // of the last try to connect; under dialing, as failedAt
	failedAt time.Time
	lastID   uint64 // the last request id; atomic

	mu       sync.Mutex
	isClosed bool
	tags     map[string]*Tag   // without a block
	blocks   map[*Tag]struct{} // with one
}

// Open connects to the daemon, checks who runs it and agrees on versions. It waits up to the
// timeout for a daemon that is not there yet. Close must be called on the client.
//
// Errors: INVALID, UNAVAILABLE, DENIED, INCOMPATIBLE, SYSTEM.
func Open(options ...Option) (*Client, error) {
	s, err := readOptions(options)
	if err != nil {
		return nil, err
	}
	c := &Client{
		settings: s,
		dialing:  make(chan struct{}, 1),
		underWay: make(chan struct{}, maxUnderWay),
		lastID:   randomID(),
		tags:     make(map[string]*Tag),
		blocks:   make(map[*Tag]struct{}),
	}
	w := newWait(nil, s.timeout)
	for {
		_, err := c.connect(w)
		if err == nil {
			return c, nil
		}
		if statusOf(err) != StatusUnavailable || w.isOver() {
			return nil, err
		}
		if w.pause(); w.isOver() {
			return nil, err
		}
	}
}

// Close closes the client and all its tags. Calls that wait for the daemon end with an error.
// Unclaimed ids stay in the ring. Closing it again does nothing.
func (c *Client) Close() {
	c.mu.Lock()
	c.isClosed = true
	tags, blocks := c.tags, c.blocks
	c.tags, c.blocks = nil, nil
	c.mu.Unlock()
	for tag := range blocks {
		tag.shut()
	}
	for _, tag := range tags {
		tag.shut()
	}
	if open := c.conn.Load(); open != nil {
		open.close()
	}
}

// Tag opens a tag: 1 to 128 bytes of printable UTF-8. Opening the same tag again returns the same
// handle, which lives until it was closed as often as it was opened. Tag waits up to the client's
// timeout for a daemon that is not there.
//
// Errors: INVALID, UNAVAILABLE, NO_SUCH_TAG, DENIED, TIMEOUT, INCOMPATIBLE, SYSTEM.
func (c *Client) Tag(name string) (*Tag, error) {
	if err := checkTagName(name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil, errClientClosed
	}
	t := c.tags[name]
	if t == nil {
		t = newTag(c, name)
		c.tags[name] = t
	}
	t.opens++
	c.mu.Unlock()
	// Another goroutine may have opened it and not have attached yet.
	if err := t.attachFirst(newWait(nil, c.settings.timeout)); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// TagWithBlock opens a tag whose handle claims `block` ids at once from the ring and hands them out
// by itself: at most 65536; with 0 or 1, TagWithBlock is Tag.
//
// Each call returns another handle with a block of its own. A handle may be shared by goroutines. A
// claim then costs an atomic add on memory of this process, which other processes and other handles
// do not slow down. Ids rise over all claims of one handle, but across handles and processes they
// are out of order by the ids of the blocks. Closing the handle loses what is left of its block: a
// gap. Batches and ranges are claimed from the ring.
func (c *Client) TagWithBlock(name string, block int) (*Tag, error) {
	if block < 0 || block > maxBlock {
		return nil, newError(StatusInvalid, fmt.Sprintf("block must be 0 to %d, got %d", maxBlock,
			block))
	}
	source, err := c.Tag(name)
	if err != nil || block <= 1 {
		return source, err
	}
	t := newBlockTag(source, uint64(block))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, errClientClosed
	}
	c.blocks[t] = struct{}{}
	return t, nil
}

var errClientClosed = newError(StatusInvalid, "the client is closed")

func (c *Client) closedError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return errClientClosed
	}
	return nil
}

// connect returns the connection, and makes one if there is none: one try. UNAVAILABLE: the daemon
// is not there, or does not answer before the deadline.
func (c *Client) connect(w *wait) (*conn, error) {
	if open := c.conn.Load(); open != nil && !open.hasEnded() {
		return open, nil
	}
	if !w.acquire(c.dialing) {
		return nil, newError(StatusUnavailable,
			"idd at "+c.settings.socket+" did not answer before the deadline")
	}
	open, isNew, err := c.connectAlone(w)
	c.failure = nil
	if statusOf(err) == StatusUnavailable && !w.isOver() {
		c.failure = err
	}
	<-c.dialing
	if isNew && err == nil {
		c.settings.log(LogInfo, "connected to idd at "+c.settings.socket)
	}
	return open, err
}

func (c *Client) connectAlone(w *wait) (open *conn, isNew bool, err error) {
	if err := c.closedError(); err != nil {
		return nil, false, err
	}
	if open := c.conn.Load(); open != nil && !open.hasEnded() {
		return open, false, nil // another goroutine was faster
	}
	if c.failure != nil && time.Since(c.failedAt) < failureLife {
		return nil, false, c.failure
	}
	c.failedAt = time.Now()
	file, err := dialSocket(c.settings.socket, c.settings.trustedUID, w)
	if err != nil {
		return nil, false, err
	}
	open, err = newConn(file, func(reason string) { c.settings.log(LogWarning, reason) })
	if err != nil {
		file.Close()
		return nil, false, err
	}
	if err := sayHello(open, w); err != nil {
		open.close()
		return nil, false, err
	}
	open.setSilent(false)
	c.conn.Store(open)
	if err := c.closedError(); err != nil { // Close may have missed it
		open.close()
		return nil, false, err
	}
	return open, true, nil
}

// sayHello agrees on versions. Its request id is 0, which is also that of an ERROR with which the
// daemon refuses the connection itself.
func sayHello(open *conn, w *wait) error {
	f, fds, err := open.call(0, helloFrame(0), w)
	closeAll(fds)
	if err == nil {
		err = checkHello(f)
	}
	if refusal := open.refused(); err != nil && refusal != nil {
		return refusal
	}
	if statusOf(err) == StatusTimeout { // a daemon that accepts and does not answer
		err = newError(StatusUnavailable, err.(*Error).Message)
	}
	return err
}

// call sends the request that `build` makes with a request id, and returns its reply. It connects
// first if need be, one try. UNAVAILABLE: the connection broke before the reply came.
func (c *Client) call(w *wait, build func(id uint64) []byte) (frame, []int, error) {
	open, err := c.connect(w)
	if err != nil {
		return frame{}, nil, err
	}
	if !w.acquire(c.underWay) {
		return frame{}, nil, newError(StatusTimeout, "too many requests to idd are under way")
	}
	id := atomic.AddUint64(&c.lastID, 1)
	f, fds, err := open.call(id, build(id), w)
	<-c.underWay
	return f, fds, err
}

// notify sends a frame that has no reply, unless it would have to wait. The frame may be lost.
func (c *Client) notify(frame []byte) {
	if open := c.conn.Load(); open != nil {
		_ = trySend(open.raw, frame)
	}
}

// randomID is where request ids start, so that a reply to a request of another connection is not
// taken for one of this client's. Never 0.
func randomID() uint64 {
	var bytes [4]byte
	_, _ = rand.Read(bytes[:])
	return uint64(binary.LittleEndian.Uint32(bytes[:]))<<24 + 1
}
