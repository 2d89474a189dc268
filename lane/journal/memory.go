// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A Memory keeps the journals that stores of one directory have read or written, for later
// stores of the same process: decoding the journal of a hundred members takes as long as
// planning them. The zero value is empty. It is not safe for concurrent use.
type Memory struct{ files map[string]readFile } // by file name

// Use makes s take journals from m and add its own. It does not take journals that another
// process has changed since.
func (s *Store) Use(m *Memory) { s.memory = m }

// A readFile is a journal as it was last read or written. A journal is renamed into place
// and then only grows, so the same inode with the same size is the same journal. The file
// is held open so that no other file can get the inode.
type readFile struct {
	held    *os.File
	ino     uint64
	size    int64
	mtime   unix.Timespec
	decoded Journal
}

// journal returns a copy that can record. It shares the head, which nothing changes.
func (r *readFile) journal() *Journal {
	j := r.decoded
	j.events = slices.Clone(j.events)
	return &j
}

// find returns the journal of a file, nil if the file has changed or is not known.
func (m *Memory) find(s *Store, name string, st *unix.Stat_t) *Journal {
	r, ok := m.files[name]
	if !ok || r.ino != st.Ino || r.size != st.Size || r.mtime != st.Mtim {
		return nil
	}
	j := r.journal()
	j.store = s
	return j
}

// put keeps a journal; held is its open file, st the file's state.
func (m *Memory) put(held *os.File, st *unix.Stat_t, j *Journal) {
	m.drop(j.name)
	if m.files == nil {
		m.files = map[string]readFile{}
	}
	j.Records() // caches the records for later callers: this takes as long as decoding
	r := readFile{held: held, ino: st.Ino, size: st.Size, mtime: st.Mtim, decoded: *j}
	r.decoded.file, r.decoded.events = nil, slices.Clone(j.events)
	m.files[j.name] = r
}

func (m *Memory) drop(name string) {
	if r, ok := m.files[name]; ok {
		// The file was only read. The last close frees a replaced file, which took 60 to 90
		// ms on ext4 during a commit; no caller needs to wait for that.
		go func() { _ = r.held.Close() }()
		delete(m.files, name)
	}
}

// forget drops the journals whose files are no longer in the directory.
func (m *Memory) forget(entries []os.DirEntry) {
	for name := range m.files {
		if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name }) {
			m.drop(name)
		}
	}
}

// Keep keeps a journal that s has begun, as it is now, so that it need not be read again.
// If it cannot, the journal is read on the next request.
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
