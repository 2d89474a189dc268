// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A watch is an inotify watch of one path.
type watch struct {
	wd  int
	pin int // file descriptor that keeps the procfs entry in the cache; -1: none
	dir bool
	// names are the names of interest in the directory; nil: all.
	names map[string]bool
}

func (w watch) unpin() {
	if w.pin >= 0 {
		unix.Close(w.pin)
	}
}

// The inotify events for files and for directories.
const (
	fileMask = unix.IN_MODIFY | unix.IN_DELETE_SELF
	dirMask  = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVE | unix.IN_MODIFY | unix.IN_DELETE_SELF | unix.IN_ONLYDIR
)

// watchFiles adds the watches that in needs and removes all others. grown is true if it has
// added a watch or a name.
func (s *Source) watchFiles(in Interest) (grown bool, err error) {
	want := map[string]watch{}
	for _, f := range in.Files {
		want[f] = watch{pin: -1}
	}
	for _, b := range in.Births {
		dir, name := nearest(b)
		if want[dir].names == nil {
			want[dir] = watch{pin: -1, dir: true, names: map[string]bool{}}
		}
		want[dir].names[name] = true
	}
	for _, d := range in.Dirs {
		want[d] = watch{pin: -1, dir: true}
	}
	for path, w := range s.watches {
		if _, ok := want[path]; !ok {
			// The kernel may have removed the watch with its file (IN_IGNORED).
			_, _ = unix.InotifyRmWatch(s.inotify, uint32(w.wd))
			w.unpin()
			delete(s.watches, path)
		}
	}
	for path, w := range want {
		if have, ok := s.watches[path]; ok {
			grown = grown || have.dir &&
				(w.names == nil && have.names != nil ||
					more(slices.Collect(maps.Keys(have.names)), slices.Collect(maps.Keys(w.names))))
			have.names = w.names
			s.watches[path] = have
			continue
		}
		w, err := s.watchFile(path, w)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return true, fmt.Errorf("watch %s: %w", path, err)
		}
		s.watches[path] = w
		grown = true
	}
	return grown, nil
}

// nearest returns the deepest existing directory above path, and the next element of path after
// it.
func nearest(path string) (dir, name string) {
	for dir, name = filepath.Dir(path), filepath.Base(path); dir != "/"; dir, name = filepath.Dir(dir),
		filepath.Base(dir) {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			break
		}
	}
	return dir, name
}

func (s *Source) watchFile(path string, w watch) (watch, error) {
	mask := uint32(fileMask)
	if w.dir {
		mask = dirMask
	}
	if strings.HasPrefix(path, "/proc/") {
		// A watch belongs to an inode. If the kernel drops the entry from its cache, procfs makes
		// a new inode at the next lookup (fs/proc/generic.c, proc_get_inode), and the watch sees
		// nothing more. An open descriptor keeps the entry in the cache.
		var err error
		if w.pin, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return w, err
		}
	}
	var err error
	if w.wd, err = unix.InotifyAddWatch(s.inotify, path, mask); err != nil {
		w.unpin()
		return w, err
	}
	return w, nil
}

// fileEvents reads inotify events, at most one buffer. So a file in a watched directory that is
// written all the time does not delay other events.
func (s *Source) fileEvents(buf []byte) []Event {
	n, err := unix.Read(s.inotify, buf)
	if err != nil || n <= 0 { // EINTR: the next poll reports the events again
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parseFiles(buf[:n])
}

// parseFiles reads struct inotify_event: wd, mask, cookie, length, name.
func (s *Source) parseFiles(b []byte) []Event {
	var out []Event
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask := int(int32(binary.NativeEndian.Uint32(b))), binary.NativeEndian.Uint32(b[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if size > len(b) {
			return out
		}
		name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:size]), "\x00")
		b = b[size:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			out = append(out, Event{Source: "lost", What: "notifications"})
			continue
		}
		if e, ok := s.fileEvent(wd, mask, name); ok {
			out = append(out, e)
		}
	}
	return out
}

func (s *Source) fileEvent(wd int, mask uint32, name string) (Event, bool) {
	for path, w := range s.watches {
		if w.wd != wd {
			continue
		}
		if mask&unix.IN_IGNORED != 0 { // the file is gone: a new file with that name needs a new watch
			w.unpin()
			delete(s.watches, path)
			return Event{}, false
		}
		if w.names != nil && !w.names[name] {
			return Event{}, false
		}
		e := Event{Source: "file", What: "written", Detail: path}
		if w.dir {
			e.Source, e.Detail = "directory", filepath.Join(path, name)
		}
		switch {
		case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
			e.What = "made"
		case mask&(unix.IN_DELETE|unix.IN_DELETE_SELF|unix.IN_MOVED_FROM) != 0:
			e.What = "removed"
		}
		return e, true
	}
	return Event{}, false
}
