// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A Memory is the journals that stores of one directory have read or written, for
// those that are opened later by the same process: decoding the journal of a hundred
// members takes as long as planning them. The zero value knows none. It is not safe
// for concurrent use.
type Memory struct{ files map[string]readFile } // by file name

// Use has s take from m what it has read or written, and add to it. Of what others
// have changed since nothing is taken.
func (s *Store) Use(m *Memory) { s.memory = m }

// A readFile is a journal as it was last read or written. It is renamed into place
// and then only grows, so that the same inode of the same size is the same journal;
// the file is held open so that no other file gets the inode meanwhile.
type readFile struct {
	held    *os.File
	ino     uint64
	size    int64
	mtime   unix.Timespec
	decoded Journal
}

// journal gives a copy that can record; the head is shared and not changed.
func (r *readFile) journal() *Journal {
	j := r.decoded
	j.events = slices.Clone(j.events)
	return &j
}

// find returns the journal of a file, nil if it is not known as it is now.
func (m *Memory) find(s *Store, name string, st *unix.Stat_t) *Journal {
	r, ok := m.files[name]
	if !ok || r.ino != st.Ino || r.size != st.Size || r.mtime != st.Mtim {
		return nil
	}
	j := r.journal()
	j.store = s
	return j
}

// put takes note of a journal whose file is held, and as st says.
func (m *Memory) put(held *os.File, st *unix.Stat_t, j *Journal) {
	m.drop(j.name)
	if m.files == nil {
		m.files = map[string]readFile{}
	}
	j.Records() // for all who ask: what is owned takes as long as decoding
	r := readFile{held: held, ino: st.Ino, size: st.Size, mtime: st.Mtim, decoded: *j}
	r.decoded.file, r.decoded.events = nil, slices.Clone(j.events)
	m.files[j.name] = r
}

func (m *Memory) drop(name string) {
	if r, ok := m.files[name]; ok {
		// Nothing was written by it. A file that another was renamed over is freed
		// with its last descriptor, which on ext4 was seen to take 60 to 90 ms while
		// that commits; nobody has to wait for it.
		go func() { _ = r.held.Close() }()
		delete(m.files, name)
	}
}

// forget drops the journals whose files are not among a directory's.
func (m *Memory) forget(entries []os.DirEntry) {
	for name := range m.files {
		if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name }) {
			m.drop(name)
		}
	}
}

// Keep takes note of a journal that s has begun, as it is now, so that it need not be
// read. One that cannot be is read when it is asked for.
func (s *Store) Keep(j *Journal) {
	if j.file == nil || j.torn {
		return
	}
	held, err := s.openAt(j.name, unix.O_RDONLY)
	if err != nil {
		return
	}
	var st, own unix.Stat_t
	if unix.Fstat(int(held.Fd()), &st) != nil || unix.Fstat(int(j.file.Fd()), &own) != nil || st.Ino != own.Ino ||
		st.Dev != own.Dev || st.Size != j.size {
		_ = held.Close()
		return
	}
	s.memory.put(held, &st, j)
}
