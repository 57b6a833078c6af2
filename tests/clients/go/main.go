// SPDX-License-Identifier: Apache-2.0

// The driver of the conformance tests for the Go client: ../README.md has its commands.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"idd.invalid/idclient"
)

func main() {
	d := &driver{tags: make(map[string]*openTag), out: bufio.NewWriter(os.Stdout)}
	if len(os.Args) == 6 && os.Args[1] == childArgument {
		d.runChild(os.Args[2:])
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		d.answer(lines.Text())
	}
	d.close()
}

// openTag is a handle of the driver.
type openTag struct {
	*idclient.Tag
	name  string
	block int
}

type driver struct {
	socket    string
	timeoutMs string
	client    *idclient.Client
	tags      map[string]*openTag
	out       *bufio.Writer
}

var errUsage = &idclient.Error{Status: idclient.StatusInvalid, Message: "wrong command"}

// answer obeys one command.
func (d *driver) answer(line string) {
	results, err := d.run(strings.Split(line, " "))
	if err == nil {
		fmt.Fprintln(d.out, strings.TrimRight("ok "+results, " "))
	} else {
		status, message := idclient.StatusSystem, err.Error()
		var e *idclient.Error
		if errors.As(err, &e) {
			status, message = e.Status, e.Message
		}
		fmt.Fprintln(d.out, "error", status, strings.ReplaceAll(message, "\n", " "))
	}
	d.out.Flush()
}

func (d *driver) run(words []string) (string, error) {
	switch {
	case words[0] == "open" && len(words) == 3:
		return "", d.open(words[1], words[2])
	case words[0] == "version" && len(words) == 1:
		return idclient.Version, nil
	case words[0] == "close" && len(words) == 1:
		if d.client == nil {
			return "", missing("client")
		}
		d.close()
		return "", nil
	case words[0] == "close" && len(words) <= 3: // "close tag HANDLE"
		return "", d.closeTag(words[len(words)-1])
	case words[0] == "tag" && (len(words) == 3 || len(words) == 4):
		return "", d.openTag(words[1], words[2:])
	}
	if len(words) < 2 {
		return "", errUsage
	}
	t := d.tags[words[1]]
	if t == nil {
		return "", missing("tag " + words[1])
	}
	return d.runOnTag(t, words[0], words[2:])
}

func (d *driver) runOnTag(t *openTag, command string, words []string) (string, error) {
	switch {
	case command == "claim" && len(words) <= 1:
		return claim(t, words)
	case command == "many" && len(words) == 1:
		return many(t, words[0])
	case command == "range" && len(words) == 1:
		count, err := strconv.ParseUint(words[0], 10, 64)
		if err != nil {
			return "", errUsage
		}
		r, err := t.ClaimRange(context.Background(), count)
		return fmt.Sprint(r.First, " ", r.Count), err
	case command == "info" && len(words) == 0:
		i := t.Info()
		return fmt.Sprint(i.Mode, " ", i.Order, " ", i.State, " ", i.Step, " ", i.Available), nil
	case command == "loop" && len(words) == 3:
		return "", loop(t, words)
	case command == "fork" && len(words) == 1:
		return d.fork(t, words[0])
	}
	return "", errUsage
}

func missing(what string) error {
	return &idclient.Error{Status: idclient.StatusInvalid, Message: "there is no " + what}
}

func (d *driver) open(socket, timeoutMs string) error {
	ms, err := strconv.ParseUint(timeoutMs, 10, 32)
	if err != nil {
		return errUsage
	}
	d.close()
	timeout := time.Duration(ms) * time.Millisecond
	client, err := idclient.Open(idclient.WithSocket(socket), idclient.WithTimeout(timeout))
	if err != nil {
		return err
	}
	d.client, d.socket, d.timeoutMs = client, socket, timeoutMs
	return nil
}

func (d *driver) openTag(handle string, words []string) error {
	if d.client == nil {
		return missing("client")
	}
	t := &openTag{name: words[0]}
	var err error
	if len(words) == 2 {
		if t.block, err = strconv.Atoi(words[1]); err != nil {
			return errUsage
		}
	}
	if t.Tag, err = d.client.TagWithBlock(t.name, t.block); err != nil {
		return err
	}
	if before := d.tags[handle]; before != nil {
		before.Close()
	}
	d.tags[handle] = t
	return nil
}

func (d *driver) closeTag(handle string) error {
	t := d.tags[handle]
	if t == nil {
		return missing("tag " + handle)
	}
	delete(d.tags, handle)
	t.Close()
	return nil
}

func (d *driver) close() {
	d.tags = make(map[string]*openTag)
	if d.client != nil {
		d.client.Close()
		d.client = nil
	}
}

func claim(t *openTag, words []string) (string, error) {
	ctx := context.Background()
	if len(words) == 1 {
		ms, err := strconv.ParseUint(words[0], 10, 32)
		if err != nil {
			return "", errUsage
		}
		if ms == 0 {
			id, ok := t.TryClaim()
			if !ok {
				return "", &idclient.Error{Status: idclient.StatusTimeout,
					Message: "nothing to claim without a wait"}
			}
			return fmt.Sprint(id), nil
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer cancel()
	}
	id, err := t.Claim(ctx)
	return fmt.Sprint(id), err
}

func many(t *openTag, word string) (string, error) {
	count, err := strconv.ParseUint(word, 10, 24)
	if err != nil {
		return "", errUsage
	}
	ids := make([]uint64, count)
	_, err = t.ClaimMany(context.Background(), ids)
	return joined(ids), err
}

func joined(ids []uint64) string {
	var b strings.Builder
	for i, id := range ids {
		if i != 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatUint(id, 10))
	}
	return b.String()
}

// claimAgain claims one id, again after each failure that may pass.
func claimAgain(t *openTag) (uint64, error) {
	for {
		id, err := t.Claim(context.Background())
		var e *idclient.Error
		if err == nil || !errors.As(err, &e) || !e.Retryable() {
			return id, err
		}
	}
}
