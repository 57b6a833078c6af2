// SPDX-License-Identifier: Apache-2.0

package idclient

import "errors"

// Status is the kind of a failure. The numbers are those of idd's socket protocol.
type Status uint32

const (
	// StatusOK is the status of no error.
	StatusOK Status = 0
	// StatusInvalid: an argument or the tag's row is wrong; trying again cannot help.
	StatusInvalid Status = 1
	// StatusUnavailable: the daemon cannot be reached, or refuses for now.
	StatusUnavailable Status = 2
	// StatusNoSuchTag: the allocator has no such tag.
	StatusNoSuchTag Status = 3
	// StatusDenied: this user may not use the socket or the tag, or the daemon is not trusted.
	StatusDenied Status = 4
	// StatusTimeout: nothing to claim before the deadline, or the context was canceled.
	StatusTimeout Status = 5
	// StatusOutOfIDs: the tag's id space is used up.
	StatusOutOfIDs Status = 6
	// StatusIncompatible: daemon and client do not understand each other; upgrade the older one.
	StatusIncompatible Status = 7
	// StatusSystem: a system call failed.
	StatusSystem Status = 8
)

var statusNames = [...]string{
	"OK", "INVALID", "UNAVAILABLE", "NO_SUCH_TAG", "DENIED", "TIMEOUT", "OUT_OF_IDS",
	"INCOMPATIBLE", "SYSTEM",
}

// String returns the name of the status, as "TIMEOUT"; "UNKNOWN" for other values.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "UNKNOWN"
}

// Retryable reports whether the same call may succeed later without a change by an operator or the
// program.
func (s Status) Retryable() bool { return s == StatusUnavailable || s == StatusTimeout }

// Error is the error of every function of this package.
type Error struct {
	Status  Status
	Message string // a sentence: what failed and why

	cause error
}

// Error returns the status and the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return "idclient: " + e.Status.String()
	}
	return "idclient: " + e.Status.String() + ": " + e.Message
}

// Retryable reports whether the same call may succeed later without a change by an operator or the
// program.
func (e *Error) Retryable() bool { return e.Status.Retryable() }

// Unwrap returns context.DeadlineExceeded or context.Canceled if the context ended the wait, else
// nil.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the sentinel of the error's status, as ErrTimeout.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Status == e.Status
}

// The sentinels for errors.Is, one for each status.
var (
	ErrInvalid      error = &Error{Status: StatusInvalid}
	ErrUnavailable  error = &Error{Status: StatusUnavailable}
	ErrNoSuchTag    error = &Error{Status: StatusNoSuchTag}
	ErrDenied       error = &Error{Status: StatusDenied}
	ErrTimeout      error = &Error{Status: StatusTimeout}
	ErrOutOfIDs     error = &Error{Status: StatusOutOfIDs}
	ErrIncompatible error = &Error{Status: StatusIncompatible}
	ErrSystem       error = &Error{Status: StatusSystem}
)

func newError(status Status, message string) *Error {
	return &Error{Status: status, Message: message}
}

// statusOf returns the status of an error of this package.
func statusOf(err error) Status {
	if err == nil {
		return StatusOK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return StatusSystem
}

// errorFromReply is the error of a reply with a status that is not 0. A status of a newer daemon
// that this package does not know counts as SYSTEM.
func errorFromReply(status uint32, reason string) *Error {
	known := Status(status)
	if known == StatusOK || int(known) >= len(statusNames) {
		known = StatusSystem
	}
	return newError(known, reason)
}
