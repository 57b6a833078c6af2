// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// listenerVariable makes the test binary a listener at that path, for another user.
const listenerVariable = "IDD_TEST_LISTEN_AT"

func TestMain(m *testing.M) {
	if path := os.Getenv(listenerVariable); path != "" {
		address := &net.UnixAddr{Name: path, Net: "unixpacket"}
		if _, err := net.ListenUnix("unixpacket", address); err != nil {
			panic(err)
		}
		time.Sleep(30 * time.Second)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// answerer plays a daemon: it returns the messages that answer one frame, and descriptors for the
// first of them.
type answerer func(f frame) (messages [][]byte, fds []int)

// fakeDaemon serves `answer` at the returned path. It answers HELLO itself.
func fakeDaemon(t *testing.T, answer answerer) string {
	return listen(t, func(peer *net.UnixConn) { serve(peer, answer) })
}

func listen(t *testing.T, handle func(peer *net.UnixConn)) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "idd-fake-")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		listener.Close()
		os.RemoveAll(folder)
	})
	go func() {
		for {
			peer, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			go handle(peer)
		}
	}()
	return path
}

// refusingDaemon sends `refusal` to every peer and closes; afterHello: while HELLO lies unread.
func refusingDaemon(t *testing.T, refusal []byte, afterHello bool) string {
	return listen(t, func(peer *net.UnixConn) {
		defer peer.Close()
		if raw, err := peer.SyscallConn(); err == nil && afterHello {
			_ = raw.Read(func(fd uintptr) bool {
				_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
				return err != syscall.EAGAIN
			})
		}
		_, _ = peer.Write(refusal)
	})
}

func serve(peer *net.UnixConn, answer answerer) {
	defer peer.Close()
	buffer := make([]byte, maxFrameBytes)
	for {
		n, err := peer.Read(buffer)
		if err != nil || n == 0 {
			return
		}
		f, _, err := takeFrame(buffer[:n])
		if err != nil {
			return
		}
		if f.kind == frameHello {
			reply, payload := newFrame(frameHello|replyBit, f.id, 48)
			native.PutUint32(payload[4:], abiVersion)
			_, _ = peer.Write(reply)
			continue
		}
		messages, fds := answer(f)
		for _, message := range messages {
			var control []byte
			if len(fds) != 0 {
				control = syscall.UnixRights(fds...)
				fds = nil
			}
			if _, _, err := peer.WriteMsgUnix(message, control, nil); err != nil {
				return
			}
		}
		if messages == nil {
			return
		}
	}
}

func attachAnswer(id, ringID uint64, table, cursors uint32, reason string) []byte {
	reply, payload := newFrame(frameAttach|replyBit, id, 24+len(reason))
	native.PutUint32(payload[4:], abiVersion)
	native.PutUint64(payload[8:], ringID)
	native.PutUint32(payload[16:], table)
	native.PutUint32(payload[20:], cursors)
	copy(payload[24:], reason)
	return reply
}

func claimAnswer(id, first, count uint64) []byte {
	reply, payload := newFrame(frameClaim|replyBit, id, 24)
	native.PutUint64(payload[8:], first)
	native.PutUint64(payload[16:], count)
	return reply
}

func openDescriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestAWrongAnswerToAttachIsIncompatible(t *testing.T) {
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	two := []int{int(null.Fd()), int(null.Fd())}
	for name, answer := range map[string]answerer{
		"ring without descriptors": func(f frame) ([][]byte, []int) {
			return [][]byte{attachAnswer(f.id, 7, 4096, 4096, "")}, nil
		},
		"descriptors of no ring": func(f frame) ([][]byte, []int) {
			return [][]byte{attachAnswer(f.id, 7, 4096, 4096, "")}, two
		},
		"one descriptor": func(f frame) ([][]byte, []int) {
			return [][]byte{attachAnswer(f.id, 7, 4096, 4096, "")}, two[:1]
		},
		"no ring with descriptors": func(f frame) ([][]byte, []int) {
			return [][]byte{attachAnswer(f.id, 0, 0, 0, "segment")}, two
		},
		"no ring with sizes": func(f frame) ([][]byte, []int) {
			return [][]byte{attachAnswer(f.id, 0, 4096, 0, "segment")}, nil
		},
		"another type": func(f frame) ([][]byte, []int) {
			return [][]byte{claimAnswer(f.id, 1, 1)}, nil
		},
		"short": func(f frame) ([][]byte, []int) {
			reply, _ := newFrame(frameAttach|replyBit, f.id, 8)
			return [][]byte{reply}, nil
		},
	} {
		client, err := Open(WithSocket(fakeDaemon(t, answer)), WithTimeout(time.Second))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := openDescriptors(t)
		for i := 0; i < 3; i++ {
			if _, err := client.Tag("orders"); !errors.Is(err, ErrIncompatible) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after := openDescriptors(t); after > before {
			t.Errorf("%s: %d descriptors, before %d", name, after, before)
		}
		client.Close()
	}
}

func TestWrongAnswersToAClaimYieldNoID(t *testing.T) {
	var claims int32
	path := fakeDaemon(t, func(f frame) ([][]byte, []int) {
		if f.kind == frameAttach {
			return [][]byte{attachAnswer(f.id, 0, 0, 0, "ticket")}, nil
		}
		good := claimAnswer(f.id, 42, 1)
		switch atomic.AddInt32(&claims, 1) {
		case 1: // too many
			return [][]byte{claimAnswer(f.id, 1, 2)}, nil
		case 2: // beyond the last id
			return [][]byte{claimAnswer(f.id, maxLimit, 1)}, nil
		case 3: // garbage, then the next connection answers
			return [][]byte{[]byte("garbage that is longer than a header")}, nil
		case 4: // the daemon ends without an answer
			return nil, nil
		case 5: // replies to other requests, in one message with the right one
			return [][]byte{append(append(claimAnswer(f.id+100, 7, 1), claimAnswer(f.id-1, 8, 1)...),
				good...)}, nil
		}
		return [][]byte{good}, nil
	})
	client, err := Open(WithSocket(path), WithTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	tag, err := client.Tag("orders")
	if err != nil {
		t.Fatal(err)
	}
	if tag.Info().Mode != ModeTicket {
		t.Errorf("%+v", tag.Info())
	}
	for i := 0; i < 2; i++ {
		if _, err := tag.Claim(background); !errors.Is(err, ErrIncompatible) {
			t.Errorf("%v", err)
		}
	}
	if id, err := tag.Claim(background); id != 42 || err != nil {
		t.Errorf("%d, %v", id, err)
	}
	if n := atomic.LoadInt32(&claims); n != 5 {
		t.Errorf("%d claims", n)
	}
}

func TestTheDaemonMayRefuseAConnectionBeforeHello(t *testing.T) {
	refusal, payload := newFrame(frameError|replyBit, 0, 8+len("no tag is for you"))
	native.PutUint32(payload, uint32(StatusDenied))
	copy(payload[8:], "no tag is for you")
	for i := 0; i < 20; i++ {
		// Every other time it has received HELLO, and closes without reading it.
		_, err := Open(WithSocket(refusingDaemon(t, refusal, i%2 == 1)), WithTimeout(time.Second))
		if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "no tag is for you") {
			t.Fatalf("%v", err)
		}
	}
}

func TestAnUntrustedListenerIsDenied(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a listener of another user")
	}
	folder, err := os.MkdirTemp("/tmp", "idd-uid-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	const nobody = 65534
	path := filepath.Join(folder, "s")
	self := filepath.Join(folder, "listener")
	binary, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(self, binary, 0o755)
	}
	if err != nil || os.Chmod(folder, 0o777) != nil {
		t.Fatal(err)
	}
	listener := exec.Command(self)
	listener.Env = append(os.Environ(), listenerVariable+"="+path)
	listener.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}
	if err := listener.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = listener.Process.Kill()
		_ = listener.Wait()
	}()
	_, err = Open(WithSocket(path), WithTimeout(5*time.Second))
	if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), strconv.Itoa(nobody)) {
		t.Errorf("%v", err)
	}
	// A trusted one gets as far as HELLO, which it does not answer.
	_, err = Open(WithSocket(path), WithTimeout(200*time.Millisecond), WithTrustedUID(nobody))
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestClosingWhileOthersClaim would crash if memory were unmapped while a claim is in it.
func TestClosingWhileOthersClaim(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "closing", "--step", "10000000")
	d.idctl("tag", "create", "timed", "--mode", "snowflake")
	var isOver int32
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		for atomic.LoadInt32(&isOver) == 0 {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
	}()
	for i := 0; i < 150; i++ {
		client := d.open()
		name := []string{"closing", "timed"}[i%2]
		tag, block := d.tag(client, name, 0), d.tag(client, name, 8)
		for g := 0; g < 3; g++ {
			group.Add(1)
			go func() {
				defer group.Done()
				for {
					if _, err := tag.Claim(background); errors.Is(err, ErrInvalid) {
						return
					}
					_, _ = block.TryClaim()
					_ = tag.Info()
				}
			}()
		}
		time.Sleep(2 * time.Millisecond)
		if i%3 == 0 {
			tag.Close()
			block.Close()
		}
		client.Close()
	}
	atomic.StoreInt32(&isOver, 1)
	group.Wait()
	runtime.GC()
	checkMappings(t, 0)
}
