// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestSnowflakeIDsCarryThePresent(t *testing.T) {
	d := newDaemon(t)
	epoch := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	for _, clock := range []string{"client", "daemon"} {
		d.idctl("tag", "create", clock, "--mode", "snowflake", "--clock", clock, "--max-ahead", "0s")
		tag := d.tag(d.open(), clock, 0)
		for i := 0; i < 20; i++ {
			before := time.Now().UnixMilli() - epoch
			id, err := tag.Claim(background)
			after := time.Now().UnixMilli() - epoch
			// With the daemon's clock, the cursor moves a few times a second at least.
			slack := int64(0)
			if clock == "daemon" {
				slack = 1000
			}
			if at := int64(id >> 22); err != nil || at < before-slack || at > after+slack {
				t.Fatalf("clock %s: id of %d ms, claimed from %d to %d, %v", clock, at, before, after, err)
			}
			time.Sleep(3 * time.Millisecond)
		}
	}
}

func TestSnowflakeClaimsWaitAtTheCeiling(t *testing.T) {
	d := newDaemon(t)
	d.idctl("tag", "create", "slow", "--mode", "snowflake", "--layout", "41/17/5", "--max-ahead", "0s")
	tag := d.tag(d.open(), "slow", 0)
	start := time.Now()
	ids := claimMany(t, tag, 4, 1000)
	if took := time.Since(start); took < 4000/32*time.Millisecond {
		t.Errorf("4000 ids of 32 per ms took %v", took)
	}
	checkIDs(t, ids)
	refused := false
	for i := 0; i < 10_000 && !refused; i++ {
		_, ok := tag.TryClaim()
		refused = !ok
	}
	if !refused {
		t.Error("TryClaim passed the ceiling")
	}
	// 10,000 ids need 312 ms.
	ctx, cancel := context.WithTimeout(background, 30*time.Millisecond)
	defer cancel()
	many := make([]uint64, 10_000)
	start = time.Now()
	n, err := tag.ClaimMany(ctx, many)
	if n == 0 || n == len(many) || !errors.Is(err, context.DeadlineExceeded) ||
		time.Since(start) > 10*time.Second {
		t.Errorf("%d ids, %v after %v", n, err, time.Since(start))
	}
	checkIDs(t, append(ids, many[:n]))
	r, err := tag.ClaimRange(background, 1000)
	if err != nil || r.Count > 32 {
		t.Errorf("%v, %v", r, err)
	}
}
