// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var background = context.Background()

// claimMany claims in several goroutines at once and returns the ids of each.
func claimMany(t *testing.T, tag *Tag, goroutines, count int) [][]uint64 {
	t.Helper()
	ids := make([][]uint64, goroutines)
	var group sync.WaitGroup
	for i := range ids {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			for n := 0; n < count; n++ {
				id, err := tag.Claim(background)
				if err != nil {
					t.Errorf("claim %d: %v", n, err)
					return
				}
				ids[i] = append(ids[i], id)
			}
		}(i)
	}
	group.Wait()
	return ids
}

// checkIDs fails if an id comes twice, or if those of one goroutine do not rise.
func checkIDs(t *testing.T, ids [][]uint64) int {
	t.Helper()
	seen := make(map[uint64]struct{})
	for i, some := range ids {
		for n, id := range some {
			if _, ok := seen[id]; ok {
				t.Fatalf("id %d came twice", id)
			}
			seen[id] = struct{}{}
			if n > 0 && some[n-1] >= id {
				t.Fatalf("goroutine %d got %d after %d", i, id, some[n-1])
			}
		}
	}
	return len(seen)
}

func TestEveryKindOfTagGivesUniqueRisingIDs(t *testing.T) {
	d := newDaemon(t)
	client := d.open()
	for _, c := range []struct {
		name   string
		create []string
		block  int
		count  int
		info   string
	}{
		{"host", nil, 0, 20_000, "segment host"},
		{"block", nil, 256, 20_000, "segment host"},
		{"cpu", []string{"--order", "cpu"}, 0, 20_000, "segment cpu"},
		{"snowflake", []string{"--mode", "snowflake"}, 0, 20_000, "snowflake host"},
		{"snowflake-block", []string{"--mode", "snowflake"}, 64, 5_000, "snowflake host"},
		{"snowflake-daemon", []string{"--mode", "snowflake", "--clock", "daemon"}, 0, 2_000,
			"snowflake host"},
		{"ticket", []string{"--mode", "ticket"}, 0, 25, "ticket host"},
		{"socket", []string{"--access", "socket"}, 0, 100, "segment host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.idctl(append([]string{"tag", "create", c.name}, c.create...)...)
			tag := d.tag(client, c.name, c.block)
			defer tag.Close()
			ids := claimMany(t, tag, 4, c.count)
			many := make([]uint64, 50)
			if n, err := tag.ClaimMany(background, many); n != 50 || err != nil {
				t.Fatalf("%d ids, %v", n, err)
			}
			r, err := tag.ClaimRange(background, 20)
			if err != nil || r.Count < 1 || r.Count > 20 {
				t.Fatalf("%v, %v", r, err)
			}
			last := []uint64{many[49]}
			for i := uint64(0); i < r.Count; i++ {
				last = append(last, r.First+i)
			}
			checkIDs(t, append(ids, many, last[1:]))
			checkIDs(t, [][]uint64{last})
			info := tag.Info()
			if got := info.Mode.String() + " " + info.Order.String(); got != c.info {
				t.Errorf("info shows %s", got)
			}
		})
	}
}

func TestInfoShowsTheRing(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "orders", "--step", "1000")
	tag := d.tag(d.open(), "orders", 0)
	if _, err := tag.Claim(background); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for tag.Info().Available != 999 {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", tag.Info())
		}
		time.Sleep(time.Millisecond)
	}
	if info := tag.Info(); info.State != StateOK || info.Step != 1000 || info.Mode != ModeSegment {
		t.Errorf("%+v", info)
	}
}

