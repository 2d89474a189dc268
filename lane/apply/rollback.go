// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
)

// Rollback restores every object that j owns to its value before niclane first wrote it, in
// reverse order. If another program has changed an object since niclane wrote it, Rollback leaves
// the object and reports it; with opts.Force, it restores it. Objects that are left stay in the
// journal, and the error is a LeftError. If none are left, Rollback removes j. A failure does not
// stop it, and after it has begun, neither does the end of ctx.
//
// here is the host of the caller. Rollback removes a journal of an earlier boot, because the
// kernel state that it describes is gone. For a journal of another network namespace, it returns
// an error.
func Rollback(ctx context.Context, k Kernel, j *journal.Journal, here journal.Host, opts Options) (*Report, error) {
	if err := ctx.Err(); err != nil {
		return &Report{}, err
	}
	h := j.Head()
	if !h.SameBoot(here) {
		return &Report{Rebooted: true}, j.Remove()
	}
	if !h.SameNetns(here) {
		return &Report{}, fmt.Errorf("%s was applied in network namespace %d, this is %d: run rollback there (lsns "+
			"-t net)",
			h.Config, h.NetnsInode, here.NetnsInode)
	}
	r, err := newRunner(k, h.Ground, opts)
	if err != nil {
		return &r.report, err
	}
	if r.follow != nil {
		r.report.Warnings = append(r.report.Warnings, r.follow.renamed()...)
	}
	var tasks []*task
	for _, rec := range slices.Backward(j.Records()) {
		key := rec.Key()
		tasks = append(tasks, &task{
			key: key, want: rec.Original, expect: rec.Last, loose: rec.Uncertain, next: rec.Next,
			begin: func() error { return j.Restore(key) },
			end:   func() error { return j.Restored(key) },
		})
	}
	r.resized = map[string]bool{}
	for _, t := range tasks {
		if c, ok := t.object().(device.Channels); ok {
			r.resized[c.Dev] = true
		}
	}
	r.restoreAll(tasks)
	if err := r.left(); err != nil {
		return &r.report, err
	}
	return &r.report, j.Remove()
}
