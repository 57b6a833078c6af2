// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"errors"
	"math/rand"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// TestNoIDComesTwiceOverRestarts kills and restarts the daemon while goroutines of two clients
// claim from tags of every kind.
func TestNoIDComesTwiceOverRestarts(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	d := newDaemon(t)
	d.idctl("tag", "create", "host", "--step", "1000")
	d.idctl("tag", "create", "cpu", "--step", "1000", "--order", "cpu")
	d.idctl("tag", "create", "time", "--mode", "snowflake")
	d.idctl("tag", "create", "ticket", "--mode", "ticket")
	d.idctl("tag", "create", "socket", "--access", "socket")
	clients := []*Client{d.open(), d.open()}
	var isOver int32
	var group sync.WaitGroup
	names := []string{"host", "cpu", "time", "ticket", "socket"}
	ids := make(map[string][][]uint64)
	for _, name := range names {
		ids[name] = make([][]uint64, 8)
		for i := range ids[name] {
			group.Add(1)
			block := 0
			if i%4 == 3 && name != "ticket" {
				block = 64
			}
			tag := d.tag(clients[i%2], name, block)
			go func(tag *Tag, mine *[]uint64, seed int64) {
				defer group.Done()
				random := rand.New(rand.NewSource(seed))
				for atomic.LoadInt32(&isOver) == 0 {
					*mine = append(*mine, claimSome(t, tag, random)...)
					if random.Intn(50) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			}(tag, &ids[name][i], int64(i))
		}
	}
	for i := 0; i < rounds; i++ {
		time.Sleep(500 * time.Millisecond)
		if i%2 == 0 {
			d.stop(syscall.SIGKILL)
		} else {
			d.stop(syscall.SIGTERM)
		}
		time.Sleep(time.Duration(i) * 50 * time.Millisecond)
		d.start()
	}
	time.Sleep(500 * time.Millisecond)
	atomic.StoreInt32(&isOver, 1)
	group.Wait()
	for _, name := range names {
		t.Logf("%s: %d ids", name, checkIDs(t, ids[name]))
	}
	checkMappings(t, 4*5*2)
}

// claimSome claims in one of the ways, again after a failure that may pass.
func claimSome(t *testing.T, tag *Tag, random *rand.Rand) []uint64 {
	ids := make([]uint64, 1, 100)
	var err error
	switch way := random.Intn(20); {
	case way == 0 && tag.source == nil:
		ids = ids[:cap(ids)]
		var n int
		n, err = tag.ClaimMany(background, ids)
		ids = ids[:n]
	case way == 1 && tag.source == nil:
		var r Range
		r, err = tag.ClaimRange(background, 10)
		ids = ids[:0]
		for i := uint64(0); i < r.Count; i++ {
			ids = append(ids, r.First+i)
		}
	case way == 2:
		var ok bool
		if ids[0], ok = tag.TryClaim(); !ok {
			return nil
		}
	default:
		ids[0], err = tag.Claim(background)
		if err != nil {
			ids = nil
		}
	}
	var e *Error
	if err != nil && (!errors.As(err, &e) || !e.Retryable()) {
		t.Errorf("%s: %v", tag.Name(), err)
		runtime.Goexit()
	}
	return ids
}

// checkMappings fails if more memfds than that are mapped. Older rings were blanked.
func checkMappings(t *testing.T, most int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(maps), "/memfd:"); n > most {
		t.Errorf("%d memfds are mapped, more than %d", n, most)
	}
}

func TestManyGoroutinesWaitForADaemon(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "outage", "--step", "1000")
	tag := d.tag(d.open(WithTimeout(20*time.Second)), "outage", 0)
	if _, err := tag.Claim(background); err != nil {
		t.Fatal(err)
	}
	d.stop(syscall.SIGTERM)
	launched := make(chan struct{})
	go func() {
		defer close(launched)
		time.Sleep(time.Second)
		d.launch()
	}()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	checkIDs(t, claimMany(t, tag, 2000, 5))
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	<-launched
	t.Logf("used %d ms of a CPU", (after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-
		before.Stime.Nano())/1e6)
}

func TestTheRingServesWhileTheDaemonIsDead(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "left", "--step", "100000")
	tag := d.tag(d.open(WithTimeout(200*time.Millisecond)), "left", 0)
	first, err := tag.Claim(background)
	if err != nil {
		t.Fatal(err)
	}
	for tag.Info().Available < 90_000 {
		time.Sleep(time.Millisecond)
	}
	d.stop(syscall.SIGKILL)
	left := tag.Info().Available
	for i := uint64(0); i < left; i++ {
		if _, err := tag.Claim(background); err != nil {
			t.Fatalf("claim %d of %d: %v", i, left, err)
		}
	}
	start := time.Now()
	if _, err := tag.Claim(background); !errors.Is(err, ErrUnavailable) ||
		time.Since(start) < 150*time.Millisecond {
		t.Fatalf("%v after %v", err, time.Since(start))
	}
	d.start()
	id, err := tag.Claim(background)
	if err != nil || id < first+left {
		t.Fatalf("%d, %v", id, err)
	}
}

func TestManyRestartsKeepTwoRingsMapped(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "rings")
	tag := d.tag(d.open(), "rings", 0)
	var last uint64
	for i := 0; i < 5; i++ {
		id, err := tag.Claim(background)
		if err != nil || id <= last {
			t.Fatalf("%d after %d, %v", id, last, err)
		}
		last = id
		d.restart([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[i%2])
		for tag.Info().Available != 0 { // use up what the new daemon has not closed
			if _, ok := tag.TryClaim(); !ok {
				break
			}
		}
		runtime.GC()
	}
	checkMappings(t, 4)
	tag.Close()
	checkMappings(t, 0)
}

func TestOpeningATagOftenKeepsNoMemory(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "often")
	client := d.open()
	count := func() int {
		for i := 0; i < 3; i++ {
			runtime.GC()
			time.Sleep(5 * time.Millisecond)
		}
		maps, _ := os.ReadFile("/proc/self/maps")
		return strings.Count(string(maps), "\n")
	}
	before := count()
	descriptors := openDescriptors(t)
	for i := 0; i < 1000; i++ {
		d.tag(client, "often", 0).Close()
	}
	if after := count(); after > before+20 {
		t.Errorf("%d mappings, before %d", after, before)
	}
	if after := openDescriptors(t); after > descriptors {
		t.Errorf("%d descriptors, before %d", after, descriptors)
	}
}

func TestNoIDComesTwiceOverDrains(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "drains", "--step", "50000")
	client := d.open(WithTimeout(50 * time.Millisecond))
	var isOver int32
	var group sync.WaitGroup
	ids := make([][]uint64, 6)
	for i := range ids {
		group.Add(1)
		go func(tag *Tag, mine *[]uint64, seed int64) {
			defer group.Done()
			random := rand.New(rand.NewSource(seed))
			for atomic.LoadInt32(&isOver) == 0 {
				some := claimSome(t, tag, random)
				if *mine = append(*mine, some...); len(some) == 0 || random.Intn(100) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		}(d.tag(client, "drains", 0), &ids[i], int64(i))
	}
	for i := 0; i < 12; i++ {
		time.Sleep(100 * time.Millisecond)
		d.idctl("drain", "drains")
		d.idctl("resume", "drains")
	}
	atomic.StoreInt32(&isOver, 1)
	group.Wait()
	t.Logf("%d ids", checkIDs(t, ids))
	d.idctl("audit")
}
