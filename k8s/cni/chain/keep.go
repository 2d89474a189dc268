// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/niclane/niclane/internal/atomicfile"
)

// settled is how long a problem must last before Keep reports it, because programs write their
// lists in several steps. It is also the time between two attempts to report it.
const settled = time.Second

// A program can take niclane-cni out each time. Cilium's agent does so with cni-exclusive, its
// default. It writes its list again at each event of the directory (daemon/cmd/cni/config.go of
// Cilium 1.20). Such a contest has no end, and for each round the runtime reads its networks again.
const (
	// mostLost is how many times in a row a list can lose niclane-cni before Keep gives way.
	mostLost = 3
	// soonLost is the time after Keep's change in which the loss counts.
	soonLost = 10 * time.Second
	// truce is the time for which Keep gives way. After it, one loss is enough to give way again.
	truce = time.Minute
)

// contest counts how often a list loses niclane-cni.
type contest struct {
	lost    int
	changed time.Time // Keep's last change
	over    time.Time // Keep gives way until then
}

// change does the same as the function change, except while Keep gives way to another program.
func (c *contest) change(dir string, how func([]byte) ([]byte, error)) (string, error) {
	now := time.Now()
	if now.Before(c.over) {
		return "", errContest
	}
	changed, err := change(dir, how)
	if changed == "" {
		return "", err
	}
	switch since := now.Sub(c.changed); {
	case since < soonLost:
		c.lost++
	case since > soonLost+truce:
		c.lost = 0
	}
	c.changed = now
	if c.lost == mostLost {
		c.lost, c.over = mostLost-1, now.Add(truce)
		return "", errContest
	}
	return changed, err
}

var errContest = fmt.Errorf("another program takes niclane-cni out of the node's list of plugins each time, within "+
	"%v of its addition. Cilium does so unless its value cni.exclusive is false: set it to false, and restart "+
	"Cilium's agents. Or let the runtime call the agent: nri.enabled=true, cni.enabled=false. niclane-cni-install "+
	"tries again every %v", soonLost, truce)

// Keep puts niclane-cni into the node's list of plugins, and again after each change of the list,
// until ctx ends. At the end, niclane-cni stays in the list. statusOfAgent is passed to Add. If
// niclane-cni cannot be chained, Keep calls tell with the reason until tell succeeds. It gives way for
// a time to a program that takes niclane-cni out each time.
func Keep(ctx context.Context, dir string, statusOfAgent bool, log *slog.Logger,
	tell func(context.Context, error) error) error {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watch.Close()
	if err := watch.Add(dir); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	said, untold, due := "", error(nil), time.Time{}
	var with contest
	add := func(list []byte) ([]byte, error) { return Add(list, statusOfAgent) }
	for {
		changed, err := with.change(dir, add)
		switch {
		case err != nil && err.Error() != said:
			said, untold, due = err.Error(), err, time.Now().Add(settled)
			log.Warn("niclane-cni gives pods no lanes", "error", err)
			if errors.Is(err, ErrNoNetwork) {
				untold = nil // no report: Kubernetes shows a node without a network as not ready
			}
		case err == nil:
			said, untold = "", nil
			if changed != "" {
				log.Info("chained", "list", changed)
			}
		}
		if untold != nil && !time.Now().Before(due) {
			if tell(ctx, untold) == nil {
				untold = nil
			}
			due = time.Now().Add(settled)
		}
		var again <-chan time.Time
		switch {
		case untold != nil:
			again = time.After(time.Until(due))
		case time.Now().Before(with.over):
			again = time.After(time.Until(with.over))
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-watch.Errors:
			return fmt.Errorf("watch %s: %w", dir, err)
		case <-watch.Events:
		case <-again:
		}
	}
}

// Undo removes niclane-cni from the node's list of plugins.
func Undo(dir string) error {
	_, err := change(dir, Remove)
	if errors.Is(err, ErrNoNetwork) {
		return nil
	}
	return err
}

// change edits the node's list of plugins with the function how. It returns the path of the file if
// the file has changed, else "".
func change(dir string, how func([]byte) ([]byte, error)) (string, error) {
	t, err := targetOf(dir, how)
	switch {
	case err != nil:
		return "", err
	case bytes.Equal(t.before, t.after):
		return "", nil
	case t.after == nil:
		if err := os.Remove(t.path); err != nil {
			return "", err
		}
		path, err := change(dir, how) // without the removed file, runtimes take another one
		if path == "" {
			path = t.path
		}
		return path, err
	}
	info, err := os.Stat(t.like)
	if err != nil {
		return "", err
	}
	return t.path, atomicfile.Write(t.path, t.after, info.Mode().Perm())
}
