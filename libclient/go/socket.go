// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

const serviceUser = "idd"

// dialSocket connects to the daemon's socket and checks who listens there.
func dialSocket(path string, trustedUID *uint32, w *wait) (*os.File, error) {
	if path == "" || len(path) > 107 {
		return nil, newError(StatusInvalid, "the socket's path must have 1 to 107 bytes: "+path)
	}
	const kind = syscall.SOCK_SEQPACKET | syscall.SOCK_CLOEXEC | syscall.SOCK_NONBLOCK
	fd, err := syscall.Socket(syscall.AF_UNIX, kind, 0)
	if err != nil {
		return nil, newError(StatusSystem, "socket: "+err.Error())
	}
	if fd, err = aboveStandard(fd); err != nil {
		return nil, newError(StatusSystem, "socket: "+err.Error())
	}
	if err := connectBefore(fd, path, w); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	if err := checkPeer(fd, path, trustedUID); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// aboveStandard moves a file whose number is that of stdin, stdout or stderr, which the program may
// have closed: what it still writes there must not go to the daemon or into a ring. It closes fd if
// it fails.
func aboveStandard(fd int) (int, error) {
	if fd > syscall.Stderr {
		return fd, nil
	}
	moved, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC,
		uintptr(syscall.Stderr+1))
	syscall.Close(fd)
	if errno != 0 {
		return -1, errno
	}
	return int(moved), nil
}

// connectBefore tries again while the daemon's backlog is full: a non-blocking connect to a Unix
// socket then fails at once.
func connectBefore(fd int, path string, w *wait) error {
	name := path
	if name[0] == '@' {
		name = "./" + path // syscall would take it for an abstract address
	}
	address := &syscall.SockaddrUnix{Name: name}
	for {
		err := syscall.Connect(fd, address)
		if err == nil {
			return nil
		}
		if err != syscall.EAGAIN && err != syscall.EINTR || w.isOver() {
			return connectError(err, path)
		}
		w.pause()
	}
}

func connectError(err error, path string) error {
	what := "cannot connect to " + path + ": "
	switch err {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP:
		return newError(StatusUnavailable, what+"no such socket, so idd does not run here")
	case syscall.ECONNREFUSED: // also for any other kind of file
		if info, statErr := os.Stat(path); statErr == nil && info.Mode()&os.ModeSocket == 0 {
			return newError(StatusUnavailable, what+"it is not a socket")
		}
		return newError(StatusUnavailable, what+"no process listens, idd has stopped")
	case syscall.EAGAIN, syscall.EINTR:
		return newError(StatusUnavailable, what+"idd did not accept before the deadline")
	case syscall.EACCES, syscall.EPERM:
		return newError(StatusDenied, what+"permission denied; may this user use idd's socket?")
	case syscall.EPROTOTYPE:
		return newError(StatusIncompatible, what+"not a SOCK_SEQPACKET socket, so not idd's")
	}
	return newError(StatusSystem, what+err.Error())
}

// checkPeer refuses a listener that runs as an untrusted user: it could pass any memory as a ring.
func checkPeer(fd int, path string, trustedUID *uint32) error {
	peer, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return newError(StatusSystem, "getsockopt(SO_PEERCRED): "+err.Error())
	}
	switch {
	case peer.Uid == 0, peer.Uid == uint32(os.Geteuid()):
		return nil
	case trustedUID != nil && peer.Uid == *trustedUID:
		return nil
	case isUser(serviceUser, peer.Uid):
		return nil
	}
	return newError(StatusDenied, fmt.Sprintf("the listener at %s runs as uid %d, which is neither "+
		"root, this user nor %s; refusing to trust it", path, peer.Uid, serviceUser))
}

// isUser reads /etc/passwd, because the lookup of the C library needs cgo.
func isUser(name string, uid uint32) bool {
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(passwd), "\n") {
		fields := strings.Split(line, ":")
		if len(fields) >= 3 && fields[0] == name {
			return fields[2] == strconv.FormatUint(uint64(uid), 10)
		}
	}
	return false
}

// received is one message of the daemon. isCut: descriptors did not arrive for want of free ones.
type received struct {
	bytes []byte
	fds   []int
	isCut bool
}

// receiveMessage waits for a message. The result's bytes lie in `buffer`.
func receiveMessage(raw syscall.RawConn, buffer, control []byte) (received, error) {
	var n, controlBytes, flags int
	var err error
	waitErr := raw.Read(func(fd uintptr) bool {
		n, controlBytes, flags, _, err = receiveNow(fd, buffer, control)
		if err == syscall.ECONNRESET {
			// idd closed the connection before it read our request. The kernel says so once,
			// before what idd had sent: its reason may be there to read.
			n, controlBytes, flags, _, err = receiveNow(fd, buffer, control)
		}
		return err != syscall.EAGAIN && err != syscall.EINTR
	})
	if waitErr != nil {
		return received{}, newError(StatusUnavailable, "the connection to idd was closed")
	}
	if err != nil {
		return received{}, newError(StatusUnavailable, "the connection to idd broke: recvmsg: "+
			err.Error())
	}
	if n == 0 && controlBytes == 0 {
		return received{}, newError(StatusUnavailable, "idd closed the connection")
	}
	m := received{bytes: buffer[:n], fds: descriptorsOf(control[:controlBytes])}
	m.isCut = flags&syscall.MSG_CTRUNC != 0 && len(m.fds) < 2
	if flags&syscall.MSG_TRUNC != 0 {
		closeAll(m.fds)
		return received{}, newError(StatusUnavailable, "idd sent a message that is too long")
	}
	return m, nil
}

func receiveNow(fd uintptr, buffer, control []byte) (int, int, int, syscall.Sockaddr, error) {
	return syscall.Recvmsg(int(fd), buffer, control,
		syscall.MSG_CMSG_CLOEXEC|syscall.MSG_DONTWAIT)
}

func descriptorsOf(control []byte) []int {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	var fds []int
	for i := range messages {
		some, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range some {
			if fd, err := aboveStandard(fd); err == nil {
				fds = append(fds, fd)
			}
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}

// trySend sends a frame unless it would have to wait. EAGAIN: it would.
func trySend(raw syscall.RawConn, frame []byte) error {
	var err error
	closed := raw.Control(func(fd uintptr) {
		for {
			_, err = syscall.SendmsgN(int(fd), frame, nil, nil,
				syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
			if err != syscall.EINTR {
				return
			}
		}
	})
	if closed != nil {
		return closed
	}
	return err
}
