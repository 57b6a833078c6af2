// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"os"
	"time"
)

const (
	defaultSocket  = "/run/idd/idd.sock"
	defaultTimeout = 500 * time.Millisecond
	maxTimeout     = time.Hour
)

// LogLevel is the level of a log message.
type LogLevel int

const (
	// LogInfo: connected, or attached to another ring.
	LogInfo LogLevel = 1
	// LogWarning: a connection was lost.
	LogWarning LogLevel = 2
)

// String returns "info" or "warning".
func (l LogLevel) String() string {
	if l == LogWarning {
		return "warning"
	}
	return "info"
}

type settings struct {
	socket     string
	timeout    time.Duration
	trustedUID *uint32
	log        func(level LogLevel, message string)
}

// Option is an option of Open.
type Option func(*settings)

// WithSocket sets the path of the daemon's socket. The default is $IDD_SOCKET, else
// /run/idd/idd.sock.
func WithSocket(path string) Option { return func(s *settings) { s.socket = path } }

// WithTimeout sets the longest wait of Open, of Client.Tag, and of a claim whose context has no
// deadline: at most an hour. 0 means the default, 500 ms.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithTrustedUID names a user whose daemon is trusted, like that of root, of this process's user
// and of the user idd.
func WithTrustedUID(uid uint32) Option { return func(s *settings) { s.trustedUID = &uid } }

// WithLog sets a function that gets what happens to the connection. It may be called by several
// goroutines at once, with no lock held.
func WithLog(log func(level LogLevel, message string)) Option {
	return func(s *settings) { s.log = log }
}

func readOptions(options []Option) (settings, error) {
	s := settings{socket: os.Getenv("IDD_SOCKET")}
	if s.socket == "" {
		s.socket = defaultSocket
	}
	for _, option := range options {
		option(&s)
	}
	if s.timeout == 0 {
		s.timeout = defaultTimeout
	}
	if s.timeout < 0 || s.timeout > maxTimeout {
		return s, newError(StatusInvalid, "the timeout must be from 0 to 1 hour, got "+
			s.timeout.String())
	}
	if s.log == nil {
		s.log = func(LogLevel, string) {}
	}
	return s, nil
}
