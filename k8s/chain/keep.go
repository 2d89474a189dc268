// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/fsnotify/fsnotify"
)

// Keep has niclane-cni in the node's list, now and whenever somebody has written
// it anew, until ctx ends. It leaves it there then. statusOfAgent is that of Add.
func Keep(ctx context.Context, dir string, statusOfAgent bool, log *slog.Logger) error {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watch.Close()
	if err := watch.Add(dir); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	said := ""
	add := func(list []byte) ([]byte, error) { return Add(list, statusOfAgent) }
	for {
		changed, err := change(dir, add)
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			log.Warn("pods get no lanes by niclane-cni", "error", err)
		case changed != "":
			said = ""
			log.Info("chained", "list", changed)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-watch.Errors:
			return fmt.Errorf("watch %s: %w", dir, err)
		case <-watch.Events:
		}
	}
}

// Undo takes niclane-cni out of the node's list.
func Undo(dir string) error {
	_, err := change(dir, Remove)
	if errors.Is(err, ErrNoNetwork) {
		return nil
	}
	return err
}

// change edits the list, and returns its path if that made a difference.
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
		path, err := change(dir, how) // what comes first now
		if path == "" {
			path = t.path
		}
		return path, err
	}
	info, err := os.Stat(t.like)
	if err != nil {
		return "", err
	}
	return t.path, Write(t.path, t.after, info.Mode().Perm())
}
