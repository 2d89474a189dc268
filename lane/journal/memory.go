// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A Memory keeps the journals that a process has read or written, for later stores of the same
// directory. Without it, each store would decode them again: for a hundred members, this takes as
// long as planning. The zero value is empty. A Memory is not safe for concurrent use.
type Memory struct{ files map[string]readFile } // by file name

// Use makes s use the journals in m, and add those that it reads or writes. If another process
// has changed a file since, s reads it again.
func (s *Store) Use(m *Memory) { s.memory = m }

// A readFile is a journal as it was last read or written. After a journal was renamed into place,
// it only grows. So the same inode with the same size is the same journal. The open file prevents
// that another file gets the inode's number.
type readFile struct {
	held    *os.File
	ino     uint64
	size    int64
	mtime   unix.Timespec
	decoded Journal
}

// journal returns a copy into which a caller can record. It shares the head, because no code
// changes it.
func (r *readFile) journal() *Journal {
	j := r.decoded
	j.events = slices.Clone(j.events)
	return &j
}

// find returns the kept journal of a file. It returns nil if none is kept or if the file has
// changed.
func (m *Memory) find(s *Store, name string, st *unix.Stat_t) *Journal {
	r, ok := m.files[name]
	if !ok || r.ino != st.Ino || r.size != st.Size || r.mtime != st.Mtim {
		return nil
	}
	j := r.journal()
	j.store = s
	return j
}

// put keeps a journal. held is its open file, and st the present state of that file.
func (m *Memory) put(held *os.File, st *unix.Stat_t, j *Journal) {
	m.drop(j.name)
	if m.files == nil {
		m.files = map[string]readFile{}
	}
	j.Records() // computes the records now and caches them, because that takes as long as decoding
	r := readFile{held: held, ino: st.Ino, size: st.Size, mtime: st.Mtim, decoded: *j}
	r.decoded.file, r.decoded.events = nil, slices.Clone(j.events)
	m.files[j.name] = r
}

func (m *Memory) drop(name string) {
	if r, ok := m.files[name]; ok {
		// The file was only read, so an error does not matter. Closing the last descriptor of a
		// replaced file can take 60 to 90 ms (ext4, during a commit), so no caller waits for it.
		go func() { _ = r.held.Close() }()
		delete(m.files, name)
	}
}

// forget drops the journals of files that are no longer in the directory.
func (m *Memory) forget(entries []os.DirEntry) {
	for name := range m.files {
		if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name }) {
			m.drop(name)
		}
	}
}

// Keep stores the present state of a journal that s has begun in the Memory of s. The file need not
// be read again then. If the file cannot be opened, or is no longer as j wrote it, Keep stores
// nothing, and the next use of the journal reads the file.
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