func TestErrorsSayWhatHappened(t *testing.T) {
	d := newDaemon(t)
	client := d.open(WithTimeout(300 * time.Millisecond))
	if _, err := client.Tag("nosuch"); !errors.Is(err, ErrNoSuchTag) ||
		!strings.Contains(err.Error(), "nosuch") {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"", " x", "x\n", "\xff", strings.Repeat("x", 129)} {
		if _, err := client.Tag(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	// The daemon refuses the name and closes the connection; the next call connects again.
	if _, err := client.Tag("a\u200bb"); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	d.idctl("tag", "create", "few", "--max-id", "3")
	few := d.tag(client, "few", 0)
	ids := make([]uint64, 5)
	n, err := few.ClaimMany(background, ids)
	if n != 3 || !errors.Is(err, ErrOutOfIDs) || ids[2] != 3 {
		t.Errorf("%d ids, %v", n, err)
	}
	if _, err := few.ClaimRange(background, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := client.TagWithBlock("few", maxBlock+1); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := Open(WithTimeout(2 * time.Hour)); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	few.Close()
	if _, err := few.Claim(background); !errors.Is(err, ErrInvalid) {
		t.Errorf("after Close: %v", err)
	}
	few.Close()
	client.Close()
	client.Close()
	if _, err := client.Tag("few"); !errors.Is(err, ErrInvalid) {
		t.Errorf("after Close: %v", err)
	}
}

// What a program still writes to a closed stdout must not go to the daemon or into a ring.
func TestNumbersOfClosedStandardDescriptorsAreNotUsed(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "orders", "--step", "100")
	kept, err := syscall.Dup(syscall.Stdin)
	if err != nil {
		t.Skip("stdin is closed")
	}
	syscall.Close(syscall.Stdin)
	tag := d.tag(d.open(), "orders", 0)
	_, claimErr := tag.Claim(background)
	var info syscall.Stat_t
	statErr := syscall.Fstat(syscall.Stdin, &info)
	if err := syscall.Dup3(kept, syscall.Stdin, 0); err != nil {
		t.Fatal(err)
	}
	syscall.Close(kept)
	if claimErr != nil {
		t.Fatal(claimErr)
	}
	if statErr != syscall.EBADF {
		t.Errorf("descriptor 0 is in use (mode %o)", info.Mode)
	}
}

func TestOpenWaitsForADaemonUntilTheTimeout(t *testing.T) {
	start := time.Now()
	_, err := Open(WithSocket("/tmp/no-such-idd.sock"), WithTimeout(200*time.Millisecond))
	var e *Error
	if !errors.As(err, &e) || e.Status != StatusUnavailable || !e.Retryable() ||
		time.Since(start) < 200*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	d := newDaemon(t)
	d.stop(15)
	launched := make(chan struct{})
	go func() {
		defer close(launched)
		time.Sleep(100 * time.Millisecond)
		d.launch()
	}()
	d.open()
	<-launched
}

func TestTheContextEndsTheWait(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "acc", "--access", "socket")
	client := d.open(WithTimeout(20 * time.Second))
	tag := d.tag(client, "acc", 0)
	if _, err := tag.Claim(background); err != nil {
		t.Fatal(err)
	}
	_ = d.process.Process.Signal(sigStop)
	defer func() { _ = d.process.Process.Signal(sigCont) }()
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := tag.Claim(ctx)
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	canceled, cancelNow := context.WithCancel(background)
	time.AfterFunc(100*time.Millisecond, cancelNow)
	_, err = tag.Claim(canceled)
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err = tag.Claim(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	// Close ends a wait as well.
	time.AfterFunc(100*time.Millisecond, client.Close)
	if _, err = tag.Claim(background); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestTryClaimNeverWaitsAndWakesTheDaemon(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "try", "--step", "1000")
	client := d.open()
	for _, block := range []int{0, 32} {
		tag := d.tag(client, "try", block)
		deadline := time.Now().Add(5 * time.Second)
		for {
			start := time.Now()
			_, ok := tag.TryClaim()
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("TryClaim took %v", took)
			}
			if ok {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("no id in 5 s")
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func TestATagIsOpenUntilItWasClosedAsOftenAsOpened(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "twice")
	client := d.open()
	first, second := d.tag(client, "twice", 0), d.tag(client, "twice", 0)
	if first != second {
		t.Fatal("two handles")
	}
	block := d.tag(client, "twice", 16)
	first.Close()
	first.Close()
	if _, err := block.Claim(background); err != nil {
		t.Fatal(err)
	}
	block.Close()
	block.Close()
	if _, err := second.Claim(background); !errors.Is(err, ErrInvalid) {
		t.Fatalf("%v", err)
	}
	if _, err := d.tag(client, "twice", 0).Claim(background); err != nil {
		t.Fatal(err)
	}
}

func TestADrainedTagFailsAtOnceAndGoesOnWhenResumed(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "drained")
	tag := d.tag(d.open(WithTimeout(3*time.Second)), "drained", 0)
	before, err := tag.Claim(background)
	if err != nil {
		t.Fatal(err)
	}
	d.idctl("drain", "drained")
	start := time.Now()
	if _, err := tag.Claim(background); !errors.Is(err, ErrUnavailable) ||
		time.Since(start) > time.Second {
		t.Fatalf("%v after %v", err, time.Since(start))
	}
	if state := tag.Info().State; state != StateDrained {
		t.Errorf("%v", state)
	}
	if _, ok := tag.TryClaim(); ok {
		t.Error("an id of a drained tag")
	}
	d.idctl("resume", "drained")
	after, err := tag.Claim(background)
	if err != nil || after <= before {
		t.Fatalf("%d after %d, %v", after, before, err)
	}
}

func TestAccessMayChangeWhileATagIsOpen(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "access")
	tag := d.tag(d.open(), "access", 0)
	var last uint64
	for i, access := range []string{"ring", "socket", "ring", "socket"} {
		if i > 0 {
			d.idctl("tag", "set", "access", "--access", access)
		}
		for n := 0; n < 50; n++ {
			id, err := tag.Claim(background)
			if err != nil || id <= last {
				t.Fatalf("%s: %d after %d, %v", access, id, last, err)
			}
			last = id
		}
		hasRing := tag.Info().State != StateNoRing
		if hasRing != (access == "ring") {
			t.Errorf("%s: %+v", access, tag.Info())
		}
	}
}

func TestManyGoroutinesWaitForADryRing(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "dry", "--step", "1000")
	tag := d.tag(d.open(WithTimeout(20*time.Second)), "dry", 0)
	ids := claimMany(t, tag, 2000, 20)
	if n := checkIDs(t, ids); n != 40_000 {
		t.Fatalf("%d ids", n)
	}
}
